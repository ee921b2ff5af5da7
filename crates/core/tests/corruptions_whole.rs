//! As `corruptions.rs`, for whole nodes that are promised to queues: a sound state or decision, one planted fault, and `check`
//! says which rule broke.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, broken, job, spec_mut};
use ganger_core::check;
use ganger_core::lifecycle::input::QueueSpec;
use ganger_core::lifecycle::{self, Input, Refusal};
use ganger_core::model::decision::Decision;
use ganger_core::model::job::{Group, JobSpec, Priority};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::whole::WholeNodes;
use ganger_core::model::{Cluster, JobId, Span};
use ganger_core::scheduler::decide;

fn whole(nodes: u32) -> WholeNodes {
    WholeNodes { nodes, gpus: 8, gpu_model: None }
}

fn lab(nodes: u32) -> Lab {
    let mut lab = Lab::new(nodes, &profile("dgx-h100").unwrap(), 2);
    let queue = |path: &str| QueueSpec { path: path.to_string(), ..QueueSpec::default() };
    lab.apply(Input::Queues { queues: vec![queue("team"), queue("other")], by: "ops".to_string() });
    lab.pass(Span::minutes(1));
    lab
}

fn of(queue: &str, spec: JobSpec) -> JobSpec {
    JobSpec { queue: queue.to_string(), ..spec }
}

/// P3 that yields and saves.
fn on_loan(name: &str) -> JobSpec {
    let mut spec = of("other", job(name, 1, 8, Priority::P3));
    spec.checkpoint.on_demand = true;
    spec
}

fn promise(cluster: &mut Cluster, nodes: u32) {
    cluster.queues.get_mut("team").unwrap().whole_nodes = (nodes > 0).then(|| whole(nodes));
}

/// What comes of a decision that was made as if nothing were promised, where so many nodes are.
fn applied(mut cluster: Cluster, nodes: u32) -> Result<(), String> {
    let decision = decide(&cluster, cluster.now);
    assert!(!decision.steps.is_empty());
    promise(&mut cluster, nodes);
    let (before, now) = (cluster.clone(), cluster.now);
    let result = lifecycle::apply(&mut cluster, Input::Decided(Box::new(decision)), now);
    match result {
        Ok(_) => assert_eq!(check::kept(&before, &cluster), []),
        Err(Refusal::StaleDecision { why }) => {
            assert_eq!(cluster, before, "it is dropped whole");
            return Err(why);
        }
        Err(other) => panic!("{other:?}"),
    }
    Ok(())
}

#[test]
fn rule_11_others_start_on_the_last_promised_nodes() {
    let with = |spec: JobSpec, nodes: u32| {
        let mut lab = lab(3);
        lab.submit(spec);
        applied(lab.cluster, nodes)
    };
    let small = || of("other", job("small", 1, 1, Priority::P2));
    assert_eq!(with(small(), 2), Ok(()), "two are left");
    assert!(with(small(), 3).unwrap_err().starts_with("rule 11: 3 nodes of 8 GPUs are promised to queue team"));
    assert_eq!(with(of("team", job("own", 3, 8, Priority::P2)), 3), Ok(()), "its own");
    assert_eq!(with(on_loan("loan"), 3), Ok(()));
    let grouped = JobSpec { group: Some(Group { name: "g".to_string(), size: 1 }), ..on_loan("grouped") };
    assert!(with(grouped, 3).unwrap_err().starts_with("rule 11"), "with others it would have to take along");
    let cores =
        JobSpec { shape: job("cores", 1, 0, Priority::P2).shape, ..of("other", job("cores", 1, 0, Priority::P2)) };
    assert!(with(cores, 3).unwrap_err().starts_with("rule 11"), "cores are promised as well");
}

#[test]
fn rule_11_a_claim_takes_what_is_lent() {
    let mut lab = lab(2);
    let loans = [lab.submit(on_loan("left")), lab.submit(on_loan("right"))];
    lab.settle();
    lab.submit(of("other", job("urgent", 1, 8, Priority::P0)));
    assert!(loans.iter().all(|id| lab.cluster.job(*id).unwrap().attempt.is_some()));
    assert_eq!(applied(lab.cluster.clone(), 1), Ok(()));
    assert!(applied(lab.cluster, 2).unwrap_err().starts_with("rule 11"));
}

/// A job of the team that claims what somebody on loan leaves. Of that one it is said that no guarantee takes anything from
/// it, so that nothing but the promise gives the right.
fn asked_back() -> (Cluster, JobId, JobId) {
    let mut lab = lab(1);
    promise(&mut lab.cluster, 1);
    let loan = lab.submit(JobSpec { firm: true, ..on_loan("loan") });
    lab.settle();
    lab.pass(Span::minutes(1));
    let own = lab.submit(of("team", job("own", 1, 8, Priority::P2)));
    assert_eq!(lab.decide(), 2, "a stop and a claim");
    (lab.cluster, loan, own)
}

#[test]
fn rule_3_somebody_leaves_who_is_not_on_loan() {
    let (cluster, loan, own) = asked_back();
    assert_eq!(broken(&cluster), [0; 0]);
    let with = |change: fn(&mut JobSpec), id: JobId| {
        let mut cluster = cluster.clone();
        change(spec_mut(&mut cluster, id));
        broken(&cluster)
    };
    assert_eq!(with(|spec| spec.checkpoint.on_demand = false, loan), [3], "it saves nothing");
    assert_eq!(with(|spec| spec.priority = Priority::P2, loan), [3]);
    assert_eq!(with(|spec| spec.group = Some(Group { name: "g".to_string(), size: 1 }), loan), [3]);
    assert_eq!(with(|spec| spec.priority = Priority::P3, own), [3], "of its own class");
    let mut cluster = cluster;
    promise(&mut cluster, 0);
    assert_eq!(broken(&cluster), [3], "nothing is promised");
}

#[test]
fn what_is_decided_beside_a_promise_keeps_it() {
    let mut lab = lab(3);
    promise(&mut lab.cluster, 2);
    for number in 0..12 {
        lab.submit(of("other", job(&format!("small{number}"), 1, 1, Priority::P2)));
    }
    let decision: Decision = decide(&lab.cluster, lab.now);
    assert_eq!(decision.steps.len(), 8, "one node for all of them");
    lab.settle();
}
