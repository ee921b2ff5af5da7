//! Parts of GPUs on one node: how many workers find a part, and which part each gets.
//!
//! GPUs that are in parts already go before whole ones. On a card that knows MIG an instance goes where the largest profile
//! stays possible; of shares the fullest GPU that has room goes first. What a gang gets on one GPU is planned together.
mod evict;
mod layouts;
mod overlay;
mod words;

pub use layouts::{leaves_splits, with_repartitions};
pub use overlay::{Moved, NodeParts, Parts};
pub use words::{offered, shortage};

use super::fit::{self, Cell};
use super::room::Room;
use crate::model::job::{Place, Shape};
use crate::model::machine::Machine;
use crate::model::machine::mig::{Instance, Profile, Sku};
use crate::model::node::{Device, Node};
use crate::model::split::{MPS_CLIENTS, Mode, Part, PartAsk, ShareMode, Slice, WHOLE_MILLI};
use std::collections::BTreeMap;

/// What is asked of one GPU of a machine.
#[derive(Clone, Copy)]
enum Wanted {
    Instance(&'static Sku, &'static Profile),
    Share { mode: ShareMode, vram_bytes: u64 },
}

impl Wanted {
    /// `None`: the GPU can never give it.
    fn of(machine: &Machine, gpu: u8, shape: &Shape) -> Option<Wanted> {
        match shape.part? {
            PartAsk::Mig { profile } => {
                let card = machine.mig_card(gpu)?;
                let profile = card.named(profile)?;
                (profile.memory_bytes() >= shape.needs_vram_bytes).then_some(Wanted::Instance(card, profile))
            }
            PartAsk::Share { mode, .. } => Some(Wanted::Share { mode, vram_bytes: shape.vram_bytes }),
        }
    }

    fn mode(self) -> Mode {
        match self {
            Wanted::Instance(..) => Mode::Mig,
            Wanted::Share { mode: ShareMode::Mps, .. } => Mode::Mps,
            Wanted::Share { mode: ShareMode::TimeSlice, .. } => Mode::TimeSlice,
        }
    }
}

/// The parts of `gpu` that are taken.
fn held_on(parts: Option<&NodeParts>, gpu: u8) -> Vec<Slice> {
    parts.map_or(Vec::new(), |parts| parts.slices().filter(|slice| slice.gpu == gpu).copied().collect())
}

fn instances(held: &[Slice]) -> Vec<Instance> {
    held.iter().filter_map(Slice::instance).collect()
}

/// Workers that find a part of `gpu` beside `held`.
fn count_on(machine: &Machine, gpu: u8, held: &[Slice], shape: &Shape) -> u32 {
    let Some(wanted) = Wanted::of(machine, gpu, shape) else { return 0 };
    if held.iter().any(|slice| slice.mode() != wanted.mode()) {
        return 0;
    }
    let count = match wanted {
        Wanted::Instance(card, profile) => card.more_of(&instances(held), profile),
        Wanted::Share { vram_bytes, .. } => shares_on(machine, gpu, held, shape.milli(), vram_bytes),
    };
    let clients = match wanted.mode() {
        Mode::Mps => MPS_CLIENTS.saturating_sub(held.len()) as u32,
        _ => u32::MAX,
    };
    count.min(clients).min(if shape.distinct_gpus { 1 } else { u32::MAX })
}

fn shares_on(machine: &Machine, gpu: u8, held: &[Slice], milli: u32, vram_bytes: u64) -> u32 {
    let (free_milli, free_bytes) = left_on(machine, gpu, held);
    let by_part = free_milli / milli.max(1);
    let by_memory = free_bytes.checked_div(vram_bytes).unwrap_or(u64::MAX);
    by_part.min(u32::try_from(by_memory).unwrap_or(u32::MAX))
}

/// Thousandths and memory that shares leave.
fn left_on(machine: &Machine, gpu: u8, held: &[Slice]) -> (u32, u64) {
    let used = held.iter().fold((0u32, 0u64), |(milli, bytes), slice| {
        (milli.saturating_add(slice.milli), bytes.saturating_add(slice.vram_bytes))
    });
    let vram = machine.gpus.get(usize::from(gpu)).map_or(0, |gpu| gpu.vram_bytes);
    (WHOLE_MILLI.saturating_sub(used.0), vram.saturating_sub(used.1))
}

fn bits(mask: u64) -> impl Iterator<Item = u8> {
    (0..64u8).filter(move |gpu| mask >> gpu & 1 == 1)
}

/// Workers that whole GPUs of `free` would hold in parts: all that a room alone can tell.
pub fn on_whole(machine: &Machine, free: u64, shape: &Shape) -> u32 {
    bits(free).map(|gpu| count_on(machine, gpu, &[], shape)).fold(0, u32::saturating_add)
}

