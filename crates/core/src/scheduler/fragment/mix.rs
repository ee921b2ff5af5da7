//! The mix of shapes as the nodes of a cluster see it: which GPUs of which nodes suit each shape. Derived, droppable.
use super::free::{Ask, Free, WHOLE_MILLI};
use super::price::{Priced, band, value};
use crate::model::cluster::Cluster;
use crate::model::demand::Want;
use crate::model::job::Shape;
use crate::model::machine::Machine;
use crate::model::node::Node;
use crate::scheduler::filter;
use crate::scheduler::room::Room;
use crate::scheduler::slices::{self, Left};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub struct Mix {
    kinds: Vec<Priced>,
    /// Of shapes that ask for a part of a GPU.
    parts: Vec<Option<Shape>>,
    /// By class of node, then by shape: the GPUs that suit it.
    usable: Vec<Vec<u64>>,
    /// By node: nodes of one class are equal to every shape.
    class_of: Vec<usize>,
}

/// What makes nodes equal to the shapes of a mix. Of labels only those that some shape asks for.
#[derive(PartialEq, Eq)]
struct Class<'a> {
    machine: &'a Arc<Machine>,
    pool: Option<&'a str>,
    labels: BTreeMap<&'a str, &'a str>,
}

impl Mix {
    /// Of shapes with how often each comes and what a place for it is worth.
    pub fn of<'a>(cluster: &'a Cluster, wants: impl Iterator<Item = (&'a Want, u64, u64)>) -> Mix {
        let (wants, kinds): (Vec<&Want>, Vec<Priced>) =
            wants.map(|(want, count, price)| (want, Priced { ask: ask_of(want), count, price })).unzip();
        let parts = wants.iter().map(|want| want.shape.part.map(|_| want.shape.clone())).collect();
        let asked: BTreeSet<&str> =
            wants.iter().flat_map(|want| want.shape.labels.keys().map(String::as_str)).collect();
        let (mut classes, mut usable): (Vec<Class<'_>>, Vec<Vec<u64>>) = (Vec::new(), Vec::new());
        let mut last = 0;
        let class_of = cluster.nodes.iter().map(|node| {
            let class = Class::of(node, &asked);
            // Neighbours are mostly of one class.
            let known = classes.get(last).filter(|known| **known == class).map(|_| last);
            last = known.or_else(|| classes.iter().position(|known| *known == class)).unwrap_or_else(|| {
                classes.push(class);
                usable.push(wants.iter().map(|want| suitable(node, want)).collect());
                classes.len() - 1
            });
            last
        });
        let class_of = class_of.collect();
        Mix { kinds, parts, usable, class_of }
    }

    /// Without a shape nothing is worth more than anything else.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    pub fn class_of(&self, node: &Node) -> usize {
        self.class_of[node.id.index()]
    }

    fn usable(&self, node: &Node) -> &[u64] {
        &self.usable[self.class_of(node)]
    }

    pub fn value(&self, node: &Node, free: &Free<'_>) -> i64 {
        value(free, &self.kinds, self.usable(node))
    }

    pub fn band(&self) -> i64 {
        band(&self.kinds)
    }

    pub fn count(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.count).sum()
    }

    /// By shape, how many workers the room holds.
    pub fn places(&self, node: &Node, room: &Room) -> impl Iterator<Item = u64> {
        let free = free_of(&node.machine, room);
        self.kinds.iter().zip(self.usable(node)).map(move |(kind, usable)| free.holds(&kind.ask, *usable))
    }

    /// What the shapes cannot use of the room and of what is left of GPUs in parts, each times how often it comes.
    pub fn unusable(&self, node: &Node, room: &Room, left: &[Left]) -> u128 {
        let (free, machine) = (free_of(&node.machine, room), &node.machine);
        let in_parts: u64 = left.iter().map(|left| u64::from(left.milli)).sum();
        let kinds = self.kinds.iter().zip(&self.parts).zip(self.usable(node));
        let unusable = |kind: &Priced, part: &Option<Shape>, usable: u64| match part {
            Some(shape) if free.admits(&kind.ask) => {
                let wrong = (room.gpus & !usable).count_ones() * WHOLE_MILLI;
                let closed = left.iter().filter(|left| !left.takes(machine, usable, shape)).map(|left| left.milli);
                u64::from(wrong + closed.sum::<u32>())
            }
            Some(_) => free.total_milli() + in_parts,
            None => free.unusable_milli(&kind.ask, usable) + in_parts,
        };
        kinds.map(|((kind, part), usable)| u128::from(unusable(kind, part, *usable)) * u128::from(kind.count)).sum()
    }
}

impl<'a> Class<'a> {
    fn of(node: &'a Node, asked: &BTreeSet<&str>) -> Class<'a> {
        let labels = match asked.is_empty() {
            true => BTreeMap::new(),
            false => {
                let asked = node.labels.iter().filter(|(key, _)| asked.contains(key.as_str()));
                asked.map(|(key, value)| (key.as_str(), value.as_str())).collect()
            }
        };
        Class { machine: &node.machine, pool: node.pool.as_deref(), labels }
    }
}

fn suitable(node: &Node, want: &Want) -> u64 {
    match filter::suits_shape(node, &want.shape, want.pool.as_deref()) {
        Ok(()) if want.shape.part.is_some() => {
            slices::giving(&node.machine, filter::gpu_mask(&node.machine, &want.shape), &want.shape)
        }
        Ok(()) => filter::gpu_mask(&node.machine, &want.shape),
        Err(_) => 0,
    }
}

/// The one place that says what a shape takes of a GPU: whole ones, or one part of one.
pub fn ask_of(want: &Want) -> Ask {
    let shape = &want.shape;
    let (cpus, memory) = (shape.cpus.into(), shape.memory_bytes);
    let (gpus, gpu_milli) = if shape.part.is_some() { (1, shape.milli()) } else { (shape.gpus, WHOLE_MILLI) };
    Ask { cpus, memory, gpus, gpu_milli, within: want.within }
}

pub fn free_of<'m>(machine: &'m Machine, room: &Room) -> Free<'m> {
    Free::new(room.cpus.count().into(), room.memory_total(), room.gpus, Some(machine))
}
