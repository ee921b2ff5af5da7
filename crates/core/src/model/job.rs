//! Jobs: what was asked (`JobSpec`), what became of it (`Job`), and one run of it (`Attempt`).
use super::amounts::Resources;
use super::cpuset::CpuSet;
use super::ids::{AttemptNo, JobId, NodeId, Rank};
use super::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The four classes. The lower number goes first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, utoipa::ToSchema,
)]
pub enum Priority {
    /// Customer-facing and urgent.
    P0,
    /// Production.
    P1,
    /// Normal.
    #[default]
    P2,
    /// Yields.
    P3,
}

impl Priority {
    pub const ALL: [Priority; 4] = [Priority::P0, Priority::P1, Priority::P2, Priority::P3];

    pub fn parse(text: &str) -> Option<Priority> {
        Priority::ALL.into_iter().find(|p| p.to_string() == text)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}", *self as u8)
    }
}

/// How wide a set of devices is, from the tightest to the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// One PCIe switch.
    Switch,
    /// One NUMA node with CPUs.
    Socket,
    /// GPUs joined by NVLink, which may span nodes.
    Island,
    Node,
    Leaf,
    Spine,
    Cluster,
}

impl Level {
    pub const ALL: [Level; 7] =
        [Level::Switch, Level::Socket, Level::Island, Level::Node, Level::Leaf, Level::Spine, Level::Cluster];

    pub fn parse(text: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|l| l.to_string() == text)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Switch => "switch",
            Level::Socket => "socket",
            Level::Island => "island",
            Level::Node => "node",
            Level::Leaf => "leaf",
            Level::Spine => "spine",
            Level::Cluster => "cluster",
        })
    }
}

/// How many workers make the gang. With `min == workers` the gang is rigid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gang {
    pub workers: u32,
    pub min: u32,
    pub step: u32,
}

/// What one worker needs on one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Shape {
    pub gpus: u32,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// Only GPUs of this model, such as `H100`.
    pub gpu_model: Option<String>,
    /// Only GPUs with at least this much memory each.
    pub vram_bytes: u64,
    /// Only nodes that carry all of these labels.
    pub labels: BTreeMap<String, String>,
}

impl Shape {
    pub fn resources(&self) -> Resources {
        Resources { gpus: self.gpus.into(), cpus: self.cpus.into(), memory_bytes: self.memory_bytes }
    }
}

/// Where the gang wants to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct TopologyWish {
    /// Hard: the whole gang within one domain of this level.
    pub require: Option<Level>,
    /// Soft: tried first.
    pub prefer: Option<Level>,
    /// Hard: each run of this many consecutive ranks within one NVLink island.
    pub ranks_per_island: Option<u32>,
}

/// `group: G/2` makes two jobs one atomic gang.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    pub size: u32,
}

/// What a job may assume about its checkpoints, and how it is asked to write one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckpointPolicy {
    /// The directory that all ranks share; `None`: the job has no checkpoints and loses all since its start.
    pub dir: Option<String>,
    /// How often it writes one unasked.
    pub every: Option<Span>,
    /// The signal that asks for one, such as `SIGUSR1`; `None`: `SIGTERM`.
    pub signal: Option<String>,
    /// Whether it writes one when asked, within `grace`; then a stop loses nothing.
    pub on_demand: bool,
    /// How long a stop waits for the ranks to save and leave.
    pub grace: Span,
    /// How long writing one takes, as stated or measured; for the cost of evicting.
    pub write_time: Span,
    /// How long a restart takes until work goes on; for the cost of evicting.
    pub restart_time: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependencyKind {
    /// Start after that job is done.
    AfterOk,
    /// Start after that job failed or was cancelled.
    AfterNotOk,
    /// Start after that job ended in any way.
    AfterAny,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    pub job: JobId,
    pub kind: DependencyKind,
    /// Set when the other job has ended as asked.
    pub met: bool,
}

/// How worker processes are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// One process a worker.
    #[default]
    Ranks,
    /// One process a node, which starts its own ranks (`torchrun`); the slots are named in its environment.
    Torchrun,
    /// One process a node with a hostfile that names all slots.
    Mpi,
}

/// What only agents read: the process to run. The scheduler never looks inside.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunSpec {
    pub launcher: Launcher,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
    /// Where logs go besides the agent's own disk; `%j` job, `%x` name, `%t` rank.
    pub output: Option<String>,
    /// A terminal for rank 0.
    pub pty: bool,
}

