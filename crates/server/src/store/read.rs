//! Questions about what is stored, for threads other than the loop: finished jobs and events. WAL lets readers see the last
//! commit while the next is written.
use super::journal::{self, Recording};
use super::tokens::{self, TokenRecord};
use super::{StoreError, open_read_only, signed, unreadable, unsigned};
use ganger_core::lifecycle::input::Event;
use ganger_core::model::ids::{AttemptNo, JobId, NodeId};
use ganger_core::model::{Job, Time};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params_from_iter};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Connections that are kept open for the next question.
const IDLE: usize = 4;

/// Cheap to clone. Its calls block: use them on a blocking thread.
#[derive(Debug, Clone)]
pub struct Reader {
    path: Arc<PathBuf>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

/// An event and its number; numbers rise by one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumberedEvent {
    pub number: u64,
    pub event: Event,
}

/// Which finished jobs; `None` matches all. Newest first.
#[derive(Debug, Clone, Default)]
pub struct FinishedFilter {
    pub state: Option<String>,
    pub queue: Option<String>,
    pub user: Option<String>,
    pub limit: u32,
}

/// Which events: those with a number above `after`, oldest first; with `newest` the last ones of these.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub after: u64,
    pub job: Option<JobId>,
    pub node: Option<NodeId>,
    pub newest: bool,
    pub limit: u32,
}

impl Reader {
    pub(super) fn new(path: PathBuf) -> Reader {
        Reader { path: Arc::new(path), idle: Arc::default() }
    }

    pub fn finished(&self, JobId(id): JobId) -> Result<Option<Job>, StoreError> {
        self.with(|connection| finished(connection, signed(id)))
    }

    /// The newest finished job of this name.
    pub fn finished_named(&self, name: &str) -> Result<Option<Job>, StoreError> {
        self.with(|connection| {
            let sql = "SELECT doc FROM finished_jobs WHERE name = ?1 ORDER BY id DESC LIMIT 1";
            let document: Option<String> =
                connection.prepare_cached(sql)?.query_row([name], |row| row.get(0)).optional()?;
            document.map(|text| serde_json::from_str(&text).map_err(unreadable(format!("job {name}")))).transpose()
        })
    }

    pub fn finished_list(&self, filter: &FinishedFilter) -> Result<Vec<Job>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("state", filter.state.clone().map(Value::Text));
        conditions.add("queue", filter.queue.clone().map(Value::Text));
        conditions.add("user", filter.user.clone().map(Value::Text));
        let sql = format!("SELECT doc FROM finished_jobs {} ORDER BY id DESC LIMIT {}", conditions.sql(), filter.limit);
        self.with(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map(params_from_iter(&conditions.values), |row| row.get::<_, String>(0))?;
            rows.map(|document| serde_json::from_str(&document?).map_err(unreadable("a finished job"))).collect()
        })
    }

    pub fn events(&self, filter: &EventFilter) -> Result<Vec<NumberedEvent>, StoreError> {
        let mut conditions = Conditions::default();
        conditions.add("job", filter.job.map(|JobId(id)| Value::Integer(signed(id))));
        conditions.add("node", filter.node.map(|NodeId(id)| Value::Integer(id.into())));
        conditions.clauses.push(format!("number > {}", filter.after));
        let order = if filter.newest { "DESC" } else { "ASC" };
        let sql = format!(
            "SELECT number, at, kind, job, node, text FROM events {} ORDER BY number {order} LIMIT {}",
            conditions.sql(),
            filter.limit
        );
        self.with(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map(params_from_iter(&conditions.values), event_of_row)?;
            let mut events = rows.collect::<Result<Vec<_>, _>>()?;
            events.sort_by_key(|event| event.number);
            Ok(events)
        })
    }

    /// The nodes of an attempt in rank order; `None` if there was no such attempt.
    pub fn sites(&self, JobId(job): JobId, attempt: AttemptNo) -> Result<Option<Vec<NodeId>>, StoreError> {
        self.with(|connection| {
            let sql = "SELECT nodes FROM sites WHERE job = ?1 AND attempt = ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let found: Option<String> = statement.query_row((signed(job), attempt.0), |row| row.get(0)).optional()?;
            found
                .map(|text| serde_json::from_str(&text).map_err(unreadable(format!("the nodes of job {job}"))))
                .transpose()
        })
    }

    pub fn tokens(&self) -> Result<Vec<TokenRecord>, StoreError> {
        self.with(tokens::read_all)
    }

    /// The newest recording: a state and every input since, enough to make each recent decision again.
    pub fn recording(&self) -> Result<Option<Recording>, StoreError> {
        journal::read(&self.path)
    }

    fn with<T>(&self, ask: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open_read_only(&self.path)?,
        };
        let answer = ask(&connection)?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE {
            idle.push(connection);
        }
        Ok(answer)
    }
}

pub(super) fn finished(connection: &Connection, id: i64) -> Result<Option<Job>, StoreError> {
    let sql = "SELECT doc FROM finished_jobs WHERE id = ?1";
    let document: Option<String> = connection.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
    document.map(|text| serde_json::from_str(&text).map_err(unreadable(format!("job {id}")))).transpose()
}

fn event_of_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<NumberedEvent> {
    let event = Event {
        at: Time(unsigned(row.get(1)?)),
        kind: row.get(2)?,
        job: row.get::<_, Option<i64>>(3)?.map(|id| JobId(unsigned(id))),
        node: row.get::<_, Option<u32>>(4)?.map(NodeId),
        text: row.get(5)?,
    };
    Ok(NumberedEvent { number: unsigned(row.get(0)?), event })
}

/// Column tests that all must hold.
#[derive(Default)]
struct Conditions {
    clauses: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, column: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.values.push(value);
            self.clauses.push(format!("{column} = ?{}", self.values.len()));
        }
    }

    fn sql(&self) -> String {
        if self.clauses.is_empty() { String::new() } else { format!("WHERE {}", self.clauses.join(" AND ")) }
    }
}
