//! What the free part of a node is worth to a mix of shapes, in integers.
//!
//! For each shape the cluster can still take so many workers, if nothing else came. The rarer these places are, measured
//! against the cluster, the dearer is each that a placement uses up: its price is the slope of `count x GPUs / places`,
//! which grows with the square of the scarcity. So work that may run anywhere keeps off the few GPUs that other work is
//! bound to, and work with few cores to a GPU keeps off nodes rich in cores. The gradient of fragmentation is added with
//! a fixed weight: it alone sees how useless each small remainder is.
use super::free::{Ask, Free};

/// How much the gradient of fragmentation weighs against the prices. From 2 to 8 the outcome on public traces changes by
/// 0.1 points.
const FRAGMENT_WEIGHT: u64 = 8;
/// No price is above this, so that no sum can overflow.
const PRICE_MAX: u64 = 1 << 48;
/// Scores that differ by less than so many thousandths of a GPU of fragments count as equal; what then decides is how
/// tight the node is.
const BAND_MILLI: u64 = 20;

/// One shape of a mix, as a node sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priced {
    pub ask: Ask,
    pub count: u64,
    pub price: u64,
}

/// What the free part of a node is worth less what of it is fragmented. `usable`: by shape, the GPUs that suit it.
pub fn value(free: &Free<'_>, kinds: &[Priced], usable: &[u64]) -> i64 {
    let one = |(kind, usable): (&Priced, &u64)| {
        let places = i128::from(free.holds(&kind.ask, *usable)) * i128::from(kind.price);
        let fragments = u128::from(FRAGMENT_WEIGHT * kind.count) * u128::from(free.unusable_milli(&kind.ask, *usable));
        places - fragments as i128
    };
    let sum: i128 = kinds.iter().zip(usable).map(one).sum();
    i64::try_from(sum).unwrap_or(if sum < 0 { i64::MIN / 2 } else { i64::MAX / 2 })
}

/// Scores this close to the best count as equal to it.
pub fn band(kinds: &[Priced]) -> i64 {
    let count: u64 = kinds.iter().map(|kind| kind.count).sum();
    i64::try_from(FRAGMENT_WEIGHT * BAND_MILLI * count).unwrap_or(i64::MAX / 2)
}

/// The price of one place for a shape: the slope of `count x capacity / (size x places)` where places are measured in
/// GPUs, `count x capacity² / (size x places²)`. Shapes without GPUs need no place of ours.
pub fn price(count: u64, ask: &Ask, capacity_milli: u64, places: u64) -> u64 {
    let (size_milli, places, capacity) =
        (u128::from(ask.total_milli()), u128::from(places.max(1)), u128::from(capacity_milli));
    let worth = u128::from(count).saturating_mul(capacity.saturating_mul(capacity));
    let price = worth.checked_div(size_milli.saturating_mul(places * places)).unwrap_or(0);
    u64::try_from(price).unwrap_or(PRICE_MAX).min(PRICE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(gpus: u32) -> Ask {
        Ask { cpus: 1, memory: 0, gpus, gpu_milli: 1_000, within: None }
    }

    #[test]
    fn a_place_costs_more_the_fewer_there_are() {
        assert_eq!(price(3, &ask(1), 6_000, 2), 27_000);
        assert_eq!(price(3, &ask(1), 6_000, 6), 3_000);
        assert_eq!(price(3, &ask(0), 6_000, 6), 0, "no GPU, no price");
        assert_eq!(price(u64::MAX, &ask(1), u64::MAX, 0), PRICE_MAX);
    }

    #[test]
    fn the_value_is_that_of_the_places_less_the_fragments() {
        let kinds = [Priced { ask: ask(2), count: 3, price: 100 }, Priced { ask: ask(8), count: 1, price: 1_000 }];
        let free = Free::new(64, 0, 0b1111, None);
        // Two places for pairs; the eight GPUs are not there, so that one can use nothing of the four.
        assert_eq!(value(&free, &kinds, &[u64::MAX; 2]), 2 * 100 - 8 * 4_000);
        assert_eq!(value(&free, &kinds, &[0; 2]), -8 * 4 * 4_000, "none of it suits anybody");
        assert_eq!(band(&kinds), 8 * 20 * 4);
    }
}
