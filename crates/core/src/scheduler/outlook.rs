//! How many workers of so many whole GPUs fit at coming moments, by domain, when GPUs are all that counts.
//!
//! Never fewer than really fit, so no start has to be looked for before there are enough; mostly exactly as many, so the first
//! moment at which there are is mostly the start. Kept by node and summed up: a node is looked at again when it changed.
use super::counts::{Stamp, differing};
use super::later::{SMALL, Timeline};
use super::reserve::Reserved;
use super::{Held, Session, Unit};
use crate::model::cluster::Cluster;
use crate::model::ids::NodeId;
use crate::model::job::{JobSpec, Level};
use crate::model::time::Time;
use std::collections::BTreeMap;

/// So many sizes of workers are remembered; of more, those that came last.
const SIZES: usize = 8;

/// By how many workers more or fewer fit from a moment on.
type Change = (Time, i64);

/// For workers of one size.
pub struct Outlook {
    gpus: u32,
    /// By node, ascending in time.
    nodes: Vec<Vec<Change>>,
    leaves: Vec<BTreeMap<Time, i64>>,
    spines: Vec<BTreeMap<Time, i64>>,
    cluster: BTreeMap<Time, i64>,
    /// What the nodes of the draft of now were like.
    of: Vec<Stamp>,
    /// Up to here the entries of `ends`, and the reserved starts, are in it.
    seen: (usize, usize),
}

/// What will be free on nodes is made of this.
struct Coming<'s, 'a> {
    ends: &'s [Held<'a>],
    reserved: &'s [Reserved],
    timeline: &'s Timeline,
}

impl<'a> Session<'a> {
    /// Before this moment the unit does not fit, whatever there is beside GPUs.
    pub fn first_room(&mut self, unit: &Unit<'a>) -> Time {
        self.timeline();
        unit.iter().map(|job| self.first_room_for(&job.spec)).max().unwrap_or(Time(0))
    }

    fn first_room_for(&mut self, spec: &JobSpec) -> Time {
        let gpus = spec.shape.gpus;
        if gpus == 0 || spec.shape.part.is_some() {
            return Time(0);
        }
        let known = self.outlooks.iter().position(|one| one.gpus == gpus);
        let mut outlook = match known {
            Some(index) => self.outlooks.remove(index),
            None => Outlook::new(self.cluster, gpus),
        };
        let coming = Coming { ends: &self.ends, reserved: &self.reserved, timeline: &self.timeline };
        self.draft.work +=
            outlook.refresh(self.cluster, &coming, self.draft.stamps(), |node| self.draft.room(node).gpus);
        let is_known =
            |node: NodeId| outlook.nodes[node.index()] == coming.changes(node, self.draft.room(node).gpus, gpus);
        debug_assert!(
            self.cluster.nodes.len() > SMALL || self.cluster.nodes.iter().all(|node| is_known(node.id)),
            "the outlook for {gpus} GPUs is not what it would be, made anew"
        );
        let first = outlook.first(spec);
        if self.outlooks.len() >= SIZES {
            self.outlooks.remove(0);
        }
        self.outlooks.push(outlook);
        first
    }
}

impl Outlook {
    fn new(cluster: &Cluster, gpus: u32) -> Outlook {
        let nodes = cluster.nodes.len();
        let (leaves, spines) = (cluster.fabric.leaves.len(), cluster.fabric.spines.len());
        Outlook {
            gpus,
            nodes: vec![Vec::new(); nodes],
            leaves: vec![BTreeMap::new(); leaves],
            spines: vec![BTreeMap::new(); spines],
            cluster: BTreeMap::new(),
            of: vec![Stamp::MAX; nodes],
            seen: (0, 0),
        }
    }

    /// Looks at the nodes again on which something changed; how many that were.
    fn refresh(
        &mut self,
        cluster: &Cluster,
        coming: &Coming<'_, '_>,
        stamps: &[Stamp],
        free: impl Fn(NodeId) -> u64,
    ) -> u64 {
        let mut stale: Vec<usize> = differing(stamps, &self.of).map(|(index, _)| index).collect();
        let held = coming.ends[self.seen.0..].iter().flat_map(|held| held.places.iter());
        let reserved = coming.reserved[self.seen.1..].iter().flat_map(|one| &one.reservation.places);
        stale.extend(held.chain(reserved).map(|place| place.node.index()));
        stale.sort_unstable();
        stale.dedup();
        self.seen = (coming.ends.len(), coming.reserved.len());
        self.of.copy_from_slice(stamps);
        for index in &stale {
            let node = NodeId(*index as u32);
            let new = coming.changes(node, free(node), self.gpus);
            let old = std::mem::replace(&mut self.nodes[*index], new);
            self.count(cluster, node, &old);
        }
        stale.len() as u64
    }

