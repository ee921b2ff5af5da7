//! Faults that a hostile reading of the decisions found: each test failed once.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job, limit, registration, require};
use ganger_core::lifecycle::input::QueueSpec;
use ganger_core::lifecycle::{Input, Refusal, next_deadline, next_wake_up};
use ganger_core::model::amounts::Limit;
use ganger_core::model::cluster::NodePlacement;
use ganger_core::model::cpuset::CpuSet;
use ganger_core::model::job::{Dependency, DependencyKind, Exit, Group, JobSpec, JobState, Level, Owner, Priority};
use ganger_core::model::machine::Machine;
use ganger_core::model::machine::profiles::{Custom, profile};
use ganger_core::model::node::{Device, HealthState};
use ganger_core::model::report::Report;
use ganger_core::model::{AttemptNo, JobId, NodeId, Rank, Span, Time};
use ganger_core::scheduler;
use std::collections::BTreeMap;
use std::sync::Arc;

const N0: NodeId = NodeId(0);

fn custom(custom: Custom) -> Arc<Machine> {
    Arc::new(custom.build().unwrap())
}

fn memory(mut spec: JobSpec, bytes: u64) -> JobSpec {
    spec.shape.memory_bytes = bytes;
    spec
}

fn group(mut spec: JobSpec, name: &str) -> JobSpec {
    spec.group = Some(Group { name: name.to_string(), size: 2 });
    spec
}

fn after(mut spec: JobSpec, job: JobId) -> JobSpec {
    spec.after = vec![Dependency { job, kind: DependencyKind::AfterOk, met: false }];
    spec
}

fn submit(lab: &mut Lab, spec: JobSpec) -> Result<(), Refusal> {
    lab.try_apply(Input::Submit { spec: Arc::new(spec), owner: Owner::default() }).map(|_| ())
}

fn health(lab: &Lab, node: u32) -> HealthState {
    lab.cluster.node(NodeId(node)).health.state
}

/// Time passes and nobody is heard.
fn silence(lab: &mut Lab, span: Span) {
    lab.now = lab.now + span;
    lab.apply(Input::Tick);
}

fn decide_later(lab: &mut Lab, between: impl FnOnce(&mut Lab)) -> Result<(), Refusal> {
    let decision = scheduler::decide(&lab.cluster, lab.now);
    assert!(!decision.steps.is_empty());
    between(lab);
    lab.try_apply(Input::Decided(Box::new(decision))).map(|_| ())
}

/// Equal limits end a start exactly where the reservation begins. A few milliseconds between decision and commit made
/// that a broken rule, every time anew: nothing would ever start again.
#[test]
fn a_decision_that_is_committed_a_moment_later_is_kept() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    lab.submit(job("senior", 1, 8, Priority::P2));
    lab.submit(job("whole", 2, 8, Priority::P2));
    lab.submit(job("junior", 1, 8, Priority::P2));
    decide_later(&mut lab, |lab| lab.now = lab.now + Span::millis(5)).unwrap();
}

/// Its start broke the limit, so each decision with it was refused, for all jobs, until the claim's deadline.
#[test]
fn a_claim_that_a_lowered_limit_forbids_is_given_up() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let queue = |gpus| QueueSpec {
        path: "prod".to_string(),
        limit: Some(Limit { gpus: Some(gpus), ..Limit::default() }),
        ..QueueSpec::default()
    };
    lab.apply(Input::Queues { queues: vec![queue(8)], by: "op".to_string() });
    let victim = lab.submit(job("victim", 1, 8, Priority::P3));
    lab.settle();
    let urgent = lab.submit(JobSpec { queue: "prod".to_string(), ..job("urgent", 1, 8, Priority::P0) });
    lab.decide();
    let why = scheduler::why(&lab.cluster, urgent, lab.now).unwrap();
    let gate = why.gates.iter().find(|gate| gate.gate == "queue prod").unwrap();
    assert!(gate.passed && gate.text == "0 GPUs used + 8 GPUs asked, of 8 GPUs", "{gate:?}");
    lab.apply(Input::Queues { queues: vec![queue(4)], by: "op".to_string() });
    lab.settle();
    assert!(
        lab.why(urgent).contains("queue prod may hold 4 GPUs at most, and it asks for 8 GPUs"),
        "{}",
        lab.why(urgent)
    );
    assert_eq!(lab.state(victim), JobState::Running);
}

