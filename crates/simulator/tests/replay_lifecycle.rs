//! Replays through the whole lifecycle: cases worked out by hand, and the bars where the data is at hand.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
mod shared_data;
mod support;

use ganger_simulator::replay::queueing::{Charge, Outcome, Policy, Setup, run};
use ganger_simulator::replay::readers::{itp, muri, openb};
use ganger_simulator::replay::trace::Trace;
use ganger_simulator::replay::{failures, mixed};
use support::trace;

fn outcome(trace: &Trace, policy: Policy) -> Outcome {
    let setup = Setup { nodes: 8, gpus_each: 8, charge: Charge::OnStart };
    run(trace, policy, setup, &mut |_| ()).unwrap().outcome
}

/// The long one is rotated out after half an hour and resumes when the short one is through; each start costs 10 s.
#[test]
fn the_long_one_gives_way_once_and_pays_a_second_start() {
    let ours = outcome(&trace(&[(64, 0, 2_000), (64, 100, 200)]), Policy::Ours);
    assert_eq!((ours.makespan_s, ours.preemptions, ours.max_wait_s), (2_263.0, 1, 1_700.0));
    // The short one runs from 1800 to 2013.
    assert_eq!(ours.mean_jct_s, (2_263.0 + 1_913.0) / 2.0);
    assert_eq!(ours.lost_gpu_hours, 64.0 * 30.0 / 3_600.0);
}

/// A gang of more than a node takes whole nodes: of the third no part is left for it.
#[test]
fn large_gangs_take_whole_nodes() {
    let beside = outcome(&trace(&[(48, 0, 100), (12, 0, 100), (1, 0, 100)]), Policy::Ours);
    assert_eq!((beside.makespan_s, beside.max_wait_s), (223.0, 111.5));
}

#[test]
fn nothing_is_charged_twice_and_jobs_of_one_instant_are_all_seen() {
    let jobs: Vec<(u32, u64, u64)> = (0..40).map(|index| (1 + index % 8, 0, 100)).collect();
    let ours = outcome(&trace(&jobs), Policy::Ours);
    assert_eq!(ours.preemptions, 0);
    let gpus: u32 = jobs.iter().map(|(gpus, _, _)| gpus).sum();
    assert_eq!(ours.lost_gpu_hours, f64::from(gpus) * 10.0 / 3_600.0);
    assert_eq!(ours.makespan_s, 3.0 * 111.5, "180 GPUs on 64");
}

fn published(name: &str) -> Option<Trace> {
    let text = shared_data::text(&format!("traces/muri-philly-2022/simulator/{name}.csv.gz"))?;
    Some(muri::jobs(name, &text).unwrap())
}

/// The bars on the smallest of the four traces; the others are in the benchmarks.
#[test]
#[ignore = "takes a minute"]
fn ours_is_better_than_tiresias_and_fifo_on_both_ends() {
    let Some(trace) = published("trace3") else { return };
    let [ours, tiresias, fifo] = [Policy::Ours, Policy::Tiresias, Policy::Fifo].map(|policy| outcome(&trace, policy));
    assert!(ours.mean_jct_s < tiresias.mean_jct_s && ours.mean_jct_s < fifo.mean_jct_s, "{ours:?} {tiresias:?}");
    assert!(ours.p99_jct_s <= tiresias.p99_jct_s, "{ours:?} {tiresias:?}");
    assert!(ours.max_wait_s <= 1.1 * fifo.max_wait_s, "{ours:?} {fifo:?}");
}

const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,creation_time,deletion_time,scheduled_time\n\
    a,1,1,1,1000,BE,0,60,0\nb,1,1,8,1000,LS,7200,7800,7200\nc,1,1,8,1000,LS,36000,36100,36000\n";

