//! What agents are told of each other, so that they can ask among themselves whether the server is lost: where each one
//! answers, and the secret that it wants to see. Kept in `peers.json` beside the store, because agents that are known do not
//! register again when the server restarts.
use crate::api::Problem;
use ganger_core::model::Cluster;
use ganger_core::model::ids::NodeId;
use ganger_core::model::wire::agent::{Peer, Peers};
use ganger_runtime::clock::unix_ms;
use ganger_runtime::datadir::{DataDirError, write_atomic};
use ganger_runtime::secret::Secret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
pub struct PeerBook {
    path: PathBuf,
    book: Mutex<Book>,
}

/// The secret is plain text in a file of mode 0600: agents need it, not its hash.
#[derive(Clone, Serialize, Deserialize)]
struct Book {
    /// Rises with each change. Begins at the time of making, so that a book made anew never has a version of before.
    version: u64,
    secret: String,
    /// By node name; `None`: that agent cannot be asked.
    addresses: BTreeMap<String, Option<String>>,
}

impl std::fmt::Debug for Book {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Book")
            .field("version", &self.version)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl PeerBook {
    /// Reads the book, or makes one if there is none that can be read.
    pub fn open(data_dir: &Path) -> Result<PeerBook, DataDirError> {
        let path = data_dir.join("peers.json");
        let read = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let book = match read {
            Some(book) => book,
            None => {
                let fail = |source| DataDirError::Io { action: "make a secret for", path: path.clone(), source };
                let secret = Secret::generate().map_err(fail)?.expose().to_string();
                let book = Book { version: unix_ms(), secret, addresses: BTreeMap::new() };
                write(&path, &book)?;
                book
            }
        };
        Ok(PeerBook { path, book: Mutex::new(book) })
    }

    /// Notes where the agent of `node` answers its peers. Blocks while that is written.
    pub fn note(&self, node: &str, address: Option<String>) -> Result<(), Problem> {
        let mut book = self.lock();
        if book.addresses.get(node) == Some(&address) {
            return Ok(());
        }
        let mut changed = book.clone();
        changed.addresses.insert(node.to_string(), address);
        changed.version += 1;
        write(&self.path, &changed)
            .map_err(|error| Problem::new(axum::http::StatusCode::INSUFFICIENT_STORAGE, "store_full", error))?;
        *book = changed;
        Ok(())
    }

    /// All agents but that of `node`, unless it has seen this version.
    pub fn news(&self, cluster: &Cluster, node: NodeId, seen: u64) -> Option<Peers> {
        let book = self.lock();
        if book.version == seen {
            return None;
        }
        let others = cluster.listed_nodes().filter(|other| other.id != node);
        let agents = others.map(|other| Peer {
            node: other.name.clone(),
            address: book.addresses.get(&other.name).cloned().flatten(),
        });
        Some(Peers { version: book.version, secret: book.secret.clone(), agents: agents.collect() })
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write(path: &Path, book: &Book) -> Result<(), DataDirError> {
    let fail = |error: serde_json::Error| DataDirError::Io {
        action: "write",
        path: path.to_path_buf(),
        source: io::Error::other(error),
    };
    write_atomic(path, &serde_json::to_vec(book).map_err(fail)?, 0o600)
}
