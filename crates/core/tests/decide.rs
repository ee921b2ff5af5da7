//! Decisions on small clusters, one feature each.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job, limit, require};
use ganger_core::lifecycle::Input;
use ganger_core::model::job::{Exit, JobState, Level, Priority};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::{NodeId, Span};
use ganger_core::scheduler;

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    let mut lab = Lab::new(4, &profile("dgx-h100").unwrap(), 2);
    let a = lab.submit(job("a", 4, 8, Priority::P2));
    let b = lab.submit(job("b", 4, 8, Priority::P2));
    lab.settle();
    assert_eq!(lab.state(a), JobState::Running);
    assert_eq!(lab.state(b), JobState::Pending);
    assert!(lab.why(b).contains("needs 32 GPUs, 0 free"), "{}", lab.why(b));
    lab.finish(a);
    lab.settle();
    assert_eq!(lab.state(a), JobState::Done);
    assert_eq!(lab.state(b), JobState::Running);
}

#[test]
fn a_small_gang_takes_the_tightest_domain() {
    let mut lab = Lab::new(4, &profile("dgx-h100").unwrap(), 2);
    let one = lab.submit(job("one", 1, 4, Priority::P2));
    lab.settle();
    let two = lab.submit(job("two", 1, 4, Priority::P2));
    let wide = lab.submit(job("wide", 2, 8, Priority::P2));
    lab.settle();
    assert_eq!(lab.nodes_of(one), lab.nodes_of(two), "halves share a node");
    assert_eq!(lab.nodes_of(wide), ["n2", "n3"], "the gang gets the leaf that is whole");
}

#[test]
fn ranks_get_their_own_rail_and_local_cores() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let id = lab.submit(job("ranks", 8, 1, Priority::P2));
    lab.settle();
    let attempt = lab.cluster.job(id).unwrap().attempt.clone().unwrap();
    let machine = lab.cluster.nodes[0].machine.clone();
    for (rank, worker) in attempt.workers.iter().enumerate() {
        assert_eq!(worker.place.gpus, 1 << rank);
        assert_eq!(worker.place.nics, 1 << rank, "rail-optimised machine");
        let socket = usize::from(machine.gpus[rank].socket.unwrap());
        assert!(worker.place.cpus.is_subset(&machine.sockets[socket].cpus));
    }
}

#[test]
fn a_hard_constraint_is_never_relaxed_and_told() {
    let mut lab = Lab::new(3, &profile("dgx-h100").unwrap(), 1);
    let id = lab.submit(require(job("tied", 2, 8, Priority::P2), Level::Leaf));
    lab.settle();
    assert_eq!(lab.state(id), JobState::Pending);
    assert!(lab.why(id).contains("can never run"), "{}", lab.why(id));
}

#[test]
fn a_job_that_can_never_run_is_told_apart_from_one_that_waits() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let all = lab.submit(job("all", 2, 8, Priority::P2));
    let waits = lab.submit(job("waits", 2, 8, Priority::P2));
    let giant = lab.submit(job("giant", 3, 8, Priority::P2));
    let never = |lab: &Lab, id| scheduler::never(&lab.cluster, id, lab.cluster.now);
    assert!(never(&lab, giant).is_some_and(|why| why.contains("2 of 3 workers")), "also before any decision");
    lab.settle();
    assert_eq!((never(&lab, all), never(&lab, waits)), (None, None));
    assert!(never(&lab, giant).is_some());
}

#[test]
fn an_urgent_gang_stops_the_cheapest_victims_only() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let old = lab.submit(job("old", 1, 8, Priority::P3));
    lab.settle();
    lab.pass(Span::minutes(50));
    let young = lab.submit(job("young", 1, 8, Priority::P3));
    lab.settle();
    lab.pass(Span::minutes(1));
    let urgent = lab.submit(job("urgent", 1, 4, Priority::P0));
    lab.decide();
    assert_eq!(lab.state(young), JobState::Stopping);
    assert_eq!(lab.state(old), JobState::Running);
    lab.settle();
    assert_eq!(lab.state(urgent), JobState::Running);
    assert_eq!(lab.state(young), JobState::Pending);
    lab.finish(urgent);
    lab.settle();
    assert_eq!(lab.state(young), JobState::Running);
    assert_eq!(lab.cluster.job(young).unwrap().evictions, 1);
}