/// Each link took stack: a long chain ended the server. (A thread with little stack stands for a longer chain.)
#[test]
fn a_long_chain_of_dependents_is_cancelled_without_recursion() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let first = lab.submit(job("j0", 1, 1, Priority::P2));
    let last = (1..3_000).fold(first, |on, n| lab.submit(after(job(&format!("j{n}"), 1, 1, Priority::P2), on)));
    let run = move || {
        lab.apply(Input::Cancel { job: first, by: "me".to_string() });
        assert_eq!(lab.state(last), JobState::Cancelled);
        assert!(lab.cluster.jobs.is_empty());
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap();
}

/// It waited for ever: for a job that had ended, for itself, or in a circle.
#[test]
fn a_dependency_on_a_job_that_is_not_there_is_refused() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let itself = JobId(lab.cluster.next_job);
    let refused = submit(&mut lab, after(job("self", 1, 1, Priority::P2), itself)).unwrap_err();
    assert!(refused.to_string().contains("no live job"), "{refused}");
}

/// Four billion workers of one byte would have been placed one by one; zeros were divided by.
#[test]
fn absurd_requests_are_refused_also_in_a_dry_run() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let mut huge = memory(job("huge", u32::MAX, 0, Priority::P2), 1);
    huge.shape.cpus = 0;
    let mut none = job("none", 1, 1, Priority::P2);
    none.gang.workers = 0;
    let mut slices = job("slices", 1, 1, Priority::P2);
    slices.topology.ranks_per_island = Some(0);
    let mut endless = job("endless", 1, 1, Priority::P3);
    endless.checkpoint.grace = Span(u64::MAX);
    for spec in [huge, none, slices, endless] {
        let why = scheduler::dry_run(&lab.cluster, &Arc::new(spec.clone()), Default::default(), lab.now);
        assert!(!why.satisfiable && why.summary.contains("cannot be accepted"), "{}", why.summary);
        assert!(submit(&mut lab, spec).is_err());
    }
    let never =
        Input::Setting { name: "prepare.deadline".to_string(), value: "99999999d".to_string(), by: "op".to_string() };
    assert!(lab.try_apply(never).is_err());
}

/// A job whose directory is missing is refused everywhere: it took node after node out.
#[test]
fn a_job_that_every_node_refuses_does_not_take_the_cluster_out() {
    let mut lab = Lab::new(4, &profile("dgx-h100").unwrap(), 4);
    let id = lab.submit(job("poison", 8, 1, Priority::P2));
    for _ in 0..40 {
        lab.decide();
        let attempt = lab.cluster.job(id).unwrap().attempt.clone();
        for worker in attempt.iter().flat_map(|attempt| &attempt.workers) {
            lab.exit(id, worker.rank.0, Exit::Refused("no such directory".to_string()));
        }
        lab.assert_rules();
        lab.pass(Span::seconds(10));
    }
    let out = lab.cluster.nodes.iter().filter(|node| !node.accepts(false, lab.now)).count();
    assert!(out <= 1, "{out} of 4 nodes are out");
    assert!(lab.cluster.job(id).unwrap().attempts.0 < 12, "it backs off");
}

/// With all others prepared it was neither prepared nor late: nothing ended the attempt, and a gang of one was `done`.
#[test]
fn a_rank_that_ends_before_go_is_a_failed_start() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let id = lab.submit(job("hasty", 2, 1, Priority::P2));
    lab.decide();
    lab.exit(id, 0, Exit::Code(0));
    assert_eq!(lab.state(id), JobState::Stopping);
    lab.settle();
    assert_eq!(lab.state(id), JobState::Running);
    assert_eq!(lab.cluster.job(id).unwrap().attempts, AttemptNo(2));
}

