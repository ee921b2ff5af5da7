//! What `why` says, where a plain answer would mislead.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job, limit, spec_mut, window};
use ganger_core::lifecycle::Input;
use ganger_core::lifecycle::input::QueueSpec;
use ganger_core::model::amounts::Limit;
use ganger_core::model::budget::{Budget, Period};
use ganger_core::model::decision::Reason;
use ganger_core::model::job::{JobSpec, Owner, Priority, Shrink};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::time::rfc3339;
use ganger_core::model::whole::WholeNodes;
use ganger_core::model::wire::api::Why;
use ganger_core::model::{JobId, NodeId, Span};
use ganger_core::scheduler;
use std::sync::Arc;

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

fn fact(why: &Why, about: &str) -> String {
    let found = why.facts.iter().find(|fact| fact.about == about);
    found.unwrap_or_else(|| panic!("nothing is said of {about}: {why:#?}")).text.clone()
}

fn gate(why: &Why, name: &str) -> (bool, String) {
    let gate = why.gates.iter().find(|gate| gate.gate == name).unwrap_or_else(|| panic!("no gate {name}: {why:#?}"));
    (gate.passed, gate.text.clone())
}

fn queue(lab: &mut Lab, spec: QueueSpec) {
    lab.apply(Input::Queues { queues: vec![spec], by: "ops".to_string() });
}

#[test]
fn who_has_to_leave_and_for_whom_is_named_on_both_sides() {
    let mut lab = lab(1);
    let victim = lab.submit(JobSpec { preemptible: true, ..job("small", 2, 4, Priority::P3) });
    lab.settle();
    spec_mut(&mut lab.cluster, victim).checkpoint.grace = Span::minutes(2);
    let urgent = lab.submit(job("urgent", 1, 8, Priority::P0));
    let before = why(&lab, urgent).preemption.unwrap();
    assert!(before.starts_with("job 1 small (P3) has to leave for it, at the latest by "), "{before}");
    lab.decide();
    let told = why(&lab, urgent).preemption.unwrap();
    assert!(told.starts_with("job 1 small (P3) has to leave for it, at the latest by "), "{told}");
    let said = why(&lab, victim).summary;
    let gone = rfc3339(lab.now + Span::minutes(2));
    assert!(said.contains("preempted by job 2 urgent (P0): told at ") && said.ends_with(&gone), "{said}");
}

#[test]
fn a_running_job_is_told_every_end_that_is_known_and_the_first_one_first() {
    let mut lab = lab(1);
    let free = lab.submit(job("free", 1, 1, Priority::P2));
    let mut spec = limit(job("bound", 1, 1, Priority::P2), Span::hours(3));
    spec.checkpoint.on_demand = true;
    spec.windows = vec![window(&lab.cluster, 60, 120)];
    let bound = lab.submit(spec);
    lab.settle();
    assert!(fact(&why(&lab, free), "until").starts_with("no end is known"), "{:?}", why(&lab, free).facts);
    let (from, until) = (lab.now + Span::hours(1), lab.now + Span::hours(2));
    lab.apply(Input::Maintain { node: NodeId(0), from, until, by: "ops".to_string() });
    let said = fact(&why(&lab, bound), "until");
    let limit = format!("{} (time limit 3h)", rfc3339(lab.now + Span::hours(3)));
    assert!(said.starts_with(&format!("at most {} (maintenance of n0 begins, told at ", rfc3339(from))), "{said}");
    assert!(said.contains("(its window ends, told at ") && said.ends_with(&limit), "{said}");
    let other = fact(&why(&lab, free), "until");
    assert_eq!(other, format!("at most {} (maintenance of n0 begins)", rfc3339(from)));
}

#[test]
fn an_elastic_gang_is_told_its_sizes_and_where_it_goes_on() {
    let mut lab = lab(1);
    let other = lab.submit(job("other", 1, 4, Priority::P2));
    let mut spec = job("elastic", 8, 1, Priority::P2);
    (spec.gang.min, spec.gang.step, spec.gang.shrink) = (2, 2, Shrink::Restart);
    (spec.checkpoint.on_demand, spec.checkpoint.grace) = (true, Span::seconds(30));
    let gang = lab.submit(spec);
    lab.settle();
    let size = fact(&why(&lab, gang), "size");
    assert!(
        size.starts_with("4 of 8 wanted (its file allows 2 to 8 workers in steps of 2); it may grow from "),
        "{size}"
    );
    lab.finish(other);
    lab.apply(Input::Resize { job: gang, workers: 6, by: "owner".to_string() });
    assert!(fact(&why(&lab, gang), "size").starts_with("4 of 6 asked for at "), "{:?}", why(&lab, gang).facts);
    lab.decide();
    let goes_on = fact(&why(&lab, gang), "goes on");
    assert!(goes_on.starts_with("with 6 workers on n0, kept for it until "), "{goes_on}");
    lab.settle();
    assert!(fact(&why(&lab, gang), "size").starts_with("6 of 6 asked for"), "{:?}", why(&lab, gang).facts);
}

