//! The order of arrivals: the tasks of a workload, shuffled by the seed, then copies of any of them until enough is asked.
use super::room::Ask;
use crate::random::dice::Dice;

/// Demand goes so far beyond the capacity; a larger workload loses random tasks.
const DEMAND_PERCENT: u64 = 130;

/// `asks` in the order of their names. Nothing but the seed decides the course.
pub fn arrivals(asks: &[Ask], capacity_milli: u64, seed: u64) -> Vec<Ask> {
    let dice = Dice::new(seed);
    let (mut order, mut more) = (dice.child("order"), dice.child("more"));
    let mut list = asks.to_vec();
    for last in (1..list.len()).rev() {
        list.swap(last, order.below(last as u64 + 1) as usize);
    }
    let wanted_milli = capacity_milli * DEMAND_PERCENT / 100;
    let mut asked_milli: u64 = list.iter().map(|ask| u64::from(ask.total_milli())).sum();
    if asked_milli == 0 {
        return list;
    }
    while asked_milli > wanted_milli {
        let gone = list.remove(more.below(list.len() as u64) as usize);
        asked_milli -= u64::from(gone.total_milli());
    }
    while asked_milli < wanted_milli {
        let Some(copy) = more.pick(asks) else { break };
        asked_milli += u64::from(copy.total_milli());
        list.push(*copy);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(gpus: u8) -> Ask {
        Ask { cpu_milli: 0, memory_mib: 0, gpus, gpu_milli: 1_000, models: 1 }
    }

    fn asked(list: &[Ask]) -> u64 {
        list.iter().map(|ask| u64::from(ask.total_milli())).sum()
    }

    #[test]
    fn small_workloads_grow_and_large_ones_shrink_to_the_demand() {
        let asks: Vec<Ask> = (1..=8).map(ask).collect();
        let grown = arrivals(&asks, 100_000, 7);
        assert!((130_000..138_000).contains(&asked(&grown)), "{}", asked(&grown));
        let cut = arrivals(&asks, 10_000, 7);
        assert!((5_000..=13_000).contains(&asked(&cut)) || cut.len() > 1, "{}", asked(&cut));
        assert_eq!(arrivals(&asks, 100_000, 7), grown, "the seed decides");
        assert_ne!(arrivals(&asks, 100_000, 8), grown);
        assert_eq!(arrivals(&[ask(0)], 100_000, 7).len(), 1, "no demand cannot grow");
    }
}
