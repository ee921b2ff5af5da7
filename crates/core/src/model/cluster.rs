//! The whole state that decisions are made from. Cheap to clone: nodes and jobs are shared until they change.
use super::decision::{Blocker, Claim, Reservation};
use super::demand::Demand;
use super::fabric::Fabric;
use super::ids::{JobId, NodeId};
use super::job::{Job, Priority};
use super::node::{HealthState, Node};
use super::policy::Policy;
use super::pool::Lending;
use super::queue::{DEFAULT_QUEUE, Queue};
use super::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a node is in the fabric and what it is called there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodePlacement {
    pub leaf: Option<String>,
    pub spine: Option<String>,
    /// Empty: in none, whatever its agent says.
    pub pool: Option<String>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

impl NodePlacement {
    /// What is said anew; what is not said stays as it was.
    pub fn take_over(&mut self, said: NodePlacement) {
        let NodePlacement { leaf, spine, pool, labels } = said;
        let old = std::mem::take(self);
        // A leaf that is named without a spine is where it was known to be.
        let spine = spine.or(old.spine.filter(|_| leaf.is_none() || leaf == old.leaf));
        *self = NodePlacement { leaf: leaf.or(old.leaf), spine, pool: pool.or(old.pool), labels: old.labels };
        self.labels.extend(labels);
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cluster {
    /// Rises with every leader; agents refuse lower ones.
    pub term: u64,
    /// Rises with every change; a decision is applied only to the version that it was made for, or to one that differs
    /// from it in nothing that the decision touches.
    pub version: u64,
    /// The last moment that was applied. Never goes backwards.
    pub now: Time,
    pub next_job: u64,
    pub policy: Policy,
    pub fabric: Fabric,
    pub nodes: Vec<Arc<Node>>,
    pub node_names: BTreeMap<String, NodeId>,
    /// What the cluster file says of nodes, also of those that have not joined yet.
    pub placements: BTreeMap<String, NodePlacement>,
    pub queues: BTreeMap<String, Queue>,
    /// Pools that are kept for their own jobs, by name, with how they are lent. Any other pool is open.
    #[serde(default)]
    pub pools: BTreeMap<String, Lending>,
    /// When it was last said of nodes and pools what they are.
    #[serde(default)]
    pub fabric_since: Time,
    /// Jobs that are not in a terminal state.
    pub jobs: BTreeMap<JobId, Arc<Job>>,
    /// Records of arrays: none of them is looked at by a decision, only the tasks that were made into jobs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arrays: BTreeMap<JobId, Arc<Job>>,
    /// The names of both, each once; the tasks of an array have none of their own.
    #[serde(default)]
    pub job_names: BTreeMap<Arc<str>, JobId>,
    /// Agents whose last word came after they were out of contact: heard, but no witnesses for a majority.
    #[serde(default)]
    pub doubtful: BTreeSet<NodeId>,
    /// Nodes that a peer vouched for, and until when: their ranks are not given to others before.
    #[serde(default)]
    pub vouched: BTreeMap<NodeId, Time>,
    /// By claimant.
    pub claims: BTreeMap<JobId, Claim>,
    /// By job.
    pub reservations: BTreeMap<JobId, Reservation>,
    /// What was asked for lately, and what it made places worth.
    #[serde(default)]
    pub demand: Demand,
    /// What the last decision said about each job that it left waiting.
    pub blocked: BTreeMap<JobId, Blocker>,
}

impl Cluster {
    /// An empty cluster with the queue `default`.
    pub fn new() -> Cluster {
        let default = Queue::new(DEFAULT_QUEUE);
        let queues = BTreeMap::from([(default.path.clone(), default)]);
        Cluster { next_job: 1, queues, ..Cluster::default() }
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// All but those that were forgotten.
    pub fn listed_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().map(Arc::as_ref).filter(|node| node.health.state != HealthState::Dead)
    }

    pub fn node_named(&self, name: &str) -> Option<&Node> {
        self.node_names.get(name).map(|id| self.node(*id))
    }

    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(&id).map(Arc::as_ref)
    }

    /// The live job or array of this name.
    pub fn job_named(&self, name: &str) -> Option<&Job> {
        self.job_names.get(name).and_then(|id| self.job(*id).or_else(|| self.array(*id)))
    }

    pub fn insert_job(&mut self, job: Job) {
        if job.task.is_none() {
            self.job_names.insert(job.spec.name.as_str().into(), job.id);
        }
        let records = if job.array.is_some() { &mut self.arrays } else { &mut self.jobs };
        records.insert(job.id, Arc::new(job));
    }

    pub fn remove_job(&mut self, id: JobId) -> Option<Arc<Job>> {
        let job = self.jobs.remove(&id).or_else(|| self.arrays.remove(&id))?;
        if job.task.is_none() {
            self.job_names.remove(job.spec.name.as_str());
        }
        Some(job)
    }

    /// The class by which a job is ordered: its own, raised by waiting up to the ceiling. Never a right to evict.
    pub fn effective_class(&self, job: &Job, now: Time) -> Priority {
        let steps = match self.policy.aging_step.0 {
            0 => 0,
            step => now.since(job.submitted_at).0 / step,
        };
        let own = job.spec.priority as u64;
        let floor = (self.policy.aging_ceiling as u64).min(own);
        Priority::ALL[own.saturating_sub(steps).max(floor) as usize]
    }
}
