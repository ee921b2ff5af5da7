//! What is free at coming moments, beside what is promised then: kept next to the draft of now, node by node.
//!
//! Whoever is refused is asked when it could start, and every claimant that could evict whether it only has to wait for those
//! who leave anyway. They are many and so are those who hold devices, so this draft is not made anew for each: it is moved from
//! one moment to another, and a node is looked at again when something on it ended between them, or changed.
use super::counts::{Stamp, differing};
use super::draft::Draft;
use super::outlook::Outlook;
use super::reserve::Reserved;
use super::room::Room;
use super::{Held, Session, Unit};
use crate::model::ids::NodeId;
use crate::model::job::Place;
use crate::model::part::Part;
use crate::model::time::Time;
use std::collections::BTreeSet;

/// So many moments are kept: near ones, at which all are gone who were told to go, and farther ones for starts of all sizes.
const MOMENTS: usize = 6;
/// Rather than move a draft past more ends than these another is made, while there are not [`MOMENTS`].
const FAR: usize = 32;
/// Up to so many nodes what is kept is compared with what it is made of, in builds with debug assertions.
pub const SMALL: usize = 16;

/// The draft of a coming moment.
pub struct Later<'a> {
    by: Time,
    draft: Draft<'a>,
    /// Up to here the entries of `ends`, and the reserved starts, are in it.
    seen: (usize, usize),
    /// What the nodes of the draft of now were like when they were looked at.
    of: Vec<Stamp>,
}

/// The entries of `ends` by their end and by node, and the reserved starts by node.
#[derive(Default)]
pub struct Timeline {
    order: Vec<(Time, usize)>,
    /// By node, the entries of `ends` that have or had places there, with their GPUs.
    on: Vec<Vec<(usize, u64)>>,
    /// By node, the reserved starts there, with their GPUs, and how many are in it.
    reserved_on: Vec<Vec<(usize, u64)>>,
    reserved: usize,
    /// Somebody is a guest, so it may be gone sooner for some than for others.
    pub guests: bool,
    /// Somebody starts now and nobody knows when it ends.
    pub endless: bool,
}

impl Timeline {
    /// Takes in what came since.
    fn follow(&mut self, ends: &[Held<'_>], reserved: &[Reserved], nodes: usize) {
        self.on.resize(nodes, Vec::new());
        self.reserved_on.resize(nodes, Vec::new());
        let known = self.order.len();
        for (index, held) in ends.iter().enumerate().skip(known) {
            self.order.push((held.end, index));
            self.guests |= held.guest.is_some();
            self.endless |= held.begins_without_end();
            note(&mut self.on, index, held.places.iter());
        }
        if known < self.order.len() {
            self.order.sort();
        }
        for (index, one) in reserved.iter().enumerate().skip(self.reserved) {
            note(&mut self.reserved_on, index, one.reservation.places.iter());
        }
        self.reserved = reserved.len();
    }

    /// All is to be taken in anew.
    fn restart(&mut self) {
        self.order.clear();
        self.on.iter_mut().chain(&mut self.reserved_on).for_each(Vec::clear);
        (self.reserved, self.guests, self.endless) = (0, false, false);
    }

    /// The entry ended at another moment.
    fn moved(&mut self, index: usize, before: Time, held: &Held<'_>) {
        let Ok(at) = self.order.binary_search(&(before, index)) else { return };
        self.order.remove(at);
        let entry = (held.end, index);
        self.order.insert(self.order.partition_point(|one| *one < entry), entry);
        self.endless |= held.begins_without_end();
    }

    /// From this moment on.
    pub fn times(&self, from: Time) -> impl Iterator<Item = Time> {
        let first = self.order.partition_point(|(end, _)| *end < from);
        self.order[first..].iter().map(|(end, _)| *end)
    }

    /// The entries of `ends` that have or had places on the node.
    pub fn on(&self, node: NodeId) -> &[(usize, u64)] {
        &self.on[node.index()]
    }

    pub fn reserved_on(&self, node: NodeId) -> &[(usize, u64)] {
        &self.reserved_on[node.index()]
    }

    /// The entry has other places than before: some of `nodes` are not among them any more.
    pub fn replaced(&mut self, index: usize, held: &Held<'_>, nodes: impl Iterator<Item = NodeId>) {
        if index >= self.order.len() {
            return;
        }
        for node in nodes {
            let gpus = held.places.iter().filter(|place| place.node == node).fold(0, |all, place| all | place.gpus);
            let here = self.on[node.index()].iter_mut().filter(|(at, _)| *at == index);
            here.for_each(|(_, held)| *held = gpus);
        }
    }

    /// Nodes with a reserved start, by index.
    pub fn reserved_nodes(&self) -> impl Iterator<Item = usize> {
        self.reserved_on.iter().enumerate().filter(|(_, here)| !here.is_empty()).map(|(node, _)| node)
    }

    /// What ends after the one moment and not after the other.
    fn between(&self, one: Time, other: Time) -> &[(Time, usize)] {
        let at = |time: Time| self.order.partition_point(|(end, _)| *end <= time);
        &self.order[at(one.min(other))..at(one.max(other))]
    }
}

impl<'a> Session<'a> {
    /// Whether the unit fits on what those free who leave anyway: then it waits for that, and nobody else has to go.
    pub fn frees_by_itself(&mut self, unit: &Unit<'a>) -> bool {
        self.on_what_is_left(unit).is_some()
    }

