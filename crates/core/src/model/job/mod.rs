//! Jobs: what was asked (`JobSpec`), what became of it (`Job`), and one run of it (`Attempt`).
mod array;
mod attempt;
mod parts;
mod spec;

pub use array::*;
pub use attempt::*;
pub use spec::*;

use super::amounts::Resources;
use super::ids::{AttemptNo, JobId};
use super::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Who submitted: the name for people, the numbers for processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Owner {
    pub user: String,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    Pending,
    Starting,
    Running,
    Stopping,
    Done,
    Failed,
    Cancelled,
}

impl JobState {
    /// A terminal state is final and owns nothing.
    pub fn is_terminal(self) -> bool {
        matches!(self, JobState::Done | JobState::Failed | JobState::Cancelled)
    }

    pub fn parse(text: &str) -> Option<JobState> {
        use JobState::*;
        [Pending, Starting, Running, Stopping, Done, Failed, Cancelled].into_iter().find(|s| s.to_string() == text)
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JobState::Pending => "pending",
            JobState::Starting => "starting",
            JobState::Running => "running",
            JobState::Stopping => "stopping",
            JobState::Done => "done",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
        })
    }
}

/// A job and all that became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub spec: Arc<JobSpec>,
    pub owner: Owner,
    /// Seniority: kept over evictions and faults.
    pub submitted_at: Time,
    pub state: JobState,
    pub state_since: Time,
    /// Since when nothing but its turn keeps it from starting, begin time and backoff apart; for how long it waited.
    #[serde(default)]
    pub eligible_at: Time,
    /// Who holds it back.
    pub held_by: Option<String>,
    /// Not tried again before this: backoff after a failed run.
    pub not_before: Time,
    /// The number of the newest attempt; 0 if there was none.
    pub attempts: AttemptNo,
    pub attempt: Option<Attempt>,
    /// The newest valid one.
    pub checkpoint: Option<Checkpoint>,
    /// Runs that ended by a decision for somebody else.
    pub evictions: u32,
    /// How many of these were moves: each time it is let alone for twice as long.
    #[serde(default)]
    pub moves: u32,
    /// When a person last asked for another size.
    #[serde(default)]
    pub resized_at: Option<Time>,
    /// The gang of its file, since a person asked for another size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filed: Option<Gang>,
    /// Runs that failed by themselves.
    pub failures: u32,
    /// Starts in a row that nodes refused: when many nodes do, it is the job and not the nodes.
    #[serde(default)]
    pub refused: u32,
    /// When its first attempt ran.
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    /// Why it is in a terminal state, or why its last attempt ended; for people.
    pub note: Option<String>,
    /// The highest code of the ranks that ended by themselves in the last attempt.
    pub exit_code: Option<i32>,
    /// GPU time charged so far by ended attempts, in GPU-microseconds.
    pub gpu_us: u64,
    /// It is one task of an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<Task>,
    /// It is the record of an array: it never runs itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayState>,
}

impl Job {
    /// A job that was just submitted.
    pub fn new(id: JobId, spec: Arc<JobSpec>, owner: Owner, now: Time) -> Job {
        Job {
            id,
            spec,
            owner,
            submitted_at: now,
            state: JobState::Pending,
            state_since: now,
            eligible_at: now,
            held_by: None,
            not_before: Time(0),
            attempts: AttemptNo(0),
            attempt: None,
            checkpoint: None,
            evictions: 0,
            moves: 0,
            resized_at: None,
            filed: None,
            failures: 0,
            refused: 0,
            started_at: None,
            ended_at: None,
            note: None,
            exit_code: None,
            gpu_us: 0,
            task: None,
            array: None,
        }
    }

    /// Order of service: class, then seniority, then number.
    pub fn order(&self) -> (Priority, Time, JobId) {
        (self.spec.priority, self.submitted_at, self.id)
    }

    pub fn is_running(&self) -> bool {
        self.state == JobState::Running
    }

    /// What it holds; of one that waits what it asks for.
    pub fn holds(&self) -> Resources {
        self.attempt.as_ref().map_or_else(|| self.spec.total(), Attempt::live_resources)
    }

    /// Whether it is leaving its place for another one that is kept for it.
    pub fn is_moving(&self) -> bool {
        let stop = self.attempt.as_ref().and_then(|attempt| attempt.stopping());
        stop.is_some_and(|stop| matches!(stop.why, StopWhy::Moved { .. } | StopWhy::Resized { .. }))
    }

    /// Whether it ends to go on with more or fewer workers.
    pub fn is_resizing(&self) -> bool {
        let stop = self.attempt.as_ref().and_then(|attempt| attempt.stopping());
        stop.is_some_and(|stop| matches!(stop.why, StopWhy::Resized { .. }))
    }

    /// Until when a job that was moved is let alone: it runs for `patience` before it is moved once more, twice as long each
    /// time.
    pub fn rests_until(&self, patience: Span) -> Option<Time> {
        let ran_from = self.attempt.as_ref().and_then(|attempt| attempt.ran_from)?;
        (self.moves > 0).then(|| ran_from + patience.times(1 << self.moves.min(10)))
    }

    /// Whether a claim may be held for it: it waits, or it is on its way to where it claims.
    pub fn may_claim(&self) -> bool {
        self.state == JobState::Pending || self.is_moving()
    }

    /// Work since this moment is lost if the job is stopped without a new checkpoint.
    pub fn unsaved_since(&self, now: Time) -> Time {
        let Some(ran_from) = self.attempt.as_ref().and_then(|a| a.ran_from) else { return now };
        match &self.checkpoint {
            Some(checkpoint) => checkpoint.at.max(ran_from),
            None => ran_from,
        }
    }
}
