//! The mix of shapes that a workload is made of: how often each comes. Weights are counts, so nothing is rounded.
#![deny(clippy::float_arithmetic, reason = "decisions are integers; this is to move into the core")]
use super::room::Ask;
use std::collections::BTreeMap;

/// Shapes that together make up so much of a workload; rarer ones are left out.
const COVERED_PERCENT: u64 = 95;

/// A shape and how many tasks of the workload have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Without memory: shapes that differ in memory alone count as one.
    pub ask: Ask,
    pub count: u64,
}

/// The popular shapes, the most popular first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mix {
    pub kinds: Vec<Kind>,
    /// Of all kinds together.
    pub count: u64,
}

/// How often each shape was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<Ask, u64>);

impl Counts {
    pub fn add(&mut self, ask: &Ask) {
        *self.0.entry(Ask { memory_mib: 0, ..*ask }).or_default() += 1;
    }

    pub fn mix(&self) -> Mix {
        Mix::popular(self.0.iter().map(|(&ask, &count)| Kind { ask, count }).collect())
    }
}

impl Mix {
    pub fn of<'a>(asks: impl IntoIterator<Item = &'a Ask>) -> Mix {
        let mut counts = Counts::default();
        asks.into_iter().for_each(|ask| counts.add(ask));
        counts.mix()
    }

    fn popular(mut kinds: Vec<Kind>) -> Mix {
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.count));
        let all: u64 = kinds.iter().map(|kind| kind.count).sum();
        let mut covered = 0;
        kinds.retain(|kind| {
            let wanted = covered * 100 < all * COVERED_PERCENT;
            covered += if wanted { kind.count } else { 0 };
            wanted
        });
        Mix { kinds, count: covered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rare_shapes_are_left_out_and_memory_does_not_count() {
        let ask = |cpu_milli, memory_mib| Ask { cpu_milli, memory_mib, gpus: 0, gpu_milli: 0, models: 0 };
        let mut asks: Vec<Ask> = (0..95).map(|memory| ask(1_000, memory)).collect();
        asks.extend((0..5).map(|cpu| ask(cpu, 0)));
        let mix = Mix::of(&asks);
        assert_eq!(mix.kinds, [Kind { ask: ask(1_000, 0), count: 95 }]);
        assert_eq!(mix.count, 95);
    }
}
