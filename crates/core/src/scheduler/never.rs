//! Whether a gang could ever run on the machines that there are, and the arithmetic if not.
use super::draft::Draft;
use super::filter::{self, Against, Pick};
use super::place::{Miss, place_gang};
use super::together::place_together;
use super::tree::Tree;
use super::{Session, Unit, gang_key};
use crate::model::amounts::{HumanBandwidth, HumanBytes, count};
use crate::model::cluster::Cluster;
use crate::model::job::{JobSpec, Shape};
use std::collections::BTreeSet;

impl<'a> Session<'a> {
    /// Why not even an empty healthy cluster would hold the unit; `None`: it would.
    pub fn unsatisfiable(&mut self, unit: &Unit<'a>) -> Option<String> {
        let alone = unit.iter().find_map(|job| {
            let key = gang_key(self.cluster, &job.spec);
            if !self.satisfiable.contains_key(&key) {
                let miss = self.on_empty(|empty, tree| {
                    place_gang(empty, tree, &job.spec, job.spec.gang.workers, Pick::Existing).err()
                });
                self.satisfiable.insert(key.clone(), miss);
            }
            self.satisfiable[&key].as_ref().map(|miss| never_text(self.cluster, &job.spec, miss))
        });
        alone.or_else(|| self.never_together(unit))
    }

    /// Each job of a group may fit alone and still not beside the others.
    fn never_together(&mut self, unit: &Unit<'a>) -> Option<String> {
        if unit.len() < 2 {
            return None;
        }
        let miss = self.on_empty(|empty, tree| place_together(empty, tree, unit, Pick::Existing).err());
        miss.map(|miss| {
            let spec = &unit[miss.member].spec;
            format!("beside the other jobs of its group {}", never_text(self.cluster, spec, &miss))
        })
    }

    /// Tries something on the same machines with nothing on them.
    fn on_empty<T>(&mut self, trial: impl FnOnce(&mut Draft<'a>, &Tree) -> T) -> T {
        let empty = self.empty.get_or_insert_with(|| Draft::empty(self.cluster));
        let (mark, before) = (empty.mark(), empty.work);
        let outcome = trial(empty, &self.tree);
        empty.undo_to(mark);
        self.draft.work += empty.work - before;
        outcome
    }
}

/// Why an empty cluster would not hold it.
fn never_text(cluster: &Cluster, spec: &JobSpec, miss: &Miss) -> String {
    if let Some(text) = unsuited(cluster, spec) {
        return text;
    }
    let workers = spec.gang.workers;
    if let Some(level) = miss.level {
        return format!(
            "no {level} of the whole cluster holds {}, the largest ({}) holds {}",
            count(workers.into(), "worker"),
            miss.best_domain,
            miss.best
        );
    }
    let shape = spec.shape.resources();
    let bandwidth = [("PCIe", shape.pcie_bandwidth_bps), ("network", shape.network_bandwidth_bps)];
    let asked = bandwidth.into_iter().filter(|(_, bps)| *bps > 0);
    let more: String = asked.map(|(name, bps)| format!(", {} of {name} bandwidth", HumanBandwidth(bps))).collect();
    let gpus = spec.shape.part.map_or_else(|| count(shape.gpus, "GPU"), |part| part.to_string());
    let spread = spec.topology.ranks_per_node.map_or(String::new(), |each| format!(", and just {each} are on each"));
    format!(
        "the whole cluster, empty, holds {} of {}; each needs {gpus}, {} and {} memory{more} on one node{spread}",
        miss.placeable,
        count(workers.into(), "worker"),
        count(shape.cpus, "CPU"),
        HumanBytes(shape.memory_bytes)
    )
}

fn too_little_vram(cluster: &Cluster, shape: &Shape) -> String {
    let largest = cluster.listed_nodes().flat_map(|node| &node.machine.gpus).map(|gpu| gpu.vram_bytes).max();
    let (largest, gpus) = (largest.unwrap_or(0), u64::from(shape.gpus));
    if shape.needs_vram_bytes <= largest.saturating_mul(gpus) || gpus == 0 {
        return format!("no GPU has {} of memory", HumanBytes(shape.vram_bytes));
    }
    let (needs, there) = (HumanBytes(shape.needs_vram_bytes), HumanBytes(largest.saturating_mul(gpus)));
    let enough = shape.needs_vram_bytes.div_ceil(largest.max(1));
    format!("{needs} do not fit into {} of {}: {there}; it takes {enough}", shape.gpu_words(), HumanBytes(largest))
}

/// What no node at all has, if that is why: the last filter that any node came to.
fn unsuited(cluster: &Cluster, spec: &JobSpec) -> Option<String> {
    let against: Option<Vec<Against>> =
        cluster.listed_nodes().map(|node| filter::suits(cluster, node, spec).err()).collect();
    let shape = &spec.shape;
    Some(match against?.into_iter().max()? {
        Against::Pool => {
            let mut pools: Vec<&str> = cluster.listed_nodes().filter_map(|node| node.pool.as_deref()).collect();
            pools.sort_unstable();
            pools.dedup();
            let pool = spec.pool.as_deref().unwrap_or("?");
            match pools.is_empty() {
                true => format!("no node is in pool {pool}, nor in any other"),
                false => format!("no node is in pool {pool} (pools: {})", pools.join(", ")),
            }
        }
        Against::GpuModel => format!("no node has GPUs of the model {}", shape.gpu_model.as_deref().unwrap_or("?")),
        Against::Vram => too_little_vram(cluster, shape),
        Against::Part => super::slices::offered(cluster, shape),
        Against::Bandwidth => format!(
            "no node has {} of PCIe bandwidth for the GPUs of a worker and {} of network bandwidth",
            HumanBandwidth(shape.pcie_bandwidth_bps),
            HumanBandwidth(shape.network_bandwidth_bps)
        ),
        Against::Labels => {
            let labels: Vec<String> = shape.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("no node that is suitable otherwise has the labels {}", labels.join(", "))
        }
        Against::Kept => {
            let pools: BTreeSet<&str> = cluster.listed_nodes().filter_map(|node| node.pool.as_deref()).collect();
            let pools =
                pools.into_iter().filter(|pool| cluster.pools.contains_key(*pool)).collect::<Vec<_>>().join(", ");
            format!(
                "all suitable nodes are kept for the jobs of their pools ({pools}), which lend nothing to it, or not for long enough"
            )
        }
        Against::Health | Against::Maintenance | Against::Lending => return None,
    })
}