/// Everything a user asked for, validated. Shared, never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: String,
    /// Path in the tenant tree, such as `research/nlp`.
    pub queue: String,
    pub priority: Priority,
    /// Whether a job with the right to do so may stop this one.
    pub preemptible: bool,
    pub gang: Gang,
    pub shape: Shape,
    pub topology: TopologyWish,
    pub group: Option<Group>,
    /// Only nodes of this pool.
    pub pool: Option<String>,
    /// After so long in the running state the job is ended; `None`: never.
    pub time_limit: Option<Span>,
    pub checkpoint: CheckpointPolicy,
    /// How often a failed run is tried again. Evictions, node faults and refusals do not count.
    pub retries: u32,
    pub after: Vec<Dependency>,
    pub begin: Option<Time>,
    pub run: RunSpec,
}

/// Most workers of one gang: more would only serve to exhaust the memory of the server.
pub const MAX_WORKERS: u32 = 100_000;

/// Longest grace of a stop: without a bound a job could never be made to leave.
pub const MAX_GRACE: Span = Span::hours(7 * 24);

impl JobSpec {
    /// Refuses what contradicts itself: the field and why. Whether the cluster holds it is another question.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let Gang { workers, min, .. } = self.gang;
        if workers == 0 || min == 0 || min > workers || workers > MAX_WORKERS {
            let why = format!(
                "workers {workers} and min {min}: both at least 1, min at most workers, workers at most {MAX_WORKERS}"
            );
            return Err(("gang", why));
        }
        if self.shape.gpus == 0 && self.shape.cpus == 0 && self.shape.memory_bytes == 0 {
            return Err(("resources", "a worker needs at least one GPU, CPU or byte of memory".to_string()));
        }
        if let Some(slice) = self.topology.ranks_per_island
            && (slice == 0 || workers % slice != 0 || self.shape.gpus == 0)
        {
            return Err(("topology.ranks_per_island", format!("{slice} does not divide {workers} workers with GPUs")));
        }
        if self.shape.gpus == 0 && matches!(self.topology.require, Some(Level::Island | Level::Switch)) {
            return Err(("topology.require", "workers without GPUs are on no island or switch".to_string()));
        }
        if self.checkpoint.grace > MAX_GRACE {
            return Err(("checkpoint.grace", format!("{} is longer than {MAX_GRACE}", self.checkpoint.grace)));
        }
        Ok(())
    }

    /// What the whole gang holds at full size.
    pub fn total(&self) -> Resources {
        self.shape.resources().times(self.gang.workers.into())
    }
}

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

/// A checkpoint that verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The training step; in the simulator the milliseconds of work that are done.
    pub step: u64,
    pub path: String,
    pub attempt: AttemptNo,
    pub at: Time,
}

/// The devices, cores and memory of one worker on one node: complete, so that an agent has nothing left to choose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub node: NodeId,
    /// Bit `i` is GPU `i` of the node's machine.
    pub gpus: u64,
    pub cpus: CpuSet,
    /// Memory by socket index of the machine. Sums to the shape's memory.
    pub memory: Vec<(u8, u64)>,
    /// Bit `i` is NIC `i` of the node's machine: only the rails tied to these GPUs.
    pub nics: u64,
}

impl Place {
    pub fn resources(&self) -> Resources {
        Resources {
            gpus: self.gpus.count_ones().into(),
            cpus: self.cpus.count().into(),
            memory_bytes: self.memory.iter().map(|(_, bytes)| bytes).sum(),
        }
    }
}

/// The exit code by which a rank says: I have saved, run me again.
pub const EXIT_REQUEUE: i32 = 85;

/// How a worker's process tree ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It ended by itself with this code.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// The node refused to start it: never the job's fault.
    Refused(String),
    /// Its node is gone: nobody saw it end.
    Lost,
    /// Its keeper ended it because the lease ran out.
    LeaseExpired,
}

