//! Planted faults in the books of an array: `check` says which rule broke, and nothing in a healthy one.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job, job_mut, limit};
use ganger_core::check;
use ganger_core::lifecycle::Input;
use ganger_core::model::job::{ArraySpec, Job, JobSpec, JobState, Priority, Task};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::{Cluster, JobId, NodeId, Span};
use std::collections::BTreeSet;
use std::sync::Arc;

const ARRAY: JobId = JobId(1);
const FIRST: JobId = JobId(2);

/// Of ten tasks two run, three at most at once: one is held, one was cancelled, the others are no jobs.
fn busy() -> Cluster {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let array = ArraySpec::parse("0-9%3").unwrap();
    let spec = JobSpec { array: Some(array), ..limit(job("sweep", 1, 1, Priority::P2), Span::hours(1)) };
    assert_eq!(lab.submit(spec), ARRAY);
    for input in [
        Input::Hold { job: JobId(5), by: "ops".to_string() },
        Input::Cancel { job: JobId(6), by: "ops".to_string() },
        Input::Tick,
    ] {
        lab.apply(input);
    }
    lab.settle();
    assert_eq!(lab.cluster.jobs.len(), 3);
    lab.cluster
}

#[track_caller]
fn breaks(rule: u8, plant: impl FnOnce(&mut Cluster)) {
    let mut cluster = busy();
    plant(&mut cluster);
    let found = check::full(&cluster);
    assert!(found.iter().any(|violation| violation.rule == rule), "rule {rule} is not reported: {found:#?}");
    let nodes: Vec<NodeId> = cluster.nodes.iter().map(|node| node.id).collect();
    let jobs: BTreeSet<JobId> = cluster.jobs.keys().copied().collect();
    let delta = check::delta(&cluster, &nodes, &jobs);
    assert!(delta.iter().any(|violation| violation.rule == rule), "delta does not see it: {delta:#?}");
}

fn array(cluster: &mut Cluster) -> &mut Job {
    Arc::make_mut(cluster.arrays.get_mut(&ARRAY).unwrap())
}

fn task(cluster: &mut Cluster) -> &mut Job {
    job_mut(cluster, FIRST)
}

#[test]
fn the_healthy_state_has_no_violations() {
    assert_eq!(check::full(&busy()), []);
}

#[test]
fn a_task_that_runs_and_is_to_run_again_is_seen() {
    breaks(7, |cluster| array(cluster).array.as_mut().unwrap().waiting.insert(0));
    breaks(7, |cluster| {
        let state = array(cluster).array.as_mut().unwrap();
        state.held = state.waiting.clone();
    });
}

#[test]
fn a_task_that_is_lost_is_seen() {
    breaks(8, |cluster| assert!(array(cluster).array.as_mut().unwrap().waiting.remove(9)));
    breaks(8, |cluster| array(cluster).array.as_mut().unwrap().cancelled = 0);
    breaks(8, |cluster| array(cluster).array.as_mut().unwrap().done += 1);
}

#[test]
fn more_at_once_than_were_asked_for_are_seen() {
    breaks(6, |cluster| {
        let array = array(cluster);
        Arc::make_mut(&mut array.spec).array.as_mut().unwrap().limit = Some(2);
    });
}

#[test]
fn a_task_of_no_array_is_seen() {
    breaks(8, |cluster| task(cluster).task = Some(Task { array: ARRAY, index: 1 }));
    breaks(8, |cluster| drop(cluster.arrays.remove(&ARRAY)));
    breaks(8, |cluster| array(cluster).state = JobState::Running);
}

#[test]
fn an_array_among_the_jobs_is_seen() {
    breaks(8, |cluster| {
        let record = cluster.arrays[&ARRAY].clone();
        cluster.jobs.insert(ARRAY, record);
    });
}
