//! How many workers of each kind every node holds, counted again only where something changed since the last time.
//!
//! Trials follow each other by the hundred, ask for few kinds of workers, and change few nodes each. Every state of a node
//! has a stamp, and what is taken back has its old stamp again: then what was counted before the trial still holds.
use super::filter::{Pick, yields};
use super::room::Room;
use crate::model::cluster::Cluster;
use crate::model::ids::NodeId;
use crate::model::job::{JobSpec, Shape};
use crate::model::node::Node;
use crate::model::time::Span;
use std::sync::Arc;

/// So many kinds are remembered; of more, those that were asked for last.
const KINDS: usize = 64;

#[derive(Default)]
pub struct Counts {
    kinds: Vec<Counted>,
    /// By node, of what it is like now.
    stamps: Vec<Stamp>,
    /// The last that was given.
    last: Stamp,
    /// How often something was counted.
    uses: u64,
    /// Some nodes will not always take what they take now.
    closing: bool,
}

/// Two states of a node with one stamp are equal.
pub type Stamp = u32;

struct Counted {
    wish: Wish,
    /// Nodes that it may be on: the same for a whole decision.
    allowed: Vec<bool>,
    by_node: Vec<u32>,
    of: Vec<Stamp>,
    /// The count before the last, mostly from before a trial, and what it is of.
    before: Vec<(Stamp, u32)>,
    /// When it was last used.
    at: u64,
}

/// All of a request that the count of one node depends on.
#[derive(PartialEq, Eq)]
struct Wish {
    shape: Shape,
    pool: Option<String>,
    yields: bool,
    slice: (Option<u32>, Option<u32>),
    pick: Pick,
    stay: Option<Stay>,
}

/// How long it stays at most, how long at least if it can save, and which pools lend to it: it counts only where nodes close.
type Stay = (Option<Span>, Option<Span>, Vec<String>);

impl Counts {
    pub fn of_nodes(cluster: &Cluster) -> Counts {
        let closing = !cluster.pools.is_empty() || cluster.nodes.iter().any(|node| !node.maintenance.is_empty());
        Counts { kinds: Vec::new(), stamps: vec![0; cluster.nodes.len()], last: 0, uses: 0, closing }
    }

    /// The same with nothing counted yet.
    pub fn of_none(&self) -> Counts {
        Counts { stamps: vec![0; self.stamps.len()], closing: self.closing, ..Counts::default() }
    }

    /// The node is about to change; what it was.
    pub fn changed(&mut self, node: NodeId) -> Stamp {
        self.last += 1;
        std::mem::replace(&mut self.stamps[node.index()], self.last)
    }

    /// The node is again what it was.
    pub fn is_again(&mut self, node: NodeId, stamp: Stamp) {
        self.stamps[node.index()] = stamp;
    }

    pub fn stamps(&self) -> &[Stamp] {
        &self.stamps
    }

    /// The counts for `spec`, brought up to date by `count`, and how many nodes were counted. The caller gives them back
    /// with [`Counts::keep`].
    pub fn take(
        &mut self,
        cluster: &Cluster,
        rooms: &[Room],
        (spec, pick): (&JobSpec, Pick),
        count: impl Fn(&Node, &Room) -> u32,
        in_parts: impl Fn(NodeId) -> bool,
    ) -> (Vec<u32>, u64) {
        self.uses += 1;
        let least = || spec.can_save().then(|| cluster.policy.least_stay(spec));
        let lenders = || cluster.lenders(spec).into_iter().map(String::from).collect();
        let stay = self.closing.then(|| (spec.time_limit, least(), lenders()));
        let Some(known) = self.kinds.iter_mut().find(|counted| counted.wish.is_of(spec, pick, &stay)) else {
            let allowed = pick.allowed(cluster, spec);
            let by_node = counted_all(cluster, rooms, &allowed, (count, in_parts));
            let (wish, of) = (Wish::of(spec, pick, stay), self.stamps.clone());
            let before = of.iter().copied().zip(by_node.iter().copied()).collect();
            self.remember(Counted { wish, allowed, by_node: Vec::new(), of, before, at: self.uses });
            return (by_node, rooms.len() as u64);
        };
        let mut by_node = std::mem::take(&mut known.by_node);
        let mut counted = 0;
        for (index, stamp) in differing(&self.stamps, &known.of) {
            if known.allowed[index] {
                let (before, now) = (&mut known.before[index], (known.of[index], by_node[index]));
                let old = std::mem::replace(before, now);
                by_node[index] = if old.0 == stamp { old.1 } else { count(&cluster.nodes[index], &rooms[index]) };
                counted += u64::from(old.0 != stamp);
            }
        }
        known.of.copy_from_slice(&self.stamps);
        known.at = self.uses;
        (by_node, counted)
    }

    fn remember(&mut self, counted: Counted) {
        if self.kinds.len() >= KINDS
            && let Some(oldest) = (0..self.kinds.len()).min_by_key(|index| self.kinds[*index].at)
        {
            self.kinds.swap_remove(oldest);
        }
        self.kinds.push(counted);
    }

    /// Takes back the counts that were given out last.
    pub fn keep(&mut self, by_node: Vec<u32>) {
        if let Some(counted) = self.kinds.iter_mut().find(|counted| counted.at == self.uses) {
            counted.by_node = by_node;
        }
    }
}

/// Neighbours that are alike are counted once.
fn counted_all<'n>(
    cluster: &'n Cluster,
    rooms: &'n [Room],
    allowed: &[bool],
    (count, in_parts): (impl Fn(&Node, &Room) -> u32, impl Fn(NodeId) -> bool),
) -> Vec<u32> {
    let mut last: Option<(&'n Node, &'n Room, u32)> = None;
    let mut counted = |node: &'n Node, room: &'n Room| {
        let alike = last.filter(|(other, same, _)| {
            Arc::ptr_eq(&node.machine, &other.machine) && room == *same && !in_parts(other.id)
        });
        let found = alike.filter(|_| !in_parts(node.id)).map_or_else(|| count(node, room), |(_, _, found)| found);
        last = Some((node, room, found));
        found
    };
    let nodes = cluster.nodes.iter().zip(rooms).zip(allowed);
    nodes.map(|((node, room), allowed)| if *allowed { counted(node, room) } else { 0 }).collect()
}

/// Where the two differ, with what is in the first.
pub fn differing<'s>(now: &'s [Stamp], before: &'s [Stamp]) -> impl Iterator<Item = (usize, Stamp)> + use<'s> {
    const RUN: usize = 32;
    let runs = now.chunks(RUN).zip(before.chunks(RUN)).enumerate().filter(|(_, (now, before))| now != before);
    runs.flat_map(|(run, (now, before))| {
        let here = now.iter().zip(before).enumerate().filter(|(_, (now, before))| now != before);
        here.map(move |(at, (now, _))| (run * RUN + at, *now))
    })
}

impl Wish {
    fn of(spec: &JobSpec, pick: Pick, stay: Option<Stay>) -> Wish {
        Wish {
            shape: spec.shape.clone(),
            pool: spec.pool.clone(),
            yields: yields(spec),
            slice: (spec.topology.ranks_per_island, spec.topology.ranks_per_node),
            pick,
            stay,
        }
    }

    fn is_of(&self, spec: &JobSpec, pick: Pick, stay: &Option<Stay>) -> bool {
        self.shape == spec.shape
            && self.pool == spec.pool
            && self.yields == yields(spec)
            && self.slice == (spec.topology.ranks_per_island, spec.topology.ranks_per_node)
            && self.pick == pick
            && self.stay == *stay
    }
}
