//! The API that users and tools read: `snake_case`, amounts in base units with the unit in the name, times RFC 3339.
//!
//! Routes (all under `/v1`, JSON, `Authorization: Bearer …` on TCP; on the Unix socket peer credentials name the user):
//!
//! | route | answers |
//! |---|---|
//! | `POST jobs` ([`super::job::JobFile`]; `?dry_run=true`) | [`JobDetail`], 201; dry run: [`Why`] |
//! | `GET jobs` (`?all=true&state=&queue=&user=&tasks=true`) | `[JobView]` |
//! | `GET jobs/{job}` · `GET jobs/{job}/why` | [`JobDetail`] · [`Why`] |
//! | `GET jobs/{job}/wait?timeout_ms=` | [`JobDetail`] when it has ended, or as it is after the time-out |
//! | `POST jobs/{job}/cancel`, `hold`, `release`, `requeue` | [`JobDetail`] |
//! | `POST jobs/{job}/resize` ([`ResizeRequest`]) | [`JobDetail`] |
//! | `GET jobs/{job}/logs?rank=&attempt=&follow=&from_byte=` | the log's bytes, streamed |
//! | `POST jobs/{job}/exec?rank=` ([`ExecRequest`], `Upgrade: ganger-stream`) · `POST jobs/{job}/attach` | a two-way stream |
//! | `POST jobs/{job}/checkpoints` ([`CheckpointAnnounce`]) | `{}` |
//! | `GET nodes`, `GET nodes/{node}` | `[NodeView]`, [`NodeView`] |
//! | `POST nodes/{node}/drain` ([`DrainRequest`] or nothing), `cordon`, `uncordon`, `recover`, `quarantine` ([`QuarantineRequest`]) | [`NodeView`] |
//! | `GET queues` · `POST queues` ([`super::cluster::QueuesFile`]) | `[QueueView]` |
//! | `DELETE queues/{queue}` | `[QueueView]` of those that are left |
//! | `GET cluster` · `POST cluster` ([`super::cluster::ClusterFile`]) | the same file as it is now · [`ClusterApplied`] |
//! | `GET usage?queue=&user=` · `GET top` | `[UsageView]` · [`TopView`] |
//! | `GET events?job=&node=&since=&follow=` | `[EventView]`; with `follow` newline-delimited JSON, streamed |
//! | `GET tokens`, `POST tokens` ([`TokenRequest`]), `DELETE tokens/{name}` | tokens; the secret is shown once |
//! | `GET snapshot` · `GET status` · `GET /openapi.json` · `GET /healthz` | [`Snapshot`] · [`Status`] · … |
//!
//! `{job}` is an id or a name (of the newest job of that name), or of a task of an array `12_3` or `sweep_3`; `{node}` is a name. Errors are [`ApiError`].
use crate::model::amounts::{Limit, Resources};
use crate::model::budget::Period;
use crate::model::cluster::Cluster;
use crate::model::decision::{Decision, Reason};
use crate::model::job::{JobState, Priority};
use crate::model::node::HealthState;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Any refusal. `code` is a stable word; `message` says what was attempted, on which field or object, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApiError {
    pub code: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// One line of `ganger jobs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobView {
    pub id: u64,
    pub name: String,
    pub user: String,
    pub queue: String,
    pub priority: Priority,
    pub state: JobState,
    pub state_since: String,
    pub workers: u32,
    /// With parts of GPUs, rounded up.
    pub gpus: u64,
    /// The same exactly, in thousandths.
    #[serde(default)]
    pub gpu_milli: u64,
    /// Names of the nodes of the live attempt, in rank order.
    pub nodes: Vec<String>,
    pub attempt: u32,
    pub evictions: u32,
    pub submitted_at: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at: Option<String>,
    /// Only while pending.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<Reason>,
    /// Why it waits, or why it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit_code: Option<i32>,
    /// Of which array it is a task.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub task: Option<TaskView>,
    /// It stands for an array; in a list for its tasks that never started.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub array: Option<ArrayView>,
}

/// `12_3` is the task with the index 3 of array 12, and names it wherever ids do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskView {
    pub array: u64,
    pub index: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArrayView {
    /// As it was asked for, such as `0-9%2`.
    pub indices: String,
    /// The indices that wait for their first start, such as `4-9%2`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pending: Option<String>,
    /// So many tasks at once at most.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<u32>,
    pub tasks: u32,
    /// Tasks that wait, also to run again.
    pub waiting: u64,
    /// Tasks that hold devices.
    pub started: u64,
    pub done: u32,
    pub failed: u32,
    pub cancelled: u32,
}