#[test]
fn an_impossible_claimant_has_no_victims() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let victim = lab.submit(job("victim", 2, 8, Priority::P3));
    lab.settle();
    let giant = lab.submit(job("giant", 3, 8, Priority::P0));
    let mut alien = job("alien", 1, 1, Priority::P0);
    alien.shape.gpu_model = Some("MI300X".to_string());
    let alien = lab.submit(alien);
    lab.settle();
    assert_eq!(lab.state(victim), JobState::Running);
    assert!(lab.why(giant).contains("can never run"));
    assert!(lab.why(alien).contains("can never run"));
}

#[test]
fn normal_work_evicts_nobody() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let low = lab.submit(job("low", 1, 8, Priority::P3));
    lab.settle();
    let normal = lab.submit(job("normal", 1, 8, Priority::P2));
    lab.settle();
    assert_eq!(lab.state(low), JobState::Running);
    assert_eq!(lab.state(normal), JobState::Pending);
}

#[test]
fn a_blocked_gang_gets_its_start_under_a_stream_of_small_jobs() {
    let mut lab = Lab::new(4, &profile("dgx-h100").unwrap(), 4);
    let blockers: Vec<_> =
        (0..4).map(|i| lab.submit(limit(job(&format!("b{i}"), 1, 8, Priority::P2), Span::seconds(100)))).collect();
    lab.settle();
    let big = lab.submit(limit(job("big", 4, 8, Priority::P2), Span::hours(1)));
    lab.settle();
    lab.pass(Span::seconds(50));
    lab.finish(blockers[0]);
    let long = lab.submit(limit(job("long", 1, 8, Priority::P2), Span::seconds(60)));
    lab.settle();
    assert_eq!(lab.state(long), JobState::Pending);
    assert!(lab.why(long).contains("promised to job"), "{}", lab.why(long));
    let short = lab.submit(limit(job("short", 1, 8, Priority::P2), Span::seconds(40)));
    lab.settle();
    assert_eq!(lab.state(short), JobState::Running, "it is over before the reserved start");
    lab.pass(Span::seconds(40));
    lab.finish(short);
    lab.pass(Span::seconds(10));
    for blocker in &blockers[1..] {
        lab.finish(*blocker);
    }
    lab.settle();
    assert_eq!(lab.state(big), JobState::Running);
}

#[test]
fn a_lost_node_restarts_the_gang_elsewhere_with_its_seniority() {
    let mut lab = Lab::new(3, &profile("dgx-h100").unwrap(), 3);
    let gang = lab.submit(job("gang", 2, 8, Priority::P2));
    lab.settle();
    let on = lab.nodes_of(gang);
    let lost = NodeId(on[0][1..].parse().unwrap());
    lab.apply(Input::NodeLost { node: lost, cause: "power".to_string() });
    lab.settle();
    assert_eq!(lab.state(gang), JobState::Running);
    assert!(!lab.nodes_of(gang).contains(&on[0]));
    assert_eq!(lab.cluster.job(gang).unwrap().attempts.0, 2);
    assert_eq!(lab.cluster.job(gang).unwrap().evictions, 0);
}

#[test]
fn a_refusing_node_is_charged_and_not_the_job() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let id = lab.submit(job("picky", 1, 8, Priority::P2));
    for _ in 0..2 {
        lab.decide();
        assert_eq!(lab.nodes_of(id), ["n0"]);
        lab.exit(id, 0, Exit::Refused("disk full".to_string()));
    }
    lab.settle();
    assert_eq!(lab.nodes_of(id), ["n1"]);
    assert_eq!(lab.cluster.job(id).unwrap().failures, 0);
}

