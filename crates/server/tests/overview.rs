//! `top` and `usage`: sums of what the state holds.
#![allow(clippy::unwrap_used)]
mod common;
use common::{Agent, Scratch, Server, job, small_job, submit, until};
use ganger_core::model::job::JobState;
use ganger_core::model::wire::api::{NodeView, TopView, UsageView};
use ganger_runtime::shutdown::pair;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_waits_and_was_charged_adds_up() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let (trigger, shutdown) = pair();
    let agent = Agent::register(owner.clone(), "n0").await.spawn(shutdown);
    let queues = json!({"queues": [{"name": "lab", "budget": {"gpu_hours": 10, "per": "day", "per_user": 5}}, {"name": "lab/nlp"}]});
    let _: Value = owner.post("/v1/queues", &queues).await.unwrap();
    let file =
        json!({"leaves": {"leaf1": ["n0"]}, "uplink": {"leaf1": "400Gbps"}, "settings": {"usage.half_life": "1h"}});
    let _: Value = owner.post("/v1/cluster", &file).await.unwrap();
    let mut train = job("train");
    (train["queue"], train["time"]) = (json!("lab/nlp"), json!("10m"));
    submit(&owner, &train).await.unwrap();
    until(&owner, "train", |job| job.view.state == JobState::Running).await;
    let mut sweep = small_job("sweep");
    (sweep["array"], sweep["resources"]) = (json!("0-99%1"), json!({"gpus": 1, "cpus": 1}));
    submit(&owner, &sweep).await.unwrap();
    until(&owner, "sweep_0", |job| job.view.reason.is_some_and(|reason| reason.to_string() == "Resources")).await;

    let top: TopView = owner.get("/v1/top").await.unwrap();
    let gpus = top.gpus;
    assert_eq!((gpus.used, gpus.free, gpus.out + gpus.claimed + gpus.draining + gpus.split + gpus.sick), (8, 0, 0));
    let leaf = &top.leaves[0];
    assert_eq!((leaf.leaf.as_str(), leaf.nodes, leaf.nodes_ready, leaf.gpus, leaf.gpus_used), ("leaf1", 1, 1, 8, 8));
    let uplink = leaf.uplink.unwrap();
    assert_eq!((uplink.capacity_bps, uplink.asked_bps, uplink.gangs), (400_000_000_000, 0, 0));
    let waits: Vec<(String, u64, u64)> =
        top.pending.iter().map(|line| (line.reason.unwrap().to_string(), line.jobs, line.gpus)).collect();
    assert_eq!(waits, [("Resources".to_string(), 100, 100)], "the rest of the array waits behind its first task");
    assert_eq!(top.status.jobs_pending, 100);
    let lab = top.queues.iter().find(|queue| queue.name == "lab").unwrap();
    assert_eq!(lab.used.gpus, 8);

    let usage: Vec<UsageView> = owner.get("/v1/usage").await.unwrap();
    let names: Vec<(&str, bool, bool)> =
        usage.iter().map(|line| (line.queue.as_str(), line.user.is_some(), line.budget.is_some())).collect();
    assert_eq!(
        names,
        [("default", false, false), ("lab", false, true), ("lab", true, true), ("lab/nlp", false, false)]
    );
    assert!(usage.iter().all(|line| line.decayed_gpu_ms.is_some() != line.user.is_some()));
    let (whole, part) = (&usage[1], &usage[2]);
    assert_eq!((whole.gpu_milli, part.gpu_milli), (8_000, 8_000));
    let (whole, part) = (whole.budget.as_ref().unwrap(), part.budget.as_ref().unwrap());
    assert_eq!((whole.gpu_ms, part.gpu_ms), (36_000_000, 18_000_000));
    assert_eq!(whole.spent_gpu_ms + whole.left_gpu_ms, whole.gpu_ms);
    assert_eq!(owner.get::<Vec<UsageView>>("/v1/usage?queue=lab").await.unwrap().len(), 3);
    // Nothing is no answer to a name that is wrong.
    for (path, why) in [
        ("/v1/usage?queue=la", "there is no queue \"la\""),
        ("/v1/usage?user=nobody", "no budget has a part for user \"nobody\""),
        ("/v1/jobs?queue=la", "there is no queue \"la\""),
    ] {
        let error = owner.get::<Value>(path).await.unwrap_err();
        assert!(error.status().unwrap() == 404 && error.to_string().contains(why), "{path}: {error}");
    }

    let _: Value = owner.post("/v1/nodes/n0/cordon", &json!(null)).await.unwrap();
    let _: Value = owner.post("/v1/jobs/train/cancel", &json!(null)).await.unwrap();
    until(&owner, "train", |job| job.view.state == JobState::Cancelled).await;
    let top: TopView = owner.get("/v1/top").await.unwrap();
    assert_eq!((top.gpus.used, top.gpus.free, top.gpus.out), (0, 0, 8), "nobody can have them");
    trigger.pull();
    agent.await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_gpus_are_counted_exactly_everywhere() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let (trigger, shutdown) = pair();
    let agent = Agent::register(owner.clone(), "n0").await.spawn(shutdown);
    for (name, share) in [("half", 0.5), ("eighth", 0.125)] {
        let mut part = small_job(name);
        part["resources"] = json!({"share": share, "vram": "4GiB", "cpus": 1});
        submit(&owner, &part).await.unwrap();
        let runs = until(&owner, name, |job| job.view.state == JobState::Running).await;
        assert_eq!((runs.view.gpus, runs.view.gpu_milli as f64), (1, share * 1_000.0));
    }
    let top: TopView = owner.get("/v1/top").await.unwrap();
    assert_eq!((top.gpus.split, top.gpus.split_held_milli, top.gpus.used), (1, 625, 0));
    assert_eq!((top.leaves[0].gpu_milli_used, top.status.gpu_milli_used), (625, 625));
    let queue = top.queues.iter().find(|queue| queue.name == "default").unwrap();
    assert_eq!(queue.used.all_gpus_milli(), 625);
    let node: NodeView = owner.get("/v1/nodes/n0").await.unwrap();
    assert_eq!((node.held_milli.values().copied().collect::<Vec<_>>(), node.used.gpu_milli), (vec![625], 625));
    trigger.pull();
    agent.await.unwrap();
    server.stop().await;
}
