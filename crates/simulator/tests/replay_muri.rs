//! The queueing experiment: traces worked out by hand, and the published figures where the data is at hand.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
mod shared_data;
mod support;

use ganger_simulator::replay::queueing::{Charge, Outcome, Policy, Setup, run};
use ganger_simulator::replay::readers::muri;
use ganger_simulator::replay::trace::Trace;
use support::trace;

/// The cluster of the published comparison.
fn setup(charge: Charge) -> Setup {
    Setup { nodes: 8, gpus_each: 8, charge }
}

fn outcome_of(trace: &Trace, policy: Policy, charge: Charge) -> Outcome {
    run(trace, policy, setup(charge), &mut |_| ()).unwrap().outcome
}

fn outcome(jobs: &[(u32, u64, u64)], policy: Policy) -> Outcome {
    outcome_of(&trace(jobs), policy, Charge::OnStart)
}

/// A long job on all 64 GPUs, then a short one: 2000 and 200 iterations of 1.015 s, 10 s for a start.
const LONG_THEN_SHORT: [(u32, u64, u64); 2] = [(64, 0, 2_000), (64, 100, 200)];

#[test]
fn the_short_one_waits_or_goes_first() {
    let waits = outcome(&LONG_THEN_SHORT, Policy::Fifo);
    assert_eq!((waits.makespan_s, waits.preemptions, waits.max_wait_s), (2_253.0, 0, 1_940.0));
    // It runs from 100 to 313; the long one has paid its start twice and waited 213.
    let first = outcome(&LONG_THEN_SHORT, Policy::SrtfOracle);
    assert_eq!((first.makespan_s, first.preemptions, first.max_wait_s), (2_263.0, 1, 213.0));
    assert_eq!(first.mean_jct_s, (2_263.0 + 213.0) / 2.0);
    assert_eq!(first.lost_gpu_hours, 64.0 * 30.0 / 3_600.0);
    assert_eq!(outcome(&LONG_THEN_SHORT, Policy::SjfOracle).preemptions, 0);
}

/// The published rule lets the last stretch of each run be free and charges every other one.
#[test]
fn compat_charges_each_event_but_the_last() {
    let compat = outcome_of(&trace(&LONG_THEN_SHORT), Policy::SrtfOracle, Charge::EveryEvent);
    // 0 to 100 is one event: 10 s lost; the short one runs 203 s free; the long one goes on for 2030 - 90.
    assert_eq!(compat.makespan_s, 100.0 + 203.0 + 1_940.0);
}

/// A head that needs all nodes, one that fits beside and ends before, one that would delay the head.
#[test]
fn backfill_passes_the_head_only_where_it_does_not_delay_it() {
    let jobs = [(32, 0, 1_000), (64, 1, 100), (32, 2, 500), (32, 3, 5_000)];
    let blocked = outcome(&jobs, Policy::Fifo);
    let passed = outcome(&jobs, Policy::FifoBackfill);
    // The head starts at 1025 (10 + 1015) either way; the third runs beside the first instead of after the head.
    assert_eq!(passed.makespan_s, blocked.makespan_s);
    let third_saves_s = 1_025.0 + 111.5 - 2.0;
    assert!((blocked.mean_jct_s - passed.mean_jct_s - third_saves_s / 4.0).abs() < 1e-6, "{passed:?} {blocked:?}");
}

/// Equal service goes round: the newcomer goes first until both have attained the first limit.
#[test]
fn tiresias_stops_who_has_attained_more() {
    let tiresias = outcome(&[(64, 0, 1_000), (64, 200, 30)], Policy::Tiresias);
    // 3250 / 64 GPU-seconds are attained after 51 s: the newcomer at 200 goes first and ends after 10 + 30.45 s.
    assert_eq!(tiresias.preemptions, 1);
    assert_eq!(tiresias.mean_jct_s, (40.45 + 1_025.0 + 40.45 + 10.0) / 2.0);
}

#[test]
fn a_job_larger_than_the_cluster_is_refused() {
    let error = run(&trace(&[(72, 0, 1)]), Policy::Fifo, setup(Charge::OnStart), &mut |_| ()).unwrap_err();
    assert_eq!(error, "cannot replay: job 0 asks for 72 GPUs, which 8 nodes of 8 never hold; give more nodes");
}

fn published(name: &str) -> Option<Trace> {
    let text = shared_data::text(&format!("traces/muri-philly-2022/simulator/{name}.csv.gz"))?;
    Some(muri::jobs(name, &text).unwrap())
}

fn near(found: f64, published: f64, percent: f64, what: &str) {
    assert!((found / published - 1.0).abs() * 100.0 <= percent, "{what}: {found}, published {published}");
}

const PREEMPTIVE: [Policy; 3] = [Policy::SrtfOracle, Policy::SrsfOracle, Policy::Tiresias];

/// Mean, p99 and makespan; the published ones of the latter two are known to 10,000 s.
#[test]
fn compat_gives_the_published_figures() {
    for (name, figures) in [
        ("trace1", [(1_370_603.0, 16.65, 26.05), (980_141.0, 15.53, 26.07), (3_330_371.0, 14.74, 23.56)]),
        ("trace2", [(2_665_607.0, 33.13, 48.85), (2_213_950.0, 31.24, 49.03), (7_396_369.0, 37.91, 48.12)]),
        ("trace3", [(193_082.0, 4.54, 8.17), (185_022.0, 4.19, 8.17), (347_213.0, 4.98, 8.17)]),
        ("trace4", [(581_983.0, 7.77, 14.79), (487_167.0, 7.37, 14.89), (1_319_383.0, 8.66, 13.07)]),
    ] {
        let Some(trace) = published(name) else { return };
        for (policy, (mean_s, p99_millions, makespan_millions)) in PREEMPTIVE.into_iter().zip(figures) {
            let found = outcome_of(&trace, policy, Charge::EveryEvent);
            near(found.mean_jct_s, mean_s, 0.1, &format!("{name} {policy:?} mean"));
            for (found_s, published) in [(found.p99_jct_s, p99_millions), (found.makespan_s, makespan_millions)] {
                let difference = (found_s / 1e6 - published).abs();
                assert!(difference <= 0.0051 + published / 1_000.0, "{name} {policy:?}: {found_s}, {published} M");
            }
        }
    }
}

#[test]
fn compat_gives_the_published_means_when_all_come_at_once() {
    for (name, figures) in [
        ("trace1_pr", [2_303_544.0, 1_801_860.0, 6_921_683.0]),
        ("trace2_pr", [4_079_154.0, 3_384_600.0, 10_555_502.0]),
        ("trace3_pr", [844_395.0, 798_058.0, 2_213_110.0]),
        ("trace4_pr", [1_430_856.0, 1_218_502.0, 2_674_023.0]),
    ] {
        let Some(trace) = published(name) else { return };
        for (policy, mean_s) in PREEMPTIVE.into_iter().zip(figures) {
            let found = outcome_of(&trace, policy, Charge::EveryEvent);
            near(found.mean_jct_s, mean_s, 0.5, &format!("{name} {policy:?}"));
        }
    }
}
