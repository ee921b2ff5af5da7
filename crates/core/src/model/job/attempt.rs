//! One run of a job: where its workers are, how far each is, and how it ends.
use crate::model::amounts::{Resources, count};
use crate::model::cpuset::CpuSet;
use crate::model::ids::{AttemptNo, JobId, NodeId, Rank};
use crate::model::part::Part;
use crate::model::split::Slice;
use crate::model::time::{Time, rfc3339};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

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
    /// Bit `i` is GPU `i` of the node's machine, held whole.
    pub gpus: u64,
    pub cpus: CpuSet,
    /// Memory by socket index of the machine. Sums to the shape's memory.
    pub memory: Vec<(u8, u64)>,
    /// Bit `i` is NIC `i` of the node's machine: only the rails tied to these GPUs.
    pub nics: u64,
    /// All memory of its GPUs.
    #[serde(default)]
    pub vram_bytes: u64,
    /// Bits per second by switch of its GPUs. Sums to what the shape asks.
    #[serde(default)]
    pub pcie_bps: Vec<(u8, u64)>,
    #[serde(default)]
    pub network_bps: u64,
    /// Instead of whole GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<Slice>,
}

impl Place {
    /// GPUs and CPUs and nothing else.
    pub fn of_devices(node: NodeId, gpus: u64, cpus: CpuSet) -> Place {
        let (memory, pcie_bps) = (Vec::new(), Vec::new());
        Place { node, gpus, cpus, memory, nics: 0, vram_bytes: 0, pcie_bps, network_bps: 0, slice: None }
    }

    pub fn resources(&self) -> Resources {
        let sum = |parts: &[(u8, u64)]| parts.iter().fold(0u64, |sum, (_, amount)| sum.saturating_add(*amount));
        Resources {
            gpus: self.gpus.count_ones().into(),
            cpus: self.cpus.count().into(),
            memory_bytes: sum(&self.memory),
            vram_bytes: self.vram_bytes,
            pcie_bandwidth_bps: sum(&self.pcie_bps),
            network_bandwidth_bps: self.network_bps,
            gpu_milli: self.slice.map_or(0, |slice| slice.milli.into()),
        }
    }

    /// What it holds in amounts.
    pub fn amounts(&self) -> impl Iterator<Item = (Part, u64)> {
        let memory = self.memory.iter().map(|(socket, bytes)| (Part::Memory(*socket), *bytes));
        let pcie = self.pcie_bps.iter().map(|(switch, bps)| (Part::Pcie(*switch), *bps));
        memory.chain(pcie).chain((self.network_bps > 0).then_some((Part::Network, self.network_bps)))
    }

    /// The GPUs that it holds or holds a part of.
    pub fn touched_gpus(&self) -> u64 {
        self.slice.map_or(self.gpus, |slice| self.gpus | slice.mask())
    }

    /// Whether both cannot be at once: a GPU of both, unless each has a part of it that leaves room for the other's.
    pub fn excludes(&self, other: &Place) -> bool {
        let gpus = match (&self.slice, &other.slice) {
            (Some(one), Some(two)) => one.excludes(two),
            _ => self.touched_gpus() & other.touched_gpus() != 0,
        };
        self.node == other.node && gpus
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
    /// The gang goes on without it.
    pub fn is_given_up(&self) -> bool {
        matches!(self, WorkerPhase::Leaving { .. })
    }

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
    /// It is a guest on devices whose reserved start comes near.
    GuestLeaves { owner: JobId },
    /// It makes room for this job, and the same decision keeps a place elsewhere for it.
    Moved { claimant: JobId },
    /// It goes on with so many workers; the same decision keeps the places for them.
    Resized { workers: u32 },
    /// Its node is being drained.
    Drained { node: NodeId },
    /// The window in which it may run ends.
    WindowEnds,
    /// It is a guest of this pool, which is lent no longer.
    LendingEnds { pool: String },
    /// A person asked for another run.
    Requeued { by: String },
    /// A person took it out.
    Cancelled { by: String },
    /// It ran into its time limit.
    TimeLimit,
    /// The budget of its queue, or of one above it, is as good as spent until then.
    Budget { queue: String, renews_at: Time, abrupt: bool },
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
            StopWhy::GuestLeaves { owner } => {
                write!(f, "its devices are reserved for job {owner}, whose start comes near")
            }
            StopWhy::Moved { claimant } => write!(f, "moved to make room for job {claimant}"),
            StopWhy::Resized { workers } => write!(f, "goes on with {}", count((*workers).into(), "worker")),
            StopWhy::Drained { node } => write!(f, "node {node} is being drained"),
            StopWhy::WindowEnds => write!(f, "its window ends"),
            StopWhy::LendingEnds { pool } => write!(f, "pool {pool} needs its nodes back: its lending time ends"),
            StopWhy::Requeued { by } => write!(f, "requeued by {by}"),
            StopWhy::Cancelled { by } => write!(f, "cancelled by {by}"),
            StopWhy::TimeLimit => write!(f, "time limit reached"),
            StopWhy::Budget { queue, renews_at, .. } => {
                write!(f, "the budget of queue {queue} is spent until {}", rfc3339(*renews_at))
            }
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
            Exit::Code(code @ 126) => {
                write!(f, "exited with code {code} (the command cannot be executed; see its log)")
            }
            Exit::Code(code @ 127) => write!(f, "exited with code {code} (command not found; see its log)"),
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
        match self {
            StopWhy::RankFailed { .. } | StopWhy::StartFailed { .. } | StopWhy::NodeLost { .. } => false,
            StopWhy::Budget { abrupt, .. } => !abrupt,
            _ => true,
        }
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
    /// Its GPUs are split as it needs them from then on.
    #[serde(default)]
    pub ready_at: Time,
    /// When all ranks ran; survives into the stopping phase.
    pub ran_from: Option<Time>,
    pub phase: AttemptPhase,
    /// Sorted by rank.
    pub workers: Vec<Worker>,
    /// Where the ranks meet: the port that the node of rank 0 prepared.
    pub rendezvous_port: Option<u16>,
    pub resume_from: Option<Checkpoint>,
    /// The jobs on whose reserved devices it started: each of them has them back in time.
    #[serde(default)]
    pub guest_of: Vec<JobId>,
    /// Workers that it went on without.
    #[serde(default)]
    pub given_up: u32,
    /// When it last did.
    #[serde(default)]
    pub resized_at: Option<Time>,
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
