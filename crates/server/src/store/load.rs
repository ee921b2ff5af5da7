//! Reads everything that is alive back into a [`Cluster`]: equal to the one that was stored, but for when agents were last
//! heard and for what the last decision said of waiting jobs.
use super::{Store, StoreError, unreadable};
use ganger_core::model::ids::JobId;
use ganger_core::model::machine::Machine;
use ganger_core::model::{Cluster, Node};
use rusqlite::OptionalExtension;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

impl Store {
    pub(super) fn load(&mut self) -> Result<Cluster, StoreError> {
        let mut cluster: Cluster = self.single("globals")?.unwrap_or_else(Cluster::new);
        cluster.queues.clear();

        let machines = self.load_machines()?;
        for node in self.load_nodes(&machines)? {
            cluster.node_names.insert(node.name.clone(), node.id);
            cluster.nodes.push(Arc::new(node));
        }
        self.each("a queue", "SELECT doc FROM queues", |queue: ganger_core::model::queue::Queue| {
            cluster.queues.insert(queue.path.clone(), queue);
        })?;
        self.each("a job", "SELECT doc FROM jobs", |job: ganger_core::model::Job| {
            cluster.insert_job(job);
        })?;
        self.each("a claim", "SELECT doc FROM claims", |claim: ganger_core::model::decision::Claim| {
            cluster.claims.insert(claim.claimant, claim);
        })?;
        if cluster.queues.is_empty() {
            // A new store. What a new cluster has is stored with the first term.
            cluster.queues = Cluster::new().queues;
        }
        cluster.reservations = self.single("reservations")?.unwrap_or_default();
        cluster.placements = self.single("placements")?.unwrap_or_default();
        cluster.demand = self.single("demand")?.unwrap_or_default();
        self.machines = machines.into_iter().map(|(hash, machine)| (machine, hash)).collect();
        Ok(cluster)
    }

    fn load_machines(&self) -> Result<BTreeMap<String, Arc<Machine>>, StoreError> {
        let mut statement = self.connection.prepare("SELECT hash, doc FROM machines")?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
        let mut machines = BTreeMap::new();
        for row in rows {
            let (hash, document) = row?;
            let machine = serde_json::from_str(&document).map_err(unreadable(format!("machine {hash}")))?;
            machines.insert(hash, Arc::new(machine));
        }
        Ok(machines)
    }

    /// In the order of their ids, which are their places in the cluster.
    fn load_nodes(&self, machines: &BTreeMap<String, Arc<Machine>>) -> Result<Vec<Node>, StoreError> {
        let mut statement = self.connection.prepare("SELECT id, machine, doc FROM nodes ORDER BY id")?;
        let rows = statement.query_map([], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, String>(1)?, row.get(2)?)))?;
        let mut nodes: Vec<Node> = Vec::new();
        for row in rows {
            let (id, hash, document): (u32, String, String) = row?;
            let what = format!("node {id}");
            let mut node: Node = serde_json::from_str(&document).map_err(unreadable(&what))?;
            let missing = |why: String| StoreError::Unreadable { what: what.clone(), why };
            if node.id.index() != nodes.len() {
                return Err(missing(format!("node {} is missing before it", nodes.len())));
            }
            node.machine = machines.get(&hash).ok_or_else(|| missing(format!("machine {hash} is missing")))?.clone();
            nodes.push(node);
        }
        Ok(nodes)
    }

    fn single<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StoreError> {
        let document: Option<String> = self
            .connection
            .query_row("SELECT doc FROM singles WHERE name = ?1", [name], |row| row.get(0))
            .optional()?;
        document.map(|text| serde_json::from_str(&text).map_err(unreadable(name))).transpose()
    }

    fn each<T: DeserializeOwned>(&self, what: &str, sql: &str, mut take: impl FnMut(T)) -> Result<(), StoreError> {
        let mut statement = self.connection.prepare(sql)?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        for document in rows {
            take(serde_json::from_str(&document?).map_err(unreadable(what))?);
        }
        Ok(())
    }

    /// A finished job by its number, for the loop itself (dependencies on jobs that have left memory).
    pub fn finished(&self, JobId(id): JobId) -> Result<Option<ganger_core::model::Job>, StoreError> {
        super::read::finished(&self.connection, super::signed(id))
    }
}
