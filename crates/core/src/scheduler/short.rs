//! By how much a gang misses, in the numbers that its owner is told.
use super::filter::Against;
use super::place::Miss;
use super::slices::{self, Site};
use super::{Session, filter, fit, gang_key, pools, room};
use crate::model::Node;
use crate::model::decision::Blocker;
use crate::model::job::JobSpec;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the nodes that suit a gang lack for it. Equal gangs of many limits and classes ask for it one after another.
#[derive(Clone)]
pub struct Shortfall {
    /// Suitable nodes that take new work.
    open: usize,
    /// Those that do not, and the workers that they would hold.
    shut: u32,
    shut_workers: u32,
    /// Of kept pools, not lent to it now: the pools, what is free there, and the workers that it would hold.
    kept: BTreeSet<String>,
    kept_gpus: u64,
    kept_workers: u32,
    free_gpus: u64,
    short: String,
}

impl<'a> Session<'a> {
    pub fn short_of(&mut self, spec: &'a JobSpec, miss: &Miss) -> Blocker {
        let (workers, placeable) = (spec.gang.workers, miss.placeable);
        let lack = self.shortfall(spec);
        if lack.open == 0 && lack.shut == 0 && lack.kept.is_empty() {
            return Blocker::NodeFilter { workers, rejected: self.cluster.nodes.len() as u32 };
        }
        if placeable.saturating_add(lack.kept_workers) >= workers {
            let opens = pools::next_lending(self.cluster, spec, self.now);
            let pools = lack.kept.into_iter().collect::<Vec<_>>().join(", ");
            return Blocker::Lending { workers, placeable, gpus: lack.kept_gpus, pools, opens };
        }
        if placeable.saturating_add(lack.shut_workers).saturating_add(lack.kept_workers) >= workers && lack.shut > 0 {
            return Blocker::Health { workers, placeable, out: lack.shut };
        }
        let needs_gpus = spec.total().all_gpus();
        Blocker::Resources { workers, placeable, needs_gpus, free_gpus: lack.free_gpus, short: lack.short }
    }

    fn shortfall(&mut self, spec: &'a JobSpec) -> Shortfall {
        // Which nodes are open also depends on how long the job stays, where some will close.
        if self.closings {
            return self.count_shortfall(spec);
        }
        let key = gang_key(self.cluster, spec);
        if let Some((_, lack)) = self.shortfalls.get(&key).filter(|(edition, _)| *edition == self.edition) {
            return lack.clone();
        }
        let lack = self.count_shortfall(spec);
        self.shortfalls.insert(key, (self.edition, lack.clone()));
        lack
    }

    fn count_shortfall(&self, spec: &JobSpec) -> Shortfall {
        let suited = self.cluster.nodes.iter().filter(|node| filter::suits(self.cluster, node, spec).is_ok());
        let (mut open, mut shut, mut shut_workers) = (Vec::new(), 0, 0u32);
        let (mut kept, mut kept_gpus, mut kept_workers) = (BTreeSet::new(), 0u64, 0u32);
        for node in suited {
            let against = filter::accepts(self.cluster, node, spec, self.now, self.now).err();
            let Some(against) = against else {
                open.push((node, self.draft.room(node.id)));
                continue;
            };
            let now = room::Room::now(node);
            let site = Site { node, room: &now, parts: self.draft.parts(node.id) };
            let workers = spec.topology.on_node(site.workers(&spec.shape, fit::Cell::whole(&node.machine)));
            if against == Against::Lending {
                kept.extend(node.pool.clone());
                kept_gpus += u64::from(now.gpus.count_ones());
                kept_workers = kept_workers.saturating_add(workers);
            } else {
                shut += 1;
                shut_workers = shut_workers.saturating_add(workers);
            }
        }
        let free_gpus = open.iter().map(|(_, room)| u64::from(room.gpus.count_ones())).sum();
        let short = match spec.shape.part {
            Some(_) => self.short_of_parts(spec, &open),
            None => shortest_dimension(spec, &open),
        };
        Shortfall { open: open.len(), shut, shut_workers, kept, kept_gpus, kept_workers, free_gpus, short }
    }

    fn short_of_parts(&self, spec: &JobSpec, open: &[(&Arc<Node>, &room::Room)]) -> String {
        let sites: Vec<Site<'_>> = open.iter().map(|(node, _)| self.draft.site(node.id)).collect();
        let whole = |site: &Site<'_>| site.parts_for(&spec.shape, fit::Cell::whole(&site.node.machine));
        let found = sites.iter().map(whole).fold(0, u32::saturating_add);
        match found >= spec.gang.workers {
            true => shortest_dimension(spec, open),
            false => slices::shortage(spec, &sites),
        }
    }
}

/// The dimension that holds fewest workers when looked at alone, in words: over all nodes, or per node if the sum over
/// all nodes would be enough.
fn shortest_dimension(spec: &JobSpec, open: &[(&Arc<Node>, &room::Room)]) -> String {
    let mut workers = [0u32; fit::DIMENSIONS.len()];
    let mut totals = [0u64; fit::DIMENSIONS.len()];
    for (node, room) in open {
        let by = fit::capacity_by(&node.machine, room, &spec.shape, fit::Cell::whole(&node.machine));
        for (sum, one) in workers.iter_mut().zip(by) {
            *sum = sum.saturating_add(spec.topology.on_node(one));
        }
        totals.iter_mut().zip(room.totals()).for_each(|(sum, one)| *sum = sum.saturating_add(one));
    }
    let total = spec.total();
    let needs = [total.gpus, total.cpus, total.memory_bytes, total.pcie_bandwidth_bps, total.network_bandwidth_bps];
    let short: Vec<String> = (0..needs.len())
        .filter(|i| workers[*i] < spec.gang.workers)
        .filter(|i| !fit::follows_from(*i, &workers, spec.gang.workers))
        .map(|i| match totals[i] >= needs[i] {
            true => format!("{} per node", fit::DIMENSIONS[i]),
            false => fit::DIMENSIONS[i].to_string(),
        })
        .collect();
    if short.is_empty() { "GPUs, CPUs and memory on the same node".to_string() } else { short.join(", ") }
}
