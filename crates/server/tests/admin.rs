//! What administrators apply can be read back, taken back, and is doubted where it may be a slip.
#![allow(clippy::unwrap_used)]
mod common;
use common::{Agent, Scratch, Server, job, submit, until};
use ganger_core::model::job::JobState;
use ganger_core::model::wire::api::{ClusterApplied, NodeView, QueueView, Role};
use ganger_runtime::shutdown::pair;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cluster_reads_back_in_the_form_in_which_it_is_applied() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let _agent = Agent::register(owner.clone(), "n0").await;
    let file = json!({
        "leaves": {"leaf1": ["n0", "n7"]}, "uplink": {"leaf1": "3.2Tbps"}, "settings": {"lease": "5s"},
        "pools": [{"name": "night", "nodes": ["n0", "n7"], "lend": {"windows": ["20:00-08:00"], "to": ["labb"]}}],
    });
    let applied: ClusterApplied = owner.post("/v1/cluster", &file).await.unwrap();
    let [absent, lent, lease] = &applied.warnings[..] else { panic!("{applied:?}") };
    assert_eq!(absent, "1 node not registered yet: n7");
    assert_eq!(lent, "pool night is lent to queue labb, which does not exist");
    assert!(lease.contains("a lease of 5s"), "{lease}");

    let ada = server.token("ada", Role::Member, "nobody").await;
    let shown: Value = ada.get("/v1/cluster").await.unwrap();
    for key in ["leaves", "uplink", "pools"] {
        assert_eq!(shown[key], file[key], "{key}");
    }
    assert_eq!((&shown["settings"]["lease"], &shown["settings"]["grow.after"]), (&json!("5s"), &json!("10m")));
    let _: ClusterApplied = owner.post("/v1/cluster", &shown).await.unwrap();
    assert_eq!(owner.get::<Value>("/v1/cluster").await.unwrap(), shown);

    let _: Value = owner.post("/v1/cluster", &json!({"pools": [{"name": "night", "nodes": ["n7"]}]})).await.unwrap();
    let node: NodeView = owner.get("/v1/nodes/n0").await.unwrap();
    assert_eq!((node.leaf.as_str(), node.pool), ("leaf1", None), "it left the pool, and nothing else");
    let tiny = owner.post::<_, Value>("/v1/cluster", &json!({"settings": {"lease": "5ms"}})).await.unwrap_err();
    assert!(tiny.to_string().contains("shorter than 1s"), "{tiny}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_and_nodes_of_pools_go_when_nobody_needs_them() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let (trigger, shutdown) = pair();
    let agent = Agent::register(owner.clone(), "n0").await.spawn(shutdown);
    let queues = json!({"queues": [{"name": "lab"}, {"name": "lab/nlp"}, {"name": "lent"}]});
    let _: Value = owner.post("/v1/queues", &queues).await.unwrap();
    let pool = |nodes: &[&str]| json!({"pools": [{"name": "own", "nodes": nodes, "lend": {"to": ["lent"]}}]});
    let _: Value = owner.post("/v1/cluster", &pool(&["n0"])).await.unwrap();
    let mut train = job("train");
    (train["queue"], train["pool"]) = (json!("lab/nlp"), json!("own"));
    submit(&owner, &train).await.unwrap();
    until(&owner, "train", |job| job.view.state == JobState::Running).await;

    for (queue, why) in [
        ("lab", "1 queue below it (lab/nlp)"),
        ("lab%2Fnlp", "1 job in it has not ended: job 1 train (running)"),
        ("lent", "pool own is lent to it"),
        ("default", "jobs that name none"),
    ] {
        let error = owner.delete::<Value>(&format!("/v1/queues/{queue}")).await.unwrap_err();
        assert!(error.status().unwrap() == 409 && error.to_string().contains(why), "{queue}: {error}");
    }
    let error = owner.delete::<Value>("/v1/queues/nosuch").await.unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    let error = owner.post::<_, Value>("/v1/cluster", &pool(&[])).await.unwrap_err();
    assert!(error.status().unwrap() == 409 && error.to_string().contains("job 1 train"), "{error}");

    let _: Value = owner.post("/v1/jobs/train/cancel", &json!(null)).await.unwrap();
    until(&owner, "train", |job| job.view.state == JobState::Cancelled).await;
    let _: Value = owner.post("/v1/cluster", &pool(&[])).await.unwrap();
    assert_eq!(owner.get::<NodeView>("/v1/nodes/n0").await.unwrap().pool, None);
    let left: Vec<QueueView> = owner.delete("/v1/queues/lab%2Fnlp").await.unwrap();
    assert_eq!(left.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>(), ["default", "lab", "lent"]);
    trigger.pull();
    agent.await.unwrap();
    server.stop().await;
    let server = Server::start(&scratch.0).await;
    let left: Vec<QueueView> = server.owner().get("/v1/queues").await.unwrap();
    assert_eq!(left.len(), 3, "it is gone after a restart too");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn promises_that_no_node_could_keep_are_doubted() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let agent = Agent::register(owner.clone(), "n0").await;
    let warnings = async |queue: Value| {
        let queues: Vec<QueueView> = owner.post("/v1/queues", &json!({"queues": [queue]})).await.unwrap();
        queues.into_iter().flat_map(|queue| queue.warnings).collect::<Vec<_>>()
    };
    let whole = |nodes: u32, gpus: u32, model: &str| json!({"name": "a", "whole_nodes": {"nodes": nodes, "gpus": gpus, "gpu_model": model}});
    let said = warnings(whole(1, 8, "H1000")).await;
    assert!(said.len() == 1 && said[0].ends_with("but nodes with so many GPUs have H100"), "{said:?}");
    let said = warnings(whole(1, 16, "H100")).await;
    assert!(said[0].ends_with("but no node has 16 GPUs"), "{said:?}");
    let said = warnings(whole(3, 8, "H100")).await;
    assert!(said[0].ends_with("but at most 1 could be had now"), "{said:?}");
    assert_eq!(warnings(whole(1, 8, "H100")).await, [""; 0]);
    let said = warnings(json!({"name": "b", "guarantee": {"gpus": 9}})).await;
    assert_eq!(said, ["queue b: its guarantee of 9 GPUs is more than the whole cluster has, 8 GPUs"]);
    drop(agent);
    server.stop().await;
}
