//! The log by which recent decisions can be made again: inputs in order, and now and then the whole cluster before one.
//!
//! Heartbeats are not writes: those that came between two logged inputs travel with the later one. What a decision said
//! about jobs that it left waiting is not logged, because making the decision again says the same.
use super::write::put;
use super::{StoreError, open_read_only, signed, to_json, unreadable};
use ganger_core::lifecycle::input::Input;
use ganger_core::model::decision::Decision;
use ganger_core::model::ids::NodeId;
use ganger_core::model::{Cluster, Time};
use rusqlite::{Connection, OptionalExtension};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// An input that changed something, as it was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedInput {
    pub at: Time,
    /// Who was heard since the input before, and when last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<(NodeId, Time)>,
    pub input: Input,
}

/// A state and what happened from there on: apply the inputs in order to get every state since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    pub start: Cluster,
    pub inputs: Vec<LoggedInput>,
}

impl LoggedInput {
    /// The input as it is logged: a decision without what it said of waiting jobs.
    pub fn slim(input: &Input) -> Input {
        match input {
            Input::Decided(decision) => Input::Decided(Box::new(Decision {
                steps: decision.steps.clone(),
                reservations: decision.reservations.clone(),
                blocked: BTreeMap::new(),
                ..**decision
            })),
            other => other.clone(),
        }
    }
}

pub(super) fn write_inputs(to: &Connection, last: u64, inputs: &[LoggedInput]) -> Result<(), StoreError> {
    for (number, input) in (last + 1..).zip(inputs) {
        put(to, "INSERT INTO inputs (number, doc) VALUES (?1, ?2)", (signed(number), to_json("an input", input)?))?;
    }
    Ok(())
}

/// Keeps this snapshot and the one before, and the inputs since that one.
pub(super) fn write_snapshot(to: &Connection, last_input: u64, cluster: &Cluster) -> Result<(), StoreError> {
    let document = to_json("a snapshot", cluster)?;
    let previous: Option<i64> =
        to.query_row("SELECT MAX(before_input) FROM snapshots", [], |row| row.get(0)).optional()?.flatten();
    let keep_from = previous.unwrap_or(signed(last_input));
    put(to, "DELETE FROM snapshots WHERE before_input < ?1", [keep_from])?;
    put(to, "DELETE FROM inputs WHERE number <= ?1", [keep_from])?;
    put(to, "INSERT OR REPLACE INTO snapshots (before_input, doc) VALUES (?1, ?2)", (signed(last_input), document))
}

/// The newest recording in a store: from its last snapshot to now. `None` if nothing was ever logged.
pub(super) fn read(path: &Path) -> Result<Option<Recording>, StoreError> {
    let mut connection = open_read_only(path)?;
    let transaction = connection.transaction()?;
    let newest: Option<(i64, String)> = transaction
        .query_row("SELECT before_input, doc FROM snapshots ORDER BY before_input DESC LIMIT 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let Some((number, document)) = newest else { return Ok(None) };
    let start = serde_json::from_str(&document).map_err(unreadable("a snapshot"))?;
    let mut statement = transaction.prepare("SELECT doc FROM inputs WHERE number > ?1 ORDER BY number")?;
    let documents = statement.query_map([number], |row| row.get::<_, String>(0))?;
    let mut inputs = Vec::new();
    for document in documents {
        inputs.push(serde_json::from_str(&document?).map_err(unreadable("a logged input"))?);
    }
    Ok(Some(Recording { start, inputs }))
}
