//! What each node would cost: the fewest of its cheapest victims that make room there for one worker more.
//!
//! An offer depends on one node alone, so it stays until something on that node changes or somebody there may no longer
//! be told to leave. Claimants of one kind follow each other by the dozen and share the offers.
use super::Session;
use super::Unit;
use super::counts::{Stamp, differing};
use super::filter::{Pick, yields};
use super::fit::{self, Cell};
use super::room::Room;
use super::victims::{Pool, Victim};
use crate::model::cluster::Cluster;
use crate::model::ids::{JobId, NodeId};
use crate::model::job::{JobSpec, Place, Shape};
use crate::model::time::Time;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// So many kinds of claimants are remembered; of more, those that came last.
const KINDS: usize = 16;

/// The fewest of a node's cheapest victims that make room for at least one worker more.
#[derive(Clone)]
struct Offer {
    victims: Vec<usize>,
    gain: u32,
    cost: u128,
    youngest: (Time, JobId),
}

/// A node with its workers now and what the next would cost.
#[derive(Clone, Default)]
struct Stand {
    workers: u32,
    offer: Option<Offer>,
}

/// The offers to one kind of claimant.
pub struct Offers {
    kind: Kind,
    /// Nodes that take such work at all.
    usable: Vec<bool>,
    legal: Vec<bool>,
    stands: Vec<Stand>,
    /// What the nodes were like when these were made.
    of: Vec<Stamp>,
}

/// All of a claimant that offers depend on, but for who may be told to leave.
#[derive(PartialEq, Eq)]
struct Kind {
    shape: Shape,
    workers: u32,
    pool: Option<String>,
    yields: bool,
    /// The pools that are lent to it now.
    lent: Vec<String>,
}

impl Kind {
    fn of(cluster: &Cluster, now: Time, spec: &JobSpec) -> Kind {
        let (shape, workers, pool) = (spec.shape.clone(), spec.gang.workers, spec.pool.clone());
        Kind { shape, workers, pool, yields: yields(spec), lent: lent(cluster, now, spec) }
    }

    fn is_of(&self, cluster: &Cluster, now: Time, spec: &JobSpec) -> bool {
        self.workers == spec.gang.workers
            && self.yields == yields(spec)
            && self.pool == spec.pool
            && self.shape == spec.shape
            && self.lent == lent(cluster, now, spec)
    }
}

fn lent(cluster: &Cluster, now: Time, spec: &JobSpec) -> Vec<String> {
    cluster.lenders(spec).into_iter().filter(|pool| cluster.is_lent(pool, spec, now)).map(String::from).collect()
}

/// What a search of victims looks at.
#[derive(Clone, Copy)]
pub struct Scene<'s, 'a> {
    pub session: &'s Session<'a>,
    pub spec: &'s JobSpec,
    pub pool: &'s Pool<'a>,
}

impl<'a> Session<'a> {
    /// The offers to the largest gang of the unit, brought up to date; to be given back with [`Session::keep_offers`].
    pub fn offers_to(&mut self, unit: &Unit<'a>, pool: &Pool<'a>, legal: &[bool]) -> Option<(&'a JobSpec, Offers)> {
        let spec: &'a JobSpec = &unit.iter().copied().max_by_key(|job| job.spec.total().gpus)?.spec;
        let known = self.offers.iter().position(|offers| offers.kind.is_of(self.cluster, self.now, spec));
        let mut offers = match known {
            Some(index) => self.offers.remove(index),
            None => Offers::new(self, spec, pool),
        };
        let work = offers.refresh(Scene { session: self, spec, pool }, legal);
        self.draft.work += work;
        Some((spec, offers))
    }

    pub fn keep_offers(&mut self, offers: Offers) {
        if self.offers.len() >= KINDS {
            self.offers.remove(0);
        }
        self.offers.push(offers);
    }
}

impl Offers {
    fn new(session: &Session<'_>, spec: &JobSpec, pool: &Pool<'_>) -> Offers {
        let pick = Pick::Accepting(session.now);
        let usable = pick.allowed(session.cluster, spec);
        let (stands, of) = (vec![Stand::default(); usable.len()], vec![Stamp::MAX; usable.len()]);
        let kind = Kind::of(session.cluster, session.now, spec);
        Offers { kind, usable, legal: vec![false; pool.victims.len()], stands, of }
    }

