//! Whole nodes that are promised to a queue: it can always start so many workers, each on a node of its own.
//!
//! For each promise as many nodes are *kept*: those on which the queue holds that much already, those that are open to it,
//! and where these are too few those that come open soonest. What others hold there for good is never more than what is
//! spare beside the promise. Work on loan may have all of it until it is asked for. No node is kept for two promises; what
//! is promised to a queue lies within what is promised to the one above it.
use super::cluster::Cluster;
use super::ids::NodeId;
use super::job::{Job, JobSpec, Place, Priority};
use super::node::{Device, HealthState, Node};
use super::queue::{Queue, ancestry};
use super::time::Time;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// `nodes` workers of `gpus` GPUs each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WholeNodes {
    pub nodes: u32,
    pub gpus: u32,
    /// Of any model, if none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
}

/// GPUs, cores and bytes of memory.
pub type Spare = [u64; 3];

/// Something that is held or claimed, as far as is known until a moment.
pub struct Holds<'s> {
    pub job: &'s Job,
    pub place: &'s Place,
    pub until: Time,
}

/// The nodes of one promise.
#[derive(Debug)]
pub struct Kept<'c> {
    pub path: &'c str,
    pub whole: &'c WholeNodes,
    /// Kept nodes on which the queue holds its part, and those that are open to it.
    pub taken: u32,
    pub open: u32,
    /// All nodes on which it holds that much.
    pub held: u32,
    /// All that are kept, also those that are not open yet, with what others may still have there for good.
    pub nodes: Vec<(NodeId, Spare)>,
}

/// What is known of one node for one promise.
#[derive(Clone, Default)]
struct Use {
    own: u64,
    all: u64,
    /// What others hold for good, and the last of it until when.
    closed: u64,
    cpus: u64,
    memory_bytes: u64,
    until: Time,
}

/// A promise with what its nodes are used for.
struct Ask<'c> {
    path: &'c str,
    whole: &'c WholeNodes,
    /// Without those that are promised on to queues below it.
    slots: u32,
    uses: Vec<Use>,
}

/// Whether the queue is `path` or below it.
pub fn is_inside(queue: &str, path: &str) -> bool {
    ancestry(queue).any(|above| above == path)
}

impl JobSpec {
    /// Whether it may use what is promised to others until they ask for it: it is of the lowest class, yields, saves, and
    /// nobody else has to leave with it.
    pub fn is_on_loan(&self) -> bool {
        self.priority == Priority::P3 && self.may_be_guest() && self.group.is_none()
    }
}

impl WholeNodes {
    pub fn all_gpus(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.gpus)
    }

    /// In words, such as `4 nodes of 8 H100`.
    pub fn words(&self) -> String {
        let model = self.gpu_model.as_deref().unwrap_or(if self.gpus == 1 { "GPU" } else { "GPUs" });
        format!("{} of {} {model}", super::amounts::count(self.nodes.into(), "node"), self.gpus)
    }

    /// Whether such a node can ever be kept for it. The nodes of a kept pool are their own jobs'.
    pub fn suits(&self, cluster: &Cluster, node: &Node) -> bool {
        let model = self.gpu_model.as_ref().is_none_or(|model| model.eq_ignore_ascii_case(&node.machine.gpu_model));
        let strange = node.pool.as_ref().is_some_and(|pool| cluster.pools.contains_key(pool));
        model && !strange && node.health.state != HealthState::Dead && usable(node).count_ones() >= self.gpus
    }

    /// Nodes that a gang of such workers fills, if they are of the promised size or fit into it.
    pub fn nodes_for(&self, spec: &JobSpec) -> Option<u32> {
        let each = self.gpus.checked_div(spec.shape.gpus).filter(|each| *each > 0)?;
        Some(spec.gang.workers.div_ceil(spec.topology.ranks_per_node.unwrap_or(each).min(each)))
    }

    /// What others may have there for good: of cores and memory the same part as of GPUs.
    fn spare(&self, node: &Node) -> Spare {
        let all = u128::from(node.machine.gpu_mask().count_ones().max(1));
        let gpus = u64::from(usable(node).count_ones().saturating_sub(self.gpus));
        let part = |amount: u64| u64::try_from(u128::from(amount) * u128::from(gpus) / all).unwrap_or(u64::MAX);
        [gpus, part(node.machine.total_cpus().into()), part(node.machine.total_memory_bytes())]
    }
}

fn usable(node: &Node) -> u64 {
    node.mask(|device| !matches!(device, Device::Sick { .. }))
}

