//! A busy user: submits short jobs at a steady rate through every crash, and keeps account of what was answered.
//!
//! Long P3 jobs (*fillers*) hold most GPUs and need two seconds to leave, so that every urgent P0 job opens a claim.
use crate::stage::{PATIENCE, Stage, until};
use crate::stamps::STAMP;
use ganger_core::model::wire::api::{JobDetail, JobView};
use ganger_runtime::http::{Client, HttpError};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Aimed at; what comes about is in [`Load::rate`].
const SUBMISSIONS_PER_S: u64 = 23;
const SUBMITTERS: usize = 4;
const URGENT_EVERY: u64 = 64;
/// Seven at a time fit a node of 224 CPUs, because the machine that starts the processes has perhaps two, and leave some:
/// short jobs go before the fillers, which must come back while many of them wait.
const CPUS_OF_SHORT: u64 = 30;
const AWAY: Duration = Duration::from_millis(10);
pub const FILLERS: usize = 3;

/// What a submission came to. By name; no name is used twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged: the job's number and when it was submitted.
    Acked { id: u64, submitted_at: String },
    /// Sent, and the connection broke before an answer.
    Unanswered,
}

#[derive(Debug, Clone)]
pub struct Submission {
    pub outcome: Outcome,
    pub exit_code: i32,
}

pub struct Load {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    began: Instant,
}

struct Shared {
    client: Client,
    stamps: PathBuf,
    finish: PathBuf,
    book: Mutex<BTreeMap<String, Submission>>,
    next: AtomicU64,
    began: Instant,
    stopped: AtomicBool,
}

impl Load {
    pub fn new(stage: &Stage) -> Load {
        let began = Instant::now();
        let shared = Shared {
            client: stage.client.clone(),
            stamps: stage.path("stamps"),
            finish: stage.path("finish"),
            book: Mutex::default(),
            next: AtomicU64::new(0),
            began,
            stopped: AtomicBool::new(false),
        };
        Load { shared: Arc::new(shared), workers: Vec::new(), began }
    }

    pub fn start(&mut self) {
        self.workers = (0..SUBMITTERS).map(|_| tokio::spawn(self.shared.clone().submit_on())).collect();
    }

    /// Long jobs on most GPUs. All run when this returns.
    pub async fn fill(&self) {
        for number in 0..FILLERS {
            self.shared.submit(format!("filler-{number}"), &self.shared.filler(), 0).await;
        }
        let client = &self.shared.client;
        until("the fillers", PATIENCE, async || {
            let running: Vec<JobView> = client.get("/v1/jobs?state=running").await.ok()?;
            (running.iter().filter(|job| job.name.starts_with("filler")).count() == FILLERS).then_some(())
        })
        .await;
    }

    /// Submits urgent jobs until one of them makes a filler leave.
    pub async fn open_claim(&self) {
        let shared = &self.shared;
        until("a filler that has to leave", PATIENCE, async || {
            let stopping: Vec<JobView> = shared.client.get("/v1/jobs?state=stopping").await.ok()?;
            if stopping.iter().any(|job| job.name.starts_with("filler")) {
                return Some(());
            }
            let pending: Vec<JobView> = shared.client.get("/v1/jobs").await.ok()?;
            let open = |job: &JobView| job.name.starts_with("urgent");
            if !pending.iter().any(open) {
                let number = shared.next.fetch_add(1, Ordering::Relaxed);
                shared.submit(format!("urgent-{number}"), &shared.urgent(), 0).await;
            }
            None
        })
        .await;
    }

    /// No more submissions, and the fillers may end. Answers of submissions a second that were acknowledged.
    pub async fn stop(&mut self) -> f64 {
        self.shared.stopped.store(true, Ordering::Relaxed);
        for worker in self.workers.drain(..) {
            worker.await.unwrap();
        }
        let rate = self.acked().count() as f64 / self.began.elapsed().as_secs_f64();
        std::fs::write(&self.shared.finish, "").unwrap();
        rate
    }

    pub fn book(&self) -> BTreeMap<String, Submission> {
        self.shared.book().clone()
    }

    pub fn acked(&self) -> impl Iterator<Item = u64> {
        self.book().into_values().filter_map(|submission| match submission.outcome {
            Outcome::Acked { id, .. } => Some(id),
            Outcome::Unanswered => None,
        })
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, BTreeMap<String, Submission>> {
        self.book.lock().unwrap()
    }

    async fn submit_on(self: Arc<Shared>) {
        while !self.stopped.load(Ordering::Relaxed) {
            let due = self.began.elapsed().as_millis() as u64 * SUBMISSIONS_PER_S / 1_000;
            if self.next.load(Ordering::Relaxed) >= due {
                tokio::time::sleep(AWAY).await;
                continue;
            }
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let exit_code = if number.is_multiple_of(10) { 3 } else { 0 };
            match number % URGENT_EVERY {
                1 => self.submit(format!("urgent-{number}"), &self.urgent(), 0).await,
                _ => self.submit(format!("short-{number}"), &self.short(number, exit_code), exit_code).await,
            }
        }
    }

    /// Until it is sent. What was sent once is never sent again: it may have arrived.
    async fn submit(&self, name: String, job: &Value, exit_code: i32) {
        let mut job = job.clone();
        job["name"] = json!(name);
        loop {
            let outcome = match self.client.post::<_, JobDetail>("/v1/jobs", &job).await {
                Ok(JobDetail { view, .. }) => Outcome::Acked { id: view.id, submitted_at: view.submitted_at },
                Err(HttpError::Connect { .. }) => {
                    tokio::time::sleep(AWAY).await;
                    continue;
                }
                Err(error) if error.is_transient() => Outcome::Unanswered,
                Err(HttpError::Unreadable { .. }) => Outcome::Unanswered,
                Err(error) => panic!("{name} was refused: {error}"),
            };
            self.book().insert(name, Submission { outcome, exit_code });
            return;
        }
    }

    fn short(&self, number: u64, exit_code: i32) -> Value {
        let gpus = u64::from(number.is_multiple_of(3));
        let (class, cpus) = if gpus == 1 { ("P3", 1) } else { ("P2", CPUS_OF_SHORT) };
        let mut job = self.job(class, gpus, &format!("stamp start; sleep 0.05; stamp end; exit {exit_code}"));
        job["resources"]["cpus"] = json!(cpus);
        job
    }

    /// All GPUs of a node: at least one filler has to leave.
    fn urgent(&self) -> Value {
        self.job("P0", 8, "stamp start; sleep 0.1; stamp end")
    }

    fn filler(&self) -> Value {
        let leave = "leave() { stamp leaving; sleep 2; stamp end; exit 0; }; trap leave TERM; stamp start; ";
        let stay =
            format!("while [ ! -e '{}' ]; do sleep 0.2 & wait $!; stamp alive; done; stamp end", self.finish.display());
        let mut job = self.job("P3", 4, &format!("{leave}{stay}"));
        // It is taken to run for a day, so that short jobs may go before it.
        job["time"] = json!("24h");
        job["checkpoint"] = json!({"grace": "20s"});
        job
    }

    fn job(&self, class: &str, gpus: u64, script: &str) -> Value {
        json!({
            "name": "", "priority": class, "time": "5m", "resources": {"gpus": gpus, "cpus": 1},
            "env": {"STAMPS": self.stamps}, "command": ["sh", "-c", format!("{STAMP}{script}")],
        })
    }
}
