//! Arrays: one record, a bounded number of jobs, every task once.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job};
use ganger_core::lifecycle::{self, Input};
use ganger_core::model::decision::Reason;
use ganger_core::model::job::{ArraySpec, DependencyKind, Exit, JobSpec, JobState, Priority};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::{Cluster, JobId, Span};
use ganger_core::scheduler;

fn sweep(tasks: &str) -> JobSpec {
    JobSpec { array: Some(ArraySpec::parse(tasks).unwrap()), ..job("sweep", 1, 1, Priority::P2) }
}

fn lab() -> Lab {
    Lab::new(1, &profile("dgx-h100").unwrap(), 1)
}

#[test]
fn ten_thousand_tasks_are_one_record_and_a_window_of_jobs() {
    let mut lab = lab();
    let array = lab.submit(sweep("0-9999"));
    assert_eq!((lab.cluster.jobs.len(), lab.cluster.arrays.len()), (0, 1));
    assert_eq!(lifecycle::next_deadline(&lab.cluster), Some(lab.now), "a tick is due");
    let effects = lab.apply(Input::Tick);
    assert_eq!((lab.cluster.jobs.len(), effects.dirty.jobs.len()), (64, 65), "the window, and the record");
    lab.settle();
    // What the decision started made room, but only a tick fills it: so deciding again finds nothing.
    assert_eq!(scheduler::decide(&lab.cluster, lab.now).steps, []);
    lab.apply(Input::Tick);
    assert_eq!((lab.cluster.jobs.len(), lab.cluster.tasks_unmade()), (72, 9_928));
    let record = serde_json::to_string(lab.cluster.array(array).unwrap()).unwrap();
    assert!(record.len() < 2_000, "{record}");
    assert_eq!(lifecycle::apply(&mut lab.cluster, Input::Tick, lab.now).unwrap().dirty.jobs.len(), 0, "it is full");
}

#[test]
fn every_task_runs_once_in_the_order_that_was_written_and_keeps_its_number() {
    let mut lab = lab();
    let array = lab.submit(sweep("9,1-19:6%2"));
    let next = lab.submit(job("next", 1, 1, Priority::P2));
    assert_eq!((array, next), (JobId(1), JobId(7)), "five tasks lie between");
    let mut ran = Vec::new();
    for _ in 0..10 {
        lab.apply(Input::Tick);
        lab.settle();
        let running: Vec<JobId> = lab.cluster.jobs.keys().copied().filter(|id| *id != next).collect();
        assert!(running.len() <= 2);
        let Some(first) = running.first().copied() else { break };
        ran.push(lab.cluster.job(first).unwrap().number());
        lab.finish(first);
    }
    assert_eq!(ran, ["1_9", "1_1", "1_7", "1_13", "1_19"]);
    let ended = lab.finished.last().unwrap();
    assert_eq!(
        (ended.id, ended.state, ended.note.as_deref()),
        (array, JobState::Done, Some("5 tasks: 5 done, 0 failed, 0 cancelled"))
    );
    assert!(lab.cluster.arrays.is_empty() && lab.cluster.job_named("sweep").is_none());
}

#[test]
fn one_failed_task_fails_the_array_and_whoever_waits_for_it() {
    let mut lab = lab();
    let array = lab.submit(sweep("0-1"));
    let after = |kind| ganger_core::model::job::Dependency { job: array, kind, met: false };
    let good = JobSpec { after: vec![after(DependencyKind::AfterOk)], ..job("good", 1, 1, Priority::P2) };
    let bad = JobSpec { after: vec![after(DependencyKind::AfterNotOk)], ..job("bad", 1, 1, Priority::P2) };
    let (good, bad) = (lab.submit(good), lab.submit(bad));
    lab.apply(Input::Tick);
    lab.settle();
    lab.exit(JobId(2), 0, Exit::Code(3));
    assert!(lab.cluster.array(array).is_some(), "its other task runs on");
    lab.finish(JobId(3));
    assert_eq!((lab.state(array), lab.state(good)), (JobState::Failed, JobState::Cancelled));
    assert_eq!(lab.finished.iter().find(|job| job.id == array).unwrap().exit_code, Some(3));
    lab.settle();
    assert_eq!(lab.state(bad), JobState::Running);
}

#[test]
fn more_tasks_than_the_cluster_takes_are_refused() {
    let mut lab = lab();
    let input = |tasks: &str| Input::Submit { spec: sweep(tasks).into(), owner: Default::default() };
    let why = lab.try_apply(input("1-100001")).unwrap_err().to_string();
    assert!(why.contains("array: it has 100001 tasks, the cluster takes 100000 of one array (array.max)"), "{why}");
    lab.apply(Input::Setting { name: "array.max".to_string(), value: "5".to_string(), by: "ops".to_string() });
    assert!(lab.try_apply(input("0-5")).is_err());
    lab.apply(input("0-4"));
}

#[test]
fn what_cannot_be_asked_of_an_array_says_so() {
    let mut lab = lab();
    let array = lab.submit(sweep("0-99%1"));
    lab.apply(Input::Tick);
    lab.settle();
    let resize = |job| Input::Resize { job, workers: 2, by: "ops".to_string() };
    let why = lab.try_apply(resize(array)).unwrap_err().to_string();
    assert!(why.contains("it is an array, of which this can be asked for single tasks only"), "{why}");
    let why = lab.try_apply(Input::Requeue { job: JobId(9), by: "ops".to_string() }).unwrap_err().to_string();
    assert!(why.contains("did not start yet"), "{why}");
    let why = scheduler::why(&lab.cluster, JobId(9), lab.now).unwrap();
    assert_eq!((why.reason, why.slurm_reason.as_deref()), (Some(Reason::ArrayLimit), Some("JobArrayTaskLimit")));
    assert_eq!((why.id, why.name.as_str()), (9, "sweep_7"));
    lab.apply(Input::Requeue { job: array, by: "ops".to_string() });
    assert_eq!(lab.state(JobId(2)), JobState::Stopping);
}

#[test]
fn a_dry_run_asks_for_the_first_task() {
    let lab = lab();
    let why = scheduler::dry_run(&lab.cluster, &sweep("3-9").into(), Default::default(), lab.now);
    assert_eq!((why.name.as_str(), why.satisfiable), ("sweep_3", true));
    assert!(lab.cluster.arrays.is_empty());
}

#[test]
fn records_of_a_time_before_arrays_are_read() {
    let mut lab = lab();
    lab.submit(job("old", 1, 1, Priority::P2));
    lab.pass(Span::seconds(1));
    let text = serde_json::to_string(&lab.cluster).unwrap();
    assert!(!text.contains("\"arrays\"") && !text.contains("\"task\":"), "nothing is written where there is none");
    let read: Cluster = serde_json::from_str(&text).unwrap();
    assert_eq!(read, lab.cluster);
}
