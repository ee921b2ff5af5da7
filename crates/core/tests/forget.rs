//! Nodes that are gone for good.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job};
use ganger_core::lifecycle::{Input, Refusal};
use ganger_core::model::job::{JobState, Priority};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::node::HealthState;
use ganger_core::model::{NodeId, Span};
use std::sync::Arc;

fn forget(lab: &mut Lab, node: u32) -> Result<(), String> {
    let input = Input::Forget { node: NodeId(node), by: "op".to_string() };
    lab.try_apply(input).map(|_| ()).map_err(|refusal| refusal.to_string())
}

/// Only nodes 0 and 1 are heard.
fn pass(lab: &mut Lab, span: Span) {
    for _ in 0..span.0 / Span::seconds(10).0 {
        lab.now = lab.now + Span::seconds(10);
        [0, 1].into_iter().for_each(|node| drop(lab.apply(Input::Heard { node: NodeId(node) })));
        lab.apply(Input::Tick);
    }
}

/// Nodes that had been sold counted for ever: with enough of them nobody was a majority, and no silent node was fenced.
#[test]
fn forgotten_nodes_do_not_count_in_the_majority() {
    let mut lab = Lab::new(5, &profile("dgx-h100").unwrap(), 5);
    let id = lab.submit(job("spread", 2, 8, Priority::P2));
    lab.settle();
    assert_eq!(lab.nodes_of(id), ["n0", "n1"]);
    for node in 2..5 {
        let told = forget(&mut lab, node).unwrap_err();
        assert!(told.contains("its agent was heard") && told.contains("stop the agent"), "{told}");
    }
    pass(&mut lab, Span::seconds(70));
    for node in 2..5 {
        forget(&mut lab, node).unwrap();
    }
    assert_eq!(lab.cluster.listed_nodes().count(), 2);
    // Node 1 falls silent: two of three (the server and node 0) are enough to tell.
    for _ in 0..8 {
        lab.now = lab.now + Span::seconds(10);
        lab.apply(Input::Heard { node: NodeId(0) });
        lab.apply(Input::Tick);
    }
    assert_eq!(lab.cluster.node(NodeId(1)).health.state, HealthState::Fenced);
    assert_eq!(lab.state(id), JobState::Stopping);
    lab.assert_rules();
}

#[test]
fn a_node_with_workers_is_not_forgotten_and_a_forgotten_one_may_return() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    lab.submit(job("runs", 1, 8, Priority::P2));
    lab.settle();
    assert!(forget(&mut lab, 0).unwrap_err().contains("1 of its workers may still run"));
    assert!(matches!(
        lab.try_apply(Input::Forget { node: NodeId(9), by: "op".to_string() }),
        Err(Refusal::NoSuchNode { node: NodeId(9) })
    ));
    lab.apply(Input::Quarantine { node: NodeId(0), cause: "sold".to_string(), fenced: true });
    lab.now = lab.now + Span::seconds(61);
    forget(&mut lab, 0).unwrap();
    lab.apply(Input::Heard { node: NodeId(0) });
    assert_eq!(lab.cluster.node(NodeId(0)).health.state, HealthState::Probation);
}

#[test]
fn equal_machines_are_kept_once() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let other = Arc::new((*profile("dgx-h100").unwrap()).clone());
    lab.apply(common::registration("n1", &other, "leaf0"));
    assert!(Arc::ptr_eq(&lab.cluster.nodes[0].machine, &lab.cluster.nodes[1].machine));
}
