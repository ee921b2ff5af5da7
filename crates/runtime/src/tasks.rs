//! A set of tasks that is joined at shutdown: no task outlives its owner unseen, and a panic in one is reported.
use crate::shutdown::{Shutdown, Trigger, pair};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// Cheap to clone; all clones are the same set.
#[derive(Debug, Clone)]
pub struct Tasks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    set: Mutex<JoinSet<&'static str>>,
    trigger: Trigger,
    shutdown: Shutdown,
}

impl Default for Tasks {
    fn default() -> Self {
        let (trigger, shutdown) = pair();
        Tasks { inner: Arc::new(Inner { set: Mutex::new(JoinSet::new()), trigger, shutdown }) }
    }
}

impl Tasks {
    pub fn new() -> Tasks {
        Tasks::default()
    }

    /// What the tasks of this set listen to.
    pub fn shutdown(&self) -> Shutdown {
        self.inner.shutdown.clone()
    }

    /// Starts a task. It should end soon after [`Tasks::shutdown`] is pulled; [`Tasks::stop`] aborts it otherwise.
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let mut set = self.lock();
        // Reap what has ended, so that a set with many short tasks stays small.
        while let Some(ended) = set.try_join_next() {
            report(ended);
        }
        set.spawn(async move {
            work.await;
            name
        });
    }

    /// Pulls the shutdown, waits until every task has ended, and aborts those that are left after `patience`.
    pub async fn stop(&self, patience: Duration) {
        self.inner.trigger.pull();
        let mut set = std::mem::take(&mut *self.lock());
        let joined = tokio::time::timeout(patience, async {
            while let Some(ended) = set.join_next().await {
                report(ended);
            }
        });
        if joined.await.is_err() {
            tracing::warn!(tasks = set.len(), "tasks did not end in time and are aborted");
            set.shutdown().await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, JoinSet<&'static str>> {
        self.inner.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn report(ended: Result<&'static str, tokio::task::JoinError>) {
    match ended {
        Ok(name) => tracing::trace!(task = name, "ended"),
        Err(error) if error.is_panic() => tracing::error!(%error, "a task panicked"),
        Err(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test]
    async fn stop_waits_for_those_that_listen_and_aborts_those_that_do_not() {
        let tasks = Tasks::new();
        let done = Arc::new(AtomicBool::new(false));
        tasks.spawn("listens", {
            let (done, shutdown) = (done.clone(), tasks.shutdown());
            async move {
                shutdown.wait().await;
                done.store(true, Ordering::SeqCst);
            }
        });
        tasks.spawn("deaf", std::future::pending());
        tasks.stop(Duration::from_millis(200)).await;
        assert!(done.load(Ordering::SeqCst));
    }
}
