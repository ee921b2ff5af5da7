//! Arrays through the real API: one line for what waits, names of tasks wherever ids do, restarts in the midst.
#![allow(clippy::unwrap_used)]
mod common;
use common::{Agent, PATIENCE, Scratch, Server, small_job, submit, until};
use ganger_core::model::job::JobState;
use ganger_core::model::wire::api::{JobDetail, JobView, QueueView, Status, Why};
use ganger_runtime::http::Client;
use ganger_runtime::shutdown::pair;
use ganger_server::store::Store;
use serde_json::{Value, json};

fn sweep(indices: &str) -> Value {
    let mut job = small_job("sweep");
    job["array"] = json!(indices);
    job
}

async fn numbers(client: &Client, query: &str) -> Vec<String> {
    client.get::<Vec<JobView>>(&format!("/v1/jobs{query}")).await.unwrap().iter().map(JobView::number).collect()
}

async fn act(client: &Client, job: &str, verb: &str) -> JobDetail {
    client.post(&format!("/v1/jobs/{job}/{verb}"), &json!(null)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_have_names_wherever_ids_do_and_the_rest_is_one_line() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let (trigger, shutdown) = pair();
    let agent = Agent::register(owner.clone(), "n0").await.spawn(shutdown);

    let submitted = submit(&owner, &sweep("0-9%2")).await.unwrap();
    let array = submitted.view.array.as_ref().unwrap();
    assert_eq!((submitted.view.id, array.indices.as_str(), array.tasks), (1, "0-9%2", 10));
    assert_eq!(submit(&owner, &small_job("next")).await.unwrap().view.id, 12, "after the numbers of the tasks");
    for task in ["1_0", "sweep_1"] {
        until(&owner, task, |job| job.view.state == JobState::Running).await;
    }
    assert_eq!(numbers(&owner, "?state=pending").await, ["1_[2-9%2]"]);
    assert_eq!(numbers(&owner, "?state=running").await[..2], ["1_0", "1_1"]);
    assert_eq!(numbers(&owner, "?tasks=true&state=pending").await.len(), 8);
    let line = owner.get::<Vec<JobView>>("/v1/jobs").await.unwrap().remove(0);
    assert_eq!((line.state, line.reason.unwrap().to_string()), (JobState::Pending, "ArrayLimit".to_string()));
    let why: Why = owner.get("/v1/jobs/1_5/why").await.unwrap();
    assert_eq!((why.id, why.slurm_reason.as_deref()), (7, Some("JobArrayTaskLimit")));
    let why: Why = owner.get("/v1/jobs/sweep/why").await.unwrap();
    assert!(why.summary.starts_with("of 10 tasks 2 started, 8 waiting"), "{}", why.summary);
    assert_eq!(owner.get::<Status>("/v1/status").await.unwrap().jobs_pending, 8);
    let queues: Vec<QueueView> = owner.get("/v1/queues").await.unwrap();
    assert_eq!(queues[0].pending_jobs, 8);

    assert_eq!(act(&owner, "1_9", "cancel").await.view.state, JobState::Cancelled);
    assert_eq!(act(&owner, "sweep_2", "hold").await.view.reason.unwrap().to_string(), "Held");
    act(&owner, "1_0", "cancel").await;
    until(&owner, "1_3", |job| job.view.state == JobState::Running).await;
    act(&owner, "1_2", "release").await;
    assert_eq!(numbers(&owner, "?state=pending").await, ["1_[2,4-8%2]"]);

    for (path, wanted) in [
        ("/v1/jobs/1_10", "array 1 (sweep) has no task 10: its tasks are 0-9%2"),
        ("/v1/jobs/2_1", "there is no job"),
        ("/v1/jobs/next_1", "there is no job"),
        ("/v1/jobs/sweep/logs", "job 1 is an array with the tasks 0-9%2: name one of them, such as 1_0"),
        ("/v1/jobs/1_8/logs", "never started"),
    ] {
        let error = owner.get::<Value>(path).await.unwrap_err().to_string();
        assert!(error.contains(wanted), "{path}: {error}");
    }

    assert_eq!(act(&owner, "sweep", "cancel").await.view.id, 1);
    let ended: JobDetail = owner.get_within("/v1/jobs/1/wait?timeout_ms=20000", PATIENCE).await.unwrap();
    assert_eq!((ended.view.state, ended.view.number().as_str()), (JobState::Cancelled, "1"));
    assert!(ended.view.note.unwrap().contains("of 10 tasks: 0 done, 0 failed, 10 cancelled"));
    // Those that ended are found by the same names, also when a job takes the name of the array; who never was is not.
    assert_eq!(until(&owner, "sweep_9", |_| true).await.view.state, JobState::Cancelled);
    let error = owner.get::<Value>("/v1/jobs/1_8").await.unwrap_err().to_string();
    assert!(error.contains("task 8 of array 1 never started: the array is cancelled"), "{error}");
    trigger.pull();
    agent.await.unwrap();
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_array_survives_a_restart_and_every_task_runs_once() {
    let scratch = Scratch::new();
    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    let mut agent = Agent::register(owner.clone(), "n0").await;
    submit(&owner, &sweep("1-40:3%3")).await.unwrap();
    let mut after = small_job("after");
    after["after"] = json!(["afterok:sweep"]);
    submit(&owner, &after).await.unwrap();
    while agent.sync(1_000).await.unwrap().orders.is_none_or(|orders| orders.is_empty()) {}
    act(&owner, "1_40", "hold").await;
    let before = server.running.cycle().view().cluster.clone();
    server.stop().await;

    let (store, loaded) = Store::open(&scratch.0, Default::default()).unwrap();
    assert_eq!((&loaded.arrays, loaded.job_names.len()), (&before.arrays, 2));
    assert_eq!(loaded.next_job, before.next_job);
    drop(store);

    let server = Server::start(&scratch.0).await;
    let owner = server.owner();
    agent.client = owner.clone();
    agent.finishes = true;
    let (trigger, shutdown) = pair();
    let agent = agent.spawn(shutdown);
    until(&owner, "1_37", |job| job.view.state == JobState::Done).await;
    assert_eq!(until(&owner, "after", |_| true).await.view.reason.unwrap().to_string(), "Dependency");
    act(&owner, "1", "release").await;
    let ended = until(&owner, "1", |job| job.view.state.is_terminal()).await;
    assert_eq!(ended.view.note.as_deref(), Some("14 tasks: 14 done, 0 failed, 0 cancelled"));
    until(&owner, "after", |job| job.view.state == JobState::Done).await;
    let all: Vec<JobView> = owner.get("/v1/jobs?all=true").await.unwrap();
    let tasks = all.iter().filter(|job| job.task.is_some());
    assert_eq!(tasks.map(|task| (task.attempt, task.state)).collect::<Vec<_>>(), [(1, JobState::Done); 14]);
    trigger.pull();
    agent.await.unwrap();
    server.stop().await;
}
