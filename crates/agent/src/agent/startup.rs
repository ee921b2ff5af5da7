//! From a configuration to a running agent, and its orderly end.
use super::{Agent, Inbox, Shared};
use crate::config::Config;
use crate::contact::Contact;
use crate::inventory::{Inventory, InventoryError};
use crate::journal::{Journal, JournalError};
use crate::keeper::KeeperError;
use crate::keepers::{Keepers, RealKeepers};
use crate::link::Link;
use crate::peers;
use crate::record::Layout;
use ganger_runtime::clock::boot_id;
use ganger_runtime::datadir::{DataDirError, FileLock, write_atomic};
use ganger_runtime::http::Client;
use ganger_runtime::secret::Secret;
use ganger_runtime::tasks::Tasks;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::sync::mpsc::unbounded_channel;

/// How long tasks may take to end; keepers go on anyway.
const PATIENCE: Duration = Duration::from_secs(2);

/// Why an agent cannot run.
#[derive(Debug, Error)]
pub enum AgentError {
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    #[error(transparent)]
    Keepers(#[from] KeeperError),
    #[error("cannot use the data directory {path}: {source}")]
    Files { path: PathBuf, source: std::io::Error },
    #[error("cannot read the token {path}: {source}")]
    Token { path: PathBuf, source: std::io::Error },
    #[error("cannot read this boot's id: {0}")]
    BootId(std::io::Error),
    #[error("cannot draw the identity of this agent: {0}")]
    Identity(std::io::Error),
    #[error("cannot listen for other agents on {address}: {source}")]
    Listen { address: String, source: std::io::Error },
}

/// Runs an agent until `shutdown`. Its workers go on without it.
///
/// # Errors
/// It could not begin: machine, data directory, token or address cannot be used. A server that is away is no error.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), AgentError> {
    let keepers = Arc::new(RealKeepers::new(config.binary.clone()));
    run_with(config, keepers, shutdown).await
}

/// [`run`] with other keepers than processes.
///
/// # Errors
/// As [`run`].
pub async fn run_with(
    config: Config,
    keepers: Arc<dyn Keepers>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), AgentError> {
    let inventory = Inventory::load(&config.node, &config.inventory)?;
    let layout = Layout::new(&config.data_dir);
    let files = |source| AgentError::Files { path: config.data_dir.clone(), source };
    layout.create().map_err(files)?;
    let _lock = FileLock::take(&layout.lock())?;
    let has_past = layout.journal().exists();
    let (contact, rebooted) = contact(&layout)?;
    let journal = Journal::open(&layout.journal(), rebooted)?;
    let (news_sender, news) = unbounded_channel();
    let (listener, peer_address) = listen(&config.peer_listen).await?;
    let link = Arc::new(Link {
        client: Client::new(config.server.clone(), token(&config)?),
        machine: inventory.machine.clone(),
        peer_address: Some(peer_address),
        contact: Mutex::new(contact),
        contact_file: layout.contact(),
        saved: Mutex::new(None),
        journal: Arc::new(Mutex::new(journal)),
        reports: Notify::new(),
        leases: Notify::new(),
        news: news_sender,
        config: config.clone(),
    });
    let (done_sender, done) = unbounded_channel();
    let (seen_sender, seen) = unbounded_channel();
    let tasks = Tasks::new();
    let found = keepers.scan(&layout.workers()).await?;
    let shared = Arc::new(Shared {
        config,
        inventory,
        layout,
        keepers,
        link: link.clone(),
        tasks: tasks.clone(),
        done: done_sender,
        seen: seen_sender,
    });
    let mut agent = Agent {
        shared,
        entries: BTreeMap::new(),
        orders: None,
        wanted: Vec::new(),
        settled: has_past,
        began: Instant::now(),
        outbox: Vec::new(),
    };
    agent.restore(found);
    talk(&tasks, &link, listener);
    agent.serve(Inbox { done, seen, news }, shutdown).await;
    tasks.stop(PATIENCE).await;
    Ok(())
}

fn talk(tasks: &Tasks, link: &Arc<Link>, listener: TcpListener) {
    let (poll, push) = (link.clone(), link.clone());
    let until = |work: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
        let shutdown = tasks.shutdown();
        async move {
            tokio::select! {
                () = work => {}
                () = shutdown.wait() => {}
            }
        }
    };
    tasks.spawn("poll", until(Box::pin(async move { poll.poll().await })));
    tasks.spawn("push", until(Box::pin(async move { push.push().await })));
    tasks.spawn("ask peers", until(Box::pin(peers::ask_when_lost(link.clone()))));
    tasks.spawn("answer peers", until(Box::pin(peers::serve(link.clone(), listener))));
}

async fn listen(address: &str) -> Result<(TcpListener, String), AgentError> {
    let fail = |source| AgentError::Listen { address: address.to_string(), source };
    let listener = TcpListener::bind(address).await.map_err(fail)?;
    let port = listener.local_addr().map_err(fail)?.port();
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    Ok((listener, format!("{host}:{port}")))
}

fn token(config: &Config) -> Result<Option<Secret>, AgentError> {
    let Some(path) = &config.token_file else { return Ok(None) };
    let fail = |source| AgentError::Token { path: path.clone(), source };
    Secret::read_file(path).map(Some).map_err(fail)
}

/// What is known of the contact, and whether this is another boot than the last agent's. Then what that one knew of its
/// workers is removed: nothing of them lives, and a power cut may have left it torn.
fn contact(layout: &Layout) -> Result<(Contact, bool), AgentError> {
    let boot_id = boot_id().map_err(AgentError::BootId)?;
    let saved = std::fs::read(layout.contact()).ok();
    // Unreadable is the same as new: all in it is told again by the server, except vouches, which a reader that cannot
    // be read could not keep either.
    let saved: Option<Contact> = saved.and_then(|text| serde_json::from_slice(&text).ok());
    let rebooted = saved.as_ref().is_some_and(|saved| saved.boot_id != boot_id);
    let mut contact = Contact::resume(saved, &boot_id);
    if rebooted {
        tracing::info!("this is another boot: what ran before has ended with it");
        layout.forget_workers().map_err(|source| AgentError::Files { path: layout.workers(), source })?;
    }
    if contact.agent.is_empty() {
        contact.agent = Secret::generate().map_err(AgentError::Identity)?.hash().chars().take(16).collect();
    } else if !rebooted {
        return Ok((contact, false));
    }
    // Kept before anything is told or started. An agent that asked with another identity after a crash would be refused
    // for a lease; and one that found the earlier boot's id again would forget workers that live.
    let text = serde_json::to_vec(&contact).unwrap_or_default();
    write_atomic(&layout.contact(), &text, 0o600)?;
    Ok((contact, rebooted))
}