/// The GPU went to the next job while the process that no order names still ran on it.
#[test]
fn a_gpu_on_which_a_stray_was_found_stays_out_when_its_owner_leaves() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let id = lab.submit(job("owner", 1, 8, Priority::P2));
    lab.settle();
    let (job, attempt, rank) = (JobId(77), AttemptNo(1), Rank(0));
    let cpus = CpuSet::default();
    lab.apply(Input::Report { node: N0, report: Report::Stray { job, attempt, rank, gpus: 1, cpus } });
    lab.finish(id);
    assert_eq!(lab.cluster.node(N0).devices[0], Device::Sick { owner: None });
    assert_eq!(lab.cluster.node(N0).devices[1], Device::Free);
    lab.apply(Input::Report { node: N0, report: Report::Ended { job, attempt, rank, exit: Exit::Signal(9) } });
    assert_eq!(lab.cluster.node(N0).devices[0], Device::Free);
}

/// The server is cut off and does not know it: the node may live on by its peers' word, so its ranks are not over.
#[test]
fn a_stop_that_nobody_confirms_fences_nobody_without_a_majority() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let id = lab.submit(job("cut", 1, 8, Priority::P2));
    lab.settle();
    lab.apply(Input::Requeue { job: id, by: "me".to_string() });
    for _ in 0..5 {
        silence(&mut lab, Span::seconds(61));
    }
    assert_eq!(lab.state(id), JobState::Stopping);
    assert_eq!(health(&lab, 0), HealthState::Suspect);
    assert!(next_deadline(&lab.cluster).is_none_or(|at| at > lab.now), "the clock alone changes nothing");
}

/// Suspicion and fence took its place, and the way back from these is short.
#[test]
fn quarantine_by_a_person_outlasts_an_unconfirmed_stop() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let id = lab.submit(job("hung", 1, 8, Priority::P2));
    lab.settle();
    lab.apply(Input::Quarantine { node: N0, cause: "XID 79".to_string(), fenced: false });
    lab.apply(Input::Requeue { job: id, by: "me".to_string() });
    for _ in 0..4 {
        lab.pass(Span::seconds(61));
    }
    assert_eq!(lab.state(id), JobState::Pending);
    assert_eq!(health(&lab, 0), HealthState::Quarantined);
    lab.apply(Input::Uncordon { node: N0, by: "me".to_string() });
    assert_eq!(lab.cluster.node(N0).revoked_at, None);
}

/// For one decision it took new work.
#[test]
fn a_silent_node_does_not_come_out_of_quarantine() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    lab.apply(Input::Setting { name: "cooldown.refusals".to_string(), value: "1".to_string(), by: "op".to_string() });
    for name in ["a", "b"] {
        let id = lab.submit(job(name, 1, 8, Priority::P3));
        lab.decide();
        assert_eq!(lab.nodes_of(id), ["n0"]);
        lab.exit(id, 0, Exit::Refused("disk full".to_string()));
        lab.apply(Input::Cancel { job: id, by: "me".to_string() });
        lab.pass(Span::minutes(5));
    }
    assert_eq!(health(&lab, 0), HealthState::Quarantined);
    silence(&mut lab, Span::hours(2));
    assert_eq!(health(&lab, 0), HealthState::Suspect);
}

/// The other half went on alone, for ever if need be, and halves could block each other.
#[test]
fn when_one_job_of_a_group_has_to_run_again_all_do() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let a = lab.submit(group(job("a", 1, 8, Priority::P2), "G"));
    let b = lab.submit(group(job("b", 1, 8, Priority::P2), "G"));
    lab.settle();
    let lost = lab.cluster.node_named(&lab.nodes_of(a)[0]).unwrap().id;
    lab.apply(Input::NodeLost { node: lost, cause: "power".to_string() });
    assert_eq!(lab.state(b), JobState::Stopping);
    lab.apply(Input::Recover { node: lost, by: "op".to_string() });
    lab.decide();
    assert_eq!(lab.state(a), JobState::Pending, "not before the other half is there");
    lab.settle();
    assert_eq!([lab.state(a), lab.state(b)], [JobState::Running; 2]);
}

