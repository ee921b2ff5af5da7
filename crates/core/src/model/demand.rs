//! What was asked for lately: the shapes of workers, how often each came, and what one place for each was worth when that
//! was last worked out. Bounded, and the same inputs give the same table: placement goes by it.
use super::job::{JobSpec, Level, Shape};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// So many shapes are remembered.
const KINDS: usize = 160;
/// When the weights sum up to this, all are halved: what was asked for long ago fades.
const MEMORY: u64 = 1 << 16;
/// The weight of one worker. More than one, so that a shape that came once survives some halvings.
const WORKER: u64 = 16;
/// One gang counts for at most so many workers: it says what is asked for, not that nothing else is.
const GANG: u32 = 64;
/// Shapes that together make up so much of the demand are looked at; rarer ones are left out.
const COVERED_PERCENT: u64 = 95;
/// An epoch ends when this part of what was free at its start is gone, or as much came free.
const EPOCH_FREE_PART: u64 = 16;
/// An epoch ends when the arrivals have grown by this part.
const EPOCH_ARRIVALS_PART: u64 = 8;
/// Arrivals beyond this do not make epochs longer: the table forgets as well.
const EPOCH_ARRIVALS: u64 = 4_096;
/// An epoch takes at least one arrival for so many nodes, so that working out prices costs each arrival next to nothing.
const EPOCH_NODES: u64 = 64;

/// How often each of a bounded number of shapes came, newer ones weighing more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Popular<K> {
    /// Sorted by shape.
    weights: Vec<(K, u64)>,
    total: u64,
}

impl<K> Default for Popular<K> {
    fn default() -> Self {
        Popular { weights: Vec::new(), total: 0 }
    }
}

impl<K: Ord + Clone> Popular<K> {
    /// A shape that is new in a full table takes over the weight of the rarest: so one that begins to come often is not
    /// kept out by those that came before, and no weight is too low.
    pub fn add(&mut self, kind: K, workers: u32) {
        let weight = u64::from(workers.clamp(1, GANG)) * WORKER;
        self.total += weight;
        match self.weights.binary_search_by(|(known, _)| known.cmp(&kind)) {
            Ok(at) => self.weights[at].1 += weight,
            Err(_) => {
                let inherited = if self.weights.len() < KINDS { 0 } else { self.forget_rarest() };
                let at = self.weights.partition_point(|(known, _)| *known < kind);
                self.weights.insert(at, (kind, weight + inherited));
            }
        }
        if self.total >= MEMORY {
            self.fade();
        }
    }

    fn forget_rarest(&mut self) -> u64 {
        let rarest = (0..self.weights.len()).min_by_key(|at| self.weights[*at].1);
        rarest.map_or(0, |at| self.weights.remove(at).1)
    }

    fn fade(&mut self) {
        self.weights.iter_mut().for_each(|(_, weight)| *weight /= 2);
        self.weights.retain(|(_, weight)| *weight > 0);
        self.total = self.weights.iter().map(|(_, weight)| weight).sum();
    }

    pub fn popular(&self) -> Vec<(K, u64)> {
        popular(self.weights.clone())
    }
}

/// The most frequent kinds, of equals the first, until nearly all of the demand is covered.
pub fn popular<K>(mut counts: Vec<(K, u64)>) -> Vec<(K, u64)> {
    counts.sort_by_key(|(_, count)| Reverse(*count));
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    let mut covered = 0;
    counts.retain(|(_, count)| {
        let wanted = covered * 100 < all * COVERED_PERCENT;
        covered += if wanted { *count } else { 0 };
        wanted
    });
    counts
}

/// What one worker wants of a node, as far as it decides which nodes could hold it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Want {
    /// Of workers that share an island, all that share one. Memory is rounded up, so that shapes which hardly differ
    /// count as one.
    pub shape: Shape,
    pub pool: Option<String>,
    /// All its GPUs in one part of a node of this level.
    pub within: Option<Level>,
}