/// What is wrong with the promises of a tree of queues, by path: which one, and why.
pub fn misplaced<'p>(promises: &BTreeMap<&'p str, &WholeNodes>) -> Option<(&'p str, String)> {
    let above = |path: &str| ancestry(path).skip(1).find_map(|up| promises.get_key_value(up));
    promises.iter().find_map(|(path, whole)| {
        let inside = promises.iter().filter(|(other, _)| above(other).is_some_and(|(up, _)| up == path));
        let below = inside.fold(0u64, |sum, (_, whole)| sum + u64::from(whole.nodes));
        if below > u64::from(whole.nodes) {
            let why = format!("it is promised {}, but {below} to the queues below it", whole.words());
            return Some((*path, format!("{why}; promise it more, or them less")));
        }
        let (up, parent) = above(path)?;
        let alike = (parent.gpus, &parent.gpu_model) == (whole.gpus, &whole.gpu_model);
        let why = format!("it is promised {}, {} to {up} above it", whole.words(), parent.words());
        (!alike).then(|| (*path, format!("{why}; name the same gpus and gpu_model for both")))
    })
}

impl Queue {
    /// What is guaranteed to it, of GPUs at least those of the nodes that are promised.
    pub fn guaranteed(&self) -> super::amounts::Limit {
        let mut limit = self.guarantee;
        if let Some(whole) = &self.whole_nodes {
            limit.gpus = Some(limit.gpus.unwrap_or(0).max(whole.all_gpus()));
        }
        limit
    }
}

impl Cluster {
    pub fn promises_nodes(&self) -> bool {
        self.queues.values().any(|queue| queue.whole_nodes.is_some())
    }

    /// What lives, also where it was told to leave, and what is claimed.
    pub fn holds(&self) -> impl Iterator<Item = Holds<'_>> {
        let running = self.jobs.values().filter_map(|job| Some((job, job.attempt.as_ref()?)));
        let running = running.flat_map(|(job, attempt)| attempt.live().map(move |worker| (&**job, &worker.place)));
        let claimed = self.claims.values().filter_map(|claim| Some((self.job(claim.claimant)?, claim)));
        let claimed = claimed.flat_map(|(job, claim)| claim.places.iter().map(move |place| (job, place)));
        running.chain(claimed).map(|(job, place)| Holds { job, place, until: Time::NEVER })
    }

    /// The nodes that are kept for each promise, when so much is held. Who was told to leave counts until it is gone: a claim
    /// may be taken back, and what it asked to leave then stays. Which ones may change with every step; how
    /// many are taken or open only falls when somebody takes what is promised.
    pub fn kept_nodes<'c, 's>(&'c self, holds: impl Iterator<Item = Holds<'s>>, now: Time) -> Vec<Kept<'c>> {
        let mut asks = self.asks();
        holds.for_each(|held| asks.iter_mut().for_each(|ask| ask.note(&held)));
        let open = asks.iter().map(|ask| ask.open(self, now)).collect();
        let mut given = Given { open, next: vec![0; asks.len()], owner: vec![None; self.nodes.len()] };
        for (index, ask) in asks.iter().enumerate() {
            let more = |_: &u32| given.give(index, &mut BTreeSet::new());
            (0..ask.slots).take_while(more).for_each(drop);
        }
        let matched = given.owner.clone();
        for (index, ask) in asks.iter().enumerate() {
            let missing = (ask.slots as usize).saturating_sub(given.count(index));
            ask.coming(self, now, &given.owner).into_iter().take(missing).for_each(|node| {
                given.owner[node] = Some(index);
            });
        }
        asks.iter().enumerate().map(|(index, ask)| ask.kept(self, index, &matched, &given.owner)).collect()
    }

    /// The deepest queues first: what they have counts for those above them as well.
    fn asks(&self) -> Vec<Ask<'_>> {
        let promised =
            || self.queues.values().filter_map(|queue| Some((queue.path.as_str(), queue.whole_nodes.as_ref()?)));
        let mut asks: Vec<Ask<'_>> = promised()
            .map(|(path, whole)| {
                let below = promised().filter(|(other, _)| self.promised_above(other) == Some(path));
                let slots = whole.nodes.saturating_sub(below.map(|(_, whole)| whole.nodes).sum());
                Ask { path, whole, slots, uses: vec![Use::default(); self.nodes.len()] }
            })
            .collect();
        asks.sort_by_key(|ask| (Reverse(ancestry(ask.path).count()), ask.path));
        asks
    }

    /// The next queue above this one to which nodes are promised.
    fn promised_above<'p>(&self, path: &'p str) -> Option<&'p str> {
        let promised = |up: &&str| self.queues.get(*up).is_some_and(|queue| queue.whole_nodes.is_some());
        ancestry(path).skip(1).find(promised)
    }
}