/// The other half of the promise stayed until its deadline, unusable.
#[test]
fn the_claims_of_a_group_end_together() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    for name in ["v", "w"] {
        lab.submit(job(name, 1, 8, Priority::P3));
    }
    lab.settle();
    for name in ["a", "b"] {
        lab.submit(group(job(name, 1, 8, Priority::P0), "G"));
    }
    lab.decide();
    assert_eq!(lab.cluster.claims.len(), 2);
    lab.apply(Input::Cordon { node: N0, by: "op".to_string() });
    assert!(lab.cluster.claims.is_empty());
    lab.assert_rules();
}

/// Both claims of the group counted on the memory of the same victim, so a junior took what one of them needs.
#[test]
fn memory_that_victims_free_is_promised_once() {
    let machine = custom(Custom { gpus: 4, memory_bytes: 100 << 30, ..Custom::default() });
    let mut lab = Lab::new(1, &machine, 1);
    lab.submit(memory(job("victim", 1, 2, Priority::P3), 50 << 30));
    lab.settle();
    for name in ["a", "b"] {
        lab.submit(group(memory(job(name, 1, 2, Priority::P0), 50 << 30), "G"));
    }
    lab.decide();
    assert_eq!(lab.cluster.claims.len(), 2);
    let junior = lab.submit(memory(job("junior", 1, 0, Priority::P2), 40 << 30));
    lab.decide();
    assert_eq!(lab.state(junior), JobState::Pending);
}

/// Two reservations counted on the same memory; the junior that took the difference moved the later one.
#[test]
fn memory_that_comes_free_is_reserved_once() {
    let machine = custom(Custom { gpus: 2, memory_bytes: 100 << 30, ..Custom::default() });
    let mut lab = Lab::new(1, &machine, 1);
    lab.submit(limit(memory(job("r", 1, 1, Priority::P2), 50 << 30), Span::hours(1)));
    lab.submit(limit(job("s", 1, 1, Priority::P2), Span::hours(2)));
    lab.settle();
    lab.submit(limit(memory(job("a", 1, 1, Priority::P2), 60 << 30), Span::hours(10)));
    let second = lab.submit(limit(memory(job("b", 1, 1, Priority::P2), 40 << 30), Span::hours(10)));
    lab.decide();
    let before = lab.cluster.reservations[&second].start;
    lab.submit(memory(job("junior", 1, 0, Priority::P2), 40 << 30));
    lab.decide();
    lab.decide();
    assert_eq!(lab.cluster.reservations[&second].start, before);
}

/// The claim was made on a node that had been closed since the decision: its victim stopped for nothing.
#[test]
fn nobody_is_stopped_for_a_node_that_was_closed_meanwhile() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let victim = lab.submit(job("victim", 1, 8, Priority::P3));
    lab.settle();
    let urgent = lab.submit(job("urgent", 1, 8, Priority::P0));
    let held = decide_later(&mut lab, |lab| {
        lab.apply(Input::Hold { job: urgent, by: "me".to_string() });
    });
    assert!(matches!(held, Err(Refusal::StaleDecision { .. })));
    lab.apply(Input::Release { job: urgent, by: "me".to_string() });
    let closed = decide_later(&mut lab, |lab| {
        lab.apply(Input::Cordon { node: N0, by: "op".to_string() });
    });
    assert!(matches!(closed, Err(Refusal::StaleDecision { .. })));
    assert_eq!(lab.state(victim), JobState::Running);
}

fn register(lab: &mut Lab, name: &str, machine: &Arc<Machine>, leaf: &str) {
    lab.apply(registration(name, machine, leaf));
}