    /// Makes the offers of nodes anew on which something changed; how many that were.
    fn refresh(&mut self, scene: Scene<'_, '_>, legal: &[bool]) -> u64 {
        let stamps = scene.session.draft.stamps();
        let mut stale: Vec<usize> = differing(stamps, &self.of).map(|(index, _)| index).collect();
        for (index, _) in self.legal.iter().zip(legal).enumerate().filter(|(_, (old, new))| old != new) {
            stale.extend(scene.pool.victims[index].places.iter().map(|place| place.node.index()));
        }
        stale.sort_unstable();
        stale.dedup();
        self.legal.copy_from_slice(legal);
        self.of.copy_from_slice(stamps);
        let mut made = 0;
        for index in stale {
            if self.usable[index] {
                let node = NodeId(index as u32);
                self.stands[index] = self.stand(scene, node, scene.session.draft.room(node), &BTreeSet::new());
                made += 1;
            }
        }
        made
    }

    fn stand(&self, scene: Scene<'_, '_>, node: NodeId, room: &Room, chosen: &BTreeSet<usize>) -> Stand {
        let workers = scene.workers(node, room);
        Stand { workers, offer: self.offer(scene, node, room, workers, chosen) }
    }

    fn offer(
        &self,
        scene: Scene<'_, '_>,
        node: NodeId,
        room: &Room,
        before: u32,
        chosen: &BTreeSet<usize>,
    ) -> Option<Offer> {
        let here = scene.pool.on[node.index()].iter().copied();
        let mut order: Vec<usize> = here.filter(|i| self.legal[*i] && !chosen.contains(i)).collect();
        order.sort_by_cached_key(|index| scene.per_freed(*index, node));
        let mut freed = *room;
        let mut taken = Vec::new();
        for index in order {
            scene.places_on(index, node).for_each(|place| freed.give(place));
            taken.push(index);
            if scene.workers(node, &freed) > before {
                return Some(scene.trimmed(node, room, before, taken));
            }
        }
        None
    }
}

impl<'a> Scene<'_, 'a> {
    fn workers(&self, node: NodeId, room: &Room) -> u32 {
        let machine = &self.session.cluster.node(node).machine;
        fit::capacity(machine, room, &self.spec.shape, Cell::whole(machine)).min(self.spec.gang.workers)
    }

    fn places_on(&self, index: usize, node: NodeId) -> impl Iterator<Item = &'a Place> {
        self.pool.victims[index].places_on(node)
    }

    /// Cost for each GPU (or CPU) freed on the node, then the youngest first.
    fn per_freed(&self, index: usize, node: NodeId) -> (u128, Reverse<(Time, JobId)>, usize) {
        let freed: u64 = self
            .places_on(index, node)
            .map(|place| if self.spec.shape.gpus > 0 { place.gpus.count_ones() } else { place.cpus.count() })
            .map(u64::from)
            .sum();
        let victim: &Victim<'_> = &self.pool.victims[index];
        (victim.cost / u128::from(freed.max(1)), Reverse(victim.youngest), index)
    }

    /// Without those who turn out not to be needed.
    fn trimmed(&self, node: NodeId, room: &Room, before: u32, mut taken: Vec<usize>) -> Offer {
        let workers_without = |taken: &[usize]| {
            let mut room = *room;
            taken.iter().flat_map(|i| self.places_on(*i, node)).for_each(|place| room.give(place));
            self.workers(node, &room)
        };
        let mut at = 0;
        while at < taken.len() && taken.len() > 1 {
            let mut fewer = taken.clone();
            fewer.remove(at);
            if workers_without(&fewer) > before { taken = fewer } else { at += 1 }
        }
        let gain = workers_without(&taken) - before;
        let cost = taken.iter().map(|i| self.pool.victims[*i].cost).sum();
        let youngest = taken.iter().map(|i| self.pool.victims[*i].youngest).max().unwrap_or_default();
        Offer { victims: taken, gain, cost, youngest }
    }
}

