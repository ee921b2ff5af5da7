//! Whole lives through the real API: submit, place, run, end; restarts; agents' long polls.
#![allow(clippy::unwrap_used)]
mod common;
use common::{Agent, PATIENCE, Scratch, Server, job, small_job, submit, until};
use ganger_core::model::job::JobState;
use ganger_core::model::wire::api::{EventView, JobView, NodeView, QueueView, Snapshot, Status, Why};
use ganger_runtime::shutdown::pair;
use ganger_server::store::Store;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_submitted_placed_run_and_done() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let mut agent = Agent::register(server.by_socket(), "n0").await;
    agent.finishes = true;
    let (trigger, shutdown) = pair();
    let agent = agent.spawn(shutdown);

    let submitted = submit(&owner, &job("train")).await.unwrap();
    assert_eq!((submitted.view.id, submitted.view.gpus), (1, 8));
    let ended: Value = owner.get_within("/v1/jobs/train/wait?timeout_ms=20000", PATIENCE).await.unwrap();
    assert_eq!(
        (&ended["state"], &ended["exit_code"], &ended["attempt"]),
        (&json!("done"), &json!(0), &json!(1)),
        "{ended:#}"
    );
    assert_eq!(ended["ranks"][0]["node"], "n0");
    let kinds: Vec<&str> = ended["events"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"submitted") && kinds.contains(&"placed") && kinds.contains(&"done"), "{kinds:?}");

    // A finished job leaves the list, not the record; a newer one takes its name.
    assert_eq!(owner.get::<Vec<JobView>>("/v1/jobs").await.unwrap(), []);
    assert_eq!(owner.get::<Vec<JobView>>("/v1/jobs?all=true").await.unwrap().len(), 1);
    assert_eq!(owner.get::<Vec<JobView>>("/v1/jobs?state=failed").await.unwrap().len(), 0);
    let why: Why = owner.get("/v1/jobs/1/why").await.unwrap();
    assert_eq!(why.state, JobState::Done);
    submit(&owner, &job("train")).await.unwrap();
    assert_eq!(until(&owner, "train", |j| j.view.state == JobState::Done).await.view.id, 2);
    assert_eq!(until(&owner, "1", |_| true).await.view.id, 1);

    let status: Status = owner.get("/v1/status").await.unwrap();
    assert_eq!((status.nodes, status.gpus, status.gpus_used, status.jobs_pending), (1, 8, 0, 0));
    assert!(status.decisions >= 2);
    trigger.pull();
    agent.await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_restart_and_the_state_is_the_same() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let (trigger, shutdown) = pair();
    let agent = Agent::register(owner.clone(), "n0").await.spawn(shutdown);
    let queues = json!({"queues": [{"name": "lab", "weight": 2}, {"name": "lab/vision", "limit": {"gpus": 8}}]});
    let _: Value = owner.post("/v1/queues", &queues).await.unwrap();
    // Also of a node that has not joined yet.
    let file = json!({"leaves": {"leaf1": ["n0", "n9"]}, "pools": [{"name": "training", "nodes": ["n9"]}]});
    let _: Value = owner.post("/v1/cluster", &file).await.unwrap();
    submit(&owner, &job("one")).await.unwrap();
    until(&owner, "one", |j| j.view.state == JobState::Running).await;
    submit(&owner, &job("two")).await.unwrap();
    let _: Value = owner.post("/v1/jobs/two/hold", &json!(null)).await.unwrap();
    trigger.pull();
    let mut agent = agent.await.unwrap();
    let before = server.running.cycle().view().cluster.clone();
    assert_eq!(before.placements["n9"].pool.as_deref(), Some("training"));
    server.stop().await;

    let (store, loaded) = Store::open(&scratch.0, Default::default()).unwrap();
    assert_eq!(normal(&loaded), normal(&before));
    drop(store);

    let server = Server::start(&scratch.0).await;
    let view = server.running.cycle().view();
    assert_eq!(view.cluster.term, before.term + 1);
    assert_eq!(view.cluster.jobs, before.jobs);
    // The owner's token is still good, and the agent goes on where it was, without registering.
    let owner = server.owner();
    agent.client = owner.clone();
    agent.sync(0).await.unwrap();
    assert_eq!(until(&owner, "one", |_| true).await.view.state, JobState::Running);
    assert_eq!(until(&owner, "two", |_| true).await.view.reason.unwrap().to_string(), "Held");
    server.stop().await;
}

