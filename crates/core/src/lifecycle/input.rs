//! What may happen to a cluster, and what comes of it. `apply` takes an [`Input`] and answers [`Effects`] or a [`Refusal`].
pub use crate::model::cluster::NodePlacement;
use crate::model::decision::Decision;
use crate::model::ids::{JobId, NodeId};
use crate::model::job::{Job, JobSpec, Owner};
use crate::model::machine::Machine;
use crate::model::pool::Lending;
pub use crate::model::queue::QueueSpec;
use crate::model::report::Report;
use crate::model::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use thiserror::Error;

/// One thing that happened, or that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    Submit {
        spec: Arc<JobSpec>,
        owner: Owner,
    },
    Cancel {
        job: JobId,
        by: String,
    },
    /// A pending job is not looked at until it is released.
    Hold {
        job: JobId,
        by: String,
    },
    Release {
        job: JobId,
        by: String,
    },
    /// End the live attempt with its grace and run again, with seniority.
    Requeue {
        job: JobId,
        by: String,
    },
    /// Another wanted size for an elastic gang: what is too much leaves at once, what is missing comes when there is room.
    Resize {
        job: JobId,
        workers: u32,
        by: String,
    },
    /// Creates and changes queues; queues that are not named stay as they are.
    Queues {
        queues: Vec<QueueSpec>,
        by: String,
    },
    /// Removes a queue that nobody needs.
    RemoveQueue {
        queue: String,
        by: String,
    },
    /// Leaves, spines and pools of nodes by name; nodes need not have registered yet.
    Fabric {
        placements: BTreeMap<String, NodePlacement>,
        /// Leaf → bits per second of its way up; leaves that are not named stay as they are.
        #[serde(default)]
        uplinks: BTreeMap<String, u64>,
        /// Pools by name: how each is lent, or that it is open; pools that are not named stay as they are.
        #[serde(default)]
        pools: BTreeMap<String, Option<Lending>>,
        by: String,
    },
    Setting {
        name: String,
        value: String,
        by: String,
    },
    /// An agent joins, or comes back with another machine or boot id.
    Register(Box<NodeSpec>),
    /// Its agent was heard: the lease is renewed. Not an event; stored nowhere.
    Heard {
        node: NodeId,
    },
    /// It was heard, but it was out of contact and may vouch for peers: its lease is renewed, and it does not count among
    /// those heard from. Stored nowhere.
    Doubtful {
        node: NodeId,
    },
    /// A peer vouched for the node: its ranks may run until then, whether it is heard or not. Stored nowhere, because a
    /// new leader waits out whole leases anyway.
    Vouched {
        node: NodeId,
        until: Time,
    },
    /// Nothing new starts there; its gangs are asked to save and move.
    Drain {
        node: NodeId,
        by: String,
    },
    /// The node is drained from a moment on, and returns by itself; nothing starts there that could not have left by then.
    Maintain {
        node: NodeId,
        from: Time,
        until: Time,
        by: String,
    },
    /// Nothing new starts there; what runs goes on.
    Cordon {
        node: NodeId,
        by: String,
    },
    /// Ends drain, cordon and quarantine, and strikes planned maintenance.
    Uncordon {
        node: NodeId,
        by: String,
    },
    /// Takes the node out. `fenced`: a person or a power controller vouches that its ranks are over.
    Quarantine {
        node: NodeId,
        cause: String,
        fenced: bool,
    },
    /// The node is known to be lost at once: its ranks are over (simulator; power controller).
    NodeLost {
        node: NodeId,
        cause: String,
    },
    /// The node is gone for good: it is neither listed nor counted any more. Its agent may register it again.
    Forget {
        node: NodeId,
        by: String,
    },
    /// The node is trusted again without probation.
    Recover {
        node: NodeId,
        by: String,
    },
    Report {
        node: NodeId,
        report: Report,
    },
    /// Time passes: deadlines, leases and limits are looked at.
    Tick,
    /// What the scheduler chose.
    Decided(Box<Decision>),
    /// A new leader, or this one after a restart: agent leases count as renewed now.
    NewTerm,
}

