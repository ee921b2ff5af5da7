//! The server as its own process, killed with SIGKILL or by its own hand in the middle of work, beside agents and ranks
//! that go on. What it acknowledged must be known and end; nothing may run twice; a restart must change no decision.
//!
//! `GANGER_CRASHES=50` kills it fifty times; ten are enough for every change.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic")]
#[path = "support/crash_load.rs"]
mod load;
#[path = "support/crash_outage.rs"]
mod outage;
#[path = "support/crash_stage.rs"]
mod stage;
#[path = "support/crash_stamps.rs"]
mod stamps;
#[path = "support/crash_store.rs"]
mod store;

use ganger_core::model::Cluster;
use ganger_core::model::job::JobState;
use ganger_core::model::wire::api::{JobView, Snapshot};
use ganger_core::scheduler::decide;
use load::{Load, Outcome};
use stage::{PATIENCE, Stage, until};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};
use store::{Remains, normal};

const SEED: u64 = 7;
const ALL_JOBS: &str = "/v1/jobs?all=true&limit=1000000";

/// When the server dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// At any instant: after so many milliseconds.
    Any(u64),
    /// Right after the so manieth commit with a submission, which nobody was told of.
    AfterCommit(u64),
    /// While victims of a claim are leaving.
    ClaimOpen,
}

impl Moment {
    /// A fifth right after a commit; three tenths with a claim open, of which some close before the kill arrives; the rest at
    /// any instant.
    fn plan(count: usize, seed: u64) -> Vec<Moment> {
        let mut dice = seed;
        let mut roll = |below: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % below
        };
        let moment = |index: usize| match index % 10 {
            2 | 7 => Moment::AfterCommit(1 + roll(20)),
            1 | 4 | 9 => Moment::ClaimOpen,
            _ => Moment::Any(roll(700)),
        };
        (0..count).map(moment).collect()
    }

    fn crash_at(self) -> Option<String> {
        match self {
            Moment::AfterCommit(count) => Some(format!("after-commit:{count}")),
            Moment::Any(_) | Moment::ClaimOpen => None,
        }
    }
}

