//! Which of the nodes that would do: the one whose use spoils least of what else is asked for, then the tightest.
use super::Search;
use crate::model::ids::{LeafId, NodeId};
use crate::model::job::Priority;
use crate::scheduler::filter::Pick;
use crate::scheduler::fit::Cell;

/// A part of a node that holds the gang, with what decides among equals.
pub struct Spot {
    tightness: Tightness,
    node: NodeId,
    cell: Cell,
}

/// What would be left over: free GPUs in the part, then on the node, then CPUs; then numbers. GPU-less workers avoid GPU
/// nodes. Of parts of GPUs whether a whole one has to be broken, and what becomes impossible.
type Tightness = (bool, u32, u32, u32, NodeId, u32);

impl Search<'_, '_> {
    /// Of spots that hold the gang, in the order of their nodes, the one that spoils least; of those that are nearly equal
    /// in that the tightest. Within a node the tightest part.
    pub fn best(&mut self, spots: Vec<(NodeId, Cell)>) -> Option<(NodeId, Cell)> {
        let mut tightest: Vec<Spot> = Vec::with_capacity(spots.len());
        for (node, cell) in spots {
            let spot = Spot { tightness: self.tightness(node, cell), node, cell };
            match tightest.last_mut().filter(|last| last.node == node) {
                Some(last) if last.tightness <= spot.tightness => {}
                Some(last) => *last = spot,
                None => tightest.push(spot),
            }
        }
        let wasted = tightest.iter().all(|spot| spot.tightness.0);
        tightest.retain(|spot| spot.tightness.0 == wasted);
        if !tightest.iter().all(|spot| self.keeps_off(self.leaf_of(spot.node))) {
            tightest.retain(|spot| !self.keeps_off(self.leaf_of(spot.node)));
        }
        self.spare_others(&mut tightest);
        tightest.into_iter().min_by_key(|spot| spot.tightness).map(|spot| (spot.node, spot.cell))
    }

    fn leaf_of(&self, node: NodeId) -> LeafId {
        self.draft.cluster.node(node).leaf
    }

    /// Whether the job is one that others wait for, and gangs fill the way up from there: it goes elsewhere if it can.
    pub fn keeps_off(&self, leaf: LeafId) -> bool {
        self.spec.priority <= Priority::P1 && self.draft.uplinks.is_full(leaf)
    }

    fn tightness(&self, node: NodeId, cell: Cell) -> Tightness {
        let room = self.draft.room(node);
        if self.spec.shape.part.is_some() {
            let (breaks, loss) = self.draft.site(node).harm(&self.spec.shape, cell, self.workers);
            return (breaks, loss, room.gpus.count_ones(), room.cpus.count(), node, cell.gpus.trailing_zeros());
        }
        let wasted = self.spec.shape.gpus == 0 && !self.machine(node).gpus.is_empty();
        let in_cell = (room.gpus & cell.gpus).count_ones();
        (wasted, in_cell, room.gpus.count_ones(), room.cpus.count(), node, cell.gpus.trailing_zeros())
    }

    /// Leaves the spots that spoil least. On the empty cluster it does not matter; what parts of GPUs spoil is told by their
    /// tightness.
    fn spare_others(&mut self, spots: &mut Vec<Spot>) {
        if spots.len() < 2 || self.spec.shape.part.is_some() || self.pick == Pick::Existing {
            return;
        }
        let asked: Vec<(NodeId, Cell)> = spots.iter().map(|spot| (spot.node, spot.cell)).collect();
        let Some((harms, band)) = self.draft.harms(self.spec, self.workers, &asked) else { return };
        let Some(least) = harms.iter().min().copied() else { return };
        let mut harms = harms.into_iter();
        spots.retain(|_| harms.next().is_some_and(|harm| harm <= least.saturating_add(band)));
    }

    /// Sorts nodes with their capacities in slices: of equal capacities those first that a full share would spoil least.
    pub fn least_harm_first(&mut self, nodes: &mut [(u32, NodeId)], slice: u32) {
        if self.pick == Pick::Existing || self.spec.shape.part.is_some() {
            return;
        }
        nodes.sort_unstable();
        for equal in nodes.chunk_by_mut(|(one, _), (other, _)| one == other).filter(|equal| equal.len() > 1) {
            let spots: Vec<_> = equal.iter().map(|(_, node)| (*node, Cell::whole(self.machine(*node)))).collect();
            let Some((harms, band)) = self.draft.harms(self.spec, equal[0].0 * slice, &spots) else { return };
            let least = harms.iter().min().map_or(0, |least| least.saturating_add(band));
            let mut ranked: Vec<_> = harms.into_iter().map(|harm| harm.max(least)).zip(equal.iter().copied()).collect();
            ranked.sort_unstable();
            equal.iter_mut().zip(ranked).for_each(|(node, (_, ranked))| *node = ranked);
        }
    }
}
