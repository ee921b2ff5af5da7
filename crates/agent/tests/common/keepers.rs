//! Keepers without processes. They outlive the agent, as real ones do, and the test says when a worker ends.
use ganger_agent::keeper::client::Stream;
use ganger_agent::keeper::protocol::Target;
use ganger_agent::keeper::state::{Exit, IsolationKind, Phase, ProcessId, State, Why};
use ganger_agent::keeper::{Found, KeeperError, LaunchFile, Standing};
use ganger_agent::keepers::{Door, Keepers, Pending};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

pub struct Worker {
    pub launch: LaunchFile,
    pub state: State,
    pub lease: Option<u64>,
    /// What was asked, in order: `stop 10 group`, `kill`.
    pub asked: Vec<String>,
}

#[derive(Default)]
pub struct FakeKeepers {
    pub workers: Mutex<BTreeMap<PathBuf, Worker>>,
    pub starts: Mutex<Vec<PathBuf>>,
    /// Starting fails with this.
    pub broken: Mutex<Option<String>>,
}

fn gone() -> KeeperError {
    KeeperError::Refused("there is no such worker".into())
}

impl FakeKeepers {
    /// The worker whose directory is called `name`.
    pub fn with<T>(&self, name: &str, work: impl FnOnce(&mut Worker) -> T) -> Option<T> {
        let mut workers = self.workers.lock().unwrap();
        workers.iter_mut().find(|(dir, _)| dir.ends_with(name)).map(|(_, worker)| work(worker))
    }

    pub fn end(&self, name: &str, code: i32) {
        self.with(name, |worker| {
            worker.state.phase = Phase::Ended;
            let exit = Exit { code: Some(code), signal: None, at_boottime_ms: 0, at_unix_ms: 0, why: Why::Exited };
            worker.state.exit = Some(exit);
        })
        .unwrap();
    }

    pub fn started(&self) -> usize {
        self.starts.lock().unwrap().len()
    }

    fn ask(&self, dir: &Path, what: String) -> Result<(), KeeperError> {
        let mut workers = self.workers.lock().unwrap();
        workers.get_mut(dir).map(|worker| worker.asked.push(what)).ok_or_else(gone)
    }
}

impl Keepers for FakeKeepers {
    fn furnish(&self, dir: &Path) -> std::io::Result<()> {
        std::fs::create_dir_all(dir)
    }

    fn start<'a>(&'a self, dir: &'a Path, launch: &'a LaunchFile) -> Pending<'a, ()> {
        Box::pin(async move {
            if let Some(why) = self.broken.lock().unwrap().clone() {
                return Err(KeeperError::NotStarted { dir: dir.into(), message: why });
            }
            let state = State {
                job: launch.job,
                attempt: launch.attempt,
                rank: launch.rank,
                phase: Phase::Running,
                boot_id: String::new(),
                keeper: ProcessId { pid: 1, start_ticks: 1 },
                worker: None,
                isolation: IsolationKind::ProcessTree,
                cgroups: vec![],
                not_applied: vec![],
                exit: None,
                leftovers_killed: 0,
                stuck_pids: vec![],
                log_lost_bytes: 0,
            };
            let lease = launch.lease_deadline_boottime_ms;
            let worker = Worker { launch: launch.clone(), state, lease, asked: vec![] };
            self.workers.lock().unwrap().insert(dir.into(), worker);
            self.starts.lock().unwrap().push(dir.into());
            Ok(())
        })
    }

    fn wait<'a>(&'a self, dir: &'a Path, phase: Phase) -> Pending<'a, State> {
        Box::pin(async move {
            loop {
                let state = self.workers.lock().unwrap().get(dir).map(|worker| worker.state.clone());
                match state {
                    Some(state) if state.phase >= phase => return Ok(state),
                    Some(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                    None => return Err(gone()),
                }
            }
        })
    }

    fn lease<'a>(&'a self, dir: &'a Path, deadline_boottime_ms: u64) -> Pending<'a, ()> {
        Box::pin(async move {
            let mut workers = self.workers.lock().unwrap();
            let worker = workers.get_mut(dir).ok_or_else(gone)?;
            worker.lease = worker.lease.max(Some(deadline_boottime_ms));
            Ok(())
        })
    }

    fn stop<'a>(&'a self, dir: &'a Path, signal: i32, grace_ms: u64, target: Target) -> Pending<'a, ()> {
        Box::pin(async move {
            assert!(grace_ms > 60_000, "the grace is what is left until the deadline");
            self.ask(dir, format!("stop {signal} {target:?}"))
        })
    }

    fn kill<'a>(&'a self, dir: &'a Path) -> Pending<'a, ()> {
        Box::pin(async move { self.ask(dir, "kill".into()) })
    }

    fn forget<'a>(&'a self, dir: &'a Path) -> Pending<'a, ()> {
        Box::pin(async move {
            self.workers.lock().unwrap().remove(dir);
            // Nobody waits for more than that it is gone.
            drop(std::fs::remove_dir_all(dir));
            Ok(())
        })
    }

    fn scan<'a>(&'a self, workers: &'a Path) -> Pending<'a, Vec<Found>> {
        Box::pin(async move {
            let mut found = Vec::new();
            for entry in std::fs::read_dir(workers).unwrap().flatten() {
                let dir = entry.path();
                let state = self.workers.lock().unwrap().get(&dir).map(|worker| worker.state.clone());
                let standing = match &state {
                    Some(_) => Standing::Kept,
                    None => Standing::NotStarted,
                };
                found.push(Found { dir, standing, state, launch: None, problem: None });
            }
            Ok(found)
        })
    }

    fn open<'a>(&'a self, _: &'a Path, _: Door) -> Pending<'a, Stream> {
        Box::pin(async move { Err(gone()) })
    }
}