    /// Where the unit would be when all have left who were told to, and when that is.
    pub fn on_what_is_left(&mut self, unit: &Unit<'a>) -> Option<(Time, Vec<Vec<Place>>)> {
        let by = self.ends.iter().filter(|held| held.told).map(|held| held.end).max()?;
        self.placed_at(unit, by).map(|places| (by, places))
    }

    pub fn timeline(&mut self) -> &Timeline {
        self.timeline.follow(&self.ends, &self.reserved, self.cluster.nodes.len());
        &self.timeline
    }

    /// An entry of `ends` ends at another moment than before, and is no promise any more.
    pub fn follow_end(&mut self, index: usize, before: Time) {
        self.timeline.moved(index, before, &self.ends[index]);
        let nodes = self.ends[index].nodes().collect();
        self.look_again(&nodes);
    }

    /// All was noted anew: what of it is not as before concerns its nodes, then and now.
    pub fn follow_ends(&mut self, before: &[Held<'a>]) {
        let now = &self.ends;
        let mut nodes: BTreeSet<NodeId> = BTreeSet::new();
        for index in 0..before.len().max(now.len()) {
            let (old, new) = (before.get(index), now.get(index));
            if !old.zip(new).is_some_and(|(old, new)| old.is_as(new)) {
                nodes.extend(old.into_iter().chain(new).flat_map(Held::nodes));
            }
        }
        let oldest =
            self.later.iter().map(|later| later.seen.0).chain(self.outlooks.iter().map(Outlook::ends_seen)).min();
        nodes.extend(before[oldest.unwrap_or(before.len()).min(before.len())..].iter().flat_map(Held::nodes));
        self.timeline.restart();
        self.look_again(&nodes);
        self.later.iter_mut().for_each(|later| later.seen.0 = self.ends.len());
        self.outlooks.iter_mut().for_each(|outlook| outlook.has_seen_ends(self.ends.len()));
    }

    fn look_again(&mut self, nodes: &BTreeSet<NodeId>) {
        for node in nodes {
            self.later.iter_mut().for_each(|later| later.of[node.index()] = Stamp::MAX);
            self.outlooks.iter_mut().for_each(|outlook| outlook.look_again(node.index()));
        }
    }

    /// There is no reserved start any more.
    pub fn forget_reserved(&mut self) {
        self.timeline();
        self.reserved.clear();
        self.later.iter_mut().for_each(|later| later.forget_reserved(&self.timeline));
        self.outlooks.iter_mut().for_each(|outlook| outlook.forget_reserved(&self.timeline));
        self.timeline.reserved_on.iter_mut().for_each(Vec::clear);
        self.timeline.reserved = 0;
    }

    /// For whom guests would leave sooner than for others there is no draft that others could share; nor where GPUs are in
    /// parts, of which rooms know nothing.
    pub fn has_own_future(&mut self, unit: &Unit<'a>) -> bool {
        let in_parts = |one: &Reserved| one.reservation.places.first().is_some_and(|place| place.slice.is_some());
        self.is_about_parts(unit)
            || self.draft.has_parts()
            || self.reserved.iter().any(in_parts)
            || self.hosts_guests(unit)
    }

    /// Whether somebody makes way for the unit sooner than for others.
    pub fn hosts_guests(&mut self, unit: &Unit<'a>) -> bool {
        self.timeline().guests && self.ends.iter().any(|held| held.end_for(unit) < held.end)
    }

    /// Where the unit would be at `at` on the draft that all share who have no future of their own.
    pub fn placed_later(&mut self, unit: &Unit<'a>, at: Time) -> Option<Vec<Vec<Place>>> {
        let mut later = self.brought_to(at);
        self.draft.swap(&mut later.draft);
        let mark = self.draft.mark();
        let found = self.place_unit_at(unit, at).ok();
        self.draft.undo_to(mark);
        self.draft.swap(&mut later.draft);
        self.draft.work += std::mem::take(&mut later.draft.work);
        self.later.push(later);
        found
    }

    /// The draft that is nearest to the moment, or another one.
    fn near(&mut self, by: Time) -> Later<'a> {
        self.timeline();
        let ends = |later: &Later<'a>| self.timeline.between(later.by, by).len();
        let nearest = self.later.iter().map(ends).enumerate().min_by_key(|(_, ends)| *ends);
        match nearest.filter(|(_, ends)| *ends <= FAR || self.later.len() >= MOMENTS) {
            Some((index, _)) => self.later.remove(index),
            None => self.fresh(),
        }
    }

