//! One input at work: the cluster, what it touches, and the small moves that all handlers share.
use super::input::{Effects, Event, Refusal};
use super::splits;
use crate::model::cluster::Cluster;
use crate::model::ids::{JobId, NodeId};
use crate::model::job::{Job, JobState, Place};
use crate::model::node::{Device, Node};
use crate::model::queue::ancestry;
use crate::model::time::Time;
use std::sync::Arc;

pub struct Change<'a> {
    pub cluster: &'a mut Cluster,
    pub now: Time,
    pub effects: Effects,
    changed: bool,
}

impl<'a> Change<'a> {
    pub fn new(cluster: &'a mut Cluster, now: Time) -> Change<'a> {
        let now = now.max(cluster.now);
        cluster.now = now;
        Change { cluster, now, effects: Effects::default(), changed: false }
    }

    pub fn finish(self) -> Effects {
        if self.changed {
            self.cluster.version += 1;
        }
        self.effects
    }

    pub fn event(&mut self, kind: &str, job: Option<JobId>, node: Option<NodeId>, text: String) {
        self.effects.events.push(Event { at: self.now, kind: kind.to_string(), job, node, text });
    }

    pub fn find_job(&self, id: JobId) -> Result<&Job, Refusal> {
        let no_job = |record: Arc<Job>| {
            let why = match record.array {
                Some(_) => "it is an array, of which this can be asked for single tasks only",
                None => "it is a task of an array that did not start yet",
            };
            Refusal::WrongState { job: id, state: record.state.to_string(), why: why.to_string() }
        };
        let missing = || self.cluster.record(id).map_or(Refusal::NoSuchJob { job: id }, no_job);
        self.cluster.job(id).ok_or_else(missing)
    }

    /// The job or array for writing, if it is live; marks it as changed.
    pub fn job_mut(&mut self, id: JobId) -> Option<&mut Job> {
        let job = self.cluster.jobs.get_mut(&id).or_else(|| self.cluster.arrays.get_mut(&id))?;
        self.effects.dirty.jobs.insert(id);
        self.changed = true;
        Some(Arc::make_mut(job))
    }

    /// The node for writing; marks it as changed.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.effects.dirty.nodes.insert(id);
        self.changed = true;
        Arc::make_mut(&mut self.cluster.nodes[id.index()])
    }

    /// Not a change of any record: what the server last heard is never stored.
    pub fn touch_heard(&mut self, id: NodeId) {
        let now = self.now;
        Arc::make_mut(&mut self.cluster.nodes[id.index()]).last_heard = now;
    }

    pub fn mark_globals(&mut self) {
        self.effects.dirty.globals = true;
        self.changed = true;
    }

    pub fn mark_changed(&mut self) {
        self.changed = true;
    }

    pub fn set_state(&mut self, id: JobId, state: JobState) {
        let now = self.now;
        if let Some(job) = self.job_mut(id) {
            job.state = state;
            job.state_since = now;
        }
    }

    /// Adds a place to its node and to the job's queues.
    pub fn occupy(&mut self, id: JobId, rank: crate::model::Rank, place: &Place) {
        let now = self.now;
        let node = self.node_mut(place.node);
        for (index, device) in node.devices.iter_mut().enumerate() {
            if place.gpus >> index & 1 == 1 {
                *device = Device::Used(id);
            }
        }
        if let Some(slice) = place.slice {
            splits::hold(node, id, rank, slice, now);
        }
        node.cpus_used = node.cpus_used.union(&place.cpus);
        for (part, amount) in place.amounts() {
            node.set_amount_used(part, node.amount_used(part).saturating_add(amount));
        }
        node.tenants.insert((id, rank));
        node.generation += 1;
        self.charge(id, place, true);
    }

    /// Takes a place off its node: what was promised to a claimant goes to the claimant.
    pub fn vacate(&mut self, id: JobId, rank: crate::model::Rank, place: &Place) {
        let node = self.node_mut(place.node);
        let strays: u64 = node.strays.iter().fold(0, |mask, stray| mask | stray.gpus);
        for (index, device) in node.devices.iter_mut().enumerate() {
            if place.gpus >> index & 1 == 1 {
                *device = match *device {
                    // Something of ours that no order names was found on it meanwhile, and may still run.
                    _ if strays >> index & 1 == 1 => Device::Sick { owner: None },
                    Device::Draining { claimant: Some(claimant), .. } => Device::Claimed(claimant),
                    Device::Sick { .. } => Device::Sick { owner: None },
                    _ => Device::Free,
                };
            }
        }
        if let Some(slice) = place.slice {
            splits::give(node, id, rank, slice);
        }
        node.cpus_used = node.cpus_used.difference(&place.cpus);
        for (part, amount) in place.amounts() {
            node.set_amount_used(part, node.amount_used(part).saturating_sub(amount));
        }
        node.tenants.remove(&(id, rank));
        node.generation += 1;
        self.charge(id, place, false);
        if strays & place.touched_gpus() != 0 {
            self.drop_broken_claims(place.node);
        }
    }

