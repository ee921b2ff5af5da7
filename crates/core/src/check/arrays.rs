//! Rules 6, 7 and 8 for arrays: never more tasks at once than asked for, no task twice, none lost.
use super::Found;
use crate::model::cluster::Cluster;
use crate::model::ids::JobId;
use crate::model::job::{Job, JobState};
use std::collections::BTreeSet;

/// Each task is one of: not made, held, live, ended; and there are as many as were submitted.
pub fn array(cluster: &Cluster, record: &Job, found: &mut Found) {
    let id = record.id;
    let (Some(spec), Some(state)) = (&record.spec.array, &record.array) else {
        return found.unless(false, 8, || format!("array {id} has no tasks, or nothing says what became of them"));
    };
    let sound = state.waiting.is_sound(spec.count()) && state.held.is_sound(spec.count());
    let apart = state.held.iter().all(|place| !state.waiting.contains(place));
    found.unless(sound && apart, 7, || format!("array {id} counts a task that waits twice, or one that it has not"));
    let mut live = 0;
    for task in cluster.tasks_of(record) {
        let place = record.place_of(task.id);
        let unmade = place.is_some_and(|place| state.waiting.contains(place) || state.held.contains(place));
        found.unless(!unmade, 7, || format!("task {} is a job already and is to become one again", task.number()));
        live += 1;
    }
    let limit = spec.limit.unwrap_or(u32::MAX);
    found.unless(live <= limit, 6, || format!("array {id} has {live} tasks at once, at most {limit} were asked for"));
    let ended = [state.done, state.failed, state.cancelled].into_iter().map(u64::from).sum::<u64>();
    let known = state.waiting.count() + state.held.count() + u64::from(live) + ended;
    found.unless(known == u64::from(spec.count()), 8, || {
        format!("array {id} has {} tasks, but {known} are accounted for", spec.count())
    });
    let over = live == 0 && state.waiting.is_empty() && state.held.is_empty();
    found.unless(record.state == JobState::Pending && !over, 8, || {
        format!("array {id} is {} in memory, and all of its tasks have ended: {over}", record.state)
    });
}

/// A task knows its array, which is there as long as it lives.
pub fn tasks(cluster: &Cluster, jobs: &BTreeSet<JobId>, found: &mut Found) {
    let mut arrays = BTreeSet::new();
    for job in jobs.iter().filter_map(|id| cluster.job(*id)) {
        found.unless(job.spec.array.is_none() && job.array.is_none(), 8, || {
            format!("array {} is among the jobs", job.id)
        });
        let Some(task) = job.task else { continue };
        let record = cluster.array(task.array);
        let known = record.is_some_and(|record| record.task_id(task.index) == Some(job.id));
        found.unless(known, 8, || format!("job {} is no task {} of array {}", job.id, task.index, task.array));
        arrays.extend(record.map(|record| record.id));
    }
    arrays.into_iter().filter_map(|id| cluster.array(id)).for_each(|record| array(cluster, record, found));
}
