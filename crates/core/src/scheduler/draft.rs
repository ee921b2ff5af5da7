//! An overlay over the cluster on which every trial runs: mark, change, undo or keep. Dropping it leaves no trace.
use super::counts::{Counts, Stamp};
use super::filter::Pick;
use super::fit::Cell;
use super::fragment::Harms;
use super::room::Room;
use super::slices::{Moved, NodeParts, Parts, Site};
use super::uplinks::Uplinks;
use crate::model::cluster::Cluster;
use crate::model::cpuset::CpuSet;
use crate::model::ids::NodeId;
use crate::model::job::{JobSpec, Place};
use crate::model::machine::Machine;
use crate::model::node::Node;
use std::sync::Arc;

/// The free room of every node, with the way back.
pub struct Draft<'a> {
    pub cluster: &'a Cluster,
    rooms: Vec<Room>,
    undo: Vec<(NodeId, Room, Stamp)>,
    /// Nodes with something that nobody may have, whoever held it.
    withheld: Vec<bool>,
    /// GPUs in parts.
    parts: Parts,
    counts: Counts,
    harms: Harms,
    /// What gangs over several leaves ask of the ways up, with those that this decision starts.
    pub uplinks: Uplinks,
    /// Placements keep off what is scarce for others, where they can.
    pub spares: bool,
    /// Node looks and placement trials so far: what the budget counts.
    pub work: u64,
}

/// What is free on one node.
pub struct Stand {
    room: Room,
    parts: Option<NodeParts>,
}

/// A moment of a draft to go back to.
#[derive(Debug, Clone, Copy)]
pub struct Mark(usize);

impl<'a> Draft<'a> {
    /// What is free now.
    pub fn now(cluster: &'a Cluster) -> Draft<'a> {
        let draft = Draft::of(cluster, |node, empty| empty.less_what_is_used(node));
        Draft { uplinks: Uplinks::now(cluster), parts: Parts::now(cluster), ..draft }
    }

    /// The same machines with nothing on them.
    pub fn empty(cluster: &'a Cluster) -> Draft<'a> {
        Draft::of(cluster, |_, empty| empty)
    }

    fn of(cluster: &'a Cluster, room: impl Fn(&Node, Room) -> Room) -> Draft<'a> {
        let (rooms, nodes) = (rooms(cluster, room), cluster.nodes.len());
        let (counts, harms, parts) = (Counts::of_nodes(cluster), Harms::default(), Parts::default());
        let (undo, uplinks) = (Vec::new(), Uplinks::default());
        let withheld = cluster.nodes.iter().map(|node| Room::is_withheld(node)).collect();
        let (spares, work) = (true, nodes as u64);
        Draft { cluster, rooms, undo, withheld, parts, counts, harms, uplinks, spares, work }
    }

    /// Back to what is free now. What was counted stays counted where that is what it was.
    pub fn restart(&mut self) {
        self.work += self.undo.len() as u64;
        self.undo_to(Mark(0));
        self.uplinks = Uplinks::now(self.cluster);
    }

    /// A draft of its own with the rooms of this one.
    pub fn another(&self) -> Draft<'a> {
        let (rooms, withheld) = (self.rooms.clone(), self.withheld.clone());
        let (undo, harms, uplinks) = (Vec::new(), Harms::default(), Uplinks::now(self.cluster));
        let (parts, counts, work) = (Parts::now(self.cluster), self.counts.of_none(), rooms.len() as u64);
        Draft { cluster: self.cluster, rooms, undo, withheld, parts, counts, harms, uplinks, spares: true, work }
    }

    pub fn room(&self, node: NodeId) -> &Room {
        &self.rooms[node.index()]
    }

    /// The workers of `spec` that each node holds, by `count`, none where it may not be; the caller gives them back with
    /// [`Draft::keep_counted`].
    pub fn counted(&mut self, spec: &JobSpec, pick: Pick, count: impl Fn(Site<'_>) -> u32) -> Vec<u32> {
        let parts = &self.parts;
        let count = |node: &Node, room: &Room| count(Site { node, room, parts: parts.of(node.id) });
        let (by_node, looks) =
            self.counts.take(self.cluster, &self.rooms, (spec, pick), count, |node| parts.of(node).is_some());
        self.work += looks + 1;
        by_node
    }

    pub fn keep_counted(&mut self, by_node: Vec<u32>) {
        self.counts.keep(by_node);
    }

    /// By spot, how much `workers` of `spec` there would spoil for what else is asked for, and which differences count as
    /// none.
    pub fn harms(&mut self, spec: &JobSpec, workers: u32, spots: &[(NodeId, Cell)]) -> Option<(Vec<i64>, i64)> {
        if !self.spares {
            return None;
        }
        let (rooms, before) = (&self.rooms, self.harms.work);
        let harms = self.harms.of(self.cluster, |node| &rooms[node.index()], (&spec.shape, workers), spots)?;
        self.work += self.harms.work - before;
        Some((harms, self.harms.band()))
    }

    pub fn change(&mut self, node: NodeId, change: impl FnOnce(&mut Room)) {
        let stamp = self.counts.changed(node);
        self.undo.push((node, self.rooms[node.index()], stamp));
        change(&mut self.rooms[node.index()]);
    }

    /// Whether what is free on two nodes of one leaf is the same, on the same kind of machine.
    pub fn are_alike(&self, one: NodeId, other: NodeId) -> bool {
        let (left, right) = (self.cluster.node(one), self.cluster.node(other));
        Arc::ptr_eq(&left.machine, &right.machine)
            && left.leaf == right.leaf
            && self.room(one) == self.room(other)
            && self.parts.of(one).is_none()
            && self.parts.of(other).is_none()
    }

    /// The node as it is on the draft, with its GPUs in parts.
    pub fn site(&self, node: NodeId) -> Site<'_> {
        Site { node: self.cluster.node(node), room: self.room(node), parts: self.parts.of(node) }
    }

    pub fn parts(&self, node: NodeId) -> Option<&NodeParts> {
        self.parts.of(node)
    }

    /// Whether somebody holds a part of a GPU on this draft.
    pub fn has_parts(&self) -> bool {
        self.parts.are_held()
    }

    /// What is free on the node, to come back to with [`Draft::put`].
    pub fn stand(&self, node: NodeId) -> Stand {
        Stand { room: *self.room(node), parts: self.parts.of(node).cloned() }
    }

    pub fn put(&mut self, node: NodeId, stand: &Stand) {
        let at = self.undo.len();
        self.change(node, |room| *room = stand.room);
        self.parts.put(at, node, stand.parts.as_ref());
    }

    pub fn take(&mut self, place: &Place) {
        let (at, free_before) = (self.undo.len(), self.room(place.node).gpus);
        self.change(place.node, |room| room.take(place));
        self.follow_parts(Moved { place, taken: true, at, free_before, all: 0 });
    }

    /// Gives back GPUs and nothing else.
    pub fn give_gpus(&mut self, node: NodeId, gpus: u64) {
        self.give_all([&Place::of_devices(node, gpus, CpuSet::EMPTY)]);
    }

    /// Rooms know whole GPUs only: those that are in parts are taken out of them here.
    fn follow_parts(&mut self, moved: Moved<'_>) {
        if !self.parts.concerns(moved.place) {
            return;
        }
        let (node, taken) = (self.cluster.node(moved.place.node), moved.taken);
        let whole = self.parts.follow(&Moved { all: node.machine.gpu_mask(), ..moved });
        let room = &mut self.rooms[node.id.index()];
        room.gpus = whole;
        // What is taken was free: only what is given back may be sick.
        if !taken {
            room.withhold(node);
        }
    }

    /// Takes out of a room of the node what nobody may have.
    pub fn withhold(&self, node: NodeId, room: &mut Room) {
        if self.withheld[node.index()] {
            room.withhold(self.cluster.node(node));
        }
    }

    pub fn take_all<'p>(&mut self, places: impl IntoIterator<Item = &'p Place>) {
        places.into_iter().for_each(|place| self.take(place));
    }

    /// Gives back what the holders of `places` leave: not what is sick or what a stray process sits on.
    pub fn give_all<'p>(&mut self, places: impl IntoIterator<Item = &'p Place>) {
        let cluster = self.cluster;
        for place in places {
            let (at, free_before) = (self.undo.len(), self.room(place.node).gpus);
            let withheld = self.withheld[place.node.index()].then(|| cluster.node(place.node));
            self.change(place.node, |room| {
                room.give(place);
                withheld.into_iter().for_each(|node| room.withhold(node));
            });
            self.follow_parts(Moved { place, taken: false, at, free_before, all: 0 });
        }
    }

