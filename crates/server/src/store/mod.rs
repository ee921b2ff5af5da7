//! The durable half of the server: one SQLite file with the records of everything alive, the events that explain them,
//! finished jobs, token hashes, and a bounded log of inputs by which recent decisions can be made again.
//!
//! One thread writes (the loop), whole batches at a time: [`Store::commit`] either stores a batch with everything in it or
//! nothing. Others read through [`Reader`]. It never decides anything and never holds the cluster itself.
mod crash;
mod journal;
mod load;
mod read;
mod schema;
mod tokens;
mod write;

pub use crash::{CrashPoint, CrashPointError};
pub use journal::{LoggedInput, Recording};
pub use read::{EventFilter, FinishedFilter, NumberedEvent, Reader};
pub use tokens::{TokenChange, TokenRecord};
pub use write::Batch;

use ganger_core::model::Cluster;
use ganger_core::model::machine::Machine;
use ganger_runtime::datadir::{self, DataDirError, FileLock};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

/// What can go wrong with the store. The message ends with what to do.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoreError {
    #[error("the data directory is in use: {0}")]
    InUse(String),
    #[error("cannot prepare the data directory: {0}")]
    Directory(String),
    #[error(
        "the disk that holds the store is full ({0}): nothing new is accepted until there is room; running jobs go on"
    )]
    Full(String),
    #[error(
        "the store cannot be written ({0}): nothing new is accepted until that is mended; running jobs go on; look at the \
         file system's mount and permissions"
    )]
    ReadOnly(String),
    #[error("the store failed: {0}")]
    Database(String),
    #[error("the record of {what} in the store cannot be read: {why}; restore the data directory from a copy")]
    Unreadable { what: String, why: String },
    #[error("{path} was written by a newer Ganger (schema {found}, this one knows {known}): start that version again")]
    Newer { path: PathBuf, found: u32, known: u32 },
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> StoreError {
        let text = error.to_string();
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => StoreError::Full(text),
            Some(ErrorCode::ReadOnly | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
                StoreError::ReadOnly(text)
            }
            _ => StoreError::Database(text),
        }
    }
}

impl From<DataDirError> for StoreError {
    fn from(error: DataDirError) -> StoreError {
        match error {
            DataDirError::Locked { .. } => StoreError::InUse(error.to_string()),
            DataDirError::Io { .. } => StoreError::Directory(error.to_string()),
        }
    }
}

/// How much is kept, and limits for tests.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// A snapshot of the whole cluster is logged every so many inputs; the last two snapshots and what came after the
    /// older of them are kept.
    pub snapshot_every: u64,
    /// The file may not grow beyond so many pages of 4 KiB: stands for a full disk.
    pub page_limit: Option<u32>,
    /// When to end the process on purpose.
    pub crash_at: Option<CrashPoint>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions { snapshot_every: 5_000, page_limit: None, crash_at: None }
    }
}

/// The writing side. One per data directory, guarded by a lock on `DIR/lock`.
#[derive(Debug)]
pub struct Store {
    connection: Connection,
    path: PathBuf,
    /// The number of the last event, and of the last logged input.
    last_event: u64,
    last_input: u64,
    inputs_since_snapshot: u64,
    options: StoreOptions,
    /// Hashes of machines that are stored already, by the address of the shared machine.
    machines: Vec<(Arc<Machine>, String)>,
    /// Stands in for the machine inside node records: machines are stored once each, apart.
    placeholder: Arc<Machine>,
    _lock: FileLock,
}

impl Store {
    /// Opens or makes the store in `directory` and reads everything that is alive. Finished jobs stay on disk.
    pub fn open(directory: &Path, options: StoreOptions) -> Result<(Store, Cluster), StoreError> {
        datadir::create_private(directory)?;
        let lock = FileLock::take(&directory.join("lock"))?;
        let path = directory.join("ganger.db");
        let connection = Connection::open(&path)?;
        schema::prepare(&connection, &path)?;
        datadir::sync_parent(&path)
            .map_err(|e| StoreError::Directory(format!("cannot sync {}: {e}", directory.display())))?;
        if let Some(pages) = options.page_limit {
            connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, i64>(0))?;
        }
        let mut store = Store {
            last_event: last(&connection, "SELECT COALESCE(MAX(number), 0) FROM events")?,
            last_input: last(&connection, "SELECT COALESCE(MAX(number), 0) FROM inputs")?,
            // The first input of a run is preceded by a snapshot, so that a run is replayable by itself.
            inputs_since_snapshot: options.snapshot_every,
            connection,
            path,
            options,
            machines: Vec::new(),
            placeholder: write::placeholder_machine()?,
            _lock: lock,
        };
        let cluster = store.load()?;
        Ok((store, cluster))
    }

    /// A reader of the same file, for other threads.
    pub fn reader(&self) -> Reader {
        Reader::new(self.path.clone())
    }

    /// The number of the newest stored event; 0 if there is none.
    pub fn last_event(&self) -> u64 {
        self.last_event
    }

    /// Changes the page limit of a store under test: how a full disk gets room again.
    pub fn set_page_limit(&mut self, pages: u32) -> Result<(), StoreError> {
        self.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, i64>(0))?;
        Ok(())
    }
}

fn last(connection: &Connection, sql: &str) -> Result<u64, StoreError> {
    Ok(connection.query_row(sql, [], |row| row.get(0).map(unsigned))?)
}

/// SQLite's integers are signed. All bits are kept, so that every number comes back as it was.
fn signed(number: u64) -> i64 {
    number as i64
}

fn unsigned(number: i64) -> u64 {
    number as u64
}

fn open_read_only(path: &Path) -> Result<Connection, StoreError> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(connection)
}

fn unreadable(what: impl Into<String>) -> impl FnOnce(serde_json::Error) -> StoreError {
    let what = what.into();
    move |error| StoreError::Unreadable { what, why: error.to_string() }
}

fn to_json<T: serde::Serialize>(what: &str, value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value)
        .map_err(|error| StoreError::Database(format!("{what} cannot be written as JSON: {error}")))
}
