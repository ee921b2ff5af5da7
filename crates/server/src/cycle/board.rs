//! What others may see of the loop: the newest stored state, and bells that ring when a node, a job or the events change.
//!
//! Bells are per object, so that a thousand waiting agents do not all wake for each other's orders.
use crate::store::TokenRecord;
use ganger_core::model::decision::Decision;
use ganger_core::model::ids::{JobId, NodeId};
use ganger_core::model::{Cluster, Time};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use tokio::sync::{Notify, watch};

/// One stored state and what belongs to it. Never changes; a newer one takes its place.
#[derive(Debug, Clone, Default)]
pub struct View {
    pub cluster: Arc<Cluster>,
    pub metrics: Metrics,
    pub decision: Option<Arc<DecisionRecord>>,
    /// By the hash of the secret.
    pub tokens: Arc<BTreeMap<String, TokenRecord>>,
    /// Why the last commit failed; cleared by the next that succeeds.
    pub store_fault: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Metrics {
    pub last_decision_us: u64,
    pub decisions: u64,
    /// Decisions that were dropped because the cluster had moved on.
    pub stale_decisions: u64,
    pub commits: u64,
    pub failed_commits: u64,
}

/// The last decision with the state that it was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionRecord {
    pub from: Arc<Cluster>,
    pub decision: Decision,
}

#[derive(Debug)]
pub struct Board {
    view: RwLock<Arc<View>>,
    nodes: Bells<NodeId>,
    jobs: Bells<JobId>,
    last_event: watch::Sender<u64>,
}

impl Board {
    pub(super) fn new(cluster: &Cluster, tokens: Vec<TokenRecord>, last_event: u64) -> Board {
        let tokens = tokens.into_iter().map(|token| (token.hash.clone(), token)).collect();
        let view = View { cluster: Arc::new(cluster.clone()), tokens: Arc::new(tokens), ..View::default() };
        Board {
            view: RwLock::new(Arc::new(view)),
            nodes: Bells::default(),
            jobs: Bells::default(),
            last_event: watch::channel(last_event).0,
        }
    }

    pub fn view(&self) -> Arc<View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Rings when the orders of `node` change or a stream is asked of it.
    pub fn node_bell(&self, node: NodeId) -> Bell {
        self.nodes.listen(node)
    }

    /// Rings when `job` changes.
    pub fn job_bell(&self, job: JobId) -> Bell {
        self.jobs.listen(job)
    }

    /// The number of the newest stored event, as it rises.
    pub fn last_event(&self) -> watch::Receiver<u64> {
        self.last_event.subscribe()
    }

    pub fn ring_node(&self, node: NodeId) {
        self.nodes.ring(&node);
    }

    pub(super) fn publish(&self, view: View) -> Arc<View> {
        let view = Arc::new(view);
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = view.clone();
        view
    }

    pub(super) fn ring_job(&self, job: JobId) {
        self.jobs.ring(&job);
    }

    pub(super) fn announce_event(&self, number: u64) {
        self.last_event.send_replace(number);
    }
}

/// Something to wait for. Arm it, look at the state, then wait: a change in between is not missed.
#[derive(Debug, Clone)]
pub struct Bell(Arc<Notify>);

impl Bell {
    /// Call `enable` on the pinned result before looking at the state.
    pub fn rung(&self) -> tokio::sync::futures::Notified<'_> {
        self.0.notified()
    }
}

/// A bell for each key that somebody waits for.
#[derive(Debug)]
struct Bells<K>(Mutex<BTreeMap<K, Weak<Notify>>>);

impl<K> Default for Bells<K> {
    fn default() -> Self {
        Bells(Mutex::default())
    }
}

impl<K: Ord + Copy> Bells<K> {
    fn listen(&self, key: K) -> Bell {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bell) = bells.get(&key).and_then(Weak::upgrade) {
            return Bell(bell);
        }
        let bell = Arc::new(Notify::new());
        bells.insert(key, Arc::downgrade(&bell));
        Bell(bell)
    }

    /// A bell that nobody holds is forgotten at its next ring.
    fn ring(&self, key: &K) {
        let mut bells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match bells.get(key).map(Weak::upgrade) {
            Some(Some(bell)) => bell.notify_waiters(),
            Some(None) => drop(bells.remove(key)),
            None => {}
        }
    }
}

impl DecisionRecord {
    pub fn now(&self) -> Time {
        self.decision.at
    }
}
