//! One batch, one transaction: what several inputs changed is stored together, or not at all.
use super::journal::LoggedInput;
use super::tokens::TokenChange;
use super::{Store, StoreError, signed, to_json};
use ganger_core::lifecycle::input::{Dirty, Effects, Event};
use ganger_core::model::ids::{JobId, NodeId};
use ganger_core::model::job::AttemptPhase;
use ganger_core::model::machine::{Machine, Parts, Source};
use ganger_core::model::{Cluster, Job, Node};
use rusqlite::{Connection, Transaction};
use std::mem::take;
use std::sync::Arc;

/// The effects of all inputs that are stored by one commit.
#[derive(Debug, Default)]
pub struct Batch {
    pub events: Vec<Event>,
    pub finished: Vec<Arc<Job>>,
    pub dirty: Dirty,
    pub inputs: Vec<LoggedInput>,
    pub tokens: Vec<TokenChange>,
}

impl Batch {
    /// Adds what one input did.
    pub fn add(&mut self, effects: Effects) {
        self.events.extend(effects.events);
        self.finished.extend(effects.finished);
        let dirty = effects.dirty;
        self.dirty.jobs.extend(dirty.jobs);
        self.dirty.nodes.extend(dirty.nodes);
        self.dirty.claims.extend(dirty.claims);
        self.dirty.queues.extend(dirty.queues);
        self.dirty.reservations |= dirty.reservations;
        self.dirty.placements |= dirty.placements;
        self.dirty.demand |= dirty.demand;
        self.dirty.globals |= dirty.globals;
    }

    /// Whether anything would be lost with it. Heartbeats and ticks without effect leave a batch empty.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
            && self.finished.is_empty()
            && self.dirty == Dirty::default()
            && self.inputs.is_empty()
            && self.tokens.is_empty()
    }
}

impl Store {
    /// Stores `batch`, whose effects are already in `cluster`. `before` is the state before the batch, for the log. On an
    /// error nothing is stored, and the caller goes back to `before`.
    pub fn commit(&mut self, before: &Cluster, cluster: &mut Cluster, batch: &Batch) -> Result<(), StoreError> {
        let globals = globals_document(cluster)?;
        let placeholder = self.placeholder.clone();
        let machines = self.new_machines(cluster, &batch.dirty)?;
        let transaction = self.connection.unchecked_transaction()?;
        for (_, hash, document) in &machines {
            put(&transaction, "INSERT OR IGNORE INTO machines (hash, doc) VALUES (?1, ?2)", (hash, document))?;
        }
        let hash_of = |machine: &Arc<Machine>| {
            let known = self.machines.iter().map(|(m, h)| (m, h)).chain(machines.iter().map(|(m, h, _)| (m, h)));
            known.into_iter().find(|(m, _)| Arc::ptr_eq(m, machine)).map_or("", |(_, hash)| hash.as_str())
        };
        for id in &batch.dirty.nodes {
            let Some(node) = cluster.nodes.get(id.index()) else { continue };
            write_node(&transaction, node, hash_of(&node.machine), &placeholder)?;
        }
        write_records(&transaction, cluster, &batch.dirty)?;
        put(&transaction, "INSERT OR REPLACE INTO singles (name, doc) VALUES ('globals', ?1)", [globals])?;
        for job in &batch.finished {
            write_finished(&transaction, job)?;
        }
        let last_event = write_events(&transaction, self.last_event, &batch.events)?;
        for change in &batch.tokens {
            change.write(&transaction)?;
        }
        let snapshot_due = self.inputs_since_snapshot >= self.options.snapshot_every && !batch.inputs.is_empty();
        if snapshot_due {
            super::journal::write_snapshot(&transaction, self.last_input, before)?;
        }
        super::journal::write_inputs(&transaction, self.last_input, &batch.inputs)?;
        transaction.commit()?;
        if let Some(point) = &mut self.options.crash_at {
            point.committed(batch);
        }
        self.machines.extend(machines.into_iter().map(|(machine, hash, _)| (machine, hash)));
        self.last_event = last_event;
        self.last_input += batch.inputs.len() as u64;
        self.inputs_since_snapshot =
            batch.inputs.len() as u64 + if snapshot_due { 0 } else { self.inputs_since_snapshot };
        Ok(())
    }

    /// Machines of dirty nodes that are not known to be stored: hash and document each.
    fn new_machines(
        &self,
        cluster: &Cluster,
        dirty: &Dirty,
    ) -> Result<Vec<(Arc<Machine>, String, String)>, StoreError> {
        let mut found: Vec<(Arc<Machine>, String, String)> = Vec::new();
        for node in dirty.nodes.iter().filter_map(|id| cluster.nodes.get(id.index())) {
            let known = self.machines.iter().map(|(m, _)| m).chain(found.iter().map(|(m, _, _)| m));
            if known.into_iter().any(|m| Arc::ptr_eq(m, &node.machine)) {
                continue;
            }
            let document = to_json("a machine", &node.machine)?;
            found.push((node.machine.clone(), blake3::hash(document.as_bytes()).to_hex().to_string(), document));
        }
        Ok(found)
    }
}

/// A machine that holds nothing.
pub(super) fn placeholder_machine() -> Result<Arc<Machine>, StoreError> {
    let parts = Parts {
        profile: String::new(),
        gpu_model: String::new(),
        source: Source::Declared,
        sockets: Vec::new(),
        switches: Vec::new(),
        gpus: Vec::new(),
        nics: Vec::new(),
        islands: Vec::new(),
        nvlink: Vec::new(),
    };
    Machine::new(parts).map(Arc::new).map_err(|error| StoreError::Database(error.to_string()))
}

