//! What is said over `keeper.sock`: one JSON object a line each way. After an accepted `exec` or `attach` the same
//! connection carries [frames](super::frame) until the last one, `Exit`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::state::{Phase, State};

/// Whom a signal reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// The main process and its process group.
    #[default]
    Group,
    /// Every process of the tree but the main one: for launchers (torchrun) that end their ranks when they are
    /// signalled themselves.
    Descendants,
}

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Answered at once with [`Reply::Status`].
    Status,
    /// Answered with [`Reply::Status`] when the phase is reached or passed.
    Wait { phase: Phase },
    /// Sets the deadline; an earlier one than before changes nothing.
    Lease { deadline_boottime_ms: u64 },
    /// Sends a signal once.
    Signal {
        number: i32,
        #[serde(default)]
        target: Target,
    },
    /// Sends `signal`, waits `grace_ms` for the main process, then TERM and 5 s (if it was not TERM), then kills all.
    Stop {
        signal: i32,
        grace_ms: u64,
        #[serde(default)]
        target: Target,
    },
    /// Kills everything now.
    Kill,
    /// Runs a further command beside the worker: same environment, user, directory, CPUs and cgroups.
    Exec {
        command: Vec<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
        #[serde(default)]
        pty: bool,
    },
    /// Joins the terminal of a worker that has one.
    Attach,
    /// Ends the keeper of an ended worker.
    Forget,
    /// Forgets an ended worker, of which nothing may be left, and stays a while for another one.
    Rest,
    /// Starts the worker whose launch file lies in the directory of a keeper that rests, which is called `dir` now.
    Begin { dir: PathBuf },
}

/// An answer of the keeper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    Status(Box<Status>),
    /// Done; after `exec` and `attach`: frames follow.
    Done,
    Error {
        message: String,
    },
}

/// The keeper's state and what it does not write to disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub state: State,
    pub lease_deadline_boottime_ms: Option<u64>,
}

/// How a command of `exec`, or an attached worker, ended: one of the three is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecExit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The command never ran, and why.
    pub launch_failed: Option<String>,
}

/// The longest request line in bytes.
pub(crate) const LONGEST_LINE_BYTES: usize = 1 << 20;