/// What was seen, for the checks and for the report.
#[derive(Default)]
struct Seen {
    /// By moment that ended itself: names of the live jobs that it left.
    after_commits: Vec<BTreeSet<String>>,
    with_claims: usize,
    /// Snapshots of the very state that was left, so that their decisions could be compared.
    same_version: usize,
    left: Option<Cluster>,
    /// Submitted and started, by job.
    times: BTreeMap<u64, (String, Option<String>)>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_kill_at_any_moment() {
    let count = std::env::var("GANGER_CRASHES").map_or(10, |text| text.parse().expect("GANGER_CRASHES is a number"));
    let moments = Moment::plan(count, SEED);
    let began = Instant::now();
    let mut stage = Stage::open("kills", None).await;
    let mut load = Load::new(&stage);
    load.fill().await;
    load.start();
    let mut seen = Seen::default();
    for (index, moment) in moments.iter().enumerate() {
        let next = moments.get(index + 1).and_then(|next| next.crash_at());
        die_and_come_back(&mut stage, &load, &mut seen, *moment, next.as_deref()).await;
    }
    let rate = load.stop().await;
    let loaded_for = began.elapsed();
    let jobs = all_ended(&stage).await;
    stage.assert_agents_live();
    let unreplied = check_account(&load, &jobs, &seen);
    note_times(&mut seen, &jobs);
    let lives = stamps::read(&stage.path("stamps"));
    check_stamps(&lives, &jobs);
    let Seen { with_claims, same_version, .. } = seen;
    println!(
        "{count} kills in {loaded_for:?}, all over after {:?}: {} between commit and reply, {with_claims} with claims open; \
         {rate:.1} submissions/s acknowledged; {} jobs, {} runs of ranks, {} evictions; \
         {same_version} snapshots of the very state that was left",
        began.elapsed(),
        unreplied,
        jobs.len(),
        lives.len(),
        jobs.iter().map(|job| job.evictions).sum::<u32>(),
    );
    assert!(with_claims * 5 >= count, "claims were open at {with_claims} of {count} kills only");
}

async fn die_and_come_back(stage: &mut Stage, load: &Load, seen: &mut Seen, moment: Moment, next: Option<&str>) {
    let snapshot = stage.path("before.json");
    let _ = std::fs::remove_file(&snapshot);
    match moment {
        Moment::Any(after_ms) => {
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            keep_snapshot(stage, &snapshot).await;
        }
        Moment::ClaimOpen => load.open_claim().await,
        Moment::AfterCommit(_) => until("the commit", PATIENCE, async || stage.server_is_gone().then_some(())).await,
    }
    let status = stage.kill_server();
    let by = if matches!(moment, Moment::AfterCommit(_)) { 6 } else { 9 };
    assert_eq!(status.signal(), Some(by), "{moment:?}: {status:?}");
    let acked: Vec<u64> = load.acked().collect();
    let (data, copy) = (stage.server_dir(), stage.path("remains"));
    let remains = Remains::read(&data, &copy);
    stage.start_server(next);
    check_remains(seen, &remains, &acked, moment, &snapshot);
    stage.answers().await;
    if snapshot.exists() {
        assert!(stage.ganger(&["sim", "decide", snapshot.to_str().unwrap()]).status.success(), "before {moment:?}");
    }
    if next.is_none() {
        let after = stage.path("after.json");
        keep_snapshot(stage, &after).await;
        assert!(stage.ganger(&["sim", "decide", after.to_str().unwrap()]).status.success(), "after {moment:?}");
        let jobs: Vec<JobView> = stage.client.get(ALL_JOBS).await.unwrap();
        note_times(seen, &jobs);
    }
}

fn check_remains(seen: &mut Seen, remains: &Remains, acked: &[u64], moment: Moment, snapshot: &Path) {
    let lost: Vec<&u64> = acked.iter().filter(|id| !remains.knows(**id)).collect();
    assert_eq!(lost, Vec::<&u64>::new(), "acknowledged and lost at {moment:?}");
    remains.assert_same_as_before(seen.left.as_ref());
    seen.with_claims += usize::from(!remains.cluster.claims.is_empty());
    if matches!(moment, Moment::AfterCommit(_)) {
        seen.after_commits.push(remains.names().into_iter().map(str::to_string).collect());
    }
    let before = std::fs::read(snapshot).ok().map(|text| serde_json::from_slice::<Snapshot>(&text).unwrap());
    if let Some(before) = before.filter(|before| before.cluster.version == remains.cluster.version) {
        let now = remains.cluster.now;
        assert_eq!(decide(&normal(&before.cluster), now), decide(&normal(&remains.cluster), now), "{moment:?}");
        seen.same_version += 1;
    }
    seen.left = Some(remains.cluster.clone());
}

async fn keep_snapshot(stage: &Stage, path: &Path) {
    let snapshot: serde_json::Value = stage.client.get("/v1/snapshot").await.unwrap();
    std::fs::write(path, serde_json::to_vec(&snapshot).unwrap()).unwrap();
}

/// All jobs once none is alive. As long as jobs go on ending there is no reason to give up.
async fn all_ended(stage: &Stage) -> Vec<JobView> {
    let mut left = usize::MAX;
    while left > 0 {
        left = until("jobs to end", PATIENCE, async || {
            let live: Vec<JobView> = stage.client.get("/v1/jobs").await.ok()?;
            (live.len() < left).then_some(live.len())
        })
        .await;
    }
    stage.client.get(ALL_JOBS).await.unwrap()
}

/// Every submission against the list of jobs; how many self-inflicted crashes left a job whose submitter was not answered.
fn check_account(load: &Load, jobs: &[JobView], seen: &Seen) -> usize {
    let by_id: BTreeMap<u64, &JobView> = jobs.iter().map(|job| (job.id, job)).collect();
    let by_name: BTreeMap<&str, &JobView> = jobs.iter().map(|job| (job.name.as_str(), job)).collect();
    assert_eq!((by_id.len(), by_name.len()), (jobs.len(), jobs.len()), "numbers and names are unique");
    let book = load.book();
    for (name, submission) in &book {
        let job = match &submission.outcome {
            Outcome::Acked { id, submitted_at } => {
                let job = by_id.get(id).unwrap_or_else(|| panic!("{name} was acknowledged as {id} and is not known"));
                assert_eq!((&job.name, &job.submitted_at), (name, submitted_at));
                job
            }
            Outcome::Unanswered => match by_name.get(name.as_str()) {
                Some(job) => job,
                None => continue,
            },
        };
        let state = if submission.exit_code == 0 { JobState::Done } else { JobState::Failed };
        assert_eq!((job.state, job.exit_code), (state, Some(submission.exit_code)), "{job:?}");
    }
    let unknown: Vec<&JobView> = jobs.iter().filter(|job| !book.contains_key(&job.name)).collect();
    assert_eq!(unknown, Vec::<&JobView>::new(), "nobody submitted these");
    let unanswered = |name: &String| book.get(name).is_some_and(|found| found.outcome == Outcome::Unanswered);
    for left in &seen.after_commits {
        assert!(left.iter().any(unanswered), "a crash between commit and reply left nothing unanswered");
    }
    seen.after_commits.len()
}

/// Once known, the times of submission and of the first start never change.
fn note_times(seen: &mut Seen, jobs: &[JobView]) {
    for job in jobs {
        let (submitted, started) =
            seen.times.entry(job.id).or_insert_with(|| (job.submitted_at.clone(), job.started_at.clone()));
        assert_eq!(*submitted, job.submitted_at, "{job:?}");
        assert!(started.is_none() || *started == job.started_at, "it had started at {started:?}: {job:?}");
        *started = job.started_at.clone();
    }
}

fn check_stamps(lives: &[stamps::Life], jobs: &[JobView]) {
    let overlaps = stamps::overlaps(lives);
    assert!(overlaps.is_empty(), "{} overlaps, such as {}", overlaps.len(), overlaps[0]);
    let ran: BTreeSet<u64> = lives.iter().filter(|life| life.ended).map(|life| life.job).collect();
    let idle: Vec<u64> = jobs.iter().map(|job| job.id).filter(|id| !ran.contains(id)).collect();
    assert_eq!(idle, Vec::<u64>::new(), "ended without having run");
    let attempts: BTreeMap<u64, u32> = jobs.iter().map(|job| (job.id, job.attempt)).collect();
    for life in lives {
        assert!(life.attempt <= attempts[&life.job], "a run that the server does not know of: {life:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_ten_leases_ends_no_rank() {
    outage::outage(Some("4s"), Duration::from_secs(40)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes eleven minutes"]
async fn an_outage_of_ten_minutes_ends_no_rank() {
    outage::outage(None, Duration::from_secs(600)).await;
}
