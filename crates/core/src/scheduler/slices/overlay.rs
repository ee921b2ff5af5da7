//! What a draft knows of GPUs in parts: only for nodes that have any, with its own way back.
//!
//! Parts are kept as a list and not as what is left: a claim lies on top of what its victims still hold, and when these go
//! the claim alone is there.
use crate::model::cluster::Cluster;
use crate::model::ids::NodeId;
use crate::model::job::Place;
use crate::model::node::{Device, Node};
use crate::model::split::{Mode, Slice};
use std::collections::BTreeMap;

/// The parts of one node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeParts {
    /// GPUs that somebody holds as a whole, or that nobody may have.
    whole: u64,
    list: Vec<Slice>,
    /// GPUs that are split for MIG and for MPS, held or not: what is free of them costs nothing to use like that again.
    mig: u64,
    mps: u64,
}

impl NodeParts {
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.list.iter()
    }

    /// GPUs in parts.
    pub fn mask(&self) -> u64 {
        self.list.iter().fold(0, |mask, slice| mask | slice.mask())
    }

    /// GPUs in parts that nobody holds as a whole besides.
    pub fn open_mask(&self) -> u64 {
        self.mask() & !self.whole
    }

    /// GPUs that are split in this way, held or not; of those that take turns nothing is kept.
    pub fn split_for(&self, mode: Mode) -> u64 {
        match mode {
            Mode::Mig => self.mig,
            Mode::Mps => self.mps,
            Mode::TimeSlice => 0,
        }
    }

    fn split(&mut self, gpus: u64, mode: Option<Mode>) {
        let kept = |mask: u64, of: Mode| if mode == Some(of) { mask | gpus } else { mask & !gpus };
        (self.mig, self.mps) = (kept(self.mig, Mode::Mig), kept(self.mps, Mode::Mps));
    }

    fn take(&mut self, place: &Place) {
        self.whole |= place.gpus;
        self.split(place.gpus, None);
        if let Some(slice) = place.slice {
            self.split(slice.mask(), Some(slice.mode()));
            self.list.push(slice);
        }
    }

    fn give(&mut self, place: &Place) {
        self.whole &= !place.gpus;
        let at = place.slice.and_then(|slice| self.list.iter().position(|held| *held == slice));
        at.map(|at| self.list.swap_remove(at));
    }
}

#[derive(Default)]
pub struct Parts {
    nodes: BTreeMap<NodeId, NodeParts>,
    /// What a node's parts were, and how long the draft's own way back was then.
    undo: Vec<(usize, NodeId, Option<NodeParts>)>,
}

/// A change of places on a node: its free GPUs before, all that it has, and what is to be done.
pub struct Moved<'p> {
    pub place: &'p Place,
    pub taken: bool,
    /// Length of the draft's own way back before the change.
    pub at: usize,
    pub free_before: u64,
    pub all: u64,
}

impl Parts {
    pub fn now(cluster: &Cluster) -> Parts {
        let split = cluster.nodes.iter().filter(|node| !node.splits.is_empty());
        Parts { nodes: split.map(|node| (node.id, of_node(node))).collect(), undo: Vec::new() }
    }

    pub fn of(&self, node: NodeId) -> Option<&NodeParts> {
        if self.nodes.is_empty() { None } else { self.nodes.get(&node) }
    }

    pub fn concerns(&self, place: &Place) -> bool {
        place.slice.is_some() || self.of(place.node).is_some()
    }

    /// Follows a change, and says which GPUs are free and whole after it.
    pub fn follow(&mut self, moved: &Moved<'_>) -> u64 {
        let id = moved.place.node;
        self.undo.push((moved.at, id, self.nodes.get(&id).cloned()));
        let fresh = || NodeParts { whole: moved.all & !moved.free_before, ..NodeParts::default() };
        let parts = self.nodes.entry(id).or_insert_with(fresh);
        if moved.taken {
            parts.take(moved.place)
        } else {
            parts.give(moved.place)
        }
        moved.all & !parts.whole & !parts.mask()
    }

    /// Whether somebody holds a part.
    pub fn are_held(&self) -> bool {
        self.nodes.values().any(|parts| !parts.list.is_empty())
    }

    /// Sets the parts of a node to what they were.
    pub fn put(&mut self, at: usize, node: NodeId, parts: Option<&NodeParts>) {
        let before = match parts {
            Some(parts) => self.nodes.insert(node, parts.clone()),
            None => self.nodes.remove(&node),
        };
        if before.is_some() || parts.is_some() {
            self.undo.push((at, node, before));
        }
    }

    /// What was changed so far stays.
    pub fn undo_no_more(&mut self) {
        self.undo.clear();
    }

    pub fn undo_to(&mut self, mark: usize) {
        while self.undo.last().is_some_and(|(at, _, _)| *at >= mark) {
            let Some((_, node, before)) = self.undo.pop() else { return };
            match before {
                Some(parts) => drop(self.nodes.insert(node, parts)),
                None => drop(self.nodes.remove(&node)),
            }
        }
    }
}

fn of_node(node: &Node) -> NodeParts {
    let whole = node.mask(|device| !matches!(device, Device::Free | Device::Split { claimant: None }));
    let mut parts = NodeParts { whole, list: node.held_slices().copied().collect(), ..NodeParts::default() };
    node.splits.iter().for_each(|(gpu, split)| parts.split(1 << gpu, Some(split.mode)));
    parts
}
