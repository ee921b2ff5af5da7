//! Arrays: only a tick makes their tasks into jobs, a bounded number at a time, and what people ask of a whole array or of
//! a task that is no job yet.
//!
//! Not where a decision is applied, although its starts make room: then `decide` on its own result would find new jobs.
use super::change::Change;
use super::input::Refusal;
use crate::model::amounts::count;
use crate::model::demand::Want;
use crate::model::ids::JobId;
use crate::model::job::{ArrayState, Job, JobState};
use crate::scheduler::fragment;

impl Change<'_> {
    /// Makes the next tasks of each array into jobs, as far as there is room.
    pub fn tick_arrays(&mut self) {
        let arrays: Vec<JobId> = self.cluster.arrays.keys().copied().collect();
        for id in arrays {
            let room = self.cluster.array(id).map_or(0, |array| self.cluster.room_in(array, u32::MAX));
            for _ in 0..room {
                let Some(place) = self.array_state(id).and_then(|state| state.waiting.take_first()) else { break };
                self.make_task(id, place);
            }
        }
    }

    /// The task becomes a job that waits. Its array was submitted then, so it waits since then; where the user let no more
    /// run at once, nobody else kept it back before.
    fn make_task(&mut self, array: JobId, place: u32) -> Option<JobId> {
        let record = self.cluster.array(array)?;
        let limited = record.spec.array.as_ref().is_some_and(|spec| spec.limit.is_some());
        let mut job = record.task_at(place)?;
        if limited {
            job.eligible_at = self.now;
        }
        let id = job.id;
        fragment::learn(self.cluster, Want::of(&job.spec), job.spec.gang.workers);
        self.effects.dirty.demand = true;
        self.cluster.insert_job(job);
        self.effects.dirty.jobs.insert(id);
        self.mark_changed();
        Some(id)
    }

    /// For writing; marks the record as changed.
    fn array_state(&mut self, id: JobId) -> Option<&mut ArrayState> {
        self.cluster.arrays.contains_key(&id).then(|| self.job_mut(id))??.array.as_mut()
    }

    /// A task that is not made yet is made first: so there is a record of what became of it.
    pub fn cancel_unmade(&mut self, id: JobId, by: String) {
        let Some((array, place)) = self.cluster.unmade(id).map(|(array, place)| (array.id, place)) else { return };
        if let Some(state) = self.array_state(array) {
            let _ = state.waiting.remove(place) || state.held.remove(place);
        }
        if let Some(id) = self.make_task(array, place) {
            self.retire(id, JobState::Cancelled, Some(format!("cancelled by {by}")));
        }
    }

    pub fn cancel_array(&mut self, id: JobId, by: String) -> Result<(), Refusal> {
        let tasks = self.live_tasks(id);
        let array = self.find_array(id)?;
        let text = format!("{} is cancelled by {by}, with {}", array.spec.name, tasks_left(array, tasks.len()));
        if let Some(state) = self.array_state(id) {
            state.cancelled_by.get_or_insert_with(|| by.clone());
        }
        self.event("cancelling", Some(id), None, text);
        for task in tasks {
            self.cancel(task, by.clone())?;
        }
        // Its last task may have taken it along.
        if let Some((id, state, note)) = self.end_of(id) {
            self.retire(id, state, Some(note));
        }
        Ok(())
    }

    /// What never ran is no job any more until it is released: so it takes no room under the limit of its array.
    pub fn hold_array(&mut self, id: JobId, by: String) -> Result<(), Refusal> {
        let text = format!("{} is held by {by}", self.find_array(id)?.spec.name);
        for task in self.live_tasks(id) {
            let waits = self.cluster.job(task).is_some_and(|job| job.state == JobState::Pending);
            if waits && !self.unmake(task) {
                self.hold(task, by.clone())?;
            }
        }
        if let Some(array) = self.job_mut(id) {
            array.held_by = Some(by);
        }
        self.event("held", Some(id), None, text);
        Ok(())
    }

    pub fn hold_unmade(&mut self, id: JobId, by: &str) {
        let Some((array, place)) = self.cluster.unmade(id).map(|(array, place)| (array.id, place)) else { return };
        let title = self.cluster.record(id).map_or(String::new(), |job| job.title());
        if let Some(state) = self.array_state(array) {
            state.waiting.remove(place);
            state.held.insert(place);
        }
        self.event("held", Some(id), None, format!("{title} is held by {by}"));
    }

    /// A task that waits for its first run goes back into its array.
    pub fn unmake(&mut self, id: JobId) -> bool {
        let never_ran = |job: &&Job| job.attempt.is_none() && job.attempts.0 == 0;
        let task = self.cluster.job(id).filter(never_ran).and_then(|job| job.task);
        let Some(array) = task.and_then(|task| self.cluster.array(task.array)) else { return false };
        let (array, place) = (array.id, array.place_of(id));
        self.drop_record(id);
        if let (Some(state), Some(place)) = (self.array_state(array), place) {
            state.waiting.insert(place);
        }
        true
    }

    pub fn release_array(&mut self, id: JobId, by: &str) -> Result<(), Refusal> {
        let (array, now) = (self.find_array(id)?, self.now);
        let held = self.cluster.tasks_of(array).filter(|task| task.held_by.is_some()).map(|task| task.id);
        let held: Vec<JobId> = held.collect();
        let text = format!("{} is released by {by}", array.spec.name);
        if array.held_by.is_none() && held.is_empty() && array.array.as_ref().is_none_or(|state| state.held.is_empty())
        {
            let why = "neither it nor a task of it is held".to_string();
            return Err(Refusal::WrongState { job: id, state: array.state.to_string(), why });
        }
        for task in held {
            self.release_hold(task, by.to_string())?;
        }
        if let Some(array) = self.job_mut(id) {
            (array.held_by, array.eligible_at) = (None, now);
            if let Some(state) = &mut array.array {
                state.waiting = state.waiting.plus(&std::mem::take(&mut state.held));
            }
        }
        self.event("released", Some(id), None, text);
        Ok(())
    }

    pub fn release_unmade(&mut self, id: JobId, by: &str) -> Result<(), Refusal> {
        let Some((array, place)) = self.cluster.unmade(id).map(|(array, place)| (array.id, place)) else {
            return Ok(());
        };
        let title = self.cluster.record(id).map_or(String::new(), |job| job.title());
        let held = self.array_state(array).is_some_and(|state| {
            let held = state.held.remove(place);
            if held {
                state.waiting.insert(place);
            }
            held
        });
        if !held {
            let why = "it is not held itself; its array may be".to_string();
            return Err(Refusal::WrongState { job: id, state: JobState::Pending.to_string(), why });
        }
        self.event("released", Some(id), None, format!("{title} is released by {by}"));
        Ok(())
    }

    /// All that run are asked to end and run again.
    pub fn requeue_array(&mut self, id: JobId, by: &str) -> Result<(), Refusal> {
        let array = self.find_array(id)?;
        let stays = |job: &&Job| job.attempt.as_ref().is_some_and(|attempt| attempt.stopping().is_none());
        let running: Vec<JobId> = self.cluster.tasks_of(array).filter(stays).map(|job| job.id).collect();
        if running.is_empty() {
            let why = "no task of it starts or runs".to_string();
            return Err(Refusal::WrongState { job: id, state: array.state.to_string(), why });
        }
        running.into_iter().try_for_each(|task| self.requeue(task, by.to_string()))
    }

    fn live_tasks(&self, id: JobId) -> Vec<JobId> {
        self.cluster.array(id).map_or(Vec::new(), |array| self.cluster.tasks_of(array).map(|task| task.id).collect())
    }

    fn find_array(&self, id: JobId) -> Result<&Job, Refusal> {
        self.cluster.array(id).ok_or(Refusal::NoSuchJob { job: id })
    }

    /// Counts a task that ended. The last one ends its array: how, is the result.
    pub fn count_task(&mut self, task: &Job) -> Option<(JobId, JobState, String)> {
        let array = task.task?.array;
        let record = self.cluster.arrays.contains_key(&array).then(|| self.job_mut(array))??;
        record.exit_code = record.exit_code.max(task.exit_code);
        record.started_at = match (record.started_at, task.started_at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        record.gpu_us = record.gpu_us.saturating_add(task.gpu_us);
        let state = record.array.as_mut()?;
        match task.state {
            JobState::Done => state.done += 1,
            JobState::Cancelled => state.cancelled += 1,
            _ => state.failed += 1,
        }
        self.end_of(array)
    }

    /// An array is over when none of its tasks lives and none is to come.
    fn end_of(&self, id: JobId) -> Option<(JobId, JobState, String)> {
        let array = self.cluster.array(id)?;
        let state = array.array.as_ref()?;
        let to_come = state.cancelled_by.is_none() && !(state.waiting.is_empty() && state.held.is_empty());
        if to_come || self.cluster.tasks_of(array).next().is_some() {
            return None;
        }
        let never = state.waiting.count() + state.held.count();
        let (done, failed, cancelled) = (state.done, state.failed, u64::from(state.cancelled) + never);
        let by = state.cancelled_by.as_ref().map_or(String::new(), |by| format!("cancelled by {by}; of "));
        let note = format!("{by}{}: {done} done, {failed} failed, {cancelled} cancelled", tasks(array));
        let state = match &state.cancelled_by {
            Some(_) => JobState::Cancelled,
            None if failed > 0 => JobState::Failed,
            None if cancelled > 0 => JobState::Cancelled,
            None => JobState::Done,
        };
        Some((id, state, note))
    }
}

/// `12 tasks`
pub fn tasks(array: &Job) -> String {
    count(array.spec.array.as_ref().map_or(0, |spec| spec.count()).into(), "task")
}

fn tasks_left(array: &Job, live: usize) -> String {
    let unmade = crate::model::Cluster::unmade_in(array);
    format!("{} that did not end", count(unmade + live as u64, "task"))
}