    /// Puts what is known of the node in the sums in place of what was.
    fn count(&mut self, cluster: &Cluster, node: NodeId, old: &[Change]) {
        let new = &self.nodes[node.index()];
        if new == old {
            return;
        }
        let leaf = cluster.node(node).leaf;
        let spine = cluster.fabric.spine_of(leaf);
        let sums = [&mut self.leaves[leaf.index()], &mut self.spines[spine.0 as usize], &mut self.cluster];
        for sum in sums {
            old.iter().for_each(|(at, more)| add(sum, *at, -more));
            new.iter().for_each(|(at, more)| add(sum, *at, *more));
        }
    }

    /// When the first domain that the gang may be in holds all of it.
    fn first(&self, spec: &JobSpec) -> Time {
        let need = i64::from(spec.gang.workers);
        let among = |sums: &[BTreeMap<Time, i64>]| sums.iter().map(|sum| reached(pairs(sum), need)).min();
        let first = match spec.topology.require.unwrap_or(Level::Cluster) {
            Level::Cluster => Some(reached(pairs(&self.cluster), need)),
            Level::Spine => among(&self.spines),
            // An island may span the nodes of a leaf.
            Level::Leaf | Level::Island => among(&self.leaves),
            Level::Gpu | Level::Switch | Level::Socket | Level::Node => {
                self.nodes.iter().map(|node| reached(node.iter().copied(), need)).min()
            }
        };
        first.unwrap_or(Time::NEVER)
    }

    /// How many entries of `ends` are in it.
    pub fn ends_seen(&self) -> usize {
        self.seen.0
    }

    pub fn has_seen_ends(&mut self, ends: usize) {
        self.seen.0 = ends;
    }

    pub fn look_again(&mut self, node: usize) {
        self.of[node] = Stamp::MAX;
    }

    /// There is no reserved start any more: those nodes are looked at again.
    pub fn forget_reserved(&mut self, timeline: &Timeline) {
        self.seen.1 = 0;
        timeline.reserved_nodes().for_each(|node| self.of[node] = Stamp::MAX);
    }
}

impl Coming<'_, '_> {
    /// How many workers the node holds, from moment to moment.
    fn changes(&self, node: NodeId, free: u64, gpus: u32) -> Vec<Change> {
        let held = self.timeline.on(node).iter().map(|(index, gpus)| (&self.ends[*index], *gpus));
        let held = held.map(|(held, gpus)| (held.end, gpus, held.promise));
        let reserved = self.timeline.reserved_on(node).iter();
        let reserved = reserved.map(|(index, gpus)| (self.reserved[*index].end, *gpus, true));
        let mut all: Vec<(Time, u64, bool)> = held.chain(reserved).collect();
        all.sort_unstable();
        let at = |time: Time| {
            let ended = all.iter().filter(|(end, _, _)| *end <= time);
            let given = ended.fold(free, |mask, (_, gpus, _)| mask | gpus);
            let kept = all.iter().filter(|(end, _, promise)| *end > time && *promise);
            i64::from((kept.fold(given, |mask, (_, gpus, _)| mask & !gpus)).count_ones() / gpus)
        };
        let (mut before, mut changes) = (0, Vec::new());
        for time in std::iter::once(Time(0)).chain(all.iter().map(|(end, _, _)| *end)) {
            let workers = at(time);
            if workers != before {
                changes.push((time, workers - before));
            }
            before = workers;
        }
        changes
    }
}

fn add(sum: &mut BTreeMap<Time, i64>, at: Time, more: i64) {
    let here = sum.entry(at).or_default();
    *here += more;
    if *here == 0 {
        sum.remove(&at);
    }
}

fn pairs(sum: &BTreeMap<Time, i64>) -> impl Iterator<Item = Change> {
    sum.iter().map(|(at, more)| (*at, *more))
}

/// The first moment at which there are as many.
fn reached(changes: impl Iterator<Item = Change>, need: i64) -> Time {
    let mut there = 0;
    for (at, more) in changes {
        there += more;
        if there >= need {
            return at;
        }
    }
    Time::NEVER
}