/// Memory on a socket that is no longer there was looked up by its index.
#[test]
fn a_decision_for_a_machine_that_changed_is_dropped() {
    let two = custom(Custom { sockets: 2, memory_bytes: 100 << 30, ..Custom::default() });
    let one = custom(Custom { sockets: 1, memory_bytes: 100 << 30, ..Custom::default() });
    let mut lab = Lab::new(1, &two, 1);
    lab.submit(memory(job("wide", 1, 0, Priority::P2), 100 << 30));
    let dropped = decide_later(&mut lab, |lab| register(lab, "n0", &one, "leaf0"));
    assert!(matches!(dropped, Err(Refusal::StaleDecision { .. })));
}

/// An agent that names its leaf and no spine took the whole leaf to another spine.
#[test]
fn a_node_that_names_no_spine_leaves_its_leaf_where_it_is() {
    let machine = profile("dgx-h100").unwrap();
    let mut lab = Lab::new(1, &machine, 1);
    let placement =
        NodePlacement { leaf: Some("leaf7".to_string()), spine: Some("s1".to_string()), ..NodePlacement::default() };
    let placements = BTreeMap::from([("n0".to_string(), placement)]);
    lab.apply(Input::Fabric { placements, uplinks: BTreeMap::new(), pools: BTreeMap::new(), by: "op".to_string() });
    let before = lab.cluster.fabric.spine_of(lab.cluster.node(N0).leaf);
    register(&mut lab, "n1", &machine, "leaf7");
    assert_eq!(lab.cluster.node(N0).leaf, lab.cluster.node(NodeId(1)).leaf);
    assert_eq!(lab.cluster.fabric.spine_of(lab.cluster.node(N0).leaf), before);
}

/// The slice was put across islands, the rules refused that, and so every decision.
#[test]
fn a_slice_is_never_spread_over_islands_to_fit_a_socket() {
    let islands = Some("0,2|1,3".to_string());
    let machine = custom(Custom { gpus: 4, sockets: 2, islands, ..Custom::default() });
    let mut lab = Lab::new(1, &machine, 1);
    let mut spec = require(job("pairs", 2, 1, Priority::P2), Level::Socket);
    spec.topology.ranks_per_island = Some(2);
    let pairs = lab.submit(spec);
    let other = lab.submit(job("other", 1, 1, Priority::P2));
    lab.settle();
    assert_eq!(lab.state(pairs), JobState::Pending);
    assert_eq!(lab.state(other), JobState::Running);
}

/// An input that is applied exactly when a job may begin makes the moment the state's own time; it must not be lost.
#[test]
fn a_wake_up_counts_from_the_last_decision_and_not_from_the_state() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let (decided_at, begin) = (lab.now, lab.now + Span::minutes(5));
    let mut spec = job("later", 1, 1, Priority::P2);
    spec.begin = Some(begin);
    let id = lab.submit(spec);
    lab.settle();
    assert_eq!(next_wake_up(&lab.cluster, decided_at), Some(begin));
    lab.now = begin;
    lab.apply(Input::Heard { node: N0 });
    assert_eq!(lab.cluster.now, begin);
    assert_eq!(next_wake_up(&lab.cluster, decided_at), Some(begin));
    assert_eq!(
        next_wake_up(&lab.cluster, begin),
        Some(begin + lab.cluster.policy.promote_after),
        "it would wait too long"
    );
    lab.settle();
    assert_eq!(lab.cluster.job(id).unwrap().state, JobState::Running);
}

/// It stopped the yielding job, gave up its claim for the urgent one ahead, and the yielding one came back; and so on.
#[test]
fn who_would_give_up_its_claim_for_somebody_ahead_evicts_nobody() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let lasting = lab.submit(job("lasting", 1, 8, Priority::P1));
    lab.settle();
    let yields = lab.submit(job("yields", 1, 8, Priority::P3));
    lab.settle();
    lab.submit(job("urgent", 2, 8, Priority::P0));
    let mut short = job("short", 1, 8, Priority::P1);
    (short.preemptible, short.time_limit) = (true, Some(Span::minutes(10)));
    lab.submit(short);
    lab.settle();
    assert_eq!(lab.cluster.job(yields).unwrap().evictions, 0);
    assert!([lasting, yields].iter().all(|id| lab.cluster.job(*id).unwrap().state == JobState::Running));
}

