//! Faults that storms found, each made small: each test failed once.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job, limit};
use ganger_core::lifecycle::Input;
use ganger_core::model::job::{Exit, JobSpec, JobState, Priority};
use ganger_core::model::machine::Machine;
use ganger_core::model::machine::profiles::{Custom, profile};
use ganger_core::model::node::HealthState;
use ganger_core::model::{JobId, NodeId, Span};
use std::sync::Arc;

fn memory(mut spec: JobSpec, bytes: u64) -> JobSpec {
    spec.shape.memory_bytes = bytes;
    spec
}

fn custom(custom: Custom) -> Arc<Machine> {
    Arc::new(custom.build().unwrap())
}

/// The claimant started early, on memory that somebody else freed, while its victim still held what it was counted on: a
/// junior got the same memory in the same decision.
#[test]
fn an_early_claimant_takes_what_is_free_now() {
    let machine = custom(Custom { gpus: 4, memory_bytes: 100 << 30, ..Custom::default() });
    let mut lab = Lab::new(1, &machine, 1);
    let first = lab.submit(job("first", 1, 1, Priority::P0));
    lab.submit(memory(job("victim", 1, 1, Priority::P3), 50 << 30));
    let other = lab.submit(memory(job("other", 1, 1, Priority::P1), 50 << 30));
    lab.settle();
    // Its device and core are free at once: only memory is still to come.
    lab.finish(first);
    let urgent = lab.submit(memory(job("urgent", 1, 1, Priority::P0), 50 << 30));
    lab.decide();
    assert_eq!(lab.cluster.claims.len(), 1);
    let junior = lab.submit(memory(job("junior", 1, 1, Priority::P2), 50 << 30));
    lab.finish(other);
    lab.decide();
    lab.assert_rules();
    assert_eq!(lab.state(urgent), JobState::Starting);
    assert_eq!(lab.state(junior), JobState::Pending);
    lab.settle();
    assert_eq!(lab.state(junior), JobState::Running, "once the victim is gone there is room for it");
}

/// Who could be stopped at once evicts nobody; an equal that cannot be stopped was refused with the same answer.
#[test]
fn who_cannot_be_stopped_is_asked_for_itself() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    lab.submit(job("lasting", 1, 8, Priority::P1));
    lab.settle();
    let yields = lab.submit(job("yields", 1, 8, Priority::P3));
    lab.settle();
    lab.submit(job("whole", 2, 8, Priority::P0));
    let mut soft = limit(job("soft", 1, 8, Priority::P1), Span::minutes(10));
    soft.preemptible = true;
    let hard = JobSpec { name: "hard".to_string(), preemptible: false, ..soft.clone() };
    let (soft, hard) = (lab.submit(soft), lab.submit(hard));
    lab.settle();
    assert_eq!(lab.state(hard), JobState::Running);
    assert_eq!([lab.state(soft), lab.state(yields)], [JobState::Pending, JobState::Pending]);
}

/// Its lease had been taken for a stop that it confirmed late, and was never given back: every worker that it got from then
/// on ended at once, and was placed there again, and so on in the same moment.
#[test]
fn a_node_that_comes_out_of_quarantine_has_its_lease_again() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let slow = lab.submit(job("slow", 1, 1, Priority::P2));
    lab.settle();
    let refused: Vec<JobId> = (0..4).map(|i| lab.submit(job(&format!("refused{i}"), 1, 1, Priority::P2))).collect();
    lab.decide();
    for id in refused {
        lab.exit(id, 0, Exit::Refused("disk full".to_string()));
    }
    lab.apply(Input::Requeue { job: slow, by: "me".to_string() });
    lab.pass(Span::seconds(95));
    let node = lab.cluster.node(NodeId(0));
    assert!(node.revoked_at.is_some() && node.health.state == HealthState::Quarantined);
    lab.obey();
    for _ in 0..61 {
        lab.pass(Span::minutes(1));
    }
    let node = lab.cluster.node(NodeId(0));
    assert_eq!((node.health.state, node.revoked_at), (HealthState::Probation, None));
}

/// An aged job started and was stopped by the next decision, for one whose class is higher by right.
#[test]
fn who_could_be_stopped_at_once_is_not_started() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    for (name, value) in [("aging.step", "1h"), ("aging.ceiling", "P0")] {
        let (name, value) = (name.to_string(), value.to_string());
        lab.apply(Input::Setting { name, value, by: "op".to_string() });
    }
    let first = lab.submit(job("first", 1, 8, Priority::P0));
    lab.settle();
    let aged = lab.submit(job("aged", 1, 8, Priority::P3));
    lab.pass(Span::hours(5));
    let urgent = lab.submit(job("urgent", 1, 8, Priority::P1));
    lab.decide();
    lab.finish(first);
    lab.decide();
    assert_eq!([lab.state(urgent), lab.state(aged)], [JobState::Starting, JobState::Pending]);
    lab.settle();
    assert_eq!(lab.cluster.job(aged).unwrap().evictions, 0);
}