impl Exit {
    pub fn is_success(&self) -> bool {
        *self == Exit::Code(0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerPhase {
    /// The node is to prepare it.
    Assigned,
    /// The node has all it needs; `port` is what only it could know.
    Prepared {
        port: u16,
    },
    Running,
    /// The gang gives it up and goes on without it.
    Leaving {
        deadline: Time,
    },
    Ended(Exit),
}

impl WorkerPhase {
    pub fn ended(&self) -> bool {
        matches!(self, WorkerPhase::Ended(_))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    pub rank: Rank,
    pub place: Place,
    pub phase: WorkerPhase,
}

/// Why an attempt is being stopped; decides what becomes of the job afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopWhy {
    /// Its devices are promised to this job.
    Preempted { claimant: JobId },
    /// Its node is being drained.
    Drained { node: NodeId },
    /// A person asked for another run.
    Requeued { by: String },
    /// A person took it out.
    Cancelled { by: String },
    /// It ran into its time limit.
    TimeLimit,
    /// A rank ended badly; the others have nobody to talk to.
    RankFailed { rank: Rank, exit: Exit },
    /// A node refused or did not answer in time during start: the node is charged.
    StartFailed { node: NodeId, why: String },
    /// A node with some of its ranks is fenced.
    NodeLost { node: NodeId },
    /// A rank ended by its own checkpoint-and-requeue code.
    AskedRequeue { rank: Rank },
}

impl fmt::Display for StopWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopWhy::Preempted { claimant } => write!(f, "preempted by job {claimant}"),
            StopWhy::Drained { node } => write!(f, "node {node} is being drained"),
            StopWhy::Requeued { by } => write!(f, "requeued by {by}"),
            StopWhy::Cancelled { by } => write!(f, "cancelled by {by}"),
            StopWhy::TimeLimit => write!(f, "time limit reached"),
            StopWhy::RankFailed { rank, exit } => write!(f, "rank {rank} {exit}"),
            StopWhy::StartFailed { why, .. } => write!(f, "could not start: {why}"),
            StopWhy::NodeLost { node } => write!(f, "node {node} was lost"),
            StopWhy::AskedRequeue { rank } => write!(f, "rank {rank} saved and asked to be run again"),
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Exit::Code(code) => write!(f, "exited with code {code}"),
            Exit::Signal(signal) => write!(f, "was ended by signal {signal}"),
            Exit::Refused(why) => write!(f, "was refused: {why}"),
            Exit::Lost => write!(f, "was lost with its node"),
            Exit::LeaseExpired => write!(f, "was ended because the lease ran out"),
        }
    }
}

impl StopWhy {
    /// Survivors of a fault get no grace: the newest valid checkpoint is the truth.
    pub fn has_grace(&self) -> bool {
        !matches!(self, StopWhy::RankFailed { .. } | StopWhy::StartFailed { .. } | StopWhy::NodeLost { .. })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    pub why: StopWhy,
    pub asked_at: Time,
    /// When what is left is ended without asking.
    pub deadline: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptPhase {
    /// Nodes prepare; no process of the job runs yet.
    Preparing {
        deadline: Time,
    },
    /// All are prepared and were told to go.
    Going {
        deadline: Time,
    },
    Running {
        since: Time,
    },
    Stopping(Stop),
}

/// One run of a gang, from its placement until its last device is free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    pub number: AttemptNo,
    pub placed_at: Time,
    /// When all ranks ran; survives into the stopping phase.
    pub ran_from: Option<Time>,
    pub phase: AttemptPhase,
    /// Sorted by rank.
    pub workers: Vec<Worker>,
    /// Where the ranks meet: the port that the node of rank 0 prepared.
    pub rendezvous_port: Option<u16>,
    pub resume_from: Option<Checkpoint>,
}

impl Attempt {
    /// The workers that still hold their place.
    pub fn live(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().filter(|w| !w.phase.ended())
    }

    /// The workers that are to stay: neither over nor given up.
    pub fn staying(&self) -> impl Iterator<Item = &Worker> {
        self.live().filter(|worker| !matches!(worker.phase, WorkerPhase::Leaving { .. }))
    }

    pub fn stopping(&self) -> Option<&Stop> {
        match &self.phase {
            AttemptPhase::Stopping(stop) => Some(stop),
            _ => None,
        }
    }

    /// The workers whose devices are being freed: all of a stopping attempt, else those given up.
    pub fn leaving(&self) -> impl Iterator<Item = &Worker> {
        let all = self.stopping().is_some();
        self.live().filter(move |worker| all || matches!(worker.phase, WorkerPhase::Leaving { .. }))
    }

    pub fn live_resources(&self) -> Resources {
        self.live().fold(Resources::ZERO, |sum, w| sum.plus(w.place.resources()))
    }

    /// The nodes of all workers, each once, in rank order of first appearance.
    pub fn nodes(&self) -> Vec<NodeId> {
        let mut seen = BTreeSet::new();
        self.workers.iter().map(|worker| worker.place.node).filter(|node| seen.insert(*node)).collect()
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
            held_by: None,
            not_before: Time(0),
            attempts: AttemptNo(0),
            attempt: None,
            checkpoint: None,
            evictions: 0,
            failures: 0,
            refused: 0,
            started_at: None,
            ended_at: None,
            note: None,
            exit_code: None,
            gpu_us: 0,
        }
    }

    /// Order of service: class, then seniority, then number.
    pub fn order(&self) -> (Priority, Time, JobId) {
        (self.spec.priority, self.submitted_at, self.id)
    }

    pub fn is_running(&self) -> bool {
        self.state == JobState::Running
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