/// The same in a ring with a limit: while the yielding job ran, the limit kept the urgent one out of the way.
#[test]
fn who_would_give_way_once_a_limit_is_open_evicts_nobody() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let limit = Some(Limit { gpus: Some(16), ..Limit::default() });
    let queue = QueueSpec { path: "prod".to_string(), limit, ..QueueSpec::default() };
    lab.apply(Input::Queues { queues: vec![queue], by: "test".to_string() });
    let prod = |mut spec: JobSpec| {
        spec.queue = "prod".to_string();
        spec
    };
    lab.submit(job("lasting", 1, 8, Priority::P1));
    lab.settle();
    let yields = lab.submit(prod(job("yields", 1, 8, Priority::P3)));
    lab.settle();
    lab.submit(prod(job("urgent", 2, 8, Priority::P0)));
    let mut short = job("short", 1, 8, Priority::P1);
    (short.preemptible, short.time_limit) = (true, Some(Span::minutes(10)));
    lab.submit(short);
    lab.settle();
    assert_eq!(lab.cluster.job(yields).unwrap().evictions, 0);
}

/// The server named the torn file again and again: no start ever came about, and the nodes were charged for it.
#[test]
fn a_checkpoint_that_was_torn_after_it_counted_gives_way_to_the_one_before() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let id = lab.submit(job("train", 1, 8, Priority::P2));
    lab.settle();
    let report = |lab: &mut Lab, report: Report| drop(lab.apply(Input::Report { node: N0, report }));
    let saved =
        |attempt, step| Report::Checkpoint { job: id, attempt: AttemptNo(attempt), step, path: format!("/c/{step}") };
    let rejected = |attempt| Report::CheckpointRejected {
        job: id,
        attempt: AttemptNo(attempt),
        path: "/c/40".to_string(),
        why: "torn".to_string(),
    };
    let step =
        |lab: &Lab| lab.cluster.job(id).and_then(|job| job.checkpoint.as_ref()).map(|checkpoint| checkpoint.step);
    report(&mut lab, saved(1, 40));
    report(&mut lab, rejected(1));
    assert_eq!(
        (step(&lab), lab.state(id)),
        (Some(40), JobState::Running),
        "what a rank announces in vain stops nobody"
    );
    lab.apply(Input::Requeue { job: id, by: "me".to_string() });
    lab.obey();
    lab.decide();
    assert_eq!(lab.state(id), JobState::Starting);
    report(&mut lab, rejected(2));
    report(&mut lab, saved(2, 20));
    lab.exit(id, 0, Exit::Refused("it cannot resume here".to_string()));
    assert_eq!((step(&lab), lab.state(id)), (Some(20), JobState::Pending));
    assert!(lab.cluster.node(N0).refusals.is_empty(), "a torn file is no fault of the node");
    lab.settle();
    let attempt = lab.cluster.job(id).and_then(|job| job.attempt.as_ref()).unwrap();
    assert_eq!(attempt.resume_from.as_ref().map(|checkpoint| checkpoint.step), Some(20));
}

#[test]
fn maintenance_that_was_to_begin_in_the_past_empties_no_node() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    lab.pass(Span::hours(2));
    let plan = |from| Input::Maintain { node: N0, from, until: from + Span::hours(9), by: "ops".to_string() };
    let yesterday = Time(lab.now.0 - Span::hours(1).0);
    let refused = ganger_core::lifecycle::apply(&mut lab.cluster, plan(yesterday), lab.now);
    assert!(matches!(refused, Err(Refusal::BadMaintenance { ref why, .. }) if why.contains("is past")), "{refused:?}");
    assert!(lab.cluster.node(N0).maintenance.is_empty() && lab.cluster.node(N0).draining.is_none());
    // What was on its way for a few seconds was meant.
    lab.apply(plan(Time(lab.now.0 - Span::seconds(5).0)));
    assert!(!lab.cluster.node(N0).maintenance.is_empty());
}
