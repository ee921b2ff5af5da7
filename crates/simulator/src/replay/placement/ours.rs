//! Our placement score: the fragmentation gradient, and what is scarce is spared. Integers only, no I/O, no clock.
//!
//! For each shape of the mix the cluster can still take so many tasks, if nothing else came. The rarer these places are,
//! measured against the cluster, the dearer is each that a placement uses up: its price is the slope of
//! `count x GPUs / places`, which grows with the square of the scarcity. So work that may run anywhere keeps off the few
//! GPUs that other work is bound to, and work with few cores to a GPU keeps off nodes rich in cores. The gradient of
//! fragmentation is added with a fixed weight: it alone sees how useless each small remainder is.
//!
//! Prices hold for an epoch, until a sixteenth of what was free is gone: within it the score of a node depends on this
//! node alone and may be remembered.
#![deny(clippy::float_arithmetic, reason = "decisions are integers; this is to move into the core")]
use super::bid::{Bid, Scorer};
use super::fragments::Tally;
use super::mix::{Counts, Kind, Mix};
use super::room::{Ask, Room};
use super::site::Site;

/// How much the gradient of fragmentation weighs against the prices. From 2 to 8 the outcome changes by 0.1 points.
const FRAGMENT_WEIGHT: u64 = 8;
/// An epoch ends when this part of what was free at its start is gone.
const EPOCH_FREE_PART: u64 = 16;
/// While the mix is learnt an epoch also ends when the arrivals have grown by this part.
const EPOCH_ARRIVALS_PART: u64 = 8;
/// No price is above this, so that no sum of eight places of a few hundred shapes can overflow.
const PRICE_MAX: u64 = 1 << 48;

/// The score with the mix that it goes by.
pub struct Ours {
    mix: Mix,
    /// Of one place for each kind of the mix, in thousandths of a GPU times tasks of the mix.
    prices: Vec<u64>,
    learnt: Option<Counts>,
    epoch: u32,
    epoch_free_milli: u64,
    epoch_arrivals: u64,
    arrivals: u64,
}

impl Ours {
    /// The mix of the whole workload is known beforehand, as for the published gradient.
    pub fn given(mix: Mix) -> Ours {
        let (prices, learnt) = (Vec::new(), None);
        Ours { mix, prices, learnt, epoch: 0, epoch_free_milli: 0, epoch_arrivals: 0, arrivals: 0 }
    }

    /// Nothing is known beforehand: the mix is what has arrived so far.
    pub fn learning() -> Ours {
        Ours { learnt: Some(Counts::default()), ..Ours::given(Mix::default()) }
    }

    fn epoch_is_over(&self, free_milli: u64) -> bool {
        let gone = self.epoch_free_milli.saturating_sub(free_milli);
        let news = self.arrivals - self.epoch_arrivals;
        self.epoch == 0
            || gone * EPOCH_FREE_PART > self.epoch_free_milli
            || (self.learnt.is_some() && news * EPOCH_ARRIVALS_PART > self.epoch_arrivals)
    }

    fn begin_epoch(&mut self, sites: &[Site], free_milli: u64) {
        if let Some(counts) = &self.learnt {
            self.mix = counts.mix();
        }
        self.prices = prices(&self.mix, sites);
        self.epoch += 1;
        self.epoch_free_milli = free_milli;
        self.epoch_arrivals = self.arrivals;
    }

    /// What the free part of a node is worth less what of it is fragmented.
    fn value(&self, room: &Room) -> i64 {
        let tally = Tally::of(room);
        let one = |(kind, price): (&Kind, &u64)| {
            let places = tally.holds(&kind.ask) * price;
            places as i64 - (FRAGMENT_WEIGHT * kind.count * tally.unusable_milli(&kind.ask)) as i64
        };
        self.mix.kinds.iter().zip(&self.prices).map(one).sum()
    }
}

impl Scorer for Ours {
    fn bid(&self, site: &Site, ask: &Ask) -> Bid {
        let before = self.value(&site.room);
        let mut best = Bid { score: i64::MIN, tie: 0, set: 0 };
        for set in site.room.choices(ask) {
            let score = self.value(&site.room.after(ask, set)) - before;
            if score > best.score {
                best = Bid { score, tie: 0, set };
            }
        }
        best
    }

