//! One way to say "stop": a trigger in one hand, any number of listeners in others.
//!
//! A listener that is asked late still learns that the trigger was pulled. Dropping the trigger pulls it, so that nobody
//! waits for a hand that is gone.
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Pulls once; cheap to clone the [`Shutdown`] side, this side is owned by one.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

/// Completes when the trigger was pulled.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

/// A new trigger and its listener.
pub fn pair() -> (Trigger, Shutdown) {
    let (sender, receiver) = watch::channel(false);
    (Trigger(sender), Shutdown(receiver))
}

impl Trigger {
    pub fn pull(&self) {
        self.0.send_replace(true);
    }

    /// One more listener of this trigger.
    pub fn listen(&self) -> Shutdown {
        Shutdown(self.0.subscribe())
    }
}

impl Shutdown {
    pub fn is_pulled(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }

    /// Waits for the trigger. Safe to drop and call again.
    pub async fn wait(&self) {
        let mut receiver = self.0.clone();
        // An error means that the trigger was dropped, which counts as pulled.
        let _ = receiver.wait_for(|pulled| *pulled).await;
    }
}

/// A shutdown that SIGINT and SIGTERM trigger. Must be called within a tokio runtime.
pub fn on_signals() -> io::Result<Shutdown> {
    let (trigger, shutdown) = pair();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        let name = tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
        };
        tracing::info!(signal = name, "shutting down");
        trigger.pull();
    });
    Ok(shutdown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn early_and_late_listeners_both_learn_of_it() {
        let (trigger, shutdown) = pair();
        let early = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.wait().await }
        });
        assert!(!shutdown.is_pulled());
        trigger.pull();
        early.await.unwrap();
        trigger.listen().wait().await;
        assert!(shutdown.is_pulled());
    }

    #[tokio::test]
    async fn a_dropped_trigger_counts_as_pulled() {
        let (trigger, shutdown) = pair();
        drop(trigger);
        shutdown.wait().await;
        assert!(shutdown.is_pulled());
    }
}
