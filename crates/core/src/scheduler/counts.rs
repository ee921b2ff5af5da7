//! How many workers of each kind every node holds, counted again only where something changed since the last time.
//!
//! Trials follow each other by the hundred, ask for few kinds of workers, and change few nodes each.
use super::filter::{Pick, yields};
use super::room::Room;
use crate::model::cluster::Cluster;
use crate::model::ids::NodeId;
use crate::model::job::{JobSpec, Shape};
use crate::model::node::Node;
use crate::model::time::Span;

/// So many kinds are remembered; of more, those that were asked for last.
const KINDS: usize = 64;

#[derive(Default)]
pub struct Counts {
    kinds: Vec<Counted>,
    /// By node: the moment of its last change.
    changed: Vec<u64>,
    moment: u64,
    /// Some nodes will not always take what they take now.
    closing: bool,
}

struct Counted {
    wish: Wish,
    /// Nodes that it may be on: the same for a whole decision.
    allowed: Vec<bool>,
    by_node: Vec<u32>,
    /// The moment of the last count, and with it of the last use.
    at: u64,
}

/// All of a request that the count of one node depends on.
#[derive(PartialEq, Eq)]
struct Wish {
    shape: Shape,
    pool: Option<String>,
    yields: bool,
    slice: Option<u32>,
    pick: Pick,
    stay: Option<Stay>,
}

/// How long it stays at most, how long at least if it can save, and which pools lend to it: it counts only where nodes close.
type Stay = (Option<Span>, Option<Span>, Vec<String>);

impl Counts {
    pub fn of_nodes(cluster: &Cluster) -> Counts {
        let closing = !cluster.pools.is_empty() || cluster.nodes.iter().any(|node| !node.maintenance.is_empty());
        Counts { kinds: Vec::new(), changed: vec![0; cluster.nodes.len()], moment: 1, closing }
    }

    pub fn changed(&mut self, node: NodeId) {
        self.changed[node.index()] = self.moment;
    }

    pub fn next_moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub fn changed_since(&self, moment: u64) -> impl Iterator<Item = bool> {
        self.changed.iter().map(move |changed| *changed >= moment)
    }

    /// The counts for `spec`, brought up to date by `count`, and how many nodes were counted. The caller gives them back
    /// with [`Counts::keep`].
    pub fn take(
        &mut self,
        cluster: &Cluster,
        rooms: &[Room],
        (spec, pick): (&JobSpec, Pick),
        count: impl Fn(&Node, &Room) -> u32,
    ) -> (Vec<u32>, u64) {
        self.moment += 1;
        let least = || spec.can_save().then(|| cluster.policy.least_stay(spec));
        let lenders = || cluster.lenders(spec).into_iter().map(String::from).collect();
        let stay = self.closing.then(|| (spec.time_limit, least(), lenders()));
        let Some(known) = self.kinds.iter_mut().find(|counted| counted.wish.is_of(spec, pick, &stay)) else {
            let allowed = pick.allowed(cluster, spec);
            let nodes = cluster.nodes.iter().zip(rooms).zip(&allowed);
            let by_node = nodes.map(|((node, room), allowed)| if *allowed { count(node, room) } else { 0 }).collect();
            self.remember(Counted { wish: Wish::of(spec, pick, stay), allowed, by_node: Vec::new(), at: self.moment });
            return (by_node, rooms.len() as u64);
        };
        let mut by_node = std::mem::take(&mut known.by_node);
        let mut counted = 0;
        let stale = self.changed.iter().enumerate().filter(|(_, changed)| **changed >= known.at);
        for (index, _) in stale.filter(|(index, _)| known.allowed[*index]) {
            by_node[index] = count(&cluster.nodes[index], &rooms[index]);
            counted += 1;
        }
        known.at = self.moment;
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
        if let Some(counted) = self.kinds.iter_mut().find(|counted| counted.at == self.moment) {
            counted.by_node = by_node;
        }
    }
}

impl Wish {
    fn of(spec: &JobSpec, pick: Pick, stay: Option<Stay>) -> Wish {
        Wish {
            shape: spec.shape.clone(),
            pool: spec.pool.clone(),
            yields: yields(spec),
            slice: spec.topology.ranks_per_island,
            pick,
            stay,
        }
    }

    fn is_of(&self, spec: &JobSpec, pick: Pick, stay: &Option<Stay>) -> bool {
        self.shape == spec.shape
            && self.pool == spec.pool
            && self.yields == yields(spec)
            && self.slice == spec.topology.ranks_per_island
            && self.pick == pick
            && self.stay == *stay
    }
}
