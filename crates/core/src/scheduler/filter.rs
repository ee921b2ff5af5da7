//! Which nodes and which of their GPUs may hold a worker at all, whatever is free.
use super::room::Room;
use crate::model::cluster::Cluster;
use crate::model::job::{JobSpec, Priority, Shape};
use crate::model::machine::{Gpu, Machine};
use crate::model::node::{HealthState, Node};
use crate::model::time::Time;

/// What speaks against a node, first reason first. The order is that of `why`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Against {
    Pool,
    /// Its pool is for others, and never lent to such a job.
    Kept,
    GpuModel,
    Vram,
    /// Not even empty it has the PCIe or network bandwidth that one worker asks for.
    Bandwidth,
    /// No GPU of it can be split so.
    Part,
    Labels,
    /// Not ready, cordoned, draining or cooling down.
    Health,
    /// Maintenance comes before the job could be through or have left.
    Maintenance,
    /// Its pool is not lent to the job now, or not for long enough.
    Lending,
}

/// Whether the node could ever hold the job's workers, health apart.
pub fn suits(cluster: &Cluster, node: &Node, spec: &JobSpec) -> Result<(), Against> {
    if cluster.lending(node, spec).is_some_and(|(_, lending)| !lending.welcomes(&cluster.policy, spec)) {
        return Err(Against::Kept);
    }
    suits_shape(node, &spec.shape, spec.pool.as_deref())
}

/// Whether the node could ever hold a worker of this shape.
pub fn suits_shape(node: &Node, shape: &Shape, pool: Option<&str>) -> Result<(), Against> {
    if pool.is_some() && pool != node.pool.as_deref() {
        return Err(Against::Pool);
    }
    if shape.gpu_model.as_ref().is_some_and(|model| !model.eq_ignore_ascii_case(&node.machine.gpu_model)) {
        return Err(Against::GpuModel);
    }
    if shape.vram_bytes > 0 && vram_mask(&node.machine, shape.vram_bytes) == 0 {
        return Err(Against::Vram);
    }
    let largest = || node.machine.gpus.iter().map(|gpu| gpu.vram_bytes).max().unwrap_or(0);
    if shape.gpus > 0 && shape.needs_vram_bytes > largest().saturating_mul(shape.gpus.into()) {
        return Err(Against::Vram);
    }
    if !carries(&node.machine, shape) {
        return Err(Against::Bandwidth);
    }
    if shape.part.is_some() && !super::slices::offers(&node.machine, shape) {
        return Err(Against::Part);
    }
    if shape.labels.iter().any(|(key, value)| node.labels.get(key) != Some(value)) {
        return Err(Against::Labels);
    }
    Ok(())
}

/// Whether the node takes a worker of this job that starts at `at`, as far as that can be told at `now`: it is trusted by
/// then, and the job is through or can leave before maintenance comes or the node is lent no longer.
pub fn accepts(cluster: &Cluster, node: &Node, spec: &JobSpec, now: Time, at: Time) -> Result<(), Against> {
    takes(cluster, node, spec, now, at)?;
    if cluster.lends(node, spec, at) { Ok(()) } else { Err(Against::Lending) }
}

/// As [`accepts`], whether or not it is lent to the job at `at`.
fn takes(cluster: &Cluster, node: &Node, spec: &JobSpec, now: Time, at: Time) -> Result<(), Against> {
    suits(cluster, node, spec)?;
    let opens = node.opens_at(yields(spec), now, cluster.policy.probation);
    if opens.is_none_or(|opens| opens > at) {
        return Err(Against::Health);
    }
    if cluster.fits_maintenance(node, spec, at) { Ok(()) } else { Err(Against::Maintenance) }
}

/// Nodes on probation take only what yields.
pub fn yields(spec: &JobSpec) -> bool {
    spec.priority == Priority::P3
}

/// Whether the empty machine has the bandwidth that one worker asks for.
fn carries(machine: &Machine, shape: &Shape) -> bool {
    let pcie = || {
        let empty = Room::empty_machine(machine);
        empty.carried(machine, gpu_mask(machine, shape), shape.pcie_per_gpu_bps()).count_ones() >= shape.gpus
    };
    (shape.network_bandwidth_bps == 0 || shape.network_bandwidth_bps <= machine.network_bandwidth_bps())
        && (shape.pcie_bandwidth_bps == 0 || pcie())
}

/// The GPUs that may be a worker's: enough memory, and a link that is fast enough.
pub fn gpu_mask(machine: &Machine, shape: &Shape) -> u64 {
    let eligible = vram_mask(machine, shape.vram_bytes);
    match shape.pcie_per_gpu_bps() {
        0 => eligible,
        per_gpu => eligible & mask_of_gpus(machine, |gpu| gpu.pcie_bandwidth_bps >= per_gpu),
    }
}

/// The GPUs with at least so much memory.
pub fn vram_mask(machine: &Machine, vram_bytes: u64) -> u64 {
    if vram_bytes == 0 {
        return machine.gpu_mask();
    }
    mask_of_gpus(machine, |gpu| gpu.vram_bytes >= vram_bytes)
}

fn mask_of_gpus(machine: &Machine, wanted: impl Fn(&Gpu) -> bool) -> u64 {
    let chosen = machine.gpus.iter().enumerate().filter(|(_, gpu)| wanted(gpu));
    chosen.fold(0, |mask, (index, _)| mask | (1 << index))
}

/// Which nodes a search looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// Those that take new work now.
    Accepting(Time),
    /// Those that take a start at `at`, as far as is known `now`.
    Opening { now: Time, at: Time },
    /// All that are not dead, as if they were healthy and empty.
    Existing,
}

impl Pick {
    pub fn allows(self, cluster: &Cluster, node: &Node, spec: &JobSpec) -> bool {
        match self {
            Pick::Accepting(now) => accepts(cluster, node, spec, now, now).is_ok(),
            Pick::Opening { now, at } => accepts(cluster, node, spec, now, at).is_ok(),
            Pick::Existing => node.health.state != HealthState::Dead && suits(cluster, node, spec).is_ok(),
        }
    }

    /// As [`Pick::allows`], for all nodes. Neighbours are mostly of one pool, and a calendar is dear to ask.
    pub fn allowed(self, cluster: &Cluster, spec: &JobSpec) -> Vec<bool> {
        let (now, at) = match self {
            Pick::Accepting(now) => (now, now),
            Pick::Opening { now, at } => (now, at),
            Pick::Existing => return cluster.nodes.iter().map(|node| self.allows(cluster, node, spec)).collect(),
        };
        let mut last: Option<(&str, bool)> = None;
        let nodes = cluster.nodes.iter().map(|node| {
            let lent = cluster.lending(node, spec).is_none_or(|(pool, _)| {
                let known = last.filter(|(known, _)| *known == pool).map(|(_, lent)| lent);
                last.insert((pool, known.unwrap_or_else(|| cluster.lends(node, spec, at)))).1
            });
            lent && takes(cluster, node, spec, now, at).is_ok()
        });
        nodes.collect()
    }
}