/// Two training jobs hold both nodes when an urgent pod comes.
#[test]
fn the_urgent_start_on_what_training_frees_for_them() {
    let pods = openb::pods("pods", PODS).unwrap();
    let jobs = itp::jobs("jobs", "job_id,submission_time,duration,num_gpu\nx,120,20000,8\ny,120,20000,8\n").unwrap();
    let setup = mixed::Setup { nodes: 2, gpus_each: 8, every: 1 };
    let [ours, kept, fifo, split] = mixed::Policy::ALL.map(|policy| mixed::run(&pods, &jobs, policy, setup).unwrap());
    // A checkpoint takes 20 s.
    assert_eq!((ours.p0_wait_max_s, ours.preemptions, ours.claims, ours.claims_kept), (20.0, 1, 1, 1));
    // Without, it waits for the first to end: start 30 s, 20000 s of work, submitted at 120 s.
    assert_eq!((kept.p0_wait_max_s, fifo.p0_wait_max_s), (12_950.0, 12_950.0));
    assert_eq!((split.p0_wait_max_s, split.preemptions), (0.0, 0));
    // Both are done by the end in ours; on one node of its own only one and a half are.
    assert_eq!(ours.p3_goodput_gpu_hours, (2.0 * 8.0 * 20_000.0 + 60.0) / 3_600.0);
    assert!(split.p3_goodput_gpu_hours < ours.p3_goodput_gpu_hours);
}

fn training() -> Trace {
    let lines: String = (0..40).map(|job| format!("{job},{},200000,8\n", job * 3_600)).collect();
    itp::jobs("jobs", &format!("job_id,submission_time,duration,num_gpu\n{lines}")).unwrap()
}

/// With a spare server the first step after a fault comes 90 s later; without checks somebody has to notice.
#[test]
fn health_checks_bring_jobs_back_and_pay() {
    let setup = failures::Setup { nodes: 44, gpus_each: 8, faults_per_day: 0.3, together: 1, seed: 5 };
    let [ours, optimal, none] = failures::Policy::ALL.map(|policy| failures::run(&training(), policy, setup).unwrap());
    assert!(ours.faults > 20 && ours.restarts > 10, "{ours:?}");
    // Most find another server at once; the others wait for one that is mended.
    assert!(ours.step_p50_s == 90.0 && ours.step_max_s < 4.0 * 3_600.0, "{ours:?}");
    assert!(none.step_p50_s > 1_800.0, "{none:?}");
    assert!(ours.effective_ratio > none.effective_ratio && ours.lost_gpu_hours < none.lost_gpu_hours, "{none:?}");
    assert!(optimal.effective_ratio > 0.95, "{optimal:?}");
}

/// Without faults all that is lost are the start and the checkpoints: 65 s, and 5 s each half hour of 200,000 s.
#[test]
fn without_faults_only_starts_and_checkpoints_are_lost() {
    let setup = failures::Setup { nodes: 40, gpus_each: 8, faults_per_day: 0.0, together: 1, seed: 1 };
    let ours = failures::run(&training(), failures::Policy::Ours, setup).unwrap();
    assert_eq!((ours.faults, ours.restarts), (0, 0));
    let lost_s = ours.lost_gpu_hours * 3_600.0 / (40.0 * 8.0);
    assert!((lost_s - (65.0 + 111.0 * 5.0)).abs() <= 5.0, "{lost_s}");
}

/// All policies on a cut of a public trace, two nodes for it: what they come to is kept beside it.
#[test]
fn a_cut_of_a_trace_comes_to_what_it_came_to() {
    let trace = muri::jobs("muri_cut.csv", include_str!("traces/muri_cut.csv")).unwrap();
    let setup = Setup { nodes: 2, gpus_each: 8, charge: Charge::OnStart };
    let line = |policy: Policy| {
        let Outcome { mean_jct_s, p99_jct_s, makespan_s, preemptions, lost_gpu_hours, max_wait_s, .. } =
            run(&trace, policy, setup, &mut |_| ()).unwrap().outcome;
        format!(
            "{}: mean {mean_jct_s:.0} p99 {p99_jct_s:.0} makespan {makespan_s:.0} preemptions {preemptions} \
             lost {lost_gpu_hours:.2} wait {max_wait_s:.0}\n",
            policy.name()
        )
    };
    let found: String = Policy::ALL.map(line).concat();
    assert_eq!(found, include_str!("traces/muri_cut.expected"), "all of it:\n{found}");
}