impl JobView {
    /// Its id as people write it: `12`, `12_3`, and for the rest of an array `12_[4-9%2]`.
    pub fn number(&self) -> String {
        let pending = self.array.as_ref().and_then(|array| array.pending.as_ref());
        match (&self.task, pending) {
            (Some(task), _) => format!("{}_{}", task.array, task.index),
            (None, Some(pending)) => format!("{}_[{pending}]", self.id),
            (None, None) => self.id.to_string(),
        }
    }
}

/// `ganger show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    #[serde(flatten)]
    pub view: JobView,
    pub resources_per_worker: Resources,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub time_limit_ms: Option<u64>,
    pub preemptible: bool,
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub checkpoint: Option<CheckpointView>,
    pub ranks: Vec<RankView>,
    pub failures: u32,
    pub gpu_seconds: u64,
    pub events: Vec<EventView>,
    /// Only in the answer to its submission: why it can never run on the cluster as it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub never: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CheckpointView {
    pub step: u64,
    pub path: String,
    pub attempt: u32,
    pub at: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RankView {
    pub rank: u32,
    pub node: String,
    pub gpus: Vec<u8>,
    /// The part of a GPU that it has instead: which GPU, which part, SMs and memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slice: Option<String>,
    pub cpus: String,
    pub nics: Vec<String>,
    /// `assigned`, `prepared`, `running`, `leaving`, `ended`.
    pub phase: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exit: Option<String>,
    /// It has no log of its own: its launcher's, which runs all ranks of the node, is that of this rank.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub log_of: Option<u32>,
}

/// `ganger why`: every gate with numbers that add up to all nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    pub id: u64,
    pub name: String,
    pub state: JobState,
    pub since: String,
    /// The short code; none if the job runs or has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<Reason>,
    /// The same reason under the name that Slurm's users know.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slurm_reason: Option<String>,
    /// One sentence.
    pub summary: String,
    /// Of a job that holds devices: what is known of its stay there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
    /// Place in the order of service, from 1, and who is ahead.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub position: Option<u32>,
    pub ahead: Vec<String>,
    /// Every gate in the order of evaluation, passed or failed.
    pub gates: Vec<Gate>,
    /// Nodes by what speaks against them; the counts add up to all nodes.
    pub nodes: Vec<NodeCount>,
    pub nodes_total: u32,
    /// The promised or estimated start, and on what it is conditional.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub estimate: Option<Estimate>,
    /// Whether it may evict, what that would cost, and why it did not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub preemption: Option<String>,
    /// Changes, each tried out, that would start it now.
    pub would_start_now: Vec<String>,
    /// Whether an empty healthy cluster would hold it, and limits and budgets allow it.
    pub satisfiable: bool,
}

