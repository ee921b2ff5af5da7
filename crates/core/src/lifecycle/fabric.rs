//! What a cluster file says of nodes, of ways up and of pools.
use super::change::Change;
use super::input::{NodePlacement, Refusal};
use crate::model::ids::NodeId;
use crate::model::pool::Lending;
use std::collections::BTreeMap;

/// Of nodes, of ways up, and of pools.
type Fabric = (BTreeMap<String, NodePlacement>, BTreeMap<String, u64>, BTreeMap<String, Option<Lending>>);

impl Change<'_> {
    pub fn set_fabric(&mut self, (placements, uplinks, pools): Fabric, by: String) -> Result<(), Refusal> {
        for (name, placement) in &placements {
            self.may_leave_its_pool(name, placement)?;
        }
        self.cluster.fabric_since = self.now;
        self.cluster.fabric.uplinks.extend(uplinks);
        for (name, lending) in pools {
            match lending {
                Some(lending) => drop(self.cluster.pools.insert(name, Lending { since: self.now, ..lending })),
                None => drop(self.cluster.pools.remove(&name)),
            }
        }
        for (name, placement) in placements {
            if let Some(id) = self.cluster.node_names.get(&name).copied() {
                self.put_in_place(id, &placement);
            }
            self.cluster.placements.entry(name).or_default().take_over(placement);
        }
        self.effects.dirty.placements = true;
        self.mark_globals();
        self.event("fabric", None, None, format!("leaves, spines and pools set by {by}"));
        Ok(())
    }

    /// Not from under a job that may run in that pool only.
    fn may_leave_its_pool(&self, name: &str, placement: &NodePlacement) -> Result<(), Refusal> {
        let (Some(to), Some(id)) = (&placement.pool, self.cluster.node_names.get(name)) else { return Ok(()) };
        match self.cluster.node(*id).pool.as_ref().filter(|pool| *pool != to) {
            Some(pool) => self.is_free_of(*id, pool),
            None => Ok(()),
        }
    }

    fn is_free_of(&self, id: NodeId, pool: &String) -> Result<(), Refusal> {
        let mut here = self.cluster.holds().filter(|held| held.place.node == id);
        let Some(held) = here.find(|held| held.job.spec.pool.as_ref() == Some(pool)) else { return Ok(()) };
        let (job, title, node) = (held.job.number(), held.job.title(), self.cluster.node(id).name.clone());
        let why =
            format!("job {job} {title}, which may run in pool {pool} only, is on it: `ganger drain {node}` first");
        Err(Refusal::NodeNeeded { node, pool: pool.clone(), why })
    }
}
