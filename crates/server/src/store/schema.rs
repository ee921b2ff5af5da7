//! The tables, and how an older file is brought up to date. A migration is never changed once released; a new one is added.
use super::StoreError;
use rusqlite::Connection;
use std::path::Path;

/// Each entry leads from its index to the next version.
const MIGRATIONS: &[&str] = &[
    // 1: records of what is alive (one JSON document each), events, finished jobs, tokens, the log of inputs.
    "CREATE TABLE jobs (id INTEGER PRIMARY KEY, doc TEXT NOT NULL);
     CREATE TABLE nodes (id INTEGER PRIMARY KEY, machine TEXT NOT NULL, doc TEXT NOT NULL);
     CREATE TABLE machines (hash TEXT PRIMARY KEY, doc TEXT NOT NULL) WITHOUT ROWID;
     CREATE TABLE queues (path TEXT PRIMARY KEY, doc TEXT NOT NULL) WITHOUT ROWID;
     CREATE TABLE claims (claimant INTEGER PRIMARY KEY, doc TEXT NOT NULL);
     CREATE TABLE singles (name TEXT PRIMARY KEY, doc TEXT NOT NULL) WITHOUT ROWID;
     CREATE TABLE finished_jobs (
       id INTEGER PRIMARY KEY, name TEXT NOT NULL, user TEXT NOT NULL, queue TEXT NOT NULL, state TEXT NOT NULL,
       doc TEXT NOT NULL);
     CREATE INDEX finished_by_name ON finished_jobs (name, id);
     CREATE TABLE sites (
       job INTEGER NOT NULL, attempt INTEGER NOT NULL, nodes TEXT NOT NULL, PRIMARY KEY (job, attempt)) WITHOUT ROWID;
     CREATE TABLE events (
       number INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, job INTEGER, node INTEGER, text TEXT NOT NULL);
     CREATE INDEX events_by_job ON events (job, number) WHERE job IS NOT NULL;
     CREATE INDEX events_by_node ON events (node, number) WHERE node IS NOT NULL;
     CREATE TABLE tokens (
       name TEXT PRIMARY KEY, hash TEXT NOT NULL UNIQUE, role TEXT NOT NULL, user TEXT NOT NULL,
       created_at INTEGER NOT NULL) WITHOUT ROWID;
     CREATE TABLE inputs (number INTEGER PRIMARY KEY, doc TEXT NOT NULL);
     CREATE TABLE snapshots (before_input INTEGER PRIMARY KEY, doc BLOB NOT NULL);",
];

/// Durability first: a commit returns when its pages are on the disk. Then the file is brought to this version's tables.
pub(super) fn prepare(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0))?;
    connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")?;
    connection.set_prepared_statement_cache_capacity(64);
    migrate(connection, path)
}

fn migrate(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema_migrations (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL)",
    )?;
    let found: u32 =
        connection.query_row("SELECT COALESCE(MAX(version), 0) FROM schema_migrations", [], |row| row.get(0))?;
    let known = MIGRATIONS.len() as u32;
    if found > known {
        return Err(StoreError::Newer { path: path.to_path_buf(), found, known });
    }
    for (version, sql) in (1u32..).zip(MIGRATIONS).skip(found as usize) {
        let transaction = connection.unchecked_transaction()?;
        transaction.execute_batch(sql)?;
        transaction.execute(
            "INSERT INTO schema_migrations (version, applied_at) VALUES (?1, ?2)",
            (version, super::signed(ganger_runtime::clock::unix_ms())),
        )?;
        transaction.commit()?;
    }
    Ok(())
}
