//! What several unit tests need: a directory that goes away, and the orders of a small gang.
use ganger_core::model::cpuset::CpuSet;
use ganger_core::model::ids::{AttemptNo, JobId, Rank};
use ganger_core::model::job::{CheckpointPolicy, Launcher, Owner, RunSpec};
use ganger_core::model::machine::mig::{Extra, Instance};
use ganger_core::model::split::{Part, Slice};
use ganger_core::model::time::{Span, Time};
use ganger_core::model::wire::agent::{Action, Devices, Launch, Order, RankSite, TaskSite};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of this test's own, removed at the end.
pub struct TempDir(PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ganger-agent-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
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

pub fn devices(gpus: &[u8], first_cpu: u32) -> Devices {
    Devices {
        gpus: gpus.to_vec(),
        cpus: CpuSet::range(first_cpu, first_cpu + 4),
        memory: vec![(0, 8 << 30)],
        nics: gpus.iter().take(1).copied().collect(),
        slice: None,
    }
}

/// A 3g.40gb of an H100.
pub fn mig(gpu: u8, start: u8) -> Slice {
    let instance = Instance { compute: 3, memory: 4, extra: Extra::Plain, start };
    Slice { gpu, part: Part::Mig(instance), milli: 500, vram_bytes: 40 << 30 }
}

/// Job 7, attempt 1: ranks 0 and 1 on `n0`, 2 and 3 on `n1`, two GPUs each.
pub fn launch(launcher: Launcher) -> Launch {
    let site = |node: &str, address: &str, local_rank| RankSite {
        node: node.into(),
        address: address.into(),
        gpus: 2,
        local_rank,
    };
    Launch {
        name: "llama-ft".into(),
        queue: "research/nlp".into(),
        owner: Owner { user: "root".into(), uid: 0, gid: 0 },
        run: RunSpec { launcher, command: vec!["true".into()], ..RunSpec::default() },
        checkpoint: CheckpointPolicy::default(),
        resume_from: None,
        time_limit: Some(Span::hours(12)),
        submitted_at: Time(1_000_000),
        ranks: vec![
            site("n0", "10.0.0.1", 0),
            site("n0", "10.0.0.1", 1),
            site("n1", "10.0.0.2", 0),
            site("n1", "10.0.0.2", 1),
        ],
        leased: true,
        task: None,
    }
}

/// Task 4 of array 5 with the indices 0, 2, 4 and 6.
pub fn task() -> TaskSite {
    TaskSite { array: JobId(5), index: 4, count: 4, lowest: 0, highest: 6, step: 2 }
}

/// The orders for node `n1`: ranks 2 and 3.
pub fn orders(launcher: Launcher, action: Action) -> Vec<Order> {
    let launch = Arc::new(launch(launcher));
    let order = |rank: u32, gpus: &[u8], first_cpu| Order {
        job: JobId(7),
        attempt: AttemptNo(1),
        rank: Rank(rank),
        action: action.clone(),
        launch: launch.clone(),
        devices: devices(gpus, first_cpu),
    };
    vec![order(2, &[0, 1], 0), order(3, &[2, 3], 4)]
}