impl Want {
    pub fn of(spec: &JobSpec) -> Want {
        let together = spec.topology.ranks_per_island.unwrap_or(1).max(1);
        let part = spec.topology.require.filter(|level| *level < Level::Node);
        let mut shape = spec.shape.clone();
        shape.gpus = shape.gpus.saturating_mul(together);
        shape.cpus = shape.cpus.saturating_mul(together);
        let memory_bytes = shape.memory_bytes.saturating_mul(together.into());
        shape.memory_bytes = memory_bytes.checked_next_power_of_two().unwrap_or(u64::MAX);
        if memory_bytes == 0 {
            shape.memory_bytes = 0;
        }
        let within = if spec.topology.ranks_per_island.is_some() { Some(Level::Island) } else { part };
        Want { shape, pool: spec.pool.clone(), within }
    }
}

/// A shape of the mix with what one place for it was worth at the beginning of the epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    pub want: Want,
    pub count: u64,
    pub price: u64,
}

/// When prices were last worked out, and what was the case then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Epoch {
    /// 0: there was none yet.
    pub number: u64,
    /// In any unit, always the same.
    pub free: u64,
    pub arrivals: u64,
    pub nodes: u64,
}

impl Epoch {
    /// `learns`: the mix changes with the arrivals.
    pub fn is_over(&self, free: u64, arrivals: u64, learns: bool) -> bool {
        let news = arrivals.saturating_sub(self.arrivals);
        let moved = self.free.abs_diff(free).saturating_mul(EPOCH_FREE_PART) > self.free;
        let grown = news.saturating_mul(EPOCH_ARRIVALS_PART) > self.arrivals.min(EPOCH_ARRIVALS);
        let enough = news.saturating_mul(EPOCH_NODES) >= self.nodes;
        self.number == 0 || (enough && (moved || (learns && grown)))
    }

    pub fn next(&self, free: u64, arrivals: u64, nodes: u64) -> Epoch {
        Epoch { number: self.number + 1, free, arrivals, nodes }
    }
}

/// The demand on a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Demand {
    pub asked: Popular<Want>,
    /// Submissions so far.
    pub arrivals: u64,
    pub epoch: Epoch,
    /// The popular shapes of the epoch, the most popular first. Decisions go by these alone, so that prices do not move
    /// while a decision and its own result are compared.
    pub kinds: Vec<Kind>,
    /// All GPUs at the beginning of the epoch.
    pub gpus: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_that_comes_often_displaces_the_rarest_and_old_ones_fade() {
        let mut table = Popular::default();
        (0..1_000u32).for_each(|kind| table.add(kind, 1));
        assert_eq!(table.weights.len(), KINDS);
        (0..200).for_each(|_| table.add(5_000, 1));
        assert_eq!(table.popular()[0].0, 5_000);
        (0..20_000).for_each(|_| table.add(7, 1));
        assert_eq!(
            table.popular().iter().map(|(kind, _)| *kind).collect::<Vec<_>>(),
            [7],
            "what came long ago is gone"
        );
        assert!(table.total < MEMORY);
    }

    #[test]
    fn rare_shapes_are_left_out() {
        let counts = vec![("often", 95), ("rare", 5)];
        assert_eq!(popular(counts), [("often", 95)]);
    }

    #[test]
    fn slices_count_as_one_worker_and_memory_is_rounded() {
        let shape = Shape { gpus: 2, cpus: 3, memory_bytes: 5, ..Shape::default() };
        let mut spec = JobSpec::new("a", 4, shape);
        spec.topology.ranks_per_island = Some(4);
        let want = Want::of(&spec);
        assert_eq!((want.shape.gpus, want.shape.cpus, want.shape.memory_bytes), (8, 12, 32));
        assert_eq!(want.within, Some(Level::Island));
    }

    #[test]
    fn epochs_end_with_news_or_when_what_is_free_moved() {
        let epoch = Epoch::default();
        assert!(epoch.is_over(0, 0, false), "the first begins at once");
        let epoch = epoch.next(160, 80, 640);
        assert!(!epoch.is_over(149, 89, true), "too few arrivals for so many nodes");
        assert!(!epoch.is_over(150, 90, true) && epoch.is_over(149, 90, true));
        assert!(epoch.is_over(160, 91, true) && !epoch.is_over(160, 91, false));
    }
}
