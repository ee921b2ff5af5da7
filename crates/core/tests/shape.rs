//! The cluster as a file: what is shown is what can be applied, and a pool has the nodes that a file names for it.
#![allow(clippy::unwrap_used, reason = "a test may")]
use ganger_core::lifecycle::{self, Input};
use ganger_core::model::wire::cluster::ClusterFile;
use ganger_core::model::{Cluster, Time};
use serde_json::{Value, json};

fn apply(cluster: &mut Cluster, file: &Value) {
    let plan = serde_json::from_value::<ClusterFile>(file.clone()).unwrap().into_plan().unwrap();
    let plan = plan.with_leaving(cluster);
    let (placements, uplinks, pools, by) = (plan.placements, plan.uplinks, plan.pools, "ops".to_string());
    lifecycle::apply(cluster, Input::Fabric { placements, uplinks, pools, by }, Time(0)).unwrap();
    for (name, value) in plan.settings {
        lifecycle::apply(cluster, Input::Setting { name, value, by: "ops".to_string() }, Time(0)).unwrap();
    }
}

#[test]
fn what_is_shown_can_be_applied_again_and_changes_nothing() {
    let mut cluster = Cluster::new();
    let file = json!({
        "leaves": {"leaf1": ["n0", "n1"], "leaf2": ["n2"], "leaf3": []},
        "spines": {"s1": ["leaf1"], "s2": ["leaf2"]},
        "uplink": {"leaf1": "3.2Tbps", "leaf3": "123456789bps"},
        "pools": [
            {"name": "inference", "nodes": ["n2"], "lend": {"windows": ["Mon-Fri 20:00-08:00 Europe/Berlin"], "to": ["lab"], "classes": ["P3"]}},
            {"name": "kept", "nodes": [], "lend": "never"},
            {"name": "open", "nodes": ["n0"]},
            {"name": "shared", "nodes": ["n9"], "lend": "always"},
        ],
        "settings": {"lease": "90s"},
    });
    apply(&mut cluster, &file);
    let shown = serde_json::to_value(ClusterFile::of(&cluster)).unwrap();
    for key in ["leaves", "pools", "uplink"] {
        assert_eq!(shown[key], file[key], "{key}");
    }
    assert_eq!(shown["spines"], json!({"s1": ["leaf1"], "s2": ["leaf2"]}));
    assert_eq!((&shown["settings"]["lease"], &shown["settings"]["aging.step"]), (&json!("1m30s"), &json!("6h")));
    let before = cluster.clone();
    apply(&mut cluster, &shown);
    assert_eq!(
        (&cluster.placements, &cluster.pools, &cluster.policy),
        (&before.placements, &before.pools, &before.policy)
    );
    assert_eq!(cluster.fabric, before.fabric);
}

#[test]
fn a_pool_that_is_named_has_the_nodes_that_are_named_and_leaves_stay_as_they_were() {
    let mut cluster = Cluster::new();
    let leaves = json!({"leaf1": ["n0", "n1"]});
    apply(
        &mut cluster,
        &json!({"leaves": leaves, "pools": [{"name": "a", "nodes": ["n0", "n1"]}, {"name": "b", "nodes": ["n2"]}]}),
    );
    apply(&mut cluster, &json!({"pools": [{"name": "a", "nodes": ["n1"]}]}));
    let shown = serde_json::to_value(ClusterFile::of(&cluster)).unwrap();
    assert_eq!(shown["pools"], json!([{"name": "a", "nodes": ["n1"]}, {"name": "b", "nodes": ["n2"]}]));
    assert_eq!(shown["leaves"], leaves);
    apply(&mut cluster, &json!({"pools": [{"name": "b", "nodes": ["n1"]}, {"name": "a", "nodes": []}]}));
    let shown = serde_json::to_value(ClusterFile::of(&cluster)).unwrap();
    assert_eq!(shown["pools"], json!([{"name": "b", "nodes": ["n1"]}]));
}