/// An offer in the order of service: the least cost per worker gained; of equals the one whose victims are youngest.
#[derive(PartialEq, Eq)]
struct Bid {
    cost: u128,
    gain: u32,
    youngest: (Time, JobId),
    node: NodeId,
    /// How often the node had changed in this search when the offer was made.
    round: u32,
}

impl Ord for Bid {
    fn cmp(&self, other: &Bid) -> Ordering {
        let (left, right) = (self.cost.saturating_mul(other.gain.into()), other.cost.saturating_mul(self.gain.into()));
        left.cmp(&right).then(other.youngest.cmp(&self.youngest)).then(self.node.cmp(&other.node))
    }
}

impl PartialOrd for Bid {
    fn partial_cmp(&self, other: &Bid) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Takes offers in a domain until there is room for so many workers, counted node by node without placing anything.
pub struct Search<'s, 'a> {
    scene: Scene<'s, 'a>,
    offers: &'s Offers,
    /// Ascending.
    domain: &'s [NodeId],
    /// Nodes on which somebody was chosen: what is free there then, and the stand after.
    changed: BTreeMap<NodeId, (Room, Stand, u32)>,
    bids: BinaryHeap<Reverse<Bid>>,
    workers: u64,
    chosen: BTreeSet<usize>,
}

impl<'s, 'a> Search<'s, 'a> {
    /// Victims in the domain (nodes ascending) that leave room for the gang, or `None` if all who may be told are not
    /// enough.
    pub fn first_guess(scene: Scene<'s, 'a>, offers: &'s Offers, domain: &'s [NodeId]) -> Option<BTreeSet<usize>> {
        let usable = || domain.iter().copied().filter(|node| offers.usable[node.index()]);
        let bids: Vec<Reverse<Bid>> = usable().filter_map(|node| bid(node, &offers.stands[node.index()], 0)).collect();
        let workers = usable().map(|node| u64::from(offers.stands[node.index()].workers)).sum();
        let (changed, chosen) = (BTreeMap::new(), BTreeSet::new());
        let mut search = Search { scene, offers, domain, changed, bids: BinaryHeap::from(bids), workers, chosen };
        while search.workers < u64::from(scene.spec.gang.workers) {
            search.take_cheapest()?;
        }
        Some(search.chosen)
    }

    fn take_cheapest(&mut self) -> Option<()> {
        let bid = loop {
            let Reverse(bid) = self.bids.pop()?;
            if self.changed.get(&bid.node).map_or(0, |(_, _, round)| *round) == bid.round {
                break bid;
            }
        };
        let leaving = self.stand(bid.node).offer.clone()?.victims;
        let mut touched = BTreeSet::new();
        for index in leaving {
            self.chosen.insert(index);
            for place in &self.scene.pool.victims[index].places {
                if self.offers.usable[place.node.index()] && self.domain.binary_search(&place.node).is_ok() {
                    self.give(place);
                    touched.insert(place.node);
                }
            }
        }
        touched.into_iter().for_each(|node| self.recount(node));
        Some(())
    }

    fn stand(&self, node: NodeId) -> &Stand {
        self.changed.get(&node).map_or(&self.offers.stands[node.index()], |(_, stand, _)| stand)
    }

    fn give(&mut self, place: &Place) {
        let now = || {
            let stand = self.offers.stands[place.node.index()].clone();
            (*self.scene.session.draft.room(place.node), stand, 0)
        };
        self.changed.entry(place.node).or_insert_with(now).0.give(place);
    }

    fn recount(&mut self, node: NodeId) {
        let Some((room, old, round)) = self.changed.remove(&node) else { return };
        let new = self.offers.stand(self.scene, node, &room, &self.chosen);
        self.workers = self.workers - u64::from(old.workers) + u64::from(new.workers);
        self.bids.extend(bid(node, &new, round + 1));
        self.changed.insert(node, (room, new, round + 1));
    }
}

fn bid(node: NodeId, stand: &Stand, round: u32) -> Option<Reverse<Bid>> {
    let offer = stand.offer.as_ref()?;
    Some(Reverse(Bid { cost: offer.cost, gain: offer.gain, youngest: offer.youngest, node, round }))
}
