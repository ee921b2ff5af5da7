//! The placement experiment: tasks arrive one at a time on an empty cluster, nothing departs, what does not fit is
//! dropped. What counts is how much is allocated when the demand equals the capacity.
use super::bid::{Bid, Scorer, best};
use super::fragments::fragmented;
use super::mix::Mix;
use super::room::Ask;
use super::site::Site;
use crate::random::dice::Dice;
use std::collections::BTreeMap;

/// Arrived demand is looked at in whole percent of the capacity, up to here.
pub const PERCENT_MAX: usize = 100;

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// GPU allocated, in percent of the capacity, by percent arrived; a mean over the arrivals that round to it.
    pub allocated_pct: Vec<f64>,
    /// The part of what is free that the workload cannot use, in percent.
    pub fragmented_pct: Vec<f64>,
    pub placed: usize,
    pub dropped: usize,
}

/// How nodes are chosen.
pub enum Chooser<'a> {
    Scored(Box<dyn Scorer + 'a>),
    /// Any node that fits and any of its GPUs.
    Random(Dice),
}

/// Runs the arrivals until all of the capacity has been asked for.
pub fn run(mut sites: Vec<Site>, arrivals: &[Ask], mix: &Mix, chooser: &mut Chooser) -> Curves {
    let capacity_milli: u64 = sites.iter().map(|site| u64::from(site.capacity_milli)).sum();
    let mut probe = Probe::new(&sites, mix, capacity_milli);
    let mut memory = Memory::default();
    for ask in arrivals {
        let chosen = choose(&sites, ask, chooser, &mut memory);
        if let Some((index, bid)) = chosen {
            sites[index].place(ask, bid.set);
        }
        if !probe.note(&sites, ask, chosen.map(|(index, _)| index)) {
            break;
        }
    }
    probe.curves()
}

fn choose(sites: &[Site], ask: &Ask, chooser: &mut Chooser, memory: &mut Memory) -> Option<(usize, Bid)> {
    match chooser {
        Chooser::Random(dice) => random(sites, ask, dice),
        Chooser::Scored(scorer) => {
            scorer.arrived(ask, sites);
            best(memory.bids(sites, ask, scorer.as_ref()), scorer.band())
        }
    }
}

fn random(sites: &[Site], ask: &Ask, dice: &mut Dice) -> Option<(usize, Bid)> {
    let fitting: Vec<usize> = (0..sites.len()).filter(|&index| sites[index].room.fits(ask)).collect();
    let index = *dice.pick(&fitting)?;
    let sets: Vec<_> = if ask.is_share() {
        let free = sites[index].room.free_milli();
        (0..free.len()).filter(|&gpu| free[gpu] >= ask.gpu_milli).map(|gpu| 1 << gpu).collect()
    } else {
        vec![sites[index].room.first_whole(ask)]
    };
    let set = *dice.pick(&sets)?;
    Some((index, Bid { score: 0, tie: 0, set }))
}

/// The last bids for each shape: only the nodes that changed since are asked again.
#[derive(Default)]
struct Memory(BTreeMap<Ask, Shape>);

#[derive(Default)]
struct Shape {
    epoch: u32,
    /// The version of the node at the time of its bid.
    seen: Vec<Option<u32>>,
    bids: Vec<Option<Bid>>,
}

impl Memory {
    fn bids(&mut self, sites: &[Site], ask: &Ask, scorer: &dyn Scorer) -> &[Option<Bid>] {
        let shape = self.0.entry(*ask).or_default();
        if shape.epoch != scorer.epoch() || shape.seen.len() != sites.len() {
            *shape = Shape { epoch: scorer.epoch(), seen: vec![None; sites.len()], bids: vec![None; sites.len()] };
        }
        for ((site, seen), bid) in sites.iter().zip(&mut shape.seen).zip(&mut shape.bids) {
            if *seen != Some(site.version) {
                *seen = Some(site.version);
                *bid = site.room.fits(ask).then(|| scorer.bid(site, ask));
            }
        }
        &shape.bids
    }
}

/// Takes the two curves while tasks arrive.
struct Probe<'a> {
    mix: &'a Mix,
    capacity_milli: u64,
    arrived_milli: u64,
    free_milli: u64,
    fragments: Vec<u64>,
    fragmented: u64,
    sums: Vec<(f64, f64, u32)>,
    placed: usize,
    dropped: usize,
}

impl<'a> Probe<'a> {
    fn new(sites: &[Site], mix: &'a Mix, capacity_milli: u64) -> Probe<'a> {
        let fragments: Vec<u64> = sites.iter().map(|site| fragmented(mix, &site.room)).collect();
        Probe {
            mix,
            capacity_milli,
            arrived_milli: 0,
            free_milli: sites.iter().map(|site| u64::from(site.room.total_milli())).sum(),
            fragmented: fragments.iter().sum(),
            fragments,
            sums: vec![(0.0, 0.0, 0); PERCENT_MAX + 1],
            placed: 0,
            dropped: 0,
        }
    }

    /// After one arrival; false when all has arrived that is looked at.
    fn note(&mut self, sites: &[Site], ask: &Ask, changed: Option<usize>) -> bool {
        self.arrived_milli += u64::from(ask.total_milli());
        match changed {
            Some(index) => self.placed_on(index, &sites[index], ask),
            None => self.dropped += 1,
        }
        // Rounded to the nearest percent.
        let percent = ((self.arrived_milli * 200 + self.capacity_milli) / (self.capacity_milli * 2).max(1)) as usize;
        let Some((allocated, fragmented, count)) = self.sums.get_mut(percent) else { return false };
        *allocated += 100.0 * (self.capacity_milli - self.free_milli) as f64 / self.capacity_milli as f64;
        let free = (self.free_milli.max(1) * self.mix.count.max(1)) as f64;
        *fragmented += 100.0 * self.fragmented as f64 / free;
        *count += 1;
        true
    }

    fn placed_on(&mut self, index: usize, site: &Site, ask: &Ask) {
        self.placed += 1;
        self.free_milli -= u64::from(ask.total_milli());
        let now = fragmented(self.mix, &site.room);
        self.fragmented = self.fragmented - self.fragments[index] + now;
        self.fragments[index] = now;
    }

    fn curves(self) -> Curves {
        let mean = |sum: f64, count: u32| sum / f64::from(count.max(1));
        Curves {
            allocated_pct: self.sums.iter().map(|&(allocated, _, count)| mean(allocated, count)).collect(),
            fragmented_pct: self.sums.iter().map(|&(_, fragmented, count)| mean(fragmented, count)).collect(),
            placed: self.placed,
            dropped: self.dropped,
        }
    }
}