    /// Of before all that ends, and without what is reserved.
    fn fresh(&self) -> Later<'a> {
        let mut of = self.draft.stamps().to_vec();
        let promises = self.ends.iter().filter(|held| held.promise);
        promises.flat_map(Held::nodes).for_each(|node| of[node.index()] = Stamp::MAX);
        Later { by: Time(0), draft: self.draft.another(), seen: (self.ends.len(), 0), of }
    }

    fn brought_to(&mut self, by: Time) -> Later<'a> {
        let mut later = self.near(by);
        self.timeline();
        let mut stale: Vec<usize> = differing(self.draft.stamps(), &later.of).map(|(index, _)| index).collect();
        let ended = self.timeline.between(later.by, by).iter().map(|(_, index)| *index);
        let news = ended.chain(later.seen.0..self.ends.len());
        stale.extend(news.flat_map(|index| self.ends[index].places.iter()).map(|place| place.node.index()));
        let between = |one: &Reserved| one.end > later.by.min(by) && one.end <= later.by.max(by);
        let news = self.reserved.iter().enumerate().filter(|(index, one)| *index >= later.seen.1 || between(one));
        stale.extend(news.flat_map(|(_, one)| &one.reservation.places).map(|place| place.node.index()));
        stale.sort_unstable();
        stale.dedup();
        later.seen = (self.ends.len(), self.reserved.len());
        later.by = by;
        later.of.copy_from_slice(self.draft.stamps());
        for index in stale {
            let room = self.room_by(NodeId(index as u32), &later);
            if *later.draft.room(NodeId(index as u32)) != room {
                later.draft.change(NodeId(index as u32), |old| *old = room);
            }
        }
        later.draft.forget_past();
        debug_assert!(self.is_as_made_anew(&later), "the draft of {by:?} is not what it would be, made anew");
        later
    }

    /// Every test on a small cluster compares what is kept with what it is made of.
    fn is_as_made_anew(&self, later: &Later<'a>) -> bool {
        let nodes = || self.cluster.nodes.iter().map(|node| node.id);
        self.cluster.nodes.len() > SMALL || nodes().all(|node| *later.draft.room(node) == self.room_by(node, later))
    }

    /// Of a claim only what its victims have freed by then: the rest was never free on this draft.
    fn room_by(&self, node: NodeId, later: &Later<'a>) -> Room {
        let mut room = *self.draft.room(node);
        let held = || self.timeline.on(node).iter().map(|(index, _)| &self.ends[*index]);
        for held in held().filter(|held| held.end <= later.by) {
            for place in held.places.iter().filter(|place| place.node == node) {
                room.give(place);
                self.draft.withhold(node, &mut room);
            }
        }
        let reserved = self.timeline.reserved_on(node).iter().map(|(index, _)| &self.reserved[*index]);
        let places = reserved.filter(|one| one.end > later.by).flat_map(|one| &one.reservation.places);
        places.filter(|place| place.node == node).for_each(|place| room.take(place));
        for claimed in held().filter(|held| held.end > later.by && held.promise) {
            claimed.places.iter().filter(|place| place.node == node).for_each(|place| room.take_devices(place));
            let Some(awaited) = self.awaited.get(&claimed.job) else { continue };
            let here = awaited.range((node, Part::Memory(0))..).take_while(|((on, _), _)| *on == node);
            here.for_each(|((_, part), amount)| room.take_amount(*part, *amount));
        }
        room
    }

    /// The entries of `ends`, and the reserved starts, that have or had places on one of the nodes.
    pub fn on_nodes(&mut self, nodes: impl Iterator<Item = NodeId> + Clone) -> (Vec<usize>, Vec<usize>) {
        let timeline = self.timeline();
        let on = |by_node: &[Vec<(usize, u64)>]| {
            let here = nodes.clone().flat_map(|node| by_node[node.index()].iter());
            let mut found: Vec<usize> = here.map(|(index, _)| *index).collect();
            found.sort_unstable();
            found.dedup();
            found
        };
        (on(&timeline.on), on(&timeline.reserved_on))
    }
}

impl<'a> Later<'a> {
    fn forget_reserved(&mut self, timeline: &Timeline) {
        self.seen.1 = 0;
        timeline.reserved_nodes().for_each(|node| self.of[node] = Stamp::MAX);
    }
}

fn note<'p>(by_node: &mut [Vec<(usize, u64)>], index: usize, places: impl Iterator<Item = &'p Place>) {
    for place in places {
        let here = &mut by_node[place.node.index()];
        match here.last_mut().filter(|(last, _)| *last == index) {
            Some((_, gpus)) => *gpus |= place.gpus,
            None => here.push((index, place.gpus)),
        }
    }
}
