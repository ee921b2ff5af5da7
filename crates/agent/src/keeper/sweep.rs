//! Ends everything that is left of a tree, a round at a time so that the keeper stays responsive: the cgroup, and in
//! any case every descendant of the keeper, to which orphans of the tree fall as to their subreaper.

use std::collections::BTreeSet;

use rustix::io::Errno;
use rustix::process::{Signal, WaitId, WaitIdOptions, waitid};

use super::isolation::Isolation;
use super::proc;
use super::state::ProcessId;

/// After this long in vain a process counts as stuck.
const STUCK_AFTER_MS: u64 = 30_000;
const FIRST_DELAY_MS: u64 = 5;
const LONGEST_DELAY_MS: u64 = 200;

/// A sweep under way. Times are boot-time milliseconds.
pub(crate) struct Sweep {
    started_ms: u64,
    next_ms: u64,
    delay_ms: u64,
    killed: BTreeSet<ProcessId>,
}

/// What a round found.
pub(crate) enum Found {
    Nothing,
    Living,
    Stuck(Vec<i32>),
}

impl Sweep {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { started_ms: now_ms, next_ms: now_ms, delay_ms: FIRST_DELAY_MS, killed: BTreeSet::new() }
    }

    pub(crate) fn next_ms(&self) -> u64 {
        self.next_ms
    }

    /// How many processes besides `main` had to be killed.
    pub(crate) fn killed_besides(&self, main: Option<ProcessId>) -> u64 {
        self.killed.iter().filter(|id| Some(**id) != main).count() as u64
    }

    /// Looks for survivors and kills them.
    pub(crate) fn round(&mut self, now_ms: u64, tree: Option<&dyn Isolation>) -> Found {
        let survivors = survivors(tree);
        self.next_ms = now_ms + self.delay_ms;
        self.delay_ms = (self.delay_ms * 2).min(LONGEST_DELAY_MS);
        if survivors.is_empty() {
            return Found::Nothing;
        }
        if let Some(tree) = tree {
            // Where it fails, each process is killed below.
            let _ = tree.kill();
        }
        for id in &survivors {
            proc::signal(*id, Signal::KILL);
        }
        if now_ms.saturating_sub(self.started_ms) >= STUCK_AFTER_MS {
            return Found::Stuck(survivors.iter().map(|id| id.pid).collect());
        }
        self.killed.extend(survivors);
        Found::Living
    }
}

/// A keeper without a child has no descendant either: orphans fall to it. This is what nearly every end finds, and it
/// spares a look at every process of the machine.
pub(crate) fn is_childless() -> bool {
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::All, peek), Err(Errno::CHILD))
}

fn descendants() -> Vec<ProcessId> {
    if is_childless() { Vec::new() } else { proc::descendants(proc::own().pid) }
}

fn survivors(tree: Option<&dyn Isolation>) -> BTreeSet<ProcessId> {
    let inside = tree.map(Isolation::processes).unwrap_or_default();
    let inside = inside.into_iter().filter_map(proc::stat).filter(|stat| !stat.dead).map(|stat| stat.id);
    inside.chain(descendants()).collect()
}
