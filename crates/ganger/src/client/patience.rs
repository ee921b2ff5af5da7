//! Patience with a server that is away: what follows a job outlives a restart of the server, as the job does.
use super::Answer;
use crate::failure::Failure;
use crate::output::say;
use std::time::{Duration, Instant};

/// So long may the server be away.
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_secs(1);

/// How long the server has been away; told once each time.
#[derive(Debug, Default)]
pub struct Patience {
    since: Option<Instant>,
}

impl Patience {
    /// The server answers.
    pub fn answered(&mut self) {
        if self.since.take().is_some() {
            say("the server is back");
        }
    }

    /// Waits a moment if it is worth asking again, else gives the failure back.
    pub async fn wait(&mut self, failure: Failure) -> Answer<()> {
        if !failure.transient || self.since.is_some_and(|since| since.elapsed() > PATIENCE) {
            return Err(failure);
        }
        if self.since.is_none() {
            say(format!("{failure}; asking again for up to {} minutes", PATIENCE.as_secs() / 60));
            self.since = Some(Instant::now());
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

/// Asks until the server answers, or says that the request is wrong, or was away for too long.
pub async fn patiently<T, F: Future<Output = Answer<T>>>(ask: impl Fn() -> F) -> Answer<T> {
    let mut patience = Patience::default();
    loop {
        match ask().await {
            Ok(answer) => {
                patience.answered();
                return Ok(answer);
            }
            Err(failure) => patience.wait(failure).await?,
        }
    }
}
