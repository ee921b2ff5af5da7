//! Arrays as the API shows them: one line for the tasks that never started, one for each that did.
use super::views;
use ganger_core::model::Cluster;
use ganger_core::model::ids::JobId;
use ganger_core::model::job::{Job, JobState, Places};
use ganger_core::model::wire::api::{ArrayView, JobView};

/// The record of an array: how its tasks stand, and why the next of them waits.
pub fn array_view(view: JobView, array: &Job, cluster: &Cluster) -> JobView {
    let (Some(spec), Some(state)) = (&array.spec.array, &array.array) else { return view };
    let pending = never_started(array, cluster);
    let of_tasks = |runs: bool| cluster.tasks_of(array).filter(|task| task.attempt.is_some() == runs).count() as u64;
    let waits = (!pending.is_empty()).then(|| cluster.array_waits_for(array));
    let (reason, note) = waits.map_or((None, view.note.clone()), |(reason, text)| (Some(reason), Some(text)));
    JobView {
        state: cluster.array_state(array),
        reason,
        note,
        array: Some(ArrayView {
            indices: spec.to_string(),
            pending: (!pending.is_empty()).then(|| spec.words(&pending)),
            limit: spec.limit,
            tasks: spec.count(),
            waiting: Cluster::unmade_in(array) + of_tasks(false),
            started: of_tasks(true),
            done: state.done,
            failed: state.failed,
            cancelled: state.cancelled,
        }),
        ..view
    }
}

/// A task that is no job yet waits for what its array waits for.
pub fn unmade_view(view: JobView, task: &Job, cluster: &Cluster) -> JobView {
    match cluster.unmade(task.id) {
        Some((array, _)) if task.held_by.is_none() => {
            let (reason, text) = cluster.array_waits_for(array);
            JobView { reason: Some(reason), note: Some(text), ..view }
        }
        _ => view,
    }
}

/// Whether a list shows the task in the line of its array.
pub fn is_in_line(job: &Job) -> bool {
    job.task.is_some() && job.state == JobState::Pending && job.attempts.0 == 0
}

/// The places of the tasks that wait for their first start.
fn never_started(array: &Job, cluster: &Cluster) -> Places {
    let live = array.array.as_ref().filter(|state| state.cancelled_by.is_none());
    let mut places = live.map_or(Places::default(), |state| state.waiting.plus(&state.held));
    let made = cluster.tasks_of(array).filter(|task| is_in_line(task));
    made.filter_map(|task| array.place_of(task.id)).for_each(|place| places.insert(place));
    places
}

/// The lines of a list for what never started: one for each array, or with `tasks` one for each task that is no job.
pub fn pending_lines(cluster: &Cluster, tasks: bool, wanted: impl Fn(&Job) -> bool) -> Vec<JobView> {
    let arrays = cluster.arrays.values().filter(|array| wanted(array));
    if tasks {
        let unmade = |array: &Job| (array.task_ids().start.0..array.task_ids().end.0).map(JobId);
        let ids = arrays.flat_map(|array| unmade(array)).filter(|id| cluster.unmade(*id).is_some());
        return ids.filter_map(|id| cluster.record(id)).map(|job| views::job_view(&job, cluster)).collect();
    }
    let views = arrays.map(|array| views::job_view(array, cluster));
    let waits = |view: &JobView| view.array.as_ref().is_some_and(|array| array.pending.is_some());
    views.filter(waits).map(|view| JobView { state: JobState::Pending, ..view }).collect()
}
