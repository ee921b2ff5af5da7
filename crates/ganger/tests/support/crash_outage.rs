//! The server is away for many leases. The ranks of both nodes go on, what ends meanwhile is reported with its exit code
//! once the server is back, and nothing is started anew.
use crate::stage::{PATIENCE, Stage, until};
use crate::stamps::{self, Life, STAMP};
use ganger_core::model::job::JobState;
use ganger_core::model::wire::api::{JobDetail, JobView, NodeView};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Jobs that end by themselves during the outage, with their exit codes.
const ENDING: [(&str, i32); 3] = [("well", 0), ("badly", 7), ("later", 42)];
const GANG: &str = "gang";

pub async fn outage(lease: Option<&'static str>, length: Duration) {
    let mut stage = Stage::open(&format!("outage-{}", length.as_secs()), lease).await;
    for job in jobs(&stage) {
        let _: JobDetail = stage.client.post("/v1/jobs", &job).await.unwrap();
    }
    let before = until("all jobs to run", PATIENCE, async || {
        let running: Vec<JobView> = stage.client.get("/v1/jobs?state=running").await.ok()?;
        (running.len() == ENDING.len() + 1).then_some(running)
    })
    .await;
    stage.kill_server();
    let ranks = the_ranks_go_on(&stage, length).await;
    stage.start_server(None);
    stage.answers().await;
    ends_are_told(&stage, &before).await;
    the_gang_is_adopted(&stage, &before, &ranks).await;
    stage.assert_agents_live();
    let lives = stamps::read(&stage.path("stamps"));
    assert_eq!(stamps::overlaps(&lives), Vec::<String>::new());
    println!("an outage of {length:?} with a lease of {}: {} ranks, all went on", lease.unwrap_or("60s"), lives.len());
}

/// A gang over both nodes that runs until it is told, and a job each that ends when its file appears.
fn jobs(stage: &Stage) -> Vec<Value> {
    let job = |name: &str, gpus: u32, workers: u32, code: i32| {
        let script = format!(
            "{STAMP}stamp start; while [ ! -e '{}' ]; do sleep 0.2; stamp alive; done; stamp end; exit {code}",
            stage.path(&format!("end-{name}")).display()
        );
        json!({
            "name": name, "gang": {"workers": workers}, "resources": {"gpus": gpus, "cpus": 1},
            "env": {"STAMPS": stage.path("stamps")}, "command": ["sh", "-c", script],
        })
    };
    let gang = job(GANG, 6, 2, 0);
    std::iter::once(gang).chain(ENDING.iter().map(|(name, code)| job(name, 1, 1, *code))).collect()
}

fn tell_to_end(stage: &Stage, name: &str) {
    std::fs::write(stage.path(&format!("end-{name}")), "").unwrap();
}

/// Watches stamps for the whole outage; the processes of the gang's ranks, by rank.
async fn the_ranks_go_on(stage: &Stage, length: Duration) -> BTreeMap<u32, Life> {
    let end = Instant::now() + length;
    let file = stage.path("stamps");
    let mut told = ENDING.iter();
    let (mut pause, mut seen) = (length / 4, gang_of(&file));
    assert_eq!(seen.len(), 2, "{seen:?}");
    while Instant::now() < end {
        // One job ends in each quarter of the outage.
        pause = pause.min(end.saturating_duration_since(Instant::now()));
        tokio::time::sleep(pause).await;
        seen = go_on_from(&file, &seen).await;
        if let Some((name, _)) = told.next() {
            tell_to_end(stage, name);
            until("the end of a job", PATIENCE, async || ended(&file, told_job(name)).then_some(())).await;
        }
    }
    go_on_from(&file, &seen).await
}

/// Jobs are numbered in the order of their submission, the gang first.
fn told_job(name: &str) -> u64 {
    2 + ENDING.iter().position(|(other, _)| *other == name).unwrap() as u64
}

fn ended(file: &Path, job: u64) -> bool {
    stamps::read(file).iter().any(|life| life.job == job && life.ended)
}

fn gang_of(file: &Path) -> BTreeMap<u32, Life> {
    let lives = stamps::read(file).into_iter().filter(|life| life.job == 1);
    lives.map(|life| (life.rank, life)).collect()
}

/// Each rank must stamp again, as the process that it was.
async fn go_on_from(file: &Path, before: &BTreeMap<u32, Life>) -> BTreeMap<u32, Life> {
    until("new stamps of every rank", PATIENCE, async || {
        let now = gang_of(file);
        for (rank, life) in before {
            let now = &now[rank];
            assert!((now.pid, now.attempt, now.ended) == (life.pid, life.attempt, false), "{life:?} became {now:?}");
        }
        before.iter().all(|(rank, life)| now[rank].lines > life.lines).then_some(now)
    })
    .await
}

async fn ends_are_told(stage: &Stage, before: &[JobView]) {
    for (name, code) in ENDING {
        let job = until("an end that is reported", PATIENCE, async || {
            let job: JobDetail = stage.client.get(&format!("/v1/jobs/{name}")).await.ok()?;
            job.view.state.is_terminal().then_some(job.view)
        })
        .await;
        let state = if code == 0 { JobState::Done } else { JobState::Failed };
        assert_eq!((job.state, job.exit_code, job.attempt), (state, Some(code), 1), "{job:?}");
        let was = before.iter().find(|was| was.name == name).unwrap();
        assert_eq!((&job.submitted_at, &job.started_at), (&was.submitted_at, &was.started_at));
    }
}

/// The gang runs on as the attempt that it was, both nodes are trusted, and it ends when it is told.
async fn the_gang_is_adopted(stage: &Stage, before: &[JobView], ranks: &BTreeMap<u32, Life>) {
    let was = before.iter().find(|job| job.name == GANG).unwrap();
    until("both nodes to be heard again", PATIENCE, async || {
        let nodes: Vec<NodeView> = stage.client.get("/v1/nodes").await.ok()?;
        nodes.iter().all(|node| node.state == "ready").then_some(())
    })
    .await;
    let now: JobDetail = stage.client.get(&format!("/v1/jobs/{GANG}")).await.unwrap();
    let times = |job: &JobView| (job.state, job.attempt, job.submitted_at.clone(), job.started_at.clone());
    assert_eq!(times(&now.view), times(was), "{now:?}");
    go_on_from(&stage.path("stamps"), ranks).await;
    tell_to_end(stage, GANG);
    let ended = until("the gang to end", PATIENCE, async || {
        let job: JobDetail = stage.client.get(&format!("/v1/jobs/{GANG}")).await.ok()?;
        job.view.state.is_terminal().then_some(job.view)
    })
    .await;
    assert_eq!((ended.state, ended.attempt), (JobState::Done, 1), "{ended:?}");
}
