//! A scenario as data: what was written, with its lines, before anything is looked up in a cluster.
use super::lexer::Op;
use ganger_core::model::amounts::Limit;
use ganger_core::model::budget::Budget;
use ganger_core::model::job::{ArraySpec, DependencyKind, JobState, Level, Priority, Shrink};
use ganger_core::model::machine::Machine;
use ganger_core::model::pool::Lending;
use ganger_core::model::queue::QueuePolicy;
use ganger_core::model::split::PartAsk;
use ganger_core::model::time::{Span, Time};
use ganger_core::model::whole::WholeNodes;
use ganger_core::model::window::Window;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A whole file. Steps are in the order in which they happen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    pub nodes: Vec<NodesLine>,
    pub queues: Vec<QueueLine>,
    pub settings: Vec<SettingLine>,
    pub uplinks: Vec<UplinkLine>,
    pub pools: Vec<PoolLine>,
    /// Sorted by time; steps of one time in file order.
    pub steps: Vec<Step>,
    pub finals: Vec<Expectation>,
}

/// `nodes COUNT PROFILE …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodesLine {
    pub line: u32,
    pub count: u32,
    /// Shared by all nodes of the line.
    pub machine: Arc<Machine>,
    pub prefix: String,
    /// The number of the first node: numbering goes on over the lines of one prefix.
    pub first: u32,
    pub nodes_per_leaf: Option<u32>,
    pub leaf_name: Option<String>,
    pub leaves_per_spine: Option<u32>,
    pub pool: Option<String>,
    pub labels: BTreeMap<String, String>,
}

impl NodesLine {
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        (self.first..self.first + self.count).map(|number| format!("{}{number}", self.prefix))
    }
}

/// `queue NAME …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLine {
    pub line: u32,
    pub name: String,
    /// With all parents, such as `research/nlp`.
    pub path: String,
    pub weight: u32,
    pub guarantee: Limit,
    pub limit: Limit,
    pub budget: Option<Budget>,
    pub policy: QueuePolicy,
    pub whole_nodes: Option<WholeNodes>,
}

/// One `key=value` of `set`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingLine {
    pub line: u32,
    pub name: String,
    pub value: String,
}

/// `uplink LEAF BANDWIDTH`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UplinkLine {
    pub line: u32,
    pub leaf: String,
    pub bps: u64,
}

/// `pool NAME …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolLine {
    pub line: u32,
    pub name: String,
    pub lending: Lending,
}

/// `at T …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub line: u32,
    pub at: Time,
    /// As written behind the time, for messages and the trace.
    pub text: String,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    Submit(Box<Submit>),
    Node {
        verb: NodeVerb,
        node: String,
    },
    Job {
        verb: JobVerb,
        job: String,
    },
    /// `drain NODE at=T for=D`
    Maintain {
        node: String,
        from: Time,
        lasts: Option<Span>,
    },
    Xid {
        node: String,
        gpu: u32,
        code: u32,
    },
    Pcie {
        node: String,
        gpu: u32,
        lanes: u32,
    },
    RestartControl,
    Resize {
        job: String,
        workers: u32,
    },
    Expect(Expectation),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeVerb {
    Fail,
    Recover,
    Drain,
    Uncordon,
    Cut,
    Heal,
    RefuseLaunch,
    AcceptLaunch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobVerb {
    Cancel,
    Hold,
    Release,
    Requeue,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
    /// Since 0s.
    At(Time),
    /// The next moment at which it is so long after midnight, in UTC.
    Clock(Span),
}

/// `at T submit NAME …`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Submit {
    pub name: String,
    pub workers: u32,
    pub min: Option<u32>,
    pub step: Option<u32>,
    pub shrink: Shrink,
    pub gpus: u32,
    pub cpus: u32,
    pub memory_bytes: u64,
    pub vram_bytes: u64,
    /// A part of a GPU instead of whole ones.
    pub part: Option<PartAsk>,
    pub distinct_gpus: bool,
    pub needs_vram_bytes: u64,
    pub intermittent: bool,
    pub gpu_model: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub pcie_bandwidth_bps: u64,
    pub network_bandwidth_bps: u64,
    pub priority: Priority,
    /// The path of its queue.
    pub queue: String,
    pub work: Span,
    pub time: Option<Span>,
    pub require: Option<Level>,
    pub prefer: Option<Level>,
    pub ranks_per_island: Option<u32>,
    pub ranks_per_node: Option<u32>,
    pub group: Option<(String, u32)>,
    pub ckpt_every: Option<Span>,
    pub ckpt_time: Span,
    pub restart_time: Span,
    pub on_demand_ckpt: bool,
    pub grace: Span,
    pub preemptible: bool,
    /// `preemptible=false` was written.
    pub firm: bool,
    pub after: Vec<(DependencyKind, String)>,
    pub begin: Option<Begin>,
    pub deadline: Option<Time>,
    pub pool: Option<String>,
    pub windows: Vec<Window>,
    pub array: Option<ArraySpec>,
}

/// `expect …`, all of whose checks must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation {
    pub line: u32,
    /// As written, from `expect` on.
    pub text: String,
    pub subject: Subject,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Job { name: String, state: Option<JobState>, checks: Vec<JobCheck> },
    Cluster { checks: Vec<ClusterCheck> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobCheck {
    Count { field: JobCount, op: Op, value: u64 },
    Moment { field: JobMoment, op: Op, value: Span },
    Words { field: JobWords, op: Op, value: String },
    On { op: Op, nodes: BTreeSet<String> },
    Same { op: Op, level: Level },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobCount {
    Workers,
    Attempts,
    Evictions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobMoment {
    Started,
    Ended,
    /// Done work that its newest attempt began with.
    ResumedFrom,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobWords {
    Reason,
    Text,
    /// Its parts of GPUs: `n0/0/3g.40gb@4,n0/1/0.5`.
    Slices,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterCheck {
    Count {
        field: ClusterCount,
        op: Op,
        value: u64,
    },
    /// What is asked for cannot use so much of the free GPUs, in millionths.
    Frag {
        op: Op,
        millionths: u64,
    },
    /// Work that was done and lost, in GPU-milliseconds.
    LostGpuHours {
        op: Op,
        gpu_ms: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterCount {
    /// GPUs that were split anew, or made whole again.
    Repartitions,
    Evictions,
    Violations,
    Running,
    Pending,
    Free,
    /// The path of the queue.
    Used(String),
    /// Whole GPU-seconds that a queue has spent in this period.
    Spent(String),
    Quarantined,
}