impl Input {
    /// The node that it is about, if it is about one.
    pub fn node(&self) -> Option<NodeId> {
        use Input::*;
        match self {
            Heard { node } | Doubtful { node } | Vouched { node, .. } | Drain { node, .. } | Cordon { node, .. } => {
                Some(*node)
            }
            Uncordon { node, .. } | Quarantine { node, .. } | NodeLost { node, .. } | Forget { node, .. } => {
                Some(*node)
            }
            Recover { node, .. } | Report { node, .. } | Maintain { node, .. } => Some(*node),
            Submit { .. } | Cancel { .. } | Hold { .. } | Release { .. } | Requeue { .. } | Resize { .. } => None,
            Queues { .. } | RemoveQueue { .. } | Fabric { .. } => None,
            Setting { .. } | Register(_) | Tick | Decided(_) | NewTerm => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    pub name: String,
    pub machine: Arc<Machine>,
    pub placement: NodePlacement,
    /// Where ranks on other nodes reach it.
    pub address: String,
    pub boot_id: String,
    /// Which agent this is; empty where nobody says. Two of them are never one node.
    #[serde(default)]
    pub agent: String,
}

/// Something worth telling: the audit trail of one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub at: Time,
    /// `submitted`, `started`, `preempted`, `fenced`, …: stable words for scripts.
    pub kind: String,
    pub job: Option<JobId>,
    pub node: Option<NodeId>,
    /// One sentence with the numbers.
    pub text: String,
}

/// What `apply` changed. The shell stores `dirty` and `events` in one transaction before anybody is told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Effects {
    pub events: Vec<Event>,
    /// Set by `Submit`.
    pub submitted: Option<JobId>,
    /// Set by `Register`.
    pub registered: Option<NodeId>,
    /// Jobs that reached a terminal state and left memory.
    pub finished: Vec<Arc<Job>>,
    pub dirty: Dirty,
}

/// Which records differ from what is stored. A named object that is no longer in the cluster is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Dirty {
    pub jobs: BTreeSet<JobId>,
    pub nodes: BTreeSet<NodeId>,
    pub claims: BTreeSet<JobId>,
    pub queues: BTreeSet<String>,
    pub reservations: bool,
    /// What the cluster file says of nodes.
    pub placements: bool,
    /// What was asked for lately.
    #[serde(default)]
    pub demand: bool,
    /// The fabric, the policy, the counters.
    pub globals: bool,
}

/// Why an input was refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum Refusal {
    #[error("there is no job {job}; `ganger jobs --all` lists those that ended")]
    NoSuchJob { job: JobId },
    #[error("job {job} is {state}: {why}")]
    WrongState { job: JobId, state: String, why: String },
    #[error("queue {queue:?} does not exist; `ganger queues` lists them, `ganger queues apply FILE` creates one")]
    NoSuchQueue { queue: String },
    #[error("cannot accept job {name:?}: {field}: {why}")]
    BadSpec { name: String, field: String, why: String },
    #[error("cannot change queue {queue:?}: {why}")]
    BadQueue { queue: String, why: String },
    #[error("cannot remove queue {queue:?}: {why}")]
    QueueInUse { queue: String, why: String },
    #[error("cannot take node {node:?} out of pool {pool:?}: {why}")]
    NodeNeeded { node: String, pool: String, why: String },
    #[error("cannot register node {node:?}: {why}")]
    BadNode { node: String, why: String },
    #[error("cannot forget node {node:?}: {why}")]
    NodeInUse { node: String, why: String },
    #[error("cannot plan maintenance of node {node:?}: {why}")]
    BadMaintenance { node: String, why: String },
    #[error("there is no node {node}")]
    NoSuchNode { node: NodeId },
    #[error("cannot change the setting: {0}")]
    BadSetting(String),
    /// The cluster moved on, or the decision breaks a rule: it is dropped whole and made again.
    #[error("the decision was dropped: {why}")]
    StaleDecision { why: String },
}
