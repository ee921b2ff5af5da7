//! All that the agent asks of keepers, behind one trait, so that the agent can be tested without processes.
use crate::keeper::client::{Client, Stream};
use crate::keeper::protocol::Target;
use crate::keeper::scan::end_orphan;
use crate::keeper::spares::{self, Spares};
use crate::keeper::state::{Phase, State, Why};
use crate::keeper::{Found, KeeperError, LaunchFile, scan};
use ganger_core::model::job::Exit;
use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::time::Duration;

/// An answer that is still to come.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, KeeperError>> + Send + 'a>>;

/// What is opened inside a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Door {
    Exec { command: Vec<String>, pty: bool },
    Attach,
}

/// The keepers of this node; each is named by its worker's directory.
pub trait Keepers: Send + Sync + 'static {
    /// Makes the directory of a worker that is to come. Blocking.
    fn furnish(&self, dir: &Path) -> std::io::Result<()>;
    /// Writes the launch file and has a keeper start the worker. Done when the keeper answers; the worker may still fail.
    fn start<'a>(&'a self, dir: &'a Path, launch: &'a LaunchFile) -> Pending<'a, ()>;
    /// Waits until the worker is in `phase` or past it. What a dead keeper left is ended first.
    fn wait<'a>(&'a self, dir: &'a Path, phase: Phase) -> Pending<'a, State>;
    /// Moves the lease of a worker forward, in boot-time milliseconds.
    fn lease<'a>(&'a self, dir: &'a Path, deadline_boottime_ms: u64) -> Pending<'a, ()>;
    fn stop<'a>(&'a self, dir: &'a Path, signal: i32, grace_ms: u64, target: Target) -> Pending<'a, ()>;
    fn kill<'a>(&'a self, dir: &'a Path) -> Pending<'a, ()>;
    /// Removes the directory of a worker that has ended or never started; its keeper, if there is one, is done with it.
    fn forget<'a>(&'a self, dir: &'a Path) -> Pending<'a, ()>;
    fn scan<'a>(&'a self, workers: &'a Path) -> Pending<'a, Vec<Found>>;
    fn open<'a>(&'a self, dir: &'a Path, door: Door) -> Pending<'a, Stream>;
}

/// Keepers as processes of their own, started from `binary`.
#[derive(Debug)]
pub struct RealKeepers {
    binary: PathBuf,
    spares: Spares,
}

impl RealKeepers {
    pub fn new(binary: PathBuf) -> RealKeepers {
        RealKeepers { binary, spares: Spares::default() }
    }
}

/// Between two looks at a keeper that does not answer.
const RETRY: Duration = Duration::from_millis(200);

impl Keepers for RealKeepers {
    fn furnish(&self, dir: &Path) -> std::io::Result<()> {
        self.spares.furnish(dir)
    }

    fn start<'a>(&'a self, dir: &'a Path, launch: &'a LaunchFile) -> Pending<'a, ()> {
        Box::pin(self.spares.start(&self.binary, dir, launch))
    }

    fn wait<'a>(&'a self, dir: &'a Path, phase: Phase) -> Pending<'a, State> {
        Box::pin(async move {
            loop {
                match ask(dir, phase).await {
                    Ok(state) => return Ok(state),
                    Err(error) => tracing::debug!(dir = %dir.display(), %error, "a keeper does not answer"),
                }
                if let Some(state) = without_keeper(dir).await? {
                    return Ok(state);
                }
                tokio::time::sleep(RETRY).await;
            }
        })
    }

    fn lease<'a>(&'a self, dir: &'a Path, deadline_boottime_ms: u64) -> Pending<'a, ()> {
        Box::pin(async move { Client::connect(dir).await?.lease(deadline_boottime_ms).await })
    }

    fn stop<'a>(&'a self, dir: &'a Path, signal: i32, grace_ms: u64, target: Target) -> Pending<'a, ()> {
        Box::pin(async move { Client::connect(dir).await?.stop(signal, grace_ms, target).await })
    }

    fn kill<'a>(&'a self, dir: &'a Path) -> Pending<'a, ()> {
        Box::pin(async move { Client::connect(dir).await?.kill().await })
    }

    fn forget<'a>(&'a self, dir: &'a Path) -> Pending<'a, ()> {
        Box::pin(async move { self.spares.take_back(dir).await.map_err(KeeperError::file("remove", dir)) })
    }

    fn scan<'a>(&'a self, workers: &'a Path) -> Pending<'a, Vec<Found>> {
        Box::pin(async move {
            let workers = workers.to_path_buf();
            blocking(move || {
                spares::clear(&workers)?;
                scan(&workers)
            })
            .await
        })
    }

    fn open<'a>(&'a self, dir: &'a Path, door: Door) -> Pending<'a, Stream> {
        Box::pin(async move {
            let client = Client::connect(dir).await?;
            match door {
                Door::Exec { command, pty } => client.exec(command, BTreeMap::new(), pty).await,
                Door::Attach => client.attach().await,
            }
        })
    }
}

async fn ask(dir: &Path, phase: Phase) -> Result<State, KeeperError> {
    Ok(Client::connect(dir).await?.wait(phase).await?.state)
}

/// The end of a worker whose keeper is gone, once nothing of it is left; `None` while the keeper lives after all.
async fn without_keeper(dir: &Path) -> Result<Option<State>, KeeperError> {
    let dir = dir.to_path_buf();
    blocking(move || match end_orphan(&dir) {
        Ok(survivors) if survivors.is_empty() => State::read(&dir).map(Some),
        Ok(_) | Err(KeeperError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    })
    .await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, KeeperError> + Send + 'static,
) -> Result<T, KeeperError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.unwrap_or_else(|error| Err(KeeperError::Refused(format!("looking at a worker's directory failed: {error}"))))
}

/// How an ended worker is reported.
pub fn exit_of(state: &State) -> Exit {
    let Some(exit) = &state.exit else { return Exit::Lost };
    match (&exit.why, exit.code, exit.signal) {
        (Why::LaunchFailed { message }, _, _) => Exit::Refused(message.clone()),
        (Why::LeaseExpired, _, _) => Exit::LeaseExpired,
        (_, Some(code), _) => Exit::Code(code),
        (_, _, Some(signal)) => Exit::Signal(signal),
        _ => Exit::Lost,
    }
}