/// Of whole GPUs those that could give such a part.
pub fn giving(machine: &Machine, whole: u64, shape: &Shape) -> u64 {
    let gives = |gpu: &u8| count_on(machine, *gpu, &[], shape) > 0;
    bits(whole).filter(gives).fold(0, |mask, gpu| mask | 1u64 << gpu)
}

/// Whether some GPU of an empty node could give such a part.
pub fn offers(machine: &Machine, shape: &Shape) -> bool {
    giving(machine, machine.gpu_mask(), shape) != 0
}

/// What is left of a GPU in parts.
pub struct Left {
    gpu: u8,
    held: Vec<Slice>,
    pub milli: u32,
}

impl Left {
    /// Of the GPUs in parts of a node, but for those that nobody may have.
    pub fn of(node: &Node) -> Vec<Left> {
        let sick = node.mask(|device| matches!(device, Device::Sick { .. }));
        let lost = node.strays.iter().fold(sick, |mask, stray| mask | stray.gpus);
        let open = node.splits.iter().filter(|(gpu, split)| !split.held.is_empty() && lost >> **gpu & 1 == 0);
        let left = open.map(|(gpu, split)| {
            let held: Vec<Slice> = split.held.iter().map(|held| held.slice).collect();
            Left { gpu: *gpu, milli: left_on(&node.machine, *gpu, &held).0, held }
        });
        left.collect()
    }

    /// Whether a part of the shape, for which the GPUs of `usable` may be split, finds room beside those that are held.
    pub fn takes(&self, machine: &Machine, usable: u64, shape: &Shape) -> bool {
        usable >> self.gpu & 1 == 1 && count_on(machine, self.gpu, &self.held, shape) > 0
    }
}

/// One node as it is on the draft.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub node: &'a Node,
    pub room: &'a Room,
    pub parts: Option<&'a NodeParts>,
}

