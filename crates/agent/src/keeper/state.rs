//! `state.json`: what a keeper knows about its worker, written at each change, readable without the keeper. It outlives
//! any process; a power cut ends the worker, and the boot's id in it tells of that.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::KeeperError;
use crate::states;

/// Where a worker is. It only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The shim is at work; the command itself does not run yet.
    Starting,
    /// The command was executed.
    Running,
    /// Nothing of the tree is left, except `stuck_pids`.
    Ended,
}

/// A process that cannot be confused with a later one of the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`: clock ticks from boot to the start of the process.
    pub start_ticks: u64,
}

/// How the tree is held together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IsolationKind {
    CgroupV2,
    CgroupV1,
    /// No cgroup: descendants of the keeper, which is their subreaper.
    ProcessTree,
}

/// A wish of the launch file that this machine cannot fulfil.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotApplied {
    /// `cgroup`, `cpus` or `memory`.
    pub what: String,
    pub why: String,
}

/// Why the worker ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// By itself.
    Exited,
    /// After a stop request, within its grace.
    Stopped,
    LeaseExpired,
    /// By a kill request, or because the grace of a stop was over.
    Killed,
    /// The command never ran; no exit code of the job exists.
    LaunchFailed {
        message: String,
    },
    /// The machine was restarted meanwhile (set by a scan).
    Reboot,
    /// The keeper itself died; the exit status is unknown (set by a scan).
    KeeperLost,
}

/// The end of the worker's main process: `code` or `signal` or, when it is unknown, neither.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub at_boottime_ms: u64,
    pub at_unix_ms: u64,
    pub why: Why,
}

/// The content of `state.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub job: u64,
    pub attempt: u32,
    pub rank: u32,
    pub phase: Phase,
    pub boot_id: String,
    pub keeper: ProcessId,
    pub worker: Option<ProcessId>,
    pub isolation: IsolationKind,
    /// Directories of the cgroups that hold the worker, the one that ends it first.
    pub cgroups: Vec<PathBuf>,
    pub not_applied: Vec<NotApplied>,
    pub exit: Option<Exit>,
    /// Processes other than the main one that had to be killed.
    pub leftovers_killed: u64,
    /// Processes that outlived SIGKILL for 30 s (stuck in a driver): the node needs a look.
    pub stuck_pids: Vec<i32>,
    /// Output that the log file did not take (disk full), in bytes.
    pub log_lost_bytes: u64,
}

impl State {
    /// Where the file lies in a worker's directory.
    #[must_use]
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("state.json")
    }

    /// Whether a keeper wrote one for this worker. A file that is empty says no more than none.
    #[must_use]
    pub fn is_there(dir: &Path) -> bool {
        states::is_any(&Self::path(dir))
    }

    /// Reads `DIR/state.json`.
    ///
    /// # Errors
    /// The file is missing or unreadable.
    pub fn read(dir: &Path) -> Result<Self, KeeperError> {
        let path = Self::path(dir);
        states::newest(&path).map_err(KeeperError::file("read", &path))
    }

    pub(crate) fn write(&self, dir: &Path) -> Result<(), KeeperError> {
        let path = Self::path(dir);
        states::add(&path, self).map_err(KeeperError::file("write", &path))
    }
}
