//! Streams in the making: a user asks, the node's agent is told by its long poll, the agent dials, the two are joined.
use crate::api::Problem;
use axum::http::StatusCode;
use ganger_core::model::ids::{AttemptNo, JobId, NodeId, Rank};
use ganger_core::model::wire::agent::{StreamAsk, StreamKind};
use ganger_runtime::http::{Duplex, join_streams};
use ganger_runtime::shutdown::Shutdown;
use hyper::upgrade::OnUpgrade;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long an agent has to dial.
const PATIENCE: Duration = Duration::from_secs(15);
/// Streams that may wait for their agents at a time.
const WAITING: usize = 1_024;

/// All streams that users wait for.
#[derive(Debug, Default)]
pub struct Relays {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    last_id: u64,
    waiting: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    node: NodeId,
    ask: StreamAsk,
    /// Whether the agent was told; it is told once.
    told: bool,
    deliver: oneshot::Sender<Duplex>,
}

/// A stream that was asked for. Dropped, it is asked for no more.
#[derive(Debug)]
pub struct Asked {
    id: u64,
    inner: Arc<Mutex<Inner>>,
    arrival: oneshot::Receiver<Duplex>,
}

/// The place where an agent's end is handed over.
#[derive(Debug)]
pub struct Waiting(oneshot::Sender<Duplex>);

impl Relays {
    pub fn ask(
        &self,
        node: NodeId,
        job: JobId,
        attempt: AttemptNo,
        rank: Rank,
        kind: StreamKind,
    ) -> Result<Asked, Problem> {
        let (deliver, arrival) = oneshot::channel();
        let mut inner = lock(&self.inner);
        if inner.waiting.len() >= WAITING {
            let text = format!("{WAITING} streams wait for their agents already: try again in a moment");
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", text));
        }
        inner.last_id += 1;
        let id = inner.last_id;
        let ask = StreamAsk { id, job, attempt, rank, kind };
        inner.waiting.insert(id, Entry { node, ask, told: false, deliver });
        Ok(Asked { id, inner: self.inner.clone(), arrival })
    }

    /// What the agent of `node` is to be told: each stream once.
    pub fn take(&self, node: NodeId) -> Vec<StreamAsk> {
        let mut inner = lock(&self.inner);
        let untold = inner.waiting.values_mut().filter(|entry| entry.node == node && !entry.told);
        untold
            .map(|entry| {
                entry.told = true;
                entry.ask.clone()
            })
            .collect()
    }

    /// An agent brings stream `id`; `None` if nobody waits for it.
    pub fn claim(&self, id: u64) -> Option<Waiting> {
        lock(&self.inner).waiting.remove(&id).map(|entry| Waiting(entry.deliver))
    }
}

impl Asked {
    /// The agent's end, or what the user is to be told instead.
    pub async fn connected(mut self, node: &str) -> Result<Duplex, Problem> {
        match tokio::time::timeout(PATIENCE, &mut self.arrival).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(_)) => {
                let text = format!("the agent of node {node} broke the stream off before it began");
                Err(Problem::new(StatusCode::BAD_GATEWAY, "agent_failed", text))
            }
            Err(_) => {
                let text = format!(
                    "the agent of node {node} did not bring the stream within {} s; `ganger nodes` says when it was last heard",
                    PATIENCE.as_secs()
                );
                Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, "agent_silent", text))
            }
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        lock(&self.inner).waiting.remove(&self.id);
    }
}

impl Waiting {
    pub fn deliver(self, stream: Duplex) {
        // The user may have left meanwhile; then the stream closes here.
        drop(self.0.send(stream));
    }
}

fn lock(inner: &Mutex<Inner>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies both ways until the agent's end is done, the user is gone, or the server stops.
pub async fn relay_both(user: OnUpgrade, agent: Duplex, shutdown: Shutdown) {
    let joined = async {
        let user = hyper_util::rt::TokioIo::new(user.await.map_err(std::io::Error::other)?);
        let (from_agent, to_agent) = tokio::io::split(agent);
        join_streams(user, from_agent, to_agent).await
    };
    tokio::select! {
        outcome = joined => {
            if let Err(error) = outcome {
                tracing::debug!(%error, "a relayed stream broke");
            }
        }
        _ = shutdown.wait() => {}
    }
}