#[test]
fn a_running_job_is_told_to_whom_its_devices_are_promised_next() {
    let mut lab = lab(1);
    let runs = lab.submit(limit(job("runs", 1, 8, Priority::P2), Span::hours(1)));
    lab.settle();
    lab.submit(job("next", 1, 8, Priority::P2));
    lab.settle();
    let said = fact(&why(&lab, runs), "promised");
    assert!(said.starts_with("its devices to job 2 next (P2) from "), "{said}");
}

#[test]
fn what_no_limit_will_ever_allow_is_told_with_the_arithmetic() {
    let mut lab = lab(6);
    let gpus = |gpus| Some(Limit { gpus: Some(gpus), ..Limit::default() });
    queue(&mut lab, QueueSpec { path: "lab".to_string(), limit: gpus(16), ..QueueSpec::default() });
    queue(&mut lab, QueueSpec { path: "lab/nlp".to_string(), ..QueueSpec::default() });
    let large = JobSpec { queue: "lab/nlp".to_string(), ..job("large", 3, 8, Priority::P2) };
    let large = lab.submit(large);
    let text = "queue lab may hold 16 GPUs at most, and it asks for 24 GPUs (3 workers of 8 GPUs each)";
    assert_eq!(scheduler::never(&lab.cluster, large, lab.now).as_deref(), Some(text));
    lab.settle();
    let said = why(&lab, large);
    assert_eq!((said.reason, said.satisfiable), (Some(Reason::Unsatisfiable), false), "{said:#?}");
    assert!(said.summary.contains(text), "{}", said.summary);
    assert_eq!(gate(&said, "satisfiable"), (false, text.to_string()));
    assert_eq!(gate(&said, "queue lab"), (false, "0 GPUs used + 24 GPUs asked, of 16 GPUs".to_string()));
    let mut elastic = JobSpec { queue: "lab".to_string(), ..job("elastic", 3, 8, Priority::P2) };
    elastic.gang.min = 2;
    elastic.gang.step = 1;
    let elastic = lab.submit(elastic);
    assert_eq!(scheduler::never(&lab.cluster, elastic, lab.now), None, "its smallest size fits");
    queue(&mut lab, QueueSpec { path: "lab".to_string(), limit: gpus(48), ..QueueSpec::default() });
    lab.settle();
    assert_eq!(lab.why(large), "nothing blocks it");
    assert_eq!(lab.state(large), ganger_core::model::job::JobState::Running, "the limit was raised");
}

#[test]
fn a_wait_for_a_limit_that_somebody_else_fills_is_no_never() {
    let mut lab = lab(2);
    let limit = Some(Limit { gpus: Some(8), ..Limit::default() });
    queue(&mut lab, QueueSpec { path: "lab".to_string(), limit, ..QueueSpec::default() });
    let of_lab = |name: &str| JobSpec { queue: "lab".to_string(), ..job(name, 1, 8, Priority::P2) };
    lab.submit(of_lab("first"));
    lab.settle();
    let waits = lab.submit(of_lab("second"));
    lab.settle();
    let said = why(&lab, waits);
    assert_eq!((said.reason, said.satisfiable), (Some(Reason::QueueLimit), true));
}

#[test]
fn a_wait_for_a_budget_has_a_gate_of_its_own() {
    let mut lab = lab(1);
    let budget = Budget { gpu_ms: Span::hours(10).0, per: Period::Month, user_gpu_ms: Some(Span::hours(8).0) };
    queue(&mut lab, QueueSpec { path: "lab".to_string(), budget: Some(budget), ..QueueSpec::default() });
    let spec =
        |name: &str| JobSpec { queue: "lab".to_string(), ..limit(job(name, 1, 4, Priority::P2), Span::minutes(90)) };
    let owner = Owner { user: "ada".to_string(), ..Owner::default() };
    lab.apply(Input::Submit { spec: Arc::new(spec("first")), owner: owner.clone() });
    lab.settle();
    let waits = lab.apply(Input::Submit { spec: Arc::new(spec("second")), owner }).submitted.unwrap();
    lab.settle();
    let said = why(&lab, waits);
    assert_eq!(said.reason, Some(Reason::Budget), "{said:#?}");
    let needs = "0 GPU-hours spent + 6 GPU-hours for what runs + 6 GPU-hours for it, of";
    let (passed, text) = gate(&said, "budget lab of ada");
    assert!(!passed && text.starts_with(&format!("{needs} 8 GPU-hours a month; renews at ")), "{text}");
    let (passed, text) = gate(&said, "budget lab");
    assert!(!passed && text.starts_with(&format!("{needs} 10 GPU-hours a month; renews at ")), "{text}");
    let first = fact(&why(&lab, JobId(1)), "until");
    assert!(first.contains("(time limit 1h30m)"), "{first}");
}
