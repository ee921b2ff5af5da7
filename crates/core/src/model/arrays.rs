//! What the cluster knows of arrays: their records, their tasks that are jobs, and those that are not yet.
use super::amounts::count;
use super::cluster::Cluster;
use super::decision::{Blocker, Reason};
use super::ids::JobId;
use super::job::{ArraySpec, Job, JobState};
use std::sync::Arc;

impl Cluster {
    /// The record of a live array.
    pub fn array(&self, id: JobId) -> Option<&Job> {
        self.arrays.get(&id).map(Arc::as_ref)
    }

    /// The tasks of an array that were made into jobs and have not ended.
    pub fn tasks_of(&self, array: &Job) -> impl Iterator<Item = &Job> {
        self.jobs.range(array.task_ids()).map(|(_, job)| job.as_ref())
    }

    /// The array of a task that is not made yet, and the task's place in it.
    pub fn unmade(&self, id: JobId) -> Option<(&Job, u32)> {
        let (_, array) = self.arrays.range(..id).next_back()?;
        let (place, state) = (array.place_of(id)?, array.array.as_ref()?);
        let lives = state.cancelled_by.is_none() && (state.waiting.contains(place) || state.held.contains(place));
        lives.then_some((array.as_ref(), place))
    }

    /// Whether it can still end: a job, an array, or a task that is not made yet.
    pub fn is_live(&self, id: JobId) -> bool {
        self.jobs.contains_key(&id) || self.arrays.contains_key(&id) || self.unmade(id).is_some()
    }

    /// The record of any of these; of a task that is not made yet as it would be.
    pub fn record(&self, id: JobId) -> Option<Arc<Job>> {
        let known = self.jobs.get(&id).or_else(|| self.arrays.get(&id)).cloned();
        known.or_else(|| {
            let (array, place) = self.unmade(id)?;
            let held = array.array.as_ref().is_some_and(|state| state.held.contains(place));
            let held_by = array.held_by.clone().or(held.then(|| "a person".to_string()));
            Some(Arc::new(Job { held_by, ..array.task_at(place)? }))
        })
    }

    /// How many more tasks of an array may be made into jobs now. Those that run or wait to run again keep their place
    /// under the limit: so there are never more at once. `most`: nobody asks for more.
    pub fn room_in(&self, array: &Job, most: u32) -> u32 {
        let Some(state) = array.array.as_ref().filter(|state| !state.waiting.is_empty()) else { return 0 };
        if state.cancelled_by.is_some() || array.held_by.is_some() || array.spec.after.iter().any(|one| !one.met) {
            return 0;
        }
        let (mut live, mut pending) = (0u32, 0u32);
        for task in self.tasks_of(array) {
            live += 1;
            pending += u32::from(task.attempt.is_none());
        }
        let limit = array.spec.array.as_ref().and_then(|spec| spec.limit).unwrap_or(u32::MAX);
        limit.saturating_sub(live).min(self.policy.array_window.max(1).saturating_sub(pending)).min(most)
    }

    /// Whether the next tick makes tasks into jobs.
    pub fn makes_tasks(&self) -> bool {
        self.arrays.values().any(|array| self.room_in(array, 1) > 0)
    }

    /// Tasks that wait and are not jobs, over all arrays.
    pub fn tasks_unmade(&self) -> u64 {
        self.arrays.values().map(|array| Cluster::unmade_in(array)).sum()
    }

    /// Tasks of an array that wait and are not jobs.
    pub fn unmade_in(array: &Job) -> u64 {
        let state = array.array.as_ref().filter(|state| state.cancelled_by.is_none());
        state.map_or(0, |state| state.waiting.count() + state.held.count())
    }

    /// Why the next task of an array that is no job yet has to wait: for something that the array waits for, for its limit,
    /// or behind its tasks that wait already.
    pub fn array_waits_for(&self, array: &Job) -> (Reason, String) {
        if let Some(by) = &array.held_by {
            return (Reason::Held, Blocker::Held { by: by.clone() }.to_string());
        }
        if let Some(waits) = array.spec.after.iter().find(|one| !one.met) {
            return (Reason::Dependency, Blocker::Dependency { on: waits.job }.to_string());
        }
        let first = self.tasks_of(array).find(|task| task.state == JobState::Pending);
        let blocker = first.and_then(|task| Some((task, self.blocked.get(&task.id)?)));
        if let Some((task, blocker)) = blocker {
            return (blocker.reason(), format!("task {}: {blocker}", task.number()));
        }
        let live = self.tasks_of(array).count() as u64;
        let limit = array.spec.array.as_ref().and_then(|spec: &ArraySpec| spec.limit).map(u64::from);
        match limit.filter(|limit| live >= *limit) {
            Some(limit) => {
                let text = format!("{} of it live, at most {limit} may at once", count(live, "task"));
                (Reason::ArrayLimit, text)
            }
            None => (Reason::Priority, "its tasks take their turn one after the other".to_string()),
        }
    }

    /// Of an array that lives: running as long as a task of it holds devices.
    pub fn array_state(&self, array: &Job) -> JobState {
        let runs = !array.state.is_terminal() && self.tasks_of(array).any(|task| task.attempt.is_some());
        if runs { JobState::Running } else { array.state }
    }
}
