//! Chooses among nodes that could hold a request: the one whose value falls least, and of those that are nearly equal the
//! tightest. What is worked out for a node is remembered until its room changes; nodes with equal rooms share it.
use super::mix::{Mix, free_of};
use crate::model::cluster::Cluster;
use crate::model::ids::NodeId;
use crate::model::job::Shape;
use crate::model::node::Node;
use crate::scheduler::fit::{self, Cell};
use crate::scheduler::room::Room;
use std::collections::BTreeMap;

/// So many requests are remembered; of more, those that were asked for last.
const REQUESTS: usize = 16;

/// How much worse each node is for what is asked of it, as far as that was needed so far.
#[derive(Default)]
pub struct Harms {
    mix: Option<Mix>,
    requests: Vec<Request>,
    moment: u64,
    /// Values that were worked out, not remembered.
    pub work: u64,
}

struct Request {
    shape: Shape,
    workers: u32,
    by_node: Vec<Option<(Seen, i64)>>,
    /// By class of node.
    equal: BTreeMap<(usize, Seen), i64>,
    at: u64,
}

/// All of a node's room that the harm depends on, and the part of the node that is meant.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    /// GPUs there from which the request can choose.
    open: u64,
    gpus: u64,
    cpus: u64,
    memory: u64,
}

impl Seen {
    fn of(node: &Node, room: &Room, shape: &Shape, cell: Cell) -> Seen {
        let open = fit::open_gpus(&node.machine, room, shape, cell);
        Seen { open, gpus: room.gpus, cpus: room.cpus.count().into(), memory: room.memory_total() }
    }
}

impl Harms {
    /// By spot, how much `workers` of `shape` lower the value of the node; `None` where nothing is known of what is asked
    /// for, so that all are equal.
    pub fn of<'r>(
        &mut self,
        cluster: &Cluster,
        room: impl Fn(NodeId) -> &'r Room,
        (shape, workers): (&Shape, u32),
        spots: &[(NodeId, Cell)],
    ) -> Option<Vec<i64>> {
        let kinds = || cluster.demand.kinds.iter().map(|kind| (&kind.want, kind.count, kind.price));
        let mix = self.mix.get_or_insert_with(|| Mix::of(cluster, kinds()));
        if mix.is_empty() {
            return None;
        }
        self.moment += 1;
        let request = request(&mut self.requests, cluster.nodes.len(), shape, workers, self.moment);
        let mut harms = Vec::with_capacity(spots.len());
        for (id, cell) in spots {
            let (room, node) = (room(*id), cluster.node(*id));
            let seen = Seen::of(node, room, shape, *cell);
            let known = request.by_node[id.index()].filter(|(then, _)| *then == seen).map(|(_, harm)| harm);
            let harm = known.unwrap_or_else(|| {
                let equal = request.equal.entry((mix.class_of(node), seen));
                *equal.or_insert_with(|| {
                    self.work += 1;
                    harm(mix, node, room, shape, workers, *cell)
                })
            });
            request.by_node[id.index()] = Some((seen, harm));
            harms.push(harm);
        }
        Some(harms)
    }

    /// Harms this close to the least count as equal to it.
    pub fn band(&self) -> i64 {
        self.mix.as_ref().map_or(0, Mix::band)
    }
}

fn request<'r>(
    requests: &'r mut Vec<Request>,
    nodes: usize,
    shape: &Shape,
    workers: u32,
    moment: u64,
) -> &'r mut Request {
    let known = requests.iter().position(|request| request.workers == workers && request.shape == *shape);
    let at = known.unwrap_or_else(|| {
        if requests.len() >= REQUESTS {
            let oldest = (0..requests.len()).min_by_key(|at| requests[*at].at).unwrap_or(0);
            requests.swap_remove(oldest);
        }
        let (shape, by_node) = (shape.clone(), vec![None; nodes]);
        requests.push(Request { shape, workers, by_node, equal: BTreeMap::new(), at: moment });
        requests.len() - 1
    });
    requests[at].at = moment;
    &mut requests[at]
}

fn harm(mix: &Mix, node: &Node, room: &Room, shape: &Shape, workers: u32, cell: Cell) -> i64 {
    let before = free_of(&node.machine, room);
    let gpus = fit::chosen_gpus(&node.machine, room, shape, cell, workers).unwrap_or_default();
    let mut after = before;
    after.cpus = before.cpus.saturating_sub(u64::from(shape.cpus) * u64::from(workers));
    after.memory = before.memory.saturating_sub(shape.memory_bytes.saturating_mul(workers.into()));
    after.whole &= !gpus.iter().fold(0, |all, mask| all | mask);
    mix.value(node, &before) - mix.value(node, &after)
}
