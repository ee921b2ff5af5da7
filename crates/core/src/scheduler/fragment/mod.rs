//! Fragmentation: which of the nodes that could hold a worker loses least of what the cluster is asked for.
//!
//! The mix of shapes is learnt from what was submitted ([`crate::model::demand`]). Prices are worked out once an epoch, when
//! something is submitted, and kept in the cluster, so that a decision and the one on its own result go by the same.
//! Public traces are replayed with this very code (`simulator/src/replay/placement/ours.rs`).
mod choice;
pub mod free;
mod mix;
pub mod price;

pub use choice::Harms;
pub use mix::Mix;

use super::room::Room;
use super::slices::Left;
use crate::model::cluster::Cluster;
use crate::model::demand::{Kind, Want};
use crate::model::node::{HealthState, Node};
use price::price;

/// A submission is noted: the mix is learnt, and prices are worked out anew where the epoch is over.
pub fn learn(cluster: &mut Cluster, want: Want, workers: u32) {
    let demand = &mut cluster.demand;
    demand.asked.add(want, workers);
    demand.arrivals += 1;
    let used = cluster.queues.iter().filter(|(path, _)| !path.contains('/')).map(|(_, queue)| queue.used.gpus);
    let free = demand.gpus.saturating_sub(used.fold(0, u64::saturating_add));
    if demand.epoch.is_over(free, demand.arrivals, true) {
        begin_epoch(cluster);
    }
}

fn begin_epoch(cluster: &mut Cluster) {
    let popular = cluster.demand.asked.popular();
    let mix = Mix::of(cluster, popular.iter().map(|(want, count)| (want, *count, 0)));
    let (mut gpus, mut free, mut nodes) = (0u64, 0u64, 0u64);
    let mut places = vec![0u64; popular.len()];
    for node in cluster.listed_nodes() {
        let room = Room::now(node);
        nodes += 1;
        gpus += node.machine.gpus.len() as u64;
        free += u64::from(room.gpus.count_ones());
        places.iter_mut().zip(mix.places(node, &room)).for_each(|(sum, here)| *sum += here);
    }
    let capacity_milli = gpus * u64::from(free::WHOLE_MILLI);
    let priced = popular.into_iter().zip(places).map(|((want, count), places)| {
        let price = price(count, &mix::ask_of(&want), capacity_milli, places);
        Kind { want, count, price }
    });
    let kinds = priced.collect();
    let demand = &mut cluster.demand;
    (demand.kinds, demand.gpus) = (kinds, gpus);
    demand.epoch = demand.epoch.next(free, demand.arrivals, nodes);
}

/// How much of what is free is of no use to what is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fragmentation {
    /// Free GPUs on nodes that take new work, and what is left of those in parts, in thousandths.
    pub free_milli: u64,
    /// What of it a shape of the mix cannot use, in the mean of the mix.
    pub unusable_milli: u64,
}

impl Fragmentation {
    /// The fragmented part of what is free, in millionths.
    pub fn millionths(self) -> u64 {
        let part = u128::from(self.unusable_milli) * 1_000_000;
        part.checked_div(self.free_milli.into()).unwrap_or(0) as u64
    }
}

/// Measures the cluster by the mix of now. Shapes without GPUs do not count: none is there for them.
pub fn fragmentation(cluster: &Cluster) -> Fragmentation {
    let popular = cluster.demand.asked.popular();
    let wants = popular.iter().filter(|(want, _)| want.shape.asks_gpu()).map(|(want, count)| (want, *count, 0));
    let mix = Mix::of(cluster, wants);
    let (mut free_milli, mut unusable) = (0u64, 0u128);
    for node in cluster.listed_nodes().filter(|node| takes_work(node)) {
        let room = Room::now(node);
        let left = Left::of(node);
        let in_parts: u32 = left.iter().map(|left| left.milli).sum();
        free_milli += u64::from(room.gpus.count_ones() * free::WHOLE_MILLI + in_parts);
        unusable += mix.unusable(node, &room, &left);
    }
    let unusable_milli = unusable.checked_div(mix.count().into()).unwrap_or(0) as u64;
    Fragmentation { free_milli, unusable_milli }
}

fn takes_work(node: &Node) -> bool {
    let healthy = matches!(node.health.state, HealthState::Ready | HealthState::Probation);
    healthy && !node.cordoned && node.draining.is_none()
}
