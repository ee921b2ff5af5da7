//! What every handler can reach.
use super::Problem;
use crate::agents::{PeerBook, Relays};
use crate::cycle::Cycle;
use crate::store::{Reader, StoreError};
use ganger_runtime::shutdown::Shutdown;
use ganger_runtime::tasks::Tasks;
use std::path::PathBuf;
use std::sync::Arc;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    pub cycle: Cycle,
    pub reader: Reader,
    pub relays: Arc<Relays>,
    pub peers: Arc<PeerBook>,
    pub tasks: Tasks,
    pub shutdown: Shutdown,
    /// Whether the superuser may submit jobs.
    pub allow_root: bool,
    /// Where the owner's token is, for the message to whoever has none.
    pub owner_token: Arc<PathBuf>,
}

impl App {
    /// Asks the store on a thread where waiting harms nobody.
    pub async fn read<T, F>(&self, ask: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&Reader) -> Result<T, StoreError> + Send + 'static,
    {
        let reader = self.reader.clone();
        let answer = tokio::task::spawn_blocking(move || ask(&reader)).await;
        Ok(answer.map_err(|_| Problem::internal("the store could not be asked"))??)
    }
}
