//! Nodes as the placement experiment keeps them, and the tasks of a trace in their terms.
use super::super::readers::openb::TraceNode;
use super::super::trace::{Trace, WorkerShape};
use super::room::{Ask, GpuSet, Models, Room};

/// Classes of tasks that the clustering baseline keeps apart: shares, then whole GPUs by their number.
pub const CLASSES: usize = 9;

/// A node with what was placed on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    pub name: String,
    pub room: Room,
    pub capacity_milli: u32,
    /// Tasks by class, see [`class_of`].
    pub classes: [u32; CLASSES],
    /// Rises with each task placed, so that remembered bids can be dropped.
    pub version: u32,
}

impl Site {
    pub fn place(&mut self, ask: &Ask, set: GpuSet) {
        self.room = self.room.after(ask, set);
        self.version += 1;
        if let Some(class) = class_of(ask) {
            self.classes[class] += 1;
        }
    }

    pub fn used_milli(&self) -> u32 {
        self.capacity_milli - self.room.total_milli()
    }
}

/// 0 for shares, else the number of GPUs; none for tasks without a GPU.
pub fn class_of(ask: &Ask) -> Option<usize> {
    match ask.gpus {
        0 => None,
        1 if ask.is_share() => Some(0),
        gpus => Some(usize::from(gpus).min(CLASSES - 1)),
    }
}

/// Names of GPU models as bits, in the order in which nodes first use them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelNames(Vec<String>);

impl ModelNames {
    fn of(nodes: &[TraceNode]) -> ModelNames {
        let mut names: Vec<String> = nodes.iter().map(|node| node.gpu_model.clone()).collect();
        names.sort();
        names.dedup();
        ModelNames(names)
    }

    fn bit(&self, name: &str) -> Models {
        self.0.iter().position(|known| known == name).filter(|&index| index < 32).map_or(0, |index| 1 << index)
    }

    /// All models where the task names none; models that no node has are of no use.
    fn wanted(&self, shape: &WorkerShape) -> Models {
        if shape.gpu_models.is_empty() {
            return Models::MAX;
        }
        shape.gpu_models.iter().fold(0, |set, name| set | self.bit(name))
    }
}

/// The nodes with GPUs, in the order of their names.
pub fn sites(nodes: &[TraceNode]) -> (Vec<Site>, ModelNames) {
    let names = ModelNames::of(nodes);
    let mut sites: Vec<Site> = nodes.iter().filter(|node| node.gpus > 0).map(|node| site(node, &names)).collect();
    sites.sort_by(|a, b| a.name.cmp(&b.name));
    (sites, names)
}

fn site(node: &TraceNode, names: &ModelNames) -> Site {
    let room = Room::empty(node.cpu_milli, node.memory_mib, names.bit(&node.gpu_model), node.gpus as u8);
    Site { name: node.name.clone(), room, capacity_milli: room.total_milli(), classes: [0; CLASSES], version: 0 }
}

/// What the tasks of a trace ask, in the order of their names.
pub fn asks(trace: &Trace, names: &ModelNames) -> Vec<Ask> {
    let mut jobs: Vec<_> = trace.jobs.iter().collect();
    jobs.sort_by(|a, b| a.id.cmp(&b.id));
    let ask = |shape: &WorkerShape| Ask {
        cpu_milli: shape.cpu_milli,
        memory_mib: shape.memory_mib,
        gpus: shape.gpus as u8,
        gpu_milli: shape.gpu_milli as u16,
        models: names.wanted(shape),
    };
    jobs.into_iter().map(|job| ask(&job.worker)).collect()
}