impl Site<'_> {
    /// GPUs of the cell that are in parts, and those that are free and whole.
    fn split_and_whole(&self, shape: &Shape, cell: Cell) -> (u64, u64) {
        let eligible = super::filter::vram_mask(&self.node.machine, shape.vram_bytes) & cell.gpus;
        let split = self.parts.map_or(0, |parts| parts.open_mask());
        let lost = self.node.strays.iter().fold(0, |mask, stray| mask | stray.gpus);
        let sick = self.node.mask(|device| matches!(device, Device::Sick { .. }));
        (split & eligible & !lost & !sick, self.room.gpus & eligible)
    }

    fn count_in_split(&self, shape: &Shape, split: u64) -> u32 {
        let count = |gpu| count_on(&self.node.machine, gpu, &held_on(self.parts, gpu), shape);
        bits(split).map(count).fold(0, u32::saturating_add)
    }

    /// Workers that the cell holds, of any kind.
    pub fn workers(&self, shape: &Shape, cell: Cell) -> u32 {
        match shape.part {
            Some(_) => self.capacity(shape, cell),
            None => fit::capacity(&self.node.machine, self.room, shape, cell),
        }
    }

    /// Workers that find their part, cores and memory in the cell.
    pub fn capacity(&self, shape: &Shape, cell: Cell) -> u32 {
        let [_, others @ ..] = fit::capacity_by(&self.node.machine, self.room, shape, cell);
        others.into_iter().fold(self.parts_for(shape, cell), u32::min)
    }

    /// Workers that find their part, whatever else they need.
    pub fn parts_for(&self, shape: &Shape, cell: Cell) -> u32 {
        let (split, whole) = self.split_and_whole(shape, cell);
        self.count_in_split(shape, split).saturating_add(on_whole(&self.node.machine, whole, shape))
    }

    /// Whether `workers` have to break a whole GPU here, and how much a first one takes from what is possible after it.
    pub fn harm(&self, shape: &Shape, cell: Cell, workers: u32) -> (bool, u32) {
        let (split, _) = self.split_and_whole(shape, cell);
        let breaks = self.count_in_split(shape, split) < workers;
        let best = self.best(shape, cell, &BTreeMap::new());
        (breaks, best.map_or(u32::MAX, |candidate| candidate.loss))
    }

    /// Exact places for `count` workers, or `None` if they do not fit. Neighbours in the result are neighbours on the node.
    pub fn place_workers(&self, shape: &Shape, cell: Cell, count: u32) -> Option<Vec<Place>> {
        if self.capacity(shape, cell) < count {
            return None;
        }
        let slices = self.choose(shape, cell, count)?;
        let mut left = *self.room;
        let machine = &self.node.machine;
        let place = |slice: Slice| {
            let place = fit::complete(machine, self.node.id, &mut left, shape, cell, slice.mask())?;
            Some(Place { gpus: 0, vram_bytes: slice.vram_bytes, slice: Some(slice), ..place })
        };
        slices.into_iter().map(place).collect()
    }

    /// Which GPU each worker gets a part of is settled one by one; what several get on one GPU is then planned together.
    fn choose(&self, shape: &Shape, cell: Cell, count: u32) -> Option<Vec<Slice>> {
        let mut taken: BTreeMap<u8, Vec<Slice>> = BTreeMap::new();
        for _ in 0..count {
            let best = self.best(shape, cell, &taken)?;
            taken.entry(best.gpu).or_default().push(best.slice);
        }
        let chosen = taken.into_iter().map(|(gpu, slices)| self.planned(gpu, slices, shape));
        Some(chosen.collect::<Option<Vec<_>>>()?.into_iter().flatten().collect())
    }

    fn planned(&self, gpu: u8, mut slices: Vec<Slice>, shape: &Shape) -> Option<Vec<Slice>> {
        if let Wanted::Instance(card, profile) = Wanted::of(&self.node.machine, gpu, shape)? {
            let held = instances(&held_on(self.parts, gpu));
            let plan = card.plan(&held, &vec![profile; slices.len()])?;
            slices.iter_mut().zip(plan).for_each(|(slice, instance)| slice.part = Part::Mig(instance));
            slices.sort_unstable_by_key(|slice| slice.instance().map(|instance| instance.start));
        }
        Some(slices)
    }

    /// The part that does least harm beside those already taken for the gang: of a GPU in parts before one that is whole.
    fn best(&self, shape: &Shape, cell: Cell, taken: &BTreeMap<u8, Vec<Slice>>) -> Option<Candidate> {
        let (split, whole) = self.split_and_whole(shape, cell);
        let begun = taken.keys().fold(0, |mask, gpu| mask | 1u64 << gpu);
        let candidate = |gpu: u8| self.candidate(gpu, shape, taken.get(&gpu).map_or(&[], Vec::as_slice));
        let found = bits(split | begun & whole).filter_map(candidate).min_by_key(|c| (c.loss, c.gpu));
        found.or_else(|| {
            // Of whole ones first those that were split like this before, then one in the most broken group.
            let fresh = giving(&self.node.machine, whole & !begun, shape);
            let like_before = fresh & self.split_before(shape);
            let from = if like_before != 0 { like_before } else { fresh };
            let gpu = fit::choose_gpus(&self.node.machine, from, 1).filter(|mask| *mask != 0)?;
            candidate(gpu.trailing_zeros() as u8)
        })
    }

    fn split_before(&self, shape: &Shape) -> u64 {
        let Some(parts) = self.parts else { return 0 };
        let of = |mode: Mode| {
            let wanted = |gpu: &u8| Wanted::of(&self.node.machine, *gpu, shape).is_some_and(|w| w.mode() == mode);
            bits(parts.split_for(mode)).filter(wanted).fold(0, |mask, gpu| mask | 1u64 << gpu)
        };
        of(Mode::Mig) | of(Mode::Mps)
    }

    fn candidate(&self, gpu: u8, shape: &Shape, taken: &[Slice]) -> Option<Candidate> {
        let machine = &self.node.machine;
        let mut held = held_on(self.parts, gpu);
        held.extend(taken);
        if count_on(machine, gpu, &held, shape) == 0 || (shape.distinct_gpus && !taken.is_empty()) {
            return None;
        }
        let milli = shape.milli();
        match Wanted::of(machine, gpu, shape)? {
            Wanted::Instance(card, profile) => {
                let mut set = instances(&held);
                let before = card.prospect(&set);
                let instance = *card.plan(&set, &[profile])?.first()?;
                set.push(instance);
                let after = card.prospect(&set);
                let drop = |a: u8, b: u8| u32::from(a.saturating_sub(b));
                let largest =
                    drop(before.largest.0, after.largest.0) << 24 | drop(before.largest.1, after.largest.1) << 16;
                let loss = largest | before.placements.saturating_sub(after.placements).min(0xffff);
                let (part, vram_bytes) = (Part::Mig(instance), profile.memory_bytes());
                Some(Candidate { gpu, loss, slice: Slice { gpu, part, milli, vram_bytes } })
            }
            Wanted::Share { mode, vram_bytes } => {
                let loss = left_on(machine, gpu, &held).0;
                Some(Candidate { gpu, loss, slice: Slice { gpu, part: Part::Share(mode), milli, vram_bytes } })
            }
        }
    }
}

struct Candidate {
    gpu: u8,
    /// What becomes impossible by it; of a share what is left beside it.
    loss: u32,
    slice: Slice,
}
