//! By how much a gang misses, in the numbers that its owner is told.
//!
//! Equal gangs of many limits and classes ask for it one after another, so what the nodes lack is kept by node and summed up:
//! a node is looked at again when it changed.
use super::counts::{Stamp, differing};
use super::filter::{Against, yields};
use super::place::Miss;
use super::slices::{self, Site};
use super::{Session, Unit, filter, fit, pools, room};
use crate::model::cluster::Cluster;
use crate::model::decision::Blocker;
use crate::model::ids::NodeId;
use crate::model::job::{JobSpec, Priority, Shape};
use std::collections::BTreeSet;

/// So many kinds of workers are remembered; of more, those that came last.
const KINDS: usize = 16;
const DIMENSIONS: usize = fit::DIMENSIONS.len();

/// What a node, or all of them, can do for a gang. Each sum adds up what `add` adds and is exact.
#[derive(Clone, Default, PartialEq)]
struct Tally {
    /// Suitable nodes that take new work, with what each dimension alone holds in workers, and what is free.
    open: u32,
    workers: [u64; DIMENSIONS],
    free: [u128; DIMENSIONS],
    /// Those that do not, and the workers that they would hold.
    shut: u32,
    shut_workers: u64,
    /// Of kept pools, not lent to it now: how many, what is free there, and the workers that they would hold.
    kept: u32,
    kept_gpus: u64,
    kept_workers: u64,
}

/// For one kind of workers.
pub struct Shortfall {
    kind: Kind,
    nodes: Vec<Tally>,
    sum: Tally,
    /// What the nodes were like.
    of: Vec<Stamp>,
}

/// All of a request that one node's part depends on, while no node is about to close.
#[derive(PartialEq)]
struct Kind {
    shape: Shape,
    pool: Option<String>,
    yields: bool,
    each: Option<u32>,
    lenders: Vec<String>,
}

impl Kind {
    fn of(cluster: &Cluster, spec: &JobSpec) -> Kind {
        let lenders = cluster.lenders(spec).into_iter().map(String::from).collect();
        let (shape, pool) = (spec.shape.clone(), spec.pool.clone());
        Kind { shape, pool, yields: yields(spec), each: spec.topology.ranks_per_node, lenders }
    }
}

impl<'a> Session<'a> {
    /// Turns a miss into the reason: not on these nodes, not in one domain, promised to others, or not now.
    pub fn explain_miss(&mut self, unit: &Unit<'a>, miss: &Miss) -> Blocker {
        if !self.reserved.is_empty() && self.place_unit_and_undo(unit) {
            let ahead = self.in_the_way(unit).map_or(self.reserved[0].reservation.job, |one| one.reservation.job);
            let class = self.cluster.job(ahead).map_or(Priority::P0, |job| job.spec.priority);
            return Blocker::Priority { ahead, class };
        }
        if let Some(promised) = self.promised_away(unit) {
            return promised;
        }
        let spec = &unit[miss.member].spec;
        let workers = spec.gang.workers;
        if let Some(level) = miss.level {
            let (best, placeable) = (miss.best, miss.placeable);
            let domain = miss.best_domain.clone();
            return Blocker::Topology { workers, level, best, best_gpus: miss.best_gpus, placeable, domain };
        }
        self.short_of(spec, miss)
    }

    pub fn short_of(&mut self, spec: &'a JobSpec, miss: &Miss) -> Blocker {
        let known = self.shortfall(spec);
        let blocker = self.told(spec, miss, &known);
        // Which nodes are open also depends on how long the job stays, where some will close.
        if !self.closings {
            self.shortfalls.truncate(KINDS - 1);
            self.shortfalls.insert(0, known);
        }
        blocker
    }

    fn told(&self, spec: &JobSpec, miss: &Miss, known: &Shortfall) -> Blocker {
        let (workers, lack) = (spec.gang.workers, &known.sum);
        let (placeable, need) = (u64::from(miss.placeable), u64::from(workers));
        if lack.open == 0 && lack.shut == 0 && lack.kept == 0 {
            return Blocker::NodeFilter { workers, rejected: self.cluster.nodes.len() as u32 };
        }
        if placeable + lack.kept_workers >= need {
            let opens = pools::next_lending(self.cluster, spec, self.now);
            let (gpus, pools) = (lack.kept_gpus, self.kept_pools(known));
            return Blocker::Lending { workers, placeable: miss.placeable, gpus, pools, opens };
        }
        if placeable + lack.shut_workers + lack.kept_workers >= need && lack.shut > 0 {
            return Blocker::Health { workers, placeable: miss.placeable, out: lack.shut };
        }
        let short = match spec.shape.part {
            Some(_) => self.short_of_parts(spec, known),
            None => shortest_dimension(spec, lack),
        };
        let free_gpus = u64::try_from(lack.free[0]).unwrap_or(u64::MAX);
        let needs_gpus = spec.total().all_gpus();
        Blocker::Resources { workers, placeable: miss.placeable, needs_gpus, free_gpus, short }
    }

