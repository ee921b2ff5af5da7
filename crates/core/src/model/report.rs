//! What a node reports about the workers on it. Facts only: a node decides nothing.
use super::cpuset::CpuSet;
use super::ids::{AttemptNo, JobId, Rank};
use super::job::Exit;
use serde::{Deserialize, Serialize};

/// What a node knows about one worker. Every report carries the attempt; a stale one changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// All is there to start it; `port` is free on the node for the rendezvous.
    Prepared {
        job: JobId,
        attempt: AttemptNo,
        rank: Rank,
        port: u16,
    },
    Running {
        job: JobId,
        attempt: AttemptNo,
        rank: Rank,
    },
    /// Nothing is left of its process tree; its devices are free. `Exit::Refused` if it never started.
    Ended {
        job: JobId,
        attempt: AttemptNo,
        rank: Rank,
        exit: Exit,
    },
    /// A checkpoint was announced and verified.
    Checkpoint {
        job: JobId,
        attempt: AttemptNo,
        step: u64,
        path: String,
    },
    /// One was announced but did not verify: told, not counted.
    CheckpointRejected {
        job: JobId,
        attempt: AttemptNo,
        path: String,
        why: String,
    },
    /// A worker runs that no order names: its devices are kept from others until it is over.
    Stray {
        job: JobId,
        attempt: AttemptNo,
        rank: Rank,
        gpus: u64,
        cpus: CpuSet,
    },
}