/// Everything of the cluster that has no record of its own: term, version, counters, policy, fabric, and whatever is added
/// to [`Cluster`] later. What has records is taken out for the moment, and so is `blocked`: the first decision after a
/// start makes it anew.
fn globals_document(cluster: &mut Cluster) -> Result<String, StoreError> {
    let nodes = take(&mut cluster.nodes);
    let node_names = take(&mut cluster.node_names);
    let queues = take(&mut cluster.queues);
    let jobs = take(&mut cluster.jobs);
    let arrays = take(&mut cluster.arrays);
    let claims = take(&mut cluster.claims);
    let reservations = take(&mut cluster.reservations);
    let placements = take(&mut cluster.placements);
    let demand = take(&mut cluster.demand);
    let blocked = take(&mut cluster.blocked);
    let document = to_json("the globals", cluster);
    cluster.nodes = nodes;
    cluster.node_names = node_names;
    cluster.queues = queues;
    cluster.jobs = jobs;
    cluster.arrays = arrays;
    cluster.claims = claims;
    cluster.reservations = reservations;
    cluster.placements = placements;
    cluster.demand = demand;
    cluster.blocked = blocked;
    document
}

fn write_node(to: &Transaction<'_>, node: &Node, machine: &str, placeholder: &Arc<Machine>) -> Result<(), StoreError> {
    let mut slim = node.clone();
    slim.machine = placeholder.clone();
    let document = to_json("a node", &slim)?;
    put(to, "INSERT OR REPLACE INTO nodes (id, machine, doc) VALUES (?1, ?2, ?3)", (node.id.0, machine, document))
}

fn write_records(to: &Transaction<'_>, cluster: &Cluster, dirty: &Dirty) -> Result<(), StoreError> {
    for id in &dirty.jobs {
        match cluster.jobs.get(id).or_else(|| cluster.arrays.get(id)) {
            Some(job) => {
                write_sites(to, job)?;
                let document = to_json("a job", job)?;
                put(to, "INSERT OR REPLACE INTO jobs (id, doc) VALUES (?1, ?2)", (signed(id.0), document))?
            }
            None => put(to, "DELETE FROM jobs WHERE id = ?1", [signed(id.0)])?,
        }
    }
    for id in &dirty.claims {
        match cluster.claims.get(id) {
            Some(claim) => {
                let document = to_json("a claim", claim)?;
                put(to, "INSERT OR REPLACE INTO claims (claimant, doc) VALUES (?1, ?2)", (signed(id.0), document))?
            }
            None => put(to, "DELETE FROM claims WHERE claimant = ?1", [signed(id.0)])?,
        }
    }
    for path in &dirty.queues {
        match cluster.queues.get(path) {
            Some(queue) => {
                let document = to_json("a queue", queue)?;
                put(to, "INSERT OR REPLACE INTO queues (path, doc) VALUES (?1, ?2)", (path, document))?
            }
            None => put(to, "DELETE FROM queues WHERE path = ?1", [path])?,
        }
    }
    if dirty.reservations {
        let document = to_json("the reservations", &cluster.reservations)?;
        put(to, "INSERT OR REPLACE INTO singles (name, doc) VALUES ('reservations', ?1)", [document])?;
    }
    if dirty.placements {
        let document = to_json("the placements", &cluster.placements)?;
        put(to, "INSERT OR REPLACE INTO singles (name, doc) VALUES ('placements', ?1)", [document])?;
    }
    if dirty.demand {
        let document = to_json("the demand", &cluster.demand)?;
        put(to, "INSERT OR REPLACE INTO singles (name, doc) VALUES ('demand', ?1)", [document])?;
    }
    Ok(())
}

/// Where the ranks of an attempt were, for whoever asks for their logs when the job has ended.
fn write_sites(to: &Transaction<'_>, job: &Job) -> Result<(), StoreError> {
    let Some(attempt) = &job.attempt else { return Ok(()) };
    if !matches!(attempt.phase, AttemptPhase::Preparing { .. }) {
        return Ok(());
    }
    let nodes: Vec<NodeId> = attempt.workers.iter().map(|worker| worker.place.node).collect();
    put(
        to,
        "INSERT OR REPLACE INTO sites (job, attempt, nodes) VALUES (?1, ?2, ?3)",
        (signed(job.id.0), attempt.number.0, to_json("the nodes of an attempt", &nodes)?),
    )
}

fn write_finished(to: &Transaction<'_>, job: &Job) -> Result<(), StoreError> {
    let id = signed(job.id.0);
    let document = to_json("a finished job", job)?;
    put(to, "DELETE FROM jobs WHERE id = ?1", [id])?;
    put(
        to,
        "INSERT OR REPLACE INTO finished_jobs (id, name, user, queue, state, doc) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        (id, &job.title(), &job.owner.user, &job.spec.queue, job.state.to_string(), document),
    )
}

fn write_events(to: &Transaction<'_>, last: u64, events: &[Event]) -> Result<u64, StoreError> {
    let mut number = last;
    for event in events {
        number += 1;
        let (job, node) = (event.job.map(|JobId(id)| signed(id)), event.node.map(|NodeId(id)| id));
        put(
            to,
            "INSERT INTO events (number, at, kind, job, node, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            (signed(number), signed(event.at.0), &event.kind, job, node, &event.text),
        )?;
    }
    Ok(number)
}

pub(super) fn put(to: &Connection, sql: &str, values: impl rusqlite::Params) -> Result<(), StoreError> {
    to.prepare_cached(sql)?.execute(values)?;
    Ok(())
}
