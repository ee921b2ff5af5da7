//! What `why` says, where a plain answer would mislead.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job};
use ganger_core::lifecycle::Input;
use ganger_core::lifecycle::input::QueueSpec;
use ganger_core::model::JobId;
use ganger_core::model::decision::Reason;
use ganger_core::model::job::{JobSpec, Priority};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::whole::WholeNodes;
use ganger_core::model::wire::api::Why;
use ganger_core::scheduler;

fn lab(nodes: u32) -> Lab {
    Lab::new(nodes, &profile("dgx-h100").unwrap(), nodes)
}

fn why(lab: &Lab, id: JobId) -> Why {
    scheduler::why(&lab.cluster, id, lab.now).unwrap()
}

#[test]
fn an_urgent_job_is_told_who_may_not_be_stopped_for_it() {
    let mut lab = lab(1);
    lab.submit(job("train", 1, 8, Priority::P2));
    lab.settle();
    let urgent = lab.submit(job("urgent", 1, 8, Priority::P0));
    lab.settle();
    let said = why(&lab, urgent).preemption.unwrap();
    assert!(said.contains("job 1 train (P2) is not preemptible") && said.contains("`preemptible: true`"), "{said}");
}

#[test]
fn the_filter_that_no_node_passes_is_named() {
    let mut lab = lab(2);
    let pooled = JobSpec { pool: Some("default".to_string()), ..job("pooled", 1, 1, Priority::P2) };
    let mut alien = job("alien", 1, 1, Priority::P2);
    alien.shape.gpu_model = Some("MI300X".to_string());
    let mut vast = job("vast", 1, 1, Priority::P2);
    vast.shape.vram_bytes = 1 << 40;
    for (spec, expected) in [
        (pooled, "no node is in pool default, nor in any other"),
        (alien, "no node has GPUs of the model MI300X"),
        (vast, "no GPU has 1TiB of memory"),
    ] {
        let id = lab.submit(spec);
        let why = why(&lab, id);
        assert!(!why.satisfiable && why.summary.contains(expected), "{}", why.summary);
    }
}

#[test]
fn what_would_start_now_is_the_most_that_fits() {
    let mut lab = lab(2);
    let wide = lab.submit(job("wide", 2, 9, Priority::P2));
    let changes = why(&lab, wide).would_start_now;
    assert!(changes.contains(&"gpus: 8 instead of 9 a worker".to_string()), "{changes:?}");
}

#[test]
fn who_can_never_run_is_not_ahead() {
    let mut lab = lab(1);
    lab.submit(job("giant", 2, 8, Priority::P1));
    lab.submit(job("runs", 1, 8, Priority::P2));
    lab.settle();
    let first = lab.submit(job("first", 1, 8, Priority::P2));
    let why = why(&lab, first);
    assert_eq!((why.position, why.ahead.len()), (Some(1), 0), "{:?}", why.ahead);
}

/// Room on promised nodes is none for others, also in what is said of nodes and of other shapes.
#[test]
fn who_waits_for_promised_nodes_is_told_whose_they_are() {
    let mut lab = lab(3);
    let whole_nodes = Some(WholeNodes { nodes: 2, gpus: 8, gpu_model: None });
    let team = QueueSpec { path: "team".to_string(), whole_nodes, ..QueueSpec::default() };
    lab.apply(Input::Queues { queues: vec![team], by: "ops".to_string() });
    let wide = lab.submit(job("wide", 3, 8, Priority::P0));
    let why = why(&lab, wide);
    assert_eq!((why.reason, why.slurm_reason.as_deref()), (Some(Reason::Promised), Some("Reservation")));
    assert!(why.satisfiable && why.summary.contains("2 nodes with 8 GPUs each are promised to queue team"), "{why:?}");
    let gate = why.gates.iter().find(|gate| gate.gate == "promises").unwrap();
    assert!(!gate.passed && gate.text == why.summary);
    let promised = why.nodes.iter().find(|nodes| nodes.because == "promised to queue team").unwrap();
    assert_eq!(promised.nodes, 2);
    assert_eq!(why.would_start_now, ["workers: 1 instead of 3", "gpus: 2 instead of 8 a worker"]);
}
