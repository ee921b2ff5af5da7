//! The agents' protocol: HTTP + JSON, the agent dials out and long-polls `POST /v1/agent/sync`.
//!
//! The answer is the node's whole desired set. Absence is never a stop order: a stop is an explicit order with its
//! attempt; what runs and is not named is reported as a stray, keeps its devices and waits.
use crate::model::cpuset::CpuSet;
use crate::model::ids::{AttemptNo, JobId, Rank};
use crate::model::job::{CheckpointPolicy, Owner, RunSpec};
use crate::model::machine::Machine;
use crate::model::report::Report;
use crate::model::split::Slice;
use crate::model::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `POST /v1/agent/register`, once per agent start and whenever the machine changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegisterRequest {
    pub node: String,
    pub machine: Arc<Machine>,
    pub address: String,
    pub boot_id: String,
    /// Tells this agent from any other: drawn once, kept in its data directory.
    #[serde(default)]
    pub agent: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub pool: Option<String>,
    /// Leaf switch, where the agent's configuration names one.
    #[serde(default)]
    pub leaf: Option<String>,
    /// `host:port` where other agents may ask this one whether it lost the server too.
    #[serde(default)]
    pub peer_address: Option<String>,
    pub version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisterReply {
    pub term: u64,
    pub lease_ms: u64,
}

/// `POST /v1/agent/sync`. Answered at once if the node's generation is not `generation_seen`, else when it changes or
/// after `wait_ms` at the latest. Each request renews the node's lease: the server counts from receipt, the agent from
/// sending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncRequest {
    pub node: String,
    pub boot_id: String,
    pub term_seen: u64,
    pub generation_seen: u64,
    /// Oldest first. Kept on the agent's disk and sent again until acknowledged.
    pub reports: Vec<NumberedReport>,
    pub wait_ms: u64,
    /// Peers whose ranks may still run because this agent said that it had lost the server too. Until then the server
    /// must not give their ranks to others.
    #[serde(default)]
    pub vouched: Vec<Vouch>,
    /// False: this agent was not answered for a while and may soon vouch for peers. The request renews its own lease,
    /// but it does not count among the agents heard from.
    #[serde(default = "yes")]
    pub witness: bool,
    /// [`Peers::version`] that this agent has; 0: none.
    #[serde(default)]
    pub peers_seen: u64,
}

fn yes() -> bool {
    true
}

/// A promise to a peer, told to the server first of all when it is back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vouch {
    /// The peer's node.
    pub node: String,
    /// How long its ranks may still run, counted by the server from receipt.
    pub remaining_ms: u64,
}

/// The other agents of the cluster, all of them, whether heard from or not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Peers {
    /// Changes with the list or the secret; never 0.
    pub version: u64,
    /// What an agent must show to be answered by another.
    pub secret: String,
    pub agents: Vec<Peer>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    pub node: String,
    /// Its `peer_address`; `None`: it counts, but cannot be asked.
    pub address: Option<String>,
}

/// `POST /peer/lost-server` between agents, with the secret as bearer token: have you lost the server too? Who answers
/// yes remembers it for `lease_ms` and tells the server of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LostServerRequest {
    pub node: String,
    pub lease_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostServerReply {
    pub node: String,
    pub lost: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedReport {
    /// Rises by one with each report of this node, over restarts of its agent.
    pub number: u64,
    pub report: Report,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncReply {
    /// Lower than one seen before: from a deposed leader, to be ignored.
    pub term: u64,
    /// Of `orders`; without them as the request said.
    pub generation: u64,
    /// 0: what runs is not prolonged, because the node did not confirm a stop in time.
    pub lease_ms: u64,
    /// All reports up to this number are committed.
    pub acknowledged: u64,
    /// Sorted by job, attempt, rank. `None`: the agent has seen these; or it brought reports, and its long poll brings them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orders: Option<Vec<Order>>,
    /// Byte streams that somebody waits for. Each is named once.
    #[serde(default)]
    pub streams: Vec<StreamAsk>,
    /// Only if the agent's `peers_seen` is not the current version.
    #[serde(default)]
    pub peers: Option<Peers>,
}

/// A byte stream that a user asked for. The agent dials `POST /v1/agent/streams/{id}` with `Upgrade: ganger-stream`
/// and the server joins that connection to the user's. Frames on it are those of the keeper protocol for `Exec` and
/// `Attach`, plain log bytes for `Log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamAsk {
    pub id: u64,
    pub job: JobId,
    pub attempt: AttemptNo,
    pub rank: Rank,
    pub kind: StreamKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamKind {
    /// The rank's log from `from_byte` on; with `follow` until the worker has ended and all is sent.
    Log { from_byte: u64, follow: bool },
    /// One more command in the rank's environment.
    Exec { command: Vec<String>, pty: bool },
    /// The rank's own terminal.
    Attach,
}

/// What one worker is to do. Complete: the agent chooses nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub job: JobId,
    pub attempt: AttemptNo,
    pub rank: Rank,
    pub action: Action,
    pub launch: Arc<Launch>,
    pub devices: Devices,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Make ready, start nothing: check directories and devices, find a port, then report `Prepared` or refuse.
    Prepare,
    /// Start it. The rendezvous is the address and prepared port of rank 0.
    Go { rendezvous_address: String, rendezvous_port: u16 },
    /// Ask it to save and leave; end what is left at `deadline`. Without grace: end it at once.
    Stop { grace: bool, deadline: Time, why: String },
}

/// What all workers of one attempt share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    pub name: String,
    pub queue: String,
    pub owner: Owner,
    pub run: RunSpec,
    pub checkpoint: CheckpointPolicy,
    /// Path of the checkpoint to resume from.
    pub resume_from: Option<String>,
    pub time_limit: Option<Span>,
    pub submitted_at: Time,
    /// All workers in rank order: their node's name and address, and how many GPUs each has.
    pub ranks: Vec<RankSite>,
    pub leased: bool,
    /// Of which array it is a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskSite>,
}

/// A task among those of its array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSite {
    pub array: JobId,
    pub index: u32,
    /// How many tasks the array has, and between which indices.
    pub count: u32,
    pub lowest: u32,
    pub highest: u32,
    pub step: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankSite {
    pub node: String,
    pub address: String,
    pub gpus: u32,
    /// Rank among the workers of the same node.
    pub local_rank: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices {
    /// Indices into the registered machine's GPUs.
    pub gpus: Vec<u8>,
    pub cpus: CpuSet,
    /// By socket index.
    pub memory: Vec<(u8, u64)>,
    /// Indices into the machine's NICs.
    pub nics: Vec<u8>,
    /// A part of one GPU instead of whole ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<Slice>,
}
