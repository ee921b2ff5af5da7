//! The one loop. Everything that may change the cluster comes here as a [`Command`]; what waits is applied in order,
//! stored in one transaction, and only then answered. `decide` runs beside the loop, one at a time.
//!
//! What it must never do: tell anybody of a change that is not stored, or keep a change whose storing failed.
mod board;
mod clock;
mod decider;
mod turn;

pub use board::{Bell, Board, DecisionRecord, Metrics, View};

use crate::store::{NumberedEvent, Store, StoreError, TokenChange, TokenRecord};
use decider::Decider;
use ganger_core::lifecycle::input::{Input, Refusal};
use ganger_core::model::decision::Decision;
use ganger_core::model::ids::{JobId, NodeId};
use ganger_core::model::wire::agent::NumberedReport;
use ganger_core::model::{Cluster, Time};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use thiserror::Error;
use tokio::sync::oneshot;

/// Commands that may wait. Beyond that the server says that it is overloaded, instead of growing.
const QUEUE: usize = 65_536;

/// Why a command came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CycleError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the server is overloaded: {QUEUE} requests wait; try again in a few seconds")]
    Overloaded,
    #[error("the server is stopping; try again when it is back")]
    Stopping,
}

/// What an applied and stored input led to.
#[derive(Debug, Clone)]
pub struct Applied {
    pub submitted: Option<JobId>,
    pub registered: Option<NodeId>,
    /// What happened to the job that was submitted, if one was.
    pub events: Vec<NumberedEvent>,
    /// The state that holds it.
    pub view: Arc<View>,
}

/// What an agent brings with one request.
#[derive(Debug, Clone)]
pub struct Contact {
    /// Peers that it vouched for, and until when.
    pub vouched: Vec<(NodeId, Time)>,
    /// Whether it counts among the agents heard from.
    pub witness: bool,
    /// Oldest first.
    pub reports: Vec<NumberedReport>,
}

impl From<Vec<NumberedReport>> for Contact {
    /// Of an agent that was never out of contact.
    fn from(reports: Vec<NumberedReport>) -> Contact {
        Contact { vouched: Vec::new(), witness: true, reports }
    }
}

/// What became of an agent's reports.
#[derive(Debug, Clone)]
pub struct Synced {
    /// All reports up to this number are stored. Not all that were sent, if the store failed.
    pub acknowledged: u64,
    pub all_stored: bool,
    pub view: Arc<View>,
}

type Reply<T> = oneshot::Sender<Result<T, CycleError>>;

enum Command {
    Apply { input: Input, reply: Reply<Applied> },
    Sync { node: NodeId, contact: Contact, reply: Reply<Synced> },
    Token { change: TokenChange, reply: Reply<()> },
    Decided { decision: Box<Decision>, from: Arc<Cluster>, took_us: u64 },
    Stop,
}

/// The way to the loop. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cycle {
    sender: SyncSender<Command>,
    board: Arc<Board>,
}

/// The loop's thread; joined at shutdown.
#[derive(Debug)]
pub struct Running {
    sender: SyncSender<Command>,
    thread: JoinHandle<()>,
}

impl Cycle {
    /// Starts the loop on a stored cluster: a new term begins and is stored before this returns.
    pub fn start(store: Store, cluster: Cluster, tokens: Vec<TokenRecord>) -> Result<(Cycle, Running), CycleError> {
        let (sender, receiver) = sync_channel(QUEUE);
        let board = Arc::new(Board::new(&cluster, tokens, store.last_event()));
        let decider =
            Decider::start(sender.clone()).map_err(|e| StoreError::Directory(format!("cannot start a thread: {e}")))?;
        let mut turns = turn::Turns::new(store, cluster, board.clone(), decider);
        turns.new_term()?;
        let thread = std::thread::Builder::new()
            .name("cycle".to_string())
            .spawn(move || turns.run(receiver))
            .map_err(|e| StoreError::Directory(format!("cannot start a thread: {e}")))?;
        Ok((Cycle { sender: sender.clone(), board }, Running { sender, thread }))
    }

    /// The newest stored state, and the bells that ring when it changes.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// The newest stored state.
    pub fn view(&self) -> Arc<View> {
        self.board.view()
    }

    /// Applies one input; answers when it is stored.
    pub async fn apply(&self, input: Input) -> Result<Applied, CycleError> {
        self.ask(|reply| Command::Apply { input, reply }).await
    }

    /// An agent was heard, with what it has to report; answers when that is stored.
    pub async fn sync(&self, node: NodeId, contact: Contact) -> Result<Synced, CycleError> {
        self.ask(|reply| Command::Sync { node, contact, reply }).await
    }

    /// Adds, replaces or removes a token; answers when that is stored and in force.
    pub async fn token(&self, change: TokenChange) -> Result<(), CycleError> {
        self.ask(|reply| Command::Token { change, reply }).await
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, CycleError> {
        let (reply, answer) = oneshot::channel();
        self.sender.try_send(command(reply)).map_err(|error| match error {
            TrySendError::Full(_) => CycleError::Overloaded,
            TrySendError::Disconnected(_) => CycleError::Stopping,
        })?;
        answer.await.unwrap_or(Err(CycleError::Stopping))
    }
}

impl Running {
    /// Lets the loop finish what it has begun and waits for it. Blocks.
    pub fn stop(self) {
        // An error means that the loop has ended already.
        let _ = self.sender.send(Command::Stop);
        if self.thread.join().is_err() {
            tracing::error!("the loop ended by a panic");
        }
    }
}
