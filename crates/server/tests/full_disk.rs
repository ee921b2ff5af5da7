//! A store that cannot be written: nothing acknowledged is lost, nothing unstored is believed, reading goes on.
#![allow(clippy::unwrap_used)]
mod common;
use common::{Agent, Scratch, Server, job, small_job, submit, until};
use ganger_core::model::job::JobState;
use ganger_core::model::wire::api::{JobView, Status};
use ganger_runtime::shutdown::pair;
use serde_json::{Value, json};

/// A job whose record alone is larger than what is left.
fn large_job(name: &str) -> Value {
    let mut job = small_job(name);
    let part = "x".repeat(100_000);
    job["env"] = json!({"A": part, "B": part, "C": part});
    job
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_submissions_are_refused_and_the_rest_goes_on() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let mut agent = Agent::register(owner.clone(), "n0").await;
    submit(&owner, &job("runs")).await.unwrap();
    while until(&owner, "runs", |_| true).await.view.state != JobState::Running {
        agent.sync(100).await.unwrap();
    }
    agent.sync(0).await.unwrap();
    server.stop().await;

    // The same store, with room for a little more and no further.
    let pages = std::fs::metadata(scratch.0.join("ganger.db")).unwrap().len() / 4096 + 8;
    let server = Server::start_with(&scratch.0, |config| config.store.page_limit = Some(pages as u32)).await;
    let owner = server.owner();
    agent.client = owner.clone();
    let before = server.running.cycle().view().cluster.clone();
    let error = submit(&owner, &large_job("big")).await.unwrap_err();
    assert_eq!(error.status().unwrap(), 507, "{error}");
    assert!(error.to_string().contains("running jobs go on"), "{error}");
    let view = server.running.cycle().view();
    assert_eq!(view.cluster.jobs, before.jobs);
    assert_eq!(view.cluster.next_job, before.next_job);
    assert!(view.store_fault.is_some() && view.metrics.failed_commits > 0);
    let health = owner.get::<Value>("/healthz").await.unwrap_err();
    assert_eq!(health.status().unwrap(), 503);

    // Reads and heartbeats go on.
    let heard = agent.sync(0).await.unwrap();
    assert_eq!(heard.orders.map_or(0, |orders| orders.len()), 1);
    assert_eq!(owner.get::<Status>("/v1/status").await.unwrap().gpus_used, 8);
    assert_eq!(owner.get::<JobView>("/v1/jobs/runs").await.unwrap().state, JobState::Running);

    // Fill what is left with small jobs: every acknowledged one is there after a restart, every refused one is not.
    let mut accepted = Vec::new();
    loop {
        match submit(&owner, &small_job(&format!("little-{}", accepted.len()))).await {
            Ok(job) => accepted.push(job.view.id),
            Err(error) => break assert_eq!(error.status().unwrap(), 507, "{error}"),
        }
        assert!(accepted.len() < 2_000);
    }
    assert!(!accepted.is_empty());
    // A report cannot be stored now, so it is not acknowledged, and the agent keeps it.
    let (job, attempt) = (ganger_core::model::JobId(1), ganger_core::model::AttemptNo(1));
    let path = "x".repeat(100_000);
    agent.report(ganger_core::model::report::Report::Checkpoint { job, attempt, step: 7, path });
    let reply = agent.sync(0).await.unwrap();
    let number = agent.request(0).reports.last().map(|report| report.number);
    assert!(number.is_some_and(|number| reply.acknowledged < number), "{number:?} {}", reply.acknowledged);
    assert_eq!(server.running.cycle().view().cluster.job(job).unwrap().checkpoint, None);
    server.stop().await;

    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    agent.client = owner.clone();
    let jobs: Vec<JobView> = owner.get("/v1/jobs").await.unwrap();
    let little: Vec<u64> = jobs.iter().filter(|job| job.name.starts_with("little")).map(|job| job.id).collect();
    assert_eq!(little, accepted);
    // With room again the report is taken, and work goes on.
    agent.finishes = true;
    let (trigger, shutdown) = pair();
    let agent = agent.spawn(shutdown);
    until(&owner, "1", |job| job.checkpoint.as_ref().is_some_and(|checkpoint| checkpoint.step == 7)).await;
    submit(&owner, &large_job("big")).await.unwrap();
    until(&owner, "big", |job| job.view.state == JobState::Done).await;
    trigger.pull();
    agent.await.unwrap();
    server.stop().await;
}