impl<'c> Ask<'c> {
    fn note(&mut self, Holds { job, place, until }: &Holds<'_>) {
        let Some(here) = self.uses.get_mut(place.node.index()) else { return };
        let gpus = place.touched_gpus();
        here.all |= gpus;
        if is_inside(&job.spec.queue, self.path) {
            here.own |= gpus;
        } else if !job.spec.is_on_loan() {
            here.closed |= gpus;
            here.cpus += u64::from(place.cpus.count());
            here.memory_bytes =
                place.memory.iter().fold(here.memory_bytes, |sum, (_, bytes)| sum.saturating_add(*bytes));
            here.until = here.until.max(*until);
        }
    }

    fn is_taken(&self, node: &Node) -> bool {
        self.uses[node.id.index()].own.count_ones() >= self.whole.gpus
    }

    /// What others may still have there; `None`: they have more than is spare.
    fn left(&self, node: &Node) -> Option<Spare> {
        let here = &self.uses[node.id.index()];
        let [gpus, cpus, memory] = self.whole.spare(node);
        let closed = u64::from((here.closed & usable(node)).count_ones());
        Some([gpus.checked_sub(closed)?, cpus.checked_sub(here.cpus)?, memory.checked_sub(here.memory_bytes)?])
    }

    /// Nodes that count, those first that it has; then those without small work of its own; then those that others who stay
    /// have least use for.
    fn open(&self, cluster: &Cluster, now: Time) -> Vec<usize> {
        let counts = |node: &&Node| {
            let open = node.accepts(false, now) && self.left(node).is_some();
            self.whole.suits(cluster, node) && (open || self.is_taken(node))
        };
        let key = |node: &&Node| {
            let here = &self.uses[node.id.index()];
            let free = (usable(node) & !here.all).count_ones();
            (!self.is_taken(node), here.own != 0, free, node.id)
        };
        let mut nodes: Vec<&Node> = cluster.nodes.iter().map(AsRef::as_ref).filter(counts).collect();
        nodes.sort_by_cached_key(key);
        nodes.into_iter().map(|node| node.id.index()).collect()
    }

    /// Nodes that do not count yet and are nobody's, those first that come open soonest.
    fn coming(&self, cluster: &Cluster, now: Time, owner: &[Option<usize>]) -> Vec<usize> {
        let comes = |node: &&Node| {
            owner[node.id.index()].is_none()
                && self.whole.suits(cluster, node)
                && node.accepts(false, now)
                && self.left(node).is_none()
        };
        let mut nodes: Vec<&Node> = cluster.nodes.iter().map(AsRef::as_ref).filter(comes).collect();
        nodes.sort_by_cached_key(|node| (self.uses[node.id.index()].until, node.id));
        nodes.into_iter().map(|node| node.id.index()).collect()
    }

    fn kept(&self, cluster: &Cluster, index: usize, matched: &[Option<usize>], owner: &[Option<usize>]) -> Kept<'c> {
        let mine = |owner: &[Option<usize>], node: &Node| owner[node.id.index()] == Some(index);
        let nodes = || cluster.nodes.iter().map(AsRef::as_ref);
        let counted = nodes().filter(|node| mine(matched, node));
        let (taken, open): (Vec<&Node>, Vec<&Node>) = counted.partition(|node| self.is_taken(node));
        let kept = nodes().filter(|node| mine(owner, node));
        Kept {
            path: self.path,
            whole: self.whole,
            taken: taken.len() as u32,
            open: open.len() as u32,
            held: nodes().filter(|node| self.is_taken(node)).count() as u32,
            nodes: kept.map(|node| (node.id, self.left(node).unwrap_or_default())).collect(),
        }
    }
}

/// Which node is kept for which promise: as many as can be for the first, then for the second, and so on.
struct Given {
    /// By promise: the nodes that count for it.
    open: Vec<Vec<usize>>,
    /// By promise: how far it looked through these for one that is nobody's.
    next: Vec<usize>,
    owner: Vec<Option<usize>>,
}

impl Given {
    /// One more node for a promise: one that is nobody's, or of another that can have a different one.
    fn give(&mut self, index: usize, seen: &mut BTreeSet<usize>) -> bool {
        while let Some(node) = self.open[index].get(self.next[index]).copied() {
            self.next[index] += 1;
            if self.owner[node].is_none() {
                self.owner[node] = Some(index);
                return true;
            }
        }
        for at in 0..self.open[index].len() {
            let node = self.open[index][at];
            let Some(other) = self.owner[node].filter(|other| *other != index) else { continue };
            if seen.insert(node) && self.give(other, seen) {
                self.owner[node] = Some(index);
                return true;
            }
        }
        false
    }

    fn count(&self, index: usize) -> usize {
        self.owner.iter().filter(|owner| **owner == Some(index)).count()
    }
}
