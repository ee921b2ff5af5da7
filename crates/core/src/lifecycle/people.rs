//! What people ask for: submit, cancel, hold, requeue, and settings. Queues and the fabric have files of their own.
use super::change::Change;
use super::input::Refusal;
use crate::model::amounts::count;
use crate::model::demand::Want;
use crate::model::ids::JobId;
use crate::model::job::{Dependency, DependencyKind, Job, JobSpec, JobState, Owner, StopWhy};
use crate::model::payable;
use crate::scheduler::fragment;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Change<'_> {
    pub fn submit(&mut self, spec: Arc<JobSpec>, owner: Owner) -> Result<(), Refusal> {
        self.check_spec(&spec, &owner)?;
        let id = JobId(self.cluster.next_job.max(1));
        let text = format!(
            "{} by {} in queue {}: {}{} of {}, {}",
            spec.name,
            owner.user,
            spec.queue,
            spec.array.as_ref().map_or(String::new(), |array| format!("tasks {array}, each ")),
            count(spec.gang.workers.into(), "worker"),
            spec.shape.gpu_words(),
            spec.priority
        );
        // Of an array each task counts when it is made into a job.
        if spec.array.is_none() {
            fragment::learn(self.cluster, Want::of(&spec), spec.gang.workers);
            self.effects.dirty.demand = true;
        }
        let job = Job::submitted(id, spec, owner, self.now);
        // The tasks of an array have the numbers after its own.
        self.cluster.next_job = job.task_ids().end.0;
        self.mark_globals();
        self.cluster.insert_job(job);
        self.effects.dirty.jobs.insert(id);
        self.effects.submitted = Some(id);
        self.event("submitted", Some(id), None, text);
        Ok(())
    }

    fn check_spec(&self, spec: &JobSpec, owner: &Owner) -> Result<(), Refusal> {
        let bad =
            |field: &str, why: String| Err(Refusal::BadSpec { name: spec.name.clone(), field: field.to_string(), why });
        if !self.cluster.queues.contains_key(&spec.queue) {
            return Err(Refusal::NoSuchQueue { queue: spec.queue.clone() });
        }
        if let Err((field, why)) = spec.check() {
            return bad(field, why);
        }
        let tasks = spec.array.as_ref().map_or(0, |array| array.count());
        if tasks > self.cluster.policy.array_max {
            let most = self.cluster.policy.array_max;
            return bad("array", format!("it has {tasks} tasks, the cluster takes {most} of one array (array.max)"));
        }
        if spec.latest_start().is_some_and(|latest| latest < self.now) {
            return bad("deadline", "it cannot be met even by a start at once: its time limit is longer".to_string());
        }
        if let Some((field, why)) = payable::never_gets_on(self.cluster, spec, &owner.user) {
            return bad(field, why);
        }
        // Only on jobs that are there: so no circle can be made, and nobody waits for an end that nobody will tell.
        let unknown = |dependency: &&Dependency| !dependency.met && !self.cluster.is_live(dependency.job);
        if let Some(dependency) = spec.after.iter().find(unknown) {
            return bad("after", format!("there is no live job {}", dependency.job));
        }
        if let Some(live) = self.cluster.job_named(&spec.name) {
            let why = format!("job {} of that name is {}; choose another name or cancel it", live.id, live.state);
            return bad("name", why);
        }
        self.check_group(spec)
    }

    fn check_group(&self, spec: &JobSpec) -> Result<(), Refusal> {
        let Some(group) = &spec.group else { return Ok(()) };
        let members = self.cluster.jobs.values().filter_map(|job| job.spec.group.as_ref());
        let mut present = 0;
        for member in members.filter(|member| member.name == group.name) {
            present += 1;
            if member.size != group.size {
                let why = format!("group {} has size {}, not {}", group.name, member.size, group.size);
                return Err(Refusal::BadSpec { name: spec.name.clone(), field: "group".to_string(), why });
            }
        }
        if present >= group.size {
            let why = format!("group {} has its {} jobs already", group.name, group.size);
            return Err(Refusal::BadSpec { name: spec.name.clone(), field: "group".to_string(), why });
        }
        Ok(())
    }

    pub fn cancel(&mut self, id: JobId, by: String) -> Result<(), Refusal> {
        if self.cluster.arrays.contains_key(&id) {
            return self.cancel_array(id, by);
        }
        if self.cluster.unmade(id).is_some() {
            self.cancel_unmade(id, by);
            return Ok(());
        }
        let job = self.find_job(id)?;
        match &job.attempt {
            None => self.retire(id, JobState::Cancelled, Some(format!("cancelled by {by}"))),
            Some(attempt) if attempt.stopping().is_none() => self.stop(id, StopWhy::Cancelled { by }),
            Some(_) => self.turn_stop_into(id, StopWhy::Cancelled { by }),
        }
        Ok(())
    }

    /// Already leaving: only what becomes of it afterwards changes.
    fn turn_stop_into(&mut self, id: JobId, why: StopWhy) {
        let text = why.to_string();
        self.unclaim(id, "it does not come back to where it was to move");
        let attempt = self.job_mut(id).and_then(|job| job.attempt.as_mut());
        if let Some(crate::model::job::AttemptPhase::Stopping(stop)) = attempt.map(|attempt| &mut attempt.phase) {
            stop.why = why;
        }
        self.event("cancelling", Some(id), None, text);
    }

    pub fn hold(&mut self, id: JobId, by: String) -> Result<(), Refusal> {
        if self.cluster.arrays.contains_key(&id) {
            return self.hold_array(id, by);
        }
        if self.unmake(id) || self.cluster.unmade(id).is_some() {
            self.hold_unmade(id, &by);
            return Ok(());
        }
        let job = self.find_job(id)?;
        if job.state != JobState::Pending {
            let why = "only a pending job can be held; requeue it first".to_string();
            return Err(Refusal::WrongState { job: id, state: job.state.to_string(), why });
        }
        self.unclaim(id, "its claimant is held");
        if let Some(job) = self.job_mut(id) {
            job.held_by = Some(by.clone());
        }
        self.event("held", Some(id), None, format!("held by {by}"));
        Ok(())
    }

    pub fn release_hold(&mut self, id: JobId, by: String) -> Result<(), Refusal> {
        if self.cluster.arrays.contains_key(&id) {
            return self.release_array(id, &by);
        }
        if self.cluster.unmade(id).is_some() {
            return self.release_unmade(id, &by);
        }
        let job = self.find_job(id)?;
        if job.held_by.is_none() {
            let why = "it is not held".to_string();
            return Err(Refusal::WrongState { job: id, state: job.state.to_string(), why });
        }
        let now = self.now;
        if let Some(job) = self.job_mut(id) {
            job.held_by = None;
            job.eligible_at = now;
        }
        self.event("released", Some(id), None, format!("released by {by}"));
        Ok(())
    }

    pub fn requeue(&mut self, id: JobId, by: String) -> Result<(), Refusal> {
        if self.cluster.arrays.contains_key(&id) {
            return self.requeue_array(id, &by);
        }
        let job = self.find_job(id)?;
        let live = job.attempt.as_ref().is_some_and(|attempt| attempt.stopping().is_none());
        if !live {
            let why = "only a starting or running job can be requeued".to_string();
            return Err(Refusal::WrongState { job: id, state: job.state.to_string(), why });
        }
        self.stop(id, StopWhy::Requeued { by });
        Ok(())
    }

    /// Those who wait for one that ended learn how; those who then wait in vain are cancelled, and theirs after them. A
    /// list and not a recursion: a chain may be as long as a user likes.
    pub fn tell_dependents(&mut self, mut ended: Vec<(JobId, JobState)>) {
        while let Some((id, state)) = ended.pop() {
            for dependent in self.waiting_for(|on| on == id) {
                if self.settle_dependency(dependent, id, state) {
                    let note = format!("job {id} is {state}, so what it waits for can never come");
                    ended.extend(self.retire_alone(dependent, JobState::Cancelled, Some(note)));
                }
            }
        }
    }

    /// Jobs and arrays that wait for such a one.
    fn waiting_for(&self, wanted: impl Fn(JobId) -> bool) -> Vec<JobId> {
        let records = self.cluster.jobs.values().chain(self.cluster.arrays.values());
        let waits = |job: &&Arc<Job>| job.spec.after.iter().any(|one| !one.met && wanted(one.job));
        records.filter(waits).map(|job| job.id).collect()
    }

    /// The tasks of an array that is over for which somebody still waits: they never were.
    pub fn awaited_among(&self, array: &Job) -> impl Iterator<Item = JobId> + use<> {
        let tasks = array.task_ids();
        let waiting = if tasks.is_empty() { Vec::new() } else { self.waiting_for(|on| tasks.contains(&on)) };
        let records = waiting.into_iter().filter_map(|id| self.cluster.record(id));
        let awaited = records.flat_map(|job| job.spec.after.clone()).filter(|one| !one.met);
        let awaited: BTreeSet<JobId> = awaited.map(|one| one.job).filter(|on| tasks.contains(on)).collect();
        awaited.into_iter()
    }

    /// Whether the dependent can never start now.
    fn settle_dependency(&mut self, dependent: JobId, on: JobId, state: JobState) -> bool {
        let (mut never, now) = (false, self.now);
        let Some(job) = self.job_mut(dependent) else { return false };
        let spec = Arc::make_mut(&mut job.spec);
        for dependency in spec.after.iter_mut().filter(|dependency| dependency.job == on) {
            let met = match dependency.kind {
                DependencyKind::AfterOk => state == JobState::Done,
                DependencyKind::AfterNotOk => state != JobState::Done,
                DependencyKind::AfterAny => true,
            };
            dependency.met = met;
            never |= !met;
            job.eligible_at = now;
        }
        never && job.attempt.is_none()
    }

    /// What is so already is no change, and nothing to tell.
    pub fn set_policy(&mut self, name: String, value: String, by: String) -> Result<(), Refusal> {
        let mut policy = self.cluster.policy.clone();
        policy.set(&name, &value).map_err(|error| Refusal::BadSetting(error.to_string()))?;
        if policy == self.cluster.policy {
            return Ok(());
        }
        self.cluster.policy = policy;
        self.mark_globals();
        self.event("setting", None, None, format!("{name} set to {value} by {by}"));
        self.tick_budgets();
        Ok(())
    }

    /// A new leader: what agents were promised before is counted as renewed now and waited out.
    pub fn new_term(&mut self) {
        self.cluster.term += 1;
        self.mark_globals();
        for index in 0..self.cluster.nodes.len() {
            self.touch_heard(crate::model::NodeId(index as u32));
        }
    }
}