/// What a restart may change: when agents were heard, what the last decision said of waiting jobs, and the moment.
fn normal(cluster: &ganger_core::model::Cluster) -> ganger_core::model::Cluster {
    let mut cluster = cluster.clone();
    cluster.now = Default::default();
    cluster.blocked.clear();
    for node in &mut cluster.nodes {
        std::sync::Arc::make_mut(node).last_heard = Default::default();
    }
    cluster
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_reports_are_harmless() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let mut agent = Agent::register(owner.clone(), "n0").await;
    submit(&owner, &job("one")).await.unwrap();
    while agent.sync(1_000).await.unwrap().orders.is_none_or(|orders| orders.is_empty()) {}
    let first = agent.request(0);
    assert_eq!(first.reports.len(), 1);
    // The answer to the first is lost; the agent, then a server that forgot, get it again.
    for _ in 0..2 {
        let reply: Value = owner.post("/v1/agent/sync", &first).await.unwrap();
        assert_eq!(reply["acknowledged"], 1);
    }
    agent.register_again().await.unwrap();
    let reply: Value = owner.post("/v1/agent/sync", &first).await.unwrap();
    assert_eq!(reply["acknowledged"], 1);
    until(&owner, "one", |j| j.view.state == JobState::Starting && j.ranks[0].phase == "prepared").await;
    let events: Vec<EventView> = owner.get("/v1/events?job=one").await.unwrap();
    assert_eq!(events.iter().filter(|event| event.kind == "placed").count(), 1);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_wakes_for_orders_and_not_for_those_of_others() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let mut idle = Agent::register(owner.clone(), "a-idle").await;
    let mut agent = Agent::register(owner.clone(), "n0").await;
    idle.sync(0).await.unwrap();
    agent.sync(0).await.unwrap();
    let _: NodeView = owner.post("/v1/nodes/a-idle/cordon", &json!(null)).await.unwrap();
    idle.sync(0).await.unwrap();
    let generation = idle.request(0).generation_seen;
    let waiting = tokio::spawn(async move { agent.sync(20_000).await.unwrap().orders.unwrap().len() });
    let quiet = tokio::spawn(async move { idle.sync(300).await.unwrap().generation });
    submit(&owner, &job("one")).await.unwrap();
    let woken = tokio::time::timeout(Duration::from_secs(10), waiting).await;
    assert_eq!(woken.expect("the poll did not wake for its order").unwrap(), 1);
    assert_eq!(quiet.await.unwrap(), generation);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_of_another_boot_or_of_no_name_is_told_to_register() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let mut agent = Agent::register(server.owner(), "n0").await;
    agent.boot_id = "boot-2".to_string();
    let error = agent.sync(0).await.unwrap_err();
    assert_eq!(error.status().unwrap(), 409, "{error}");
    agent.register_again().await.unwrap();
    agent.sync(0).await.unwrap();
    agent.node = "n1".to_string();
    let error = agent.sync(0).await.unwrap_err();
    assert_eq!(error.status().unwrap(), 404, "{error}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_learn_of_their_peers_and_a_vouch_is_kept_in_mind() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let mut one = Agent::register(server.owner(), "n0").await;
    let _other = Agent::register(server.owner(), "n1").await;
    let peers = one.sync(0).await.unwrap().peers.unwrap();
    assert_eq!(peers.agents.len(), 1);
    assert_eq!((peers.agents[0].node.as_str(), peers.agents[0].address.as_deref()), ("n1", Some("n1:9")));
    server.stop().await;

    // The same after a restart, without anybody registering; who has seen it is not told again.
    let server = Server::start(&scratch.0).await;
    let mut request = serde_json::to_value(one.request(0)).unwrap();
    request["peers_seen"] = json!(peers.version);
    request["witness"] = json!(false);
    request["vouched"] = json!([{"node": "n1", "remaining_ms": 50_000}]);
    let reply: Value = server.owner().post("/v1/agent/sync", &request).await.unwrap();
    assert_eq!(reply["peers"], json!(null));
    request["peers_seen"] = json!(0);
    let reply: Value = server.owner().post("/v1/agent/sync", &request).await.unwrap();
    assert_eq!(reply["peers"]["secret"], peers.secret);
    let cluster = server.running.cycle().view().cluster.clone();
    let (n0, n1) = (cluster.node_named("n0").unwrap().id, cluster.node_named("n1").unwrap().id);
    assert!(cluster.doubtful.contains(&n0) && cluster.vouched[&n1] > cluster.now);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_jobs_say_why_and_people_can_hold_release_and_cancel_them() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let dry: Why = owner.post("/v1/jobs?dry_run=true", &job("one")).await.unwrap();
    assert!(!dry.summary.is_empty());
    assert_eq!(owner.get::<Vec<JobView>>("/v1/jobs").await.unwrap(), []);
    submit(&owner, &job("one")).await.unwrap();
    let waits = until(&owner, "one", |j| j.view.reason.is_some()).await;
    assert!(waits.view.note.is_some());
    let why: Why = owner.get("/v1/jobs/one/why").await.unwrap();
    assert_eq!(why.reason, waits.view.reason);
    let held: JobView = owner.post("/v1/jobs/one/hold", &json!(null)).await.unwrap();
    assert_eq!(held.reason.unwrap().to_string(), "Held");
    let _: JobView = owner.post("/v1/jobs/one/release", &json!(null)).await.unwrap();
    let cancelled: JobView = owner.post("/v1/jobs/one/cancel", &json!(null)).await.unwrap();
    assert_eq!(cancelled.state, JobState::Cancelled);
    let error = owner.post::<_, JobView>("/v1/jobs/one/cancel", &json!(null)).await.unwrap_err();
    assert_eq!(error.status().unwrap(), 409, "{error}");
    let error = owner.get::<JobView>("/v1/jobs/never").await.unwrap_err();
    assert_eq!(error.status().unwrap(), 404);
    assert!(error.to_string().contains("\"never\""), "{error}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependencies_on_ended_jobs_are_known_from_the_store() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let mut agent = Agent::register(owner.clone(), "n0").await;
    agent.finishes = true;
    let (trigger, shutdown) = pair();
    let agent = agent.spawn(shutdown);
    submit(&owner, &small_job("first")).await.unwrap();
    until(&owner, "first", |j| j.view.state == JobState::Done).await;
    let mut second = small_job("second");
    second["after"] = json!(["afterok:first"]);
    submit(&owner, &second).await.unwrap();
    until(&owner, "second", |j| j.view.state == JobState::Done).await;
    let mut third = small_job("third");
    third["after"] = json!(["afternotok:first"]);
    let error = submit(&owner, &third).await.unwrap_err();
    assert_eq!(error.status().unwrap(), 422, "{error}");
    assert!(error.to_string().contains("can never start"), "{error}");
    trigger.pull();
    agent.await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_can_be_made_again_from_the_snapshot_and_from_the_recording() {
    let scratch = Scratch::new();
    let server = Server::start_with(&scratch.0, |config| config.store.snapshot_every = 10).await;
    let owner = server.owner();
    let mut agent = Agent::register(owner.clone(), "n0").await;
    agent.finishes = true;
    let (trigger, shutdown) = pair();
    let agent = agent.spawn(shutdown);
    for i in 0..12 {
        submit(&owner, &job(&format!("j{i}"))).await.unwrap();
    }
    until(&owner, "j11", |j| j.view.state == JobState::Done).await;
    trigger.pull();
    agent.await.unwrap();

    let Snapshot { cluster, now, decision } = owner.get("/v1/snapshot").await.unwrap();
    assert_eq!(Some(ganger_core::scheduler::decide(&cluster, now)), decision);

    let recording: ganger_server::store::Recording = owner.get("/v1/recording").await.unwrap();
    assert!(recording.inputs.len() < 40, "bounded: {}", recording.inputs.len());
    let mut replayed = recording.start;
    for logged in recording.inputs {
        for (node, at) in logged.heard {
            ganger_core::lifecycle::apply(&mut replayed, ganger_core::lifecycle::Input::Heard { node }, at).unwrap();
        }
        ganger_core::lifecycle::apply(&mut replayed, logged.input, logged.at).unwrap();
    }
    assert_eq!(normal(&replayed), normal(&server.running.cycle().view().cluster));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_and_the_shape_of_the_cluster_are_applied() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let _agent = Agent::register(owner.clone(), "n0").await;
    let file = json!({"leaves": {"leaf1": ["n0"]}, "pools": [{"name": "training", "nodes": ["n0"]}], "settings": {"lease": "30s"}});
    let _: Value = owner.post("/v1/cluster", &file).await.unwrap();
    let node: NodeView = owner.get("/v1/nodes/n0").await.unwrap();
    assert_eq!(
        (node.leaf.as_str(), node.pool.as_deref(), node.devices.as_str()),
        ("leaf1", Some("training"), "........")
    );
    let queues: Vec<QueueView> = owner.post("/v1/queues", &json!({"queues": [{"name": "lab"}]})).await.unwrap();
    assert_eq!(queues.iter().map(|q| q.name.as_str()).collect::<Vec<_>>(), ["default", "lab"]);
    let too_much = json!({"queues": [{"name": "lab", "guarantee": {"gpus": 9}, "limit": {"gpus": 8}}]});
    let error = owner.post::<_, Value>("/v1/queues", &too_much).await.unwrap_err();
    assert_eq!(error.status().unwrap(), 422, "{error}");
    server.stop().await;
}