    fn shortfall(&mut self, spec: &JobSpec) -> Shortfall {
        let kind = Kind::of(self.cluster, spec);
        let known = self.shortfalls.iter().position(|one| one.kind == kind);
        let nodes = self.cluster.nodes.len();
        let mut found = match known {
            Some(index) => self.shortfalls.remove(index),
            None => Shortfall {
                kind,
                nodes: vec![Tally::default(); nodes],
                sum: Tally::default(),
                of: vec![Stamp::MAX; nodes],
            },
        };
        let stale: Vec<usize> = differing(self.draft.stamps(), &found.of).map(|(index, _)| index).collect();
        self.draft.work += stale.len() as u64;
        for index in stale {
            let new = self.tally(spec, NodeId(index as u32));
            let old = std::mem::replace(&mut found.nodes[index], new);
            found.sum.less(&old);
            found.sum.add(&found.nodes[index]);
        }
        found.of.copy_from_slice(self.draft.stamps());
        found
    }

    fn tally(&self, spec: &JobSpec, id: NodeId) -> Tally {
        let node = self.cluster.node(id);
        match filter::accepts(self.cluster, node, spec, self.now, self.now) {
            Ok(()) => open(spec, self.draft.site(id)),
            Err(_) if filter::suits(self.cluster, node, spec).is_err() => Tally::default(),
            Err(against) => {
                let now = room::Room::now(node);
                let site = Site { node, room: &now, parts: self.draft.parts(id) };
                let workers = site.workers(&spec.shape, fit::Cell::whole(&node.machine));
                let workers = u64::from(spec.topology.on_node(workers));
                match against {
                    Against::Lending => {
                        let kept_gpus = u64::from(now.gpus.count_ones());
                        Tally { kept: 1, kept_gpus, kept_workers: workers, ..Tally::default() }
                    }
                    _ => Tally { shut: 1, shut_workers: workers, ..Tally::default() },
                }
            }
        }
    }

    fn kept_pools(&self, known: &Shortfall) -> String {
        let nodes = self.cluster.nodes.iter().zip(&known.nodes).filter(|(_, tally)| tally.kept > 0);
        let pools: BTreeSet<&str> = nodes.filter_map(|(node, _)| node.pool.as_deref()).collect();
        pools.into_iter().collect::<Vec<_>>().join(", ")
    }

    fn short_of_parts(&self, spec: &JobSpec, known: &Shortfall) -> String {
        let open = self.cluster.nodes.iter().zip(&known.nodes).filter(|(_, tally)| tally.open > 0);
        let sites: Vec<Site<'_>> = open.map(|(node, _)| self.draft.site(node.id)).collect();
        let whole = |site: &Site<'_>| site.parts_for(&spec.shape, fit::Cell::whole(&site.node.machine));
        let found = sites.iter().map(whole).fold(0, u32::saturating_add);
        match found >= spec.gang.workers {
            true => shortest_dimension(spec, &known.sum),
            false => slices::shortage(spec, &sites),
        }
    }
}

/// Of a node that takes such work.
fn open(spec: &JobSpec, site: Site<'_>) -> Tally {
    let machine = &site.node.machine;
    let by = fit::capacity_by(machine, site.room, &spec.shape, fit::Cell::whole(machine));
    let workers = by.map(|one| u64::from(spec.topology.on_node(one)));
    Tally { open: 1, workers, free: site.room.totals().map(u128::from), ..Tally::default() }
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.change(other, u64::saturating_add, u128::saturating_add);
    }

    fn less(&mut self, other: &Tally) {
        self.change(other, u64::saturating_sub, u128::saturating_sub);
    }

    /// Thousands of nodes add up to far less than the types hold, so that what was added can be taken out again.
    fn change(&mut self, other: &Tally, one: fn(u64, u64) -> u64, wide: fn(u128, u128) -> u128) {
        let few = |mine: &mut u32, theirs: u32| *mine = one(u64::from(*mine), u64::from(theirs)) as u32;
        few(&mut self.open, other.open);
        few(&mut self.shut, other.shut);
        few(&mut self.kept, other.kept);
        let sums = [&mut self.shut_workers, &mut self.kept_gpus, &mut self.kept_workers];
        let with = [other.shut_workers, other.kept_gpus, other.kept_workers];
        let pairs = sums.into_iter().zip(with).chain(self.workers.iter_mut().zip(other.workers));
        pairs.for_each(|(mine, theirs)| *mine = one(*mine, theirs));
        self.free.iter_mut().zip(other.free).for_each(|(mine, theirs)| *mine = wide(*mine, theirs));
    }
}

/// The dimension that holds fewest workers when looked at alone, in words: over all nodes, or per node if the sum over
/// all nodes would be enough.
fn shortest_dimension(spec: &JobSpec, lack: &Tally) -> String {
    let workers = lack.workers.map(|sum| u32::try_from(sum).unwrap_or(u32::MAX));
    let total = spec.total();
    let needs = [total.gpus, total.cpus, total.memory_bytes, total.pcie_bandwidth_bps, total.network_bandwidth_bps];
    let short: Vec<String> = (0..needs.len())
        .filter(|i| workers[*i] < spec.gang.workers)
        .filter(|i| !fit::follows_from(*i, &workers, spec.gang.workers))
        .map(|i| match lack.free[i] >= u128::from(needs[i]) {
            true => format!("{} per node", fit::DIMENSIONS[i]),
            false => fit::DIMENSIONS[i].to_string(),
        })
        .collect();
    if short.is_empty() { "GPUs, CPUs and memory on the same node".to_string() } else { short.join(", ") }
}
