//! The mix of shapes that a workload is made of: how often each comes. Weights are counts, so nothing is rounded.
use super::room::Ask;
use ganger_core::model::demand::popular;
use std::collections::BTreeMap;

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

impl Mix {
    /// Of a whole workload, counted exactly.
    pub fn of<'a>(asks: impl IntoIterator<Item = &'a Ask>) -> Mix {
        let mut counts = BTreeMap::new();
        asks.into_iter().for_each(|ask| *counts.entry(without_memory(ask)).or_default() += 1);
        Mix::made_of(popular(counts.into_iter().collect()))
    }

    /// Of what was learnt.
    pub fn made_of(popular: Vec<(Ask, u64)>) -> Mix {
        let kinds: Vec<Kind> = popular.into_iter().map(|(ask, count)| Kind { ask, count }).collect();
        Mix { count: kinds.iter().map(|kind| kind.count).sum(), kinds }
    }
}

pub fn without_memory(ask: &Ask) -> Ask {
    Ask { memory_mib: 0, ..*ask }
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
