//! The ways up from the leaves, which gangs over several leaves share: how much each carries and has left.
//!
//! A worker of such a gang counts on its leaf with the network bandwidth that it asked for. That is a wish and not a
//! fence: a way up that is asked too much of gets slow and breaks nothing. So it decides where there is a choice, and the
//! report of a placement says where there was none.
use crate::model::amounts::HumanBandwidth;
use crate::model::cluster::Cluster;
use crate::model::ids::{JobId, LeafId};
use crate::model::job::{Attempt, Job, JobSpec, Place};
use std::collections::BTreeMap;

/// By leaf; nothing where no way up was described.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Uplinks(BTreeMap<LeafId, Way>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    capacity_bps: u64,
    asked_bps: u64,
}

impl Uplinks {
    /// With what the gangs of now ask.
    pub fn now(cluster: &Cluster) -> Uplinks {
        let leaves = cluster.fabric.leaves.iter().enumerate();
        let ways = leaves.filter_map(|(index, leaf)| {
            let capacity_bps = *cluster.fabric.uplinks.get(&leaf.name)?;
            Some((LeafId(index as u32), Way { capacity_bps, asked_bps: 0 }))
        });
        let mut uplinks = Uplinks(ways.collect());
        if !uplinks.0.is_empty() {
            for job in cluster.jobs.values() {
                let places = job.attempt.iter().flat_map(Attempt::live).map(|worker| &worker.place);
                uplinks.add(cluster, &job.spec, places);
            }
        }
        uplinks
    }

    /// A gang of this kind is, or will be, at these places.
    pub fn add<'p>(&mut self, cluster: &Cluster, spec: &JobSpec, places: impl Iterator<Item = &'p Place>) {
        if self.0.is_empty() {
            return;
        }
        for (leaf, asked) in asked(cluster, spec, places) {
            if let Some(way) = self.0.get_mut(&leaf) {
                way.asked_bps = way.asked_bps.saturating_add(asked);
            }
        }
    }

    /// How many workers of this kind the way up still takes.
    pub fn workers(&self, leaf: LeafId, spec: &JobSpec) -> u32 {
        let Some(way) = self.0.get(&leaf) else { return u32::MAX };
        let left = way.capacity_bps.saturating_sub(way.asked_bps);
        let workers = left.checked_div(spec.shape.network_bandwidth_bps).unwrap_or(u64::MAX);
        u32::try_from(workers).unwrap_or(u32::MAX)
    }

    /// Whether gangs ask for all of it.
    pub fn is_full(&self, leaf: LeafId) -> bool {
        self.0.get(&leaf).is_some_and(|way| way.asked_bps >= way.capacity_bps && way.asked_bps > 0)
    }
}

/// What is asked of one way up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub capacity_bps: u64,
    pub asked_bps: u64,
    /// Gangs that go over it.
    pub gangs: u32,
}

/// By leaf whose way up is known.
pub fn loads(cluster: &Cluster) -> BTreeMap<LeafId, Load> {
    let ways = Uplinks::now(cluster).0.into_iter();
    let load = |way: Way| Load { capacity_bps: way.capacity_bps, asked_bps: way.asked_bps, gangs: 0 };
    let mut loads: BTreeMap<LeafId, Load> = ways.map(|(leaf, way)| (leaf, load(way))).collect();
    if loads.is_empty() {
        return loads;
    }
    for job in cluster.jobs.values() {
        let places = job.attempt.iter().flat_map(Attempt::live).map(|worker| &worker.place);
        for leaf in asked(cluster, &job.spec, places).into_keys() {
            loads.entry(leaf).and_modify(|load| load.gangs += 1);
        }
    }
    loads
}

/// What a gang sends up from each of its leaves; nothing if it is under one.
fn asked<'p>(cluster: &Cluster, spec: &JobSpec, places: impl Iterator<Item = &'p Place>) -> BTreeMap<LeafId, u64> {
    let each = spec.shape.network_bandwidth_bps;
    let mut by_leaf: BTreeMap<LeafId, u64> = BTreeMap::new();
    if spec.gang.workers < 2 || each == 0 {
        return by_leaf;
    }
    for place in places {
        let sum = by_leaf.entry(cluster.node(place.node).leaf).or_default();
        *sum = sum.saturating_add(each);
    }
    if by_leaf.len() < 2 {
        by_leaf.clear();
    }
    by_leaf
}

/// Says which ways up a job that runs shares with others or asks too much of; `None` if none.
pub fn report(cluster: &Cluster, job: &Job) -> Option<String> {
    if cluster.fabric.uplinks.is_empty() {
        return None;
    }
    let of = |job: &Job| {
        let places = job.attempt.iter().flat_map(Attempt::live).map(|worker| &worker.place);
        asked(cluster, &job.spec, places)
    };
    let own = of(job);
    if own.is_empty() {
        return None;
    }
    let mut others: BTreeMap<LeafId, (u64, Vec<JobId>)> = BTreeMap::new();
    for other in cluster.jobs.values().filter(|other| other.id != job.id) {
        for (leaf, bps) in of(other).into_iter().filter(|(leaf, _)| own.contains_key(leaf)) {
            let (sum, jobs) = others.entry(leaf).or_default();
            *sum = sum.saturating_add(bps);
            jobs.push(other.id);
        }
    }
    let lines = own.iter().filter_map(|(leaf, own)| {
        let leaf_name = &cluster.fabric.leaves.get(leaf.index())?.name;
        let capacity = *cluster.fabric.uplinks.get(leaf_name)?;
        let (sum, jobs) = others.get(leaf).cloned().unwrap_or_default();
        let asked = sum.saturating_add(*own);
        let with = match jobs.as_slice() {
            [] if asked <= capacity => return None,
            [] => String::new(),
            [one] => format!(" with job {one}"),
            many => format!(" with {} jobs", many.len()),
        };
        let verb = if jobs.is_empty() { "asks too much of" } else { "shares" };
        let (asked, capacity) = (HumanBandwidth(asked), HumanBandwidth(capacity));
        Some(format!("{verb} the uplink of {leaf_name}{with}: {asked} asked of {capacity}"))
    });
    let lines: Vec<String> = lines.collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}