/// `about` is a stable word: `gives up`, `until`, `size`, `goes on`, `promised`, `protected`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fact {
    pub about: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gate {
    pub gate: String,
    pub passed: bool,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeCount {
    pub nodes: u32,
    pub because: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Estimate {
    pub start: String,
    pub conditional_on: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeView {
    pub name: String,
    pub profile: String,
    pub gpu_model: String,
    pub leaf: String,
    pub spine: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pool: Option<String>,
    pub address: String,
    pub health: HealthState,
    pub health_since: String,
    pub health_cause: String,
    /// `ready`, or what keeps work away: `cordoned`, `draining`, `cooling down`, a health state.
    pub state: String,
    pub capacity: Resources,
    pub used: Resources,
    /// One letter per GPU: `.` free, `C` claimed, `U` used, `D` draining, `P` in parts, `X` sick.
    pub devices: String,
    /// By GPU index: the job that owns it.
    pub owners: BTreeMap<u8, u64>,
    /// By GPU index, of those in parts: what of it is held, in thousandths.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held_milli: BTreeMap<u8, u64>,
    pub last_heard: String,
    pub jobs: Vec<u64>,
    /// What is planned or has begun, the next first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub maintenance: Vec<MaintenanceView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    pub name: String,
    pub weight: u32,
    pub guarantee: Limit,
    pub limit: Limit,
    pub used: Resources,
    /// Its largest part of anything that the cluster has, in millionths, and of what.
    #[serde(default)]
    pub share_millionths: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominant: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetView>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_nodes: Option<WholeNodesView>,
    pub pending_jobs: u32,
    pub running_jobs: u32,
    /// What is odd about it and may come true later, such as a promise that no node could keep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// What is odd about a cluster file that was applied.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct ClusterApplied {
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Whole nodes that are promised to a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WholeNodesView {
    pub nodes: u32,
    pub gpus: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// Of these it has so many, and so many are open to it.
    pub taken: u32,
    pub open: u32,
    /// So many there would be if nothing ran: fewer than promised where nodes are missing, or promised to others as well.
    pub coverable: u32,
}

/// A budget of GPU time, here in GPU-milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetView {
    pub gpu_ms: u64,
    pub per: Period,
    pub spent_gpu_ms: u64,
    pub left_gpu_ms: u64,
    pub renews_at: String,
}

/// What a queue, or one user in it, was charged in this period, and what it used before as it counts now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UsageView {
    pub queue: String,
    /// A part of the budget of its own; else the line is about the whole queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What is held now, in thousandths of GPUs.
    pub gpu_milli: u64,
    /// Only where there is a budget: nothing is charged elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetView>,
    /// The use of the past that lowers the weight of the queue, in GPU-milliseconds; where `usage.half_life` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decayed_gpu_ms: Option<u64>,
}

/// `ganger top`: the cluster on one screen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TopView {
    pub status: Status,
    pub gpus: GpuStates,
    pub queues: Vec<QueueView>,
    pub leaves: Vec<LeafView>,
    /// Jobs and tasks that wait, by what for, most first.
    pub pending: Vec<PendingView>,
}

/// Every GPU of the listed nodes is in exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct GpuStates {
    pub used: u64,
    /// On nodes that take work.
    pub free: u64,
    /// Free, on nodes that take none.
    pub out: u64,
    pub claimed: u64,
    pub draining: u64,
    /// In parts.
    pub split: u64,
    /// Of these so much is held, in thousandths of GPUs.
    #[serde(default)]
    pub split_held_milli: u64,
    pub sick: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeafView {
    pub leaf: String,
    pub spine: String,
    pub nodes: u32,
    pub nodes_ready: u32,
    pub gpus: u64,
    pub gpus_used: u64,
    /// In thousandths, with parts of GPUs.
    #[serde(default)]
    pub gpu_milli_used: u64,
    /// Where its capacity is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<UplinkView>,
}

/// What the gangs over several leaves ask of the way up from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UplinkView {
    pub capacity_bps: u64,
    pub asked_bps: u64,
    pub gangs: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingView {
    /// None before the first decision about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub jobs: u64,
    pub gpus: u64,
    /// In thousandths, with parts of GPUs.
    #[serde(default)]
    pub gpu_milli: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventView {
    pub number: u64,
    pub at: String,
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub node: Option<String>,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecRequest {
    pub command: Vec<String>,
    #[serde(default)]
    pub pty: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointAnnounce {
    pub attempt: u32,
    pub step: u64,
    pub path: String,
}

/// Another size for an elastic gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResizeRequest {
    pub workers: u32,
}

/// Without `at` the node is drained at once.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// When maintenance begins, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// How long it lasts, such as `2h`; without it until somebody says `uncordon`.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub lasts: Option<String>,
}

/// A time in which a node is out of use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MaintenanceView {
    pub from: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuarantineRequest {
    pub cause: String,
    /// You vouch that no process of Ganger runs there any more.
    #[serde(default)]
    pub fenced: bool,
}

/// What a token may do. `member`: own jobs. `agent`: the agents' routes only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Admin,
    Member,
    Agent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    pub name: String,
    pub role: Role,
    /// Jobs run as this user of the nodes; without it, as the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    pub name: String,
    pub role: Role,
    pub user: String,
    pub created_at: String,
    /// Only in the answer to its creation; the server keeps a hash.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub secret: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    pub version: String,
    pub term: u64,
    pub now: String,
    pub nodes: u32,
    pub nodes_ready: u32,
    pub gpus: u64,
    pub gpus_used: u64,
    /// In thousandths, with parts of GPUs.
    #[serde(default)]
    pub gpu_milli_used: u64,
    /// What the shapes asked for lately cannot use of the free GPUs, in millionths of these.
    pub fragmented_millionths: u64,
    pub jobs_pending: u32,
    pub jobs_running: u32,
    pub last_decision_us: u64,
    pub decisions: u64,
}

/// One decision with the state that it was made from: `ganger sim decide FILE` makes it again, offline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub cluster: Cluster,
    pub now: crate::model::time::Time,
    pub decision: Option<Decision>,
}
