//! Which nodes and which of their GPUs may hold a worker at all, whatever is free.
use crate::model::cluster::Cluster;
use crate::model::job::{JobSpec, Priority};
use crate::model::machine::Machine;
use crate::model::node::{HealthState, Node};
use crate::model::time::Time;

/// What speaks against a node, first reason first. The order is that of `why`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Against {
    Pool,
    GpuModel,
    Vram,
    Labels,
    /// Not ready, cordoned, draining or cooling down.
    Health,
}

/// Whether the node could ever hold the job's workers, health apart.
pub fn suits(node: &Node, spec: &JobSpec) -> Result<(), Against> {
    if spec.pool.is_some() && spec.pool != node.pool {
        return Err(Against::Pool);
    }
    let shape = &spec.shape;
    if shape.gpu_model.as_ref().is_some_and(|model| !model.eq_ignore_ascii_case(&node.machine.gpu_model)) {
        return Err(Against::GpuModel);
    }
    if shape.vram_bytes > 0 && vram_mask(&node.machine, shape.vram_bytes) == 0 {
        return Err(Against::Vram);
    }
    if shape.labels.iter().any(|(key, value)| node.labels.get(key) != Some(value)) {
        return Err(Against::Labels);
    }
    Ok(())
}

/// Whether the node takes a worker of this job now, as far as trust goes.
pub fn accepts(node: &Node, spec: &JobSpec, now: Time) -> Result<(), Against> {
    suits(node, spec)?;
    if node.accepts(spec.priority == Priority::P3, now) { Ok(()) } else { Err(Against::Health) }
}

/// The GPUs with at least so much memory.
pub fn vram_mask(machine: &Machine, vram_bytes: u64) -> u64 {
    if vram_bytes == 0 {
        return machine.gpu_mask();
    }
    machine
        .gpus
        .iter()
        .enumerate()
        .filter(|(_, gpu)| gpu.vram_bytes >= vram_bytes)
        .fold(0, |mask, (index, _)| mask | (1 << index))
}

/// Which nodes a search looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pick {
    /// Those that take new work now.
    Accepting(Time),
    /// All that are not dead, as if they were healthy and empty.
    Existing,
}

impl Pick {
    pub fn allows(self, cluster: &Cluster, node: &Node, spec: &JobSpec) -> bool {
        debug_assert!(node.id.index() < cluster.nodes.len());
        match self {
            Pick::Accepting(now) => accepts(node, spec, now).is_ok(),
            Pick::Existing => node.health.state != HealthState::Dead && suits(node, spec).is_ok(),
        }
    }
}
