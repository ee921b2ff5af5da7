//! Our placement score: the core's own ([`ganger_core::scheduler::fragment`]) on the nodes of the experiment.
use super::bid::{Bid, Scorer};
use super::fragments::{ask_of, free_of, usable};
use super::mix::{Mix, without_memory};
use super::room::{Ask, Room};
use super::site::Site;
use ganger_core::model::demand::{Epoch, Popular};
use ganger_core::scheduler::fragment::price::{Priced, band, price, value};
use std::collections::BTreeMap;

/// The score with the mix that it goes by.
pub struct Ours {
    mix: Mix,
    /// The shapes of the mix with what one place of each is worth.
    kinds: Vec<Priced>,
    /// By GPU model, then by shape: what suits it.
    usable: BTreeMap<u32, Vec<u64>>,
    learnt: Option<Popular<Ask>>,
    epoch: Epoch,
    arrivals: u64,
}

impl Ours {
    /// The mix of the whole workload is known beforehand, as for the published gradient.
    pub fn given(mix: Mix) -> Ours {
        let (kinds, usable) = (Vec::new(), BTreeMap::new());
        Ours { mix, kinds, usable, learnt: None, epoch: Epoch::default(), arrivals: 0 }
    }

    /// Nothing is known beforehand: the mix is what has arrived so far.
    pub fn learning() -> Ours {
        Ours { learnt: Some(Popular::default()), ..Ours::given(Mix::default()) }
    }

    fn begin_epoch(&mut self, sites: &[Site], free_milli: u64) {
        if let Some(counts) = &self.learnt {
            self.mix = Mix::made_of(counts.popular());
        }
        let models: BTreeMap<u32, ()> = sites.iter().map(|site| (site.room.model, ())).collect();
        let suits = |model| self.mix.kinds.iter().map(move |kind| usable(&kind.ask, model)).collect();
        self.usable = models.into_keys().map(|model| (model, suits(model))).collect();
        self.kinds = priced(&self.mix, sites);
        self.epoch = self.epoch.next(free_milli, self.arrivals, sites.len() as u64);
    }

    fn value(&self, room: &Room) -> i64 {
        self.usable.get(&room.model).map_or(0, |usable| value(&free_of(room), &self.kinds, usable))
    }
}

impl Scorer for Ours {
    fn bid(&self, site: &Site, ask: &Ask) -> Bid {
        let before = self.value(&site.room);
        let mut best = Bid { score: i64::MIN, tie: 0, set: 0 };
        for set in site.room.choices(ask) {
            let after = site.room.after(ask, set);
            let score = self.value(&after) - before;
            if score > best.score {
                best = Bid { score, tie: -i64::from(after.total_milli()), set };
            }
        }
        best
    }

    fn band(&self) -> i64 {
        band(&self.kinds)
    }

    fn arrived(&mut self, ask: &Ask, sites: &[Site]) {
        self.arrivals += 1;
        if let Some(counts) = &mut self.learnt {
            counts.add(without_memory(ask), 1);
        }
        let free_milli = sites.iter().map(|site| u64::from(site.room.total_milli())).sum();
        if self.epoch.is_over(free_milli, self.arrivals, self.learnt.is_some()) {
            self.begin_epoch(sites, free_milli);
        }
    }

    fn epoch(&self) -> u32 {
        self.epoch.number as u32
    }
}

fn priced(mix: &Mix, sites: &[Site]) -> Vec<Priced> {
    let rooms: Vec<_> = sites.iter().map(|site| (free_of(&site.room), site.room.model)).collect();
    let capacity_milli: u64 = sites.iter().map(|site| u64::from(site.capacity_milli)).sum();
    let kinds = mix.kinds.iter().map(|kind| {
        let ask = ask_of(&kind.ask);
        let places = rooms.iter().map(|(free, model)| free.holds(&ask, usable(&kind.ask, *model))).sum();
        Priced { ask, count: kind.count, price: price(kind.count, &ask, capacity_milli, places) }
    });
    kinds.collect()
}

#[cfg(test)]
mod tests {
    use super::super::mix::Kind;
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
        let prices: Vec<u64> = priced(&mix, &sites).iter().map(|kind| kind.price).collect();
        assert_eq!(prices, [27_000, 3_000, 0]);
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
        let sites = [site("a", 1), site("b", 2)];
        let mut learning = Ours::learning();
        learning.arrived(&ask(500, 1), &sites);
        let kinds: Vec<Ask> = learning.mix.kinds.iter().map(|kind| kind.ask).collect();
        assert_eq!(kinds, [ask(500, 1)]);
        assert!(learning.bid(&sites[1], &ask(500, 3)).score > learning.bid(&sites[0], &ask(500, 3)).score);
    }
}
