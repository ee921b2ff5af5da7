//! Which nodes are kept for promises of whole ones, and which promises fit together.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::registration;
use ganger_core::lifecycle;
use ganger_core::model::job::{JobSpec, Shape};
use ganger_core::model::machine::profiles::Custom;
use ganger_core::model::queue::Queue;
use ganger_core::model::whole::{WholeNodes, misplaced};
use ganger_core::model::{Cluster, Time};
use std::sync::Arc;

fn whole(nodes: u32, gpus: u32, gpu_model: Option<&str>) -> WholeNodes {
    WholeNodes { nodes, gpus, gpu_model: gpu_model.map(str::to_string) }
}

fn cluster(models: &[&str], promises: &[(&str, WholeNodes)]) -> Cluster {
    let mut cluster = Cluster::new();
    for (index, model) in models.iter().enumerate() {
        let custom = Custom { gpus: 8, cpus: 16, gpu_model: model.to_string(), ..Custom::default() };
        let (name, machine) = (format!("n{index}"), Arc::new(custom.build().unwrap()));
        lifecycle::apply(&mut cluster, registration(&name, &machine, "leaf0"), Time(1)).unwrap();
    }
    for (path, whole) in promises {
        let queue = Queue { whole_nodes: Some(whole.clone()), ..Queue::new(path) };
        cluster.queues.insert(path.to_string(), queue);
    }
    cluster
}

fn counts(cluster: &Cluster) -> Vec<(&str, u32)> {
    let kept = cluster.kept_nodes(cluster.holds(), Time(1));
    kept.iter().map(|one| (one.path, one.taken + one.open)).collect()
}

#[test]
fn who_may_have_any_node_leaves_the_scarce_ones_to_others() {
    let promises = [("a", whole(1, 8, None)), ("b", whole(1, 8, Some("H100")))];
    assert_eq!(counts(&cluster(&["H100", "A100"], &promises)), [("a", 1), ("b", 1)]);
    assert_eq!(counts(&cluster(&["A100", "A100"], &promises)), [("a", 1), ("b", 0)]);
    assert_eq!(counts(&cluster(&["H100"], &promises)), [("a", 1), ("b", 0)], "the first has it");
}

#[test]
fn what_a_child_has_counts_for_its_parent() {
    let promises = [("a", whole(3, 8, None)), ("a/b", whole(2, 8, None)), ("c", whole(2, 8, None))];
    assert_eq!(counts(&cluster(&["H100"; 4], &promises)), [("a/b", 2), ("a", 1), ("c", 1)]);
}

#[test]
fn promises_lie_within_those_above() {
    let wrong = |promises: &[(&'static str, WholeNodes)]| {
        misplaced(&promises.iter().map(|(path, whole)| (*path, whole)).collect()).map(|(path, _)| path)
    };
    let (parent, child) = (("a", whole(3, 8, None)), ("a/b/c", whole(2, 8, None)));
    assert_eq!(wrong(&[parent.clone(), child.clone()]), None);
    assert_eq!(wrong(&[parent.clone(), child.clone(), ("a/d", whole(2, 8, None))]), Some("a"), "four of three");
    assert_eq!(wrong(&[parent.clone(), ("a/b", whole(1, 4, None))]), Some("a/b"));
    assert_eq!(wrong(&[parent, ("a/b", whole(1, 8, Some("H100")))]), Some("a/b"));
    assert_eq!(wrong(&[child]), None);
}

#[test]
fn smaller_workers_share_a_node_as_far_as_it_is_promised() {
    let nodes = |workers: u32, gpus: u32, each: Option<u32>| {
        let mut spec = JobSpec::new("job", workers, Shape { gpus, ..Shape::default() });
        spec.topology.ranks_per_node = each;
        whole(4, 8, None).nodes_for(&spec)
    };
    assert_eq!((nodes(2, 8, None), nodes(9, 2, None), nodes(4, 2, Some(1))), (Some(2), Some(3), Some(4)));
    assert_eq!((nodes(1, 16, None), nodes(1, 0, None)), (None, None));
}