    fn charge(&mut self, id: JobId, place: &Place, add: bool) {
        let Some(job) = self.cluster.jobs.get(&id) else { return };
        let (amount, half_life) = (place.resources(), self.cluster.policy.usage_half_life);
        for path in ancestry(&job.spec.queue) {
            let Some(queue) = self.cluster.queues.get_mut(path) else { continue };
            queue.settle(self.now, half_life);
            queue.charge_user(&job.owner.user, amount.all_gpus_milli(), add, self.now);
            queue.used = match add {
                true => queue.used.plus(amount),
                false => queue.used.minus(amount).unwrap_or_default(),
            };
            self.effects.dirty.queues.insert(path.to_string());
        }
    }

    /// Ends a claim: what waits for the claimant is free again, what is still being freed is promised to nobody.
    pub fn unclaim(&mut self, claimant: JobId, why: &str) {
        let Some(claim) = self.cluster.claims.remove(&claimant) else { return };
        self.effects.dirty.claims.insert(claimant);
        let mut nodes: Vec<NodeId> = claim.places.iter().map(|place| place.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        for id in nodes {
            for device in &mut self.node_mut(id).devices {
                *device = match *device {
                    Device::Claimed(by) if by == claimant => Device::Free,
                    Device::Draining { owner, claimant: Some(by) } if by == claimant => {
                        Device::Draining { owner, claimant: None }
                    }
                    Device::Split { claimant: Some(by) } if by == claimant => Device::Split { claimant: None },
                    other => other,
                };
            }
        }
        if !why.is_empty() {
            self.event("unclaimed", Some(claimant), None, format!("the claim of job {claimant} ended: {why}"));
            self.members(claimant).into_iter().for_each(|member| self.unclaim(member, why));
        }
    }

    /// The other live jobs of its group: it starts, yields and restarts with them.
    pub fn members(&self, id: JobId) -> Vec<JobId> {
        let Some(group) = self.cluster.job(id).and_then(|job| job.spec.group.as_ref()) else { return Vec::new() };
        let same = |job: &&Arc<Job>| job.id != id && job.spec.group.as_ref().is_some_and(|g| g.name == group.name);
        self.cluster.jobs.values().filter(same).map(|job| job.id).collect()
    }

    /// Removes a job that reached a terminal state; whoever waited for it learns of it.
    pub fn retire(&mut self, id: JobId, state: JobState, note: Option<String>) {
        let ended = self.retire_alone(id, state, note);
        self.tell_dependents(ended);
    }

    /// As `retire`, but tells nobody: it answers who ended, and how. With its last task an array ends, and with a cancelled
    /// array the tasks that never were.
    pub fn retire_alone(&mut self, id: JobId, state: JobState, note: Option<String>) -> Vec<(JobId, JobState)> {
        self.unclaim(id, "its claimant is gone");
        let now = self.now;
        let Some(job) = self.job_mut(id) else { return Vec::new() };
        job.state = state;
        job.state_since = now;
        job.ended_at = Some(now);
        job.attempt = None;
        job.held_by = None;
        if note.is_some() {
            job.note = note;
        }
        let text = match &job.note {
            Some(note) => format!("{} is {state}: {note}", job.title()),
            None => format!("{} is {state}", job.title()),
        };
        self.event(&state.to_string(), Some(id), None, text);
        let Some(job) = self.drop_record(id) else { return Vec::new() };
        self.effects.finished.push(job.clone());
        let mut ended = vec![(id, state)];
        ended.extend(self.awaited_among(&job).map(|task| (task, JobState::Cancelled)));
        if let Some((array, state, note)) = self.count_task(&job) {
            ended.extend(self.retire_alone(array, state, Some(note)));
        }
        ended
    }

    /// Takes it out of memory.
    pub fn drop_record(&mut self, id: JobId) -> Option<Arc<Job>> {
        self.unclaim(id, "its claimant is gone");
        let job = self.cluster.remove_job(id)?;
        self.effects.dirty.jobs.insert(id);
        self.changed = true;
        self.cluster.blocked.remove(&id);
        if self.cluster.reservations.remove(&id).is_some() {
            self.effects.dirty.reservations = true;
        }
        Some(job)
    }
}
