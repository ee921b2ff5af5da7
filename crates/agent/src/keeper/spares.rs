//! Keepers that rest between two workers. Starting a process costs a node more than anything else that it does for a short
//! job, and so does making and removing files one by one; so a keeper whose worker has ended stays for a while, in its
//! directory, and both are given to the next worker.
//!
//! A directory is a worker's under the worker's name, and nobody's under `spare/`. It changes its name before its keeper
//! is asked to rest, and its keeper is asked to begin only when everything about the next worker lies in it: a kill at any
//! instant leaves an ended worker's directory that nobody looks for, or one in which nothing was started. After a
//! restart of the agent nothing in `spare/` is used; keepers there go by themselves.
use super::KeeperError;
use super::client::Client;
use super::launch::LaunchFile;
use super::spawn::spawn;
use crate::record::{Record, pass};
use crate::states;
use ganger_runtime::clock::boottime_ms;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a keeper rests before it goes.
pub(super) const REST_MS: u64 = 20_000;
/// A keeper that has rested for so long is not given to another worker any more: it may go before that one starts.
const FRESH_MS: u64 = REST_MS / 2;
/// Keepers that rest at a time.
const MOST: usize = 64;

/// The spares of one agent.
#[derive(Debug, Default)]
pub struct Spares {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    last_number: u64,
    /// Oldest first, with the moment since when each rests.
    resting: Vec<(PathBuf, u64)>,
}

impl Spares {
    /// Makes the directory of a worker that is to come; one with a resting keeper if there is one. Blocking.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn furnish(&self, dir: &Path) -> std::io::Result<()> {
        let is_stale = |since: u64| boottime_ms().saturating_sub(since) >= FRESH_MS;
        let (stale, newest) = {
            let resting = &mut self.inner().resting;
            let stale = resting.partition_point(|(_, since)| is_stale(*since));
            (resting.drain(..stale).collect::<Vec<_>>(), resting.pop())
        };
        for (spare, _) in stale {
            std::fs::remove_dir_all(&spare)?;
        }
        match newest {
            Some((spare, _)) => std::fs::rename(&spare, dir),
            None => pass(dir),
        }
    }

    /// Has the worker of `dir` started, whose launch file is `launch`: by the keeper that rests there, else by a new one.
    ///
    /// # Errors
    /// The keeper's own reason. That the worker could not start is no error here but its state.
    pub async fn start(&self, binary: &Path, dir: &Path, launch: &LaunchFile) -> Result<(), KeeperError> {
        launch.write(dir)?;
        match Client::connect(dir).await {
            Ok(mut keeper) => keeper.begin(dir).await,
            // None was there, or it has gone.
            Err(_) => spawn(binary, dir).await.map(drop),
        }
    }

    /// Takes back the directory of a worker that is over or never started, with its keeper if that can rest.
    ///
    /// # Errors
    /// What is left cannot be removed.
    pub async fn take_back(&self, dir: &Path) -> std::io::Result<()> {
        let spare = self.next_name(dir)?;
        match std::fs::rename(dir, &spare) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            renamed => renamed?,
        }
        if self.inner().resting.len() < MOST && rest(&spare).await.is_ok() {
            self.inner().resting.push((spare, boottime_ms()));
            return Ok(());
        }
        if let Ok(keeper) = Client::connect(&spare).await
            && let Err(error) = keeper.forget().await
        {
            tracing::debug!(dir = %spare.display(), %error, "a keeper did not go");
        }
        std::fs::remove_dir_all(&spare)
    }

    /// A name that no directory had since `spare/` was cleared.
    fn next_name(&self, dir: &Path) -> std::io::Result<PathBuf> {
        let place = place(dir.parent().unwrap_or(dir));
        let mut inner = self.inner();
        inner.last_number += 1;
        if inner.last_number == 1 {
            pass(&place)?;
        }
        Ok(place.join(inner.last_number.to_string()))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes what an agent before this one left: its keepers find nothing to begin with.
///
/// # Errors
/// It cannot be removed.
pub fn clear(workers: &Path) -> Result<(), KeeperError> {
    let place = place(workers);
    match std::fs::remove_dir_all(&place) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(KeeperError::file("clear", &place)(error)),
        _ => Ok(()),
    }
}

fn place(workers: &Path) -> PathBuf {
    workers.with_file_name("spare")
}

/// Nothing of the worker before is left in the directory, least of all its environment.
async fn rest(spare: &Path) -> Result<(), KeeperError> {
    Client::connect(spare).await?.rest().await?;
    for file in [Record::path(spare), LaunchFile::path(spare)] {
        states::clear(&file).map_err(KeeperError::file("clear", &file))?;
    }
    Ok(())
}
