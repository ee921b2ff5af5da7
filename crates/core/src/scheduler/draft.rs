//! An overlay over the cluster on which every trial runs: mark, change, undo or keep. Dropping it leaves no trace.
use super::room::Room;
use crate::model::cluster::Cluster;
use crate::model::ids::NodeId;
use crate::model::job::Place;

/// The free room of every node, with the way back.
pub struct Draft<'a> {
    pub cluster: &'a Cluster,
    rooms: Vec<Room>,
    undo: Vec<(NodeId, Room)>,
    /// Node looks and placement trials so far: what the budget counts.
    pub work: u64,
}

/// A moment of a draft to go back to.
#[derive(Debug, Clone, Copy)]
pub struct Mark(usize);

impl<'a> Draft<'a> {
    /// What is free now.
    pub fn now(cluster: &'a Cluster) -> Draft<'a> {
        let rooms = cluster.nodes.iter().map(|node| Room::now(node)).collect();
        Draft { cluster, rooms, undo: Vec::new(), work: cluster.nodes.len() as u64 }
    }

    /// The same machines with nothing on them.
    pub fn empty(cluster: &'a Cluster) -> Draft<'a> {
        let rooms = cluster.nodes.iter().map(|node| Room::empty_machine(&node.machine)).collect();
        Draft { cluster, rooms, undo: Vec::new(), work: cluster.nodes.len() as u64 }
    }

    pub fn room(&self, node: NodeId) -> &Room {
        &self.rooms[node.index()]
    }

    pub fn rooms(&self) -> &[Room] {
        &self.rooms
    }

    pub fn change(&mut self, node: NodeId, change: impl FnOnce(&mut Room)) {
        self.undo.push((node, self.rooms[node.index()]));
        change(&mut self.rooms[node.index()]);
    }

    pub fn take_all(&mut self, places: &[Place]) {
        for place in places {
            self.change(place.node, |room| room.take(place));
        }
    }

    /// Gives back what the holders of `places` leave: not what is sick or what a stray process sits on.
    pub fn give_all<'p>(&mut self, places: impl IntoIterator<Item = &'p Place>) {
        let cluster = self.cluster;
        for place in places {
            let node = cluster.node(place.node);
            self.change(place.node, |room| {
                room.give(place);
                room.withhold(node);
            });
        }
    }

    pub fn mark(&self) -> Mark {
        Mark(self.undo.len())
    }

    pub fn undo_to(&mut self, mark: Mark) {
        while self.undo.len() > mark.0 {
            if let Some((node, room)) = self.undo.pop() {
                self.rooms[node.index()] = room;
            }
        }
    }
}