    fn arrived(&mut self, ask: &Ask, sites: &[Site]) {
        self.arrivals += 1;
        if let Some(counts) = &mut self.learnt {
            counts.add(ask);
        }
        let free_milli = sites.iter().map(|site| u64::from(site.room.total_milli())).sum();
        if self.epoch_is_over(free_milli) {
            self.begin_epoch(sites, free_milli);
        }
    }

    fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// The price of one place for each kind: the slope of `count x capacity / (size x places)` where places are measured in
/// GPUs, `count x capacity² / (size x places²)`. Kinds without GPU need no place of ours.
fn prices(mix: &Mix, sites: &[Site]) -> Vec<u64> {
    let tallies: Vec<Tally> = sites.iter().map(|site| Tally::of(&site.room)).collect();
    let capacity_milli: u128 = sites.iter().map(|site| u128::from(site.capacity_milli)).sum();
    let price = |kind: &Kind| {
        let places: u64 = tallies.iter().map(|tally| tally.holds(&kind.ask)).sum();
        let (size_milli, places) = (u128::from(kind.ask.total_milli()), u128::from(places.max(1)));
        let worth = u128::from(kind.count) * capacity_milli * capacity_milli;
        let price = worth.checked_div(size_milli * places * places).unwrap_or(0);
        u64::try_from(price).unwrap_or(PRICE_MAX).min(PRICE_MAX)
    };
    mix.kinds.iter().map(price).collect()
}

#[cfg(test)]
mod tests {
    use super::super::site::CLASSES;
    use super::*;

    fn site(name: &str, model: u32) -> Site {
        let room = Room::empty(8_000, 0, model, 2);
        Site { name: name.into(), room, capacity_milli: 2_000, classes: [0; CLASSES], version: 0 }
    }

    fn ask(gpu_milli: u16, models: u32) -> Ask {
        Ask { cpu_milli: 1_000, memory_mib: 0, gpus: 1, gpu_milli, models }
    }

    fn kind(ask: Ask, count: u64) -> Kind {
        Kind { ask, count }
    }

    #[test]
    fn a_place_costs_more_the_fewer_there_are() {
        let no_gpu = Ask { gpus: 0, ..ask(0, 3) };
        let mix = Mix { kinds: vec![kind(ask(1_000, 1), 3), kind(ask(1_000, 3), 3), kind(no_gpu, 1)], count: 7 };
        let sites = [site("a", 1), site("b", 2), site("c", 2)];
        // 6000 milli in all: 3 x 6000² / (1000 x 2²) and 3 x 6000² / (1000 x 6²); no GPU, no price.
        assert_eq!(prices(&mix, &sites), [27_000, 3_000, 0]);
    }

    #[test]
    fn work_that_may_run_anywhere_keeps_off_what_others_are_bound_to() {
        let mix = Mix { kinds: vec![kind(ask(1_000, 1), 1), kind(ask(1_000, 3), 1)], count: 2 };
        let sites = [site("a", 1), site("b", 2)];
        let mut ours = Ours::given(mix);
        ours.arrived(&ask(1_000, 3), &sites);
        let bids: Vec<i64> = sites.iter().map(|site| ours.bid(site, &ask(1_000, 3)).score).collect();
        // On a: one of two bound places (4000 each) and one of four others (1000 each), no new fragment.
        // On b the bound shape can use nothing of the second GPU anyway: 8 x (1000 - 2000) less fragments of it.
        assert_eq!(bids, [-4_000 - 1_000, -1_000 + 8_000]);
    }

    #[test]
    fn what_is_learnt_is_what_arrived() {
        let sites = [site("a", 1), site("b", 1)];
        let (mut learning, mut given) =
            (Ours::learning(), Ours::given(Mix { kinds: vec![kind(ask(500, 1), 1)], count: 1 }));
        learning.arrived(&ask(500, 1), &sites);
        given.arrived(&ask(500, 1), &sites);
        assert_eq!(learning.bid(&sites[0], &ask(500, 1)), given.bid(&sites[0], &ask(500, 1)));
    }
}
