//! Parts of GPUs on a node: who holds what, and what a GPU is split into. The caller has checked that it may be.
use super::change::Change;
use super::input::Refusal;
use crate::model::ids::{JobId, NodeId, Rank};
use crate::model::job::Place;
use crate::model::node::{Device, Node};
use crate::model::split::{HeldSlice, Layout, Made, Mode, Slice, Split};
use crate::model::time::Time;

/// The worker holds its part from now on.
pub fn hold(node: &mut Node, job: JobId, rank: Rank, slice: Slice, now: Time) {
    let fresh = || Split { mode: slice.mode(), ready_at: now, instances: Vec::new(), held: Vec::new() };
    let split = node.splits.entry(slice.gpu).or_insert_with(fresh);
    split.held.push(HeldSlice { job, rank, slice, leaving: false });
    if let Some(device) = node.devices.get_mut(usize::from(slice.gpu)) {
        *device = Device::Split { claimant: None };
    }
}

pub fn start_leaving(node: &mut Node, job: JobId, rank: Rank, slice: Slice) {
    let held = node.splits.get_mut(&slice.gpu).into_iter().flat_map(|split| &mut split.held);
    held.filter(|held| (held.job, held.rank) == (job, rank)).for_each(|held| held.leaving = true);
}

/// Its part is free again. With the last one the whole GPU is, though it stays split until somebody needs it otherwise.
pub fn give(node: &mut Node, job: JobId, rank: Rank, slice: Slice) {
    let strays: u64 = node.strays.iter().fold(0, |mask, stray| mask | stray.gpus);
    let Some(split) = node.splits.get_mut(&slice.gpu) else { return };
    split.held.retain(|held| (held.job, held.rank) != (job, rank));
    if !split.held.is_empty() {
        return;
    }
    // Taking turns is nothing that a GPU would have to be told.
    if split.mode == Mode::TimeSlice {
        node.splits.remove(&slice.gpu);
    }
    if let Some(device) = node.devices.get_mut(usize::from(slice.gpu)) {
        *device = match *device {
            _ if strays & slice.mask() != 0 => Device::Sick { owner: None },
            Device::Split { claimant: Some(claimant) } => Device::Claimed(claimant),
            Device::Split { claimant: None } => Device::Free,
            other => other,
        };
    }
}

impl Change<'_> {
    /// Splits a GPU anew. What is held of it stays as it is.
    pub fn repartition(&mut self, id: NodeId, gpu: u8, layout: &Layout) -> Result<(), Refusal> {
        let ready_at = self.now + self.cluster.policy.repartition_time;
        let node = self.cluster.node(id);
        let device = node.devices.get(usize::from(gpu));
        let idle = matches!(device, Some(Device::Free | Device::Claimed(_) | Device::Split { .. }));
        let old = node.splits.get(&gpu);
        let kept = old.is_none_or(|split| split.held.iter().all(|held| keeps(layout, &held.slice)));
        if !idle || !kept {
            let why = format!("GPU {gpu} of {} is in use and cannot become {layout}", node.name);
            return Err(Refusal::StaleDecision { why });
        }
        let split = remade(old, layout, ready_at);
        let text = format!("GPU {gpu} of {} becomes {layout}", node.name);
        let splits = &mut self.node_mut(id).splits;
        match split {
            Some(split) => drop(splits.insert(gpu, split)),
            None => drop(splits.remove(&gpu)),
        }
        self.event("repartitioned", None, Some(id), text);
        Ok(())
    }

    /// Whether a claim of another job is kept on what the place would take, whole or in part.
    pub fn is_promised_to_another(&self, job: JobId, place: &Place) -> bool {
        let others = self.cluster.claims.values().filter(|claim| claim.claimant != job);
        let slices = |kept: &&Place| kept.slice.is_some() || place.slice.is_some();
        others.flat_map(|claim| &claim.places).filter(slices).any(|kept| kept.excludes(place))
    }
}

fn keeps(layout: &Layout, slice: &Slice) -> bool {
    match (layout, slice.instance()) {
        (Layout::Mig(instances), Some(instance)) => instances.contains(&instance),
        (Layout::Mps, None) => slice.mode() == Mode::Mps,
        (Layout::TimeSlice, None) => slice.mode() == Mode::TimeSlice,
        _ => false,
    }
}

/// Instances that stay are ready when they were.
fn remade(old: Option<&Split>, layout: &Layout, ready_at: Time) -> Option<Split> {
    let mode = match layout {
        Layout::Whole => return None,
        Layout::Mig(_) => Mode::Mig,
        Layout::Mps => Mode::Mps,
        Layout::TimeSlice => Mode::TimeSlice,
    };
    let old = old.filter(|split| split.mode == mode);
    let before =
        |instance| old.and_then(|split| split.instances.iter().find(|made| made.instance == instance)).copied();
    let instances = match layout {
        Layout::Mig(instances) => instances.as_slice(),
        _ => &[],
    };
    let made = |instance| before(instance).unwrap_or(Made { instance, ready_at });
    Some(Split {
        mode,
        ready_at: old.map_or(ready_at, |split| split.ready_at),
        instances: instances.iter().map(|instance| made(*instance)).collect(),
        held: old.map_or(Vec::new(), |split| split.held.clone()),
    })
}
