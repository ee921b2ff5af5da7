//! A server and keepers for tests: they speak the protocol and remember what was said. Waiting is always for a
//! condition, with a deadline that only a broken agent meets.
#![allow(dead_code)]
pub mod keepers;
pub mod server;

use ganger_agent::Config;
use ganger_agent::inventory::InventorySource;
use ganger_core::model::cpuset::CpuSet;
use ganger_core::model::ids::{AttemptNo, JobId, Rank};
use ganger_core::model::job::{CheckpointPolicy, Launcher, Owner, RunSpec};
use ganger_core::model::time::{Span, Time};
use ganger_core::model::wire::agent::{Action, Devices, Launch, Order, RankSite};
use ganger_runtime::http::Endpoint;
use ganger_runtime::shutdown::{Trigger, pair};
use keepers::FakeKeepers;
use server::FakeServer;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ganger-agent-it-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits until `look` gives something.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A running agent; dropping it stops nothing, [`Running::stop`] does.
pub struct Running {
    trigger: Trigger,
    task: JoinHandle<Result<(), ganger_agent::AgentError>>,
}

impl Running {
    pub async fn stop(self) {
        self.trigger.pull();
        self.task.await.unwrap().unwrap();
    }
}

pub fn start(node: &str, dir: &Path, server: &FakeServer, keepers: &Arc<FakeKeepers>) -> Running {
    let endpoint = Endpoint::Tcp(server.address.clone());
    let mut config = Config::new(node, endpoint, dir.join(node), "/nonexistent/ganger".into());
    config.inventory = InventorySource::Virtual("dgx-h100".into());
    let (trigger, shutdown) = pair();
    let keepers = keepers.clone();
    let task =
        tokio::spawn(
            async move { ganger_agent::run_with(config, keepers, async move { shutdown.wait().await }).await },
        );
    Running { trigger, task }
}

/// An order for job 7, attempt 1: a gang of two ranks on `n0`.
pub fn order(rank: u32, launcher: Launcher, action: Action) -> Order {
    let site = |local_rank| RankSite { node: "n0".into(), address: "127.0.0.1".into(), gpus: 1, local_rank };
    let launch = Launch {
        name: "train".into(),
        queue: "default".into(),
        owner: Owner {
            user: "me".into(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        },
        run: RunSpec { launcher, command: vec!["sh".into()], workdir: Some("/".into()), ..RunSpec::default() },
        checkpoint: CheckpointPolicy {
            signal: Some("SIGUSR1".into()),
            grace: Span::seconds(30),
            ..CheckpointPolicy::default()
        },
        resume_from: None,
        time_limit: None,
        submitted_at: Time(0),
        ranks: vec![site(0), site(1)],
        leased: true,
        task: None,
    };
    Order {
        job: JobId(7),
        attempt: AttemptNo(1),
        rank: Rank(rank),
        action,
        launch: Arc::new(launch),
        devices: Devices {
            gpus: vec![rank as u8],
            cpus: CpuSet::range(rank * 4, rank * 4 + 4),
            memory: vec![(0, 1 << 30)],
            nics: vec![],
            slice: None,
        },
    }
}

pub fn go() -> Action {
    Action::Go { rendezvous_address: "127.0.0.1".into(), rendezvous_port: 4_242 }
}

pub fn stop(grace: bool) -> Action {
    let deadline = Time(ganger_runtime::clock::unix_ms() + 600_000);
    Action::Stop { grace, deadline, why: "preempted".into() }
}
