//! Queues, budgets and the cluster at a glance: what `queues`, `usage`, `top` and `cluster apply` answer.
use crate::model::amounts::{Limit, Resources};
use crate::model::budget::Period;
use crate::model::decision::Reason;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