    /// Changes places with the draft of another moment, on which the gangs go over the same ways up.
    pub fn swap(&mut self, other: &mut Draft<'a>) {
        std::mem::swap(self, other);
        std::mem::swap(&mut self.uplinks, &mut other.uplinks);
    }

    /// By node, of what it is like: of two moments with the same stamp nothing there has changed.
    pub fn stamps(&self) -> &[Stamp] {
        self.counts.stamps()
    }

    /// What was changed so far stays: no earlier mark is gone back to.
    pub fn forget_past(&mut self) {
        self.parts.undo_no_more();
        self.undo.clear();
    }

    pub fn mark(&self) -> Mark {
        Mark(self.undo.len())
    }

    pub fn undo_to(&mut self, mark: Mark) {
        self.parts.undo_to(mark.0);
        while self.undo.len() > mark.0 {
            if let Some((node, room, stamp)) = self.undo.pop() {
                self.rooms[node.index()] = room;
                self.counts.is_again(node, stamp);
            }
        }
    }
}

/// The room of every node. Neighbours are mostly of one kind of machine, whose empty room is made once.
fn rooms(cluster: &Cluster, room: impl Fn(&Node, Room) -> Room) -> Vec<Room> {
    let mut last: Option<(&Arc<Machine>, Room)> = None;
    let rooms = cluster.nodes.iter().map(|node| {
        let same = last.filter(|(machine, _)| Arc::ptr_eq(machine, &node.machine));
        let (_, empty) = *last.insert(same.unwrap_or_else(|| (&node.machine, Room::empty_machine(&node.machine))));
        room(node, empty)
    });
    rooms.collect()
}