#[test]
fn a_failed_rank_ends_the_others_and_the_job_after_its_retries() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let mut spec = job("flaky", 2, 8, Priority::P2);
    spec.retries = 1;
    let id = lab.submit(spec);
    lab.settle();
    lab.exit(id, 1, Exit::Code(3));
    lab.settle();
    assert_eq!(lab.state(id), JobState::Pending);
    assert!(lab.why(id).contains("not tried again before"), "{}", lab.why(id));
    lab.pass(Span::seconds(5));
    lab.settle();
    assert_eq!(lab.state(id), JobState::Running);
    lab.exit(id, 0, Exit::Code(4));
    lab.settle();
    assert_eq!(lab.state(id), JobState::Failed);
    assert_eq!(lab.finished[0].exit_code, Some(4));
}

#[test]
fn deciding_on_its_own_result_changes_nothing() {
    let mut lab = Lab::new(4, &profile("dgx-h100").unwrap(), 2);
    for i in 0..12 {
        lab.submit(limit(job(&format!("j{i}"), 1 + i % 3, 4, Priority::ALL[i as usize % 4]), Span::hours(1)));
    }
    lab.settle();
    let before = lab.cluster.clone();
    let decision = ganger_core::scheduler::decide(&lab.cluster, lab.now);
    assert!(decision.steps.is_empty());
    lab.apply(Input::Decided(Box::new(decision)));
    assert_eq!(lab.cluster, before);
}

#[test]
fn why_counts_every_node_once() {
    let mut lab = Lab::new(5, &profile("dgx-h100").unwrap(), 5);
    lab.submit(job("half", 1, 4, Priority::P2));
    lab.submit(job("full", 2, 8, Priority::P2));
    lab.apply(Input::Cordon { node: NodeId(4), by: "ops".to_string() });
    let id = lab.submit(job("asks", 3, 8, Priority::P2));
    lab.settle();
    let why = ganger_core::scheduler::why(&lab.cluster, id, lab.now).unwrap();
    assert_eq!(why.nodes.iter().map(|count| count.nodes).sum::<u32>(), why.nodes_total);
    assert_eq!(why.nodes_total, 5);
    assert!(why.would_start_now.iter().any(|change| change.contains("workers: 1 instead of 3")), "{why:#?}");
}

#[test]
fn an_elastic_gang_gives_up_one_worker_and_goes_on() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let mut spec = job("elastic", 8, 1, Priority::P3);
    (spec.gang.min, spec.gang.step) = (1, 1);
    let elastic = lab.submit(spec);
    lab.settle();
    let urgent = lab.submit(job("urgent", 1, 1, Priority::P1));
    lab.settle();
    assert_eq!(lab.state(urgent), JobState::Running);
    assert_eq!(lab.state(elastic), JobState::Running);
    let attempt = lab.cluster.job(elastic).unwrap().attempt.clone().unwrap();
    assert_eq!((attempt.number.0, attempt.staying().count()), (1, 7));
    assert_eq!(lab.cluster.job(elastic).unwrap().evictions, 0);
}

#[test]
fn two_urgent_jobs_share_what_one_victim_frees() {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let victims = [lab.submit(job("v0", 1, 8, Priority::P3)), lab.submit(job("v1", 1, 8, Priority::P3))];
    lab.settle();
    let urgent: Vec<_> = (0..2).map(|i| lab.submit(job(&format!("u{i}"), 1, 4, Priority::P0))).collect();
    lab.settle();
    assert!(urgent.iter().all(|id| lab.state(*id) == JobState::Running));
    let evicted = victims.iter().filter(|id| lab.cluster.job(**id).unwrap().evictions > 0).count();
    assert_eq!(evicted, 1, "the second waits for the rest of what the first victim frees");
}
