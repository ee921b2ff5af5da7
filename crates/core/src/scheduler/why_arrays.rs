//! Why an array, or a task of one that is no job yet, does not run.
use super::why::why as why_job;
use super::why_running::not_waiting;
use crate::model::amounts::count;
use crate::model::cluster::Cluster;
use crate::model::ids::JobId;
use crate::model::job::{Job, JobState};
use crate::model::time::Time;
use crate::model::wire::api::Why;

pub fn why(cluster: &Cluster, id: JobId, now: Time) -> Option<Why> {
    match cluster.array(id) {
        Some(array) => Some(of_array(cluster, array, now)),
        None => of_unmade(cluster, id),
    }
}

/// All tasks in one sentence, and the first that waits in full.
fn of_array(cluster: &Cluster, array: &Job, now: Time) -> Why {
    let first = cluster.tasks_of(array).find(|task| task.state == JobState::Pending);
    let explained = first.and_then(|task| why_job(cluster, task.id, now));
    let said = words(cluster, array);
    let own = Why { state: cluster.array_state(array), ..not_waiting(array) };
    match (explained, Cluster::unmade_in(array)) {
        (Some(why), _) => {
            let number = first.map_or(String::new(), Job::number);
            Why {
                summary: format!("{said}; task {number}: {}", why.summary),
                id: own.id,
                name: own.name,
                state: own.state,
                ..why
            }
        }
        (None, 0) => Why { summary: said, ..own },
        (None, _) => {
            let (reason, text) = cluster.array_waits_for(array);
            let slurm_reason = Some(reason.slurm().to_string());
            Why { summary: format!("{said}; {text}"), reason: Some(reason), slurm_reason, ..own }
        }
    }
}

/// `of 10 tasks 3 are live, 5 wait, 1 done, 0 failed, 1 cancelled`
fn words(cluster: &Cluster, array: &Job) -> String {
    let Some(state) = &array.array else { return String::new() };
    let pending = cluster.tasks_of(array).filter(|task| task.attempt.is_none()).count() as u64;
    let started = cluster.tasks_of(array).count() as u64 - pending;
    let all = count(array.spec.array.as_ref().map_or(0, |spec| spec.count()).into(), "task");
    let waiting = Cluster::unmade_in(array) + pending;
    let (done, failed, cancelled) = (state.done, state.failed, state.cancelled);
    format!("of {all} {started} started, {waiting} waiting, {done} done, {failed} failed, {cancelled} cancelled")
}

fn of_unmade(cluster: &Cluster, id: JobId) -> Option<Why> {
    let (array, _) = cluster.unmade(id)?;
    let task = cluster.record(id)?;
    let (reason, text) = match &task.held_by {
        Some(by) if array.held_by.is_none() => (crate::model::decision::Reason::Held, format!("held by {by}")),
        _ => cluster.array_waits_for(array),
    };
    let slurm_reason = Some(reason.slurm().to_string());
    Some(Why { summary: text, reason: Some(reason), slurm_reason, ..not_waiting(&task) })
}
