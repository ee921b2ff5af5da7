//! Reservations: a blocked unit gets the earliest start at which all of it fits, per device and over event times, even if
//! nothing at all is free now. Whoever comes after it may use those devices only until then.
//!
//! Reservations are made again in every decision, in the order of service. Earlier ones keep their devices for
//! themselves until they are expected to end, so a later one can be pessimistic but never in the way.
use super::book::{Amounts, amounts_of, held_by, less_freed};
use super::place::Miss;
use super::{Held, Session, Unit, calendar};
use crate::model::amounts::Resources;
use crate::model::attained;
use crate::model::decision::Reservation;
use crate::model::future::meets;
use crate::model::ids::{JobId, NodeId};
use crate::model::job::{Job, Place, Priority};
use crate::model::part::Part;
use crate::model::queue::ancestry;
use crate::model::time::{Span, Time};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A reservation names at most so many of the jobs that have to leave first.
const NAMED: usize = 4;
/// This part of the work units of a walk is left for others than reservations.
const LEFT_PART: u64 = 2;

/// A reservation with what it keeps back from others.
#[derive(Debug, Clone)]
pub struct Reserved {
    pub reservation: Reservation,
    /// What it keeps from others: its places without what of their amounts comes free there by its start.
    kept: Rc<[Place]>,
    /// Memory and bandwidth that come free on its nodes by its start.
    pub freed: Amounts,
    /// How much of that it needs.
    covered: Amounts,
    /// When its job is expected to end.
    pub end: Time,
    /// Among which it counts.
    line: Line,
    /// Its job waited beyond the bound: nobody of whom no end is known may stand in its way.
    promoted: bool,
}

/// Those who get a reserved start are counted apart, so that however many of one kind wait, another kind has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    P0,
    P1,
    /// With a deadline that can be met, or waiting beyond the bound.
    Due,
    Others,
}

/// How long a unit would stay where it starts now.
#[derive(Debug, Clone, Copy)]
pub struct Stay {
    end: Time,
    /// The end is assumed.
    endless: bool,
}

impl Reserved {
    /// Whether who stays so long would be in the way.
    fn outlasted_by(&self, stay: Stay) -> bool {
        self.reservation.start < stay.end || (self.promoted && stay.endless)
    }
}

impl<'a> Session<'a> {
    /// Places the unit on what is free and not kept for a reserved start that it would outlast.
    pub fn place_beside_reservations(&mut self, unit: &Unit<'a>) -> Result<Vec<Vec<Place>>, Miss> {
        let mark = self.draft.mark();
        self.hold_back_reservations(unit);
        let found = self.place_at_home(unit).map_or_else(|| self.place_unit(unit), Ok);
        self.draft.undo_to(mark);
        found
    }

    /// Keeps the devices of every reservation that starts before the unit, started now, would end.
    pub fn hold_back_reservations(&mut self, unit: &Unit<'a>) {
        let kept = self.kept_from(unit);
        self.draft.take_all(kept.iter().flat_map(|places| places.iter()));
    }

    /// What earlier reservations keep from the unit. Of memory what does not come free on their devices by their start.
    pub fn kept_from(&self, unit: &Unit<'a>) -> Vec<Rc<[Place]>> {
        let stay = self.stay(unit);
        let before = self.reserved.iter().filter(|one| self.keeps_from(one, unit, stay));
        before.map(|one| Rc::clone(&one.kept)).collect()
    }

    /// Whether the unit may not have the devices of a reservation.
    pub fn keeps_from(&self, one: &Reserved, unit: &Unit<'a>, stay: Stay) -> bool {
        one.outlasted_by(stay) && !self.makes_way(unit, one)
    }

    /// Whether all of the unit could be rotated out in time for a reserved start: then it may run there until then.
    fn makes_way(&self, unit: &Unit<'a>, one: &Reserved) -> bool {
        let Some(senior) = self.cluster.job(one.reservation.job) else { return false };
        let start = one.reservation.start;
        unit.iter().all(|job| attained::makes_way_by(self.cluster, senior, start, job, self.now))
    }

    /// How long the unit would stay if it started now.
    pub fn stay(&self, unit: &Unit<'a>) -> Stay {
        let from = |job: &Job| self.now + self.splitting(job) + self.leaving_first(job);
        let ends = unit.iter().map(|job| self.end_of_start(job, from(job)).0);
        let end = ends.max().unwrap_or(Time::NEVER);
        Stay { end, endless: unit.iter().any(|job| job.spec.time_limit.is_none()) }
    }

    /// How long a gang that runs already may take to be gone, before it runs again.
    fn leaving_first(&self, job: &Job) -> Span {
        job.attempt.as_ref().map_or(Span::ZERO, |_| job.spec.checkpoint.grace + self.margins())
    }

    /// What those with a reserved start will hold in the queue and below it while the unit, started now, is still there.
    pub fn reserved_in(&self, queue: &str, unit: &Unit<'a>) -> Resources {
        if self.reserved.is_empty() {
            return Resources::ZERO;
        }
        let stay = self.stay(unit);
        let kept = self.reserved.iter().filter(|one| self.keeps_from(one, unit, stay)).map(|one| &one.reservation);
        let is_inside =
            |id: JobId| self.cluster.job(id).is_some_and(|job| ancestry(&job.spec.queue).any(|path| path == queue));
        kept.filter(|one| is_inside(one.job)).fold(Resources::ZERO, |sum, one| sum.plus(held_by(&one.places)))
    }

    /// The first reservation that keeps something from the unit.
    pub fn in_the_way(&self, unit: &Unit<'a>) -> Option<&Reserved> {
        let stay = self.stay(unit);
        self.reserved.iter().find(|one| self.keeps_from(one, unit, stay))
    }

    /// Where the unit's reservation would count: the first of its lines that is not full. A thousand blocked gangs of P1 are
    /// no reason to plan a thousand starts, of which the first end would change nearly all: whoever is not among the first of
    /// a line comes to be. Only while the walk has work units to spare.
    fn line(&self, unit: &Unit<'a>) -> Option<Line> {
        let policy = &self.cluster.policy;
        let is_open = |line: &Line| {
            let most = if *line == Line::Others { policy.reservations } else { policy.reservations_urgent };
            self.reserved.iter().filter(|one| one.line == *line).count() < most as usize
        };
        let spare = self.draft.work.saturating_sub(self.walk_from) <= policy.budget / LEFT_PART;
        self.lines(unit).into_iter().flatten().find(is_open).filter(|_| spare)
    }

    /// By its own class, since waiting raises the order of everybody in the end.
    fn lines(&self, unit: &Unit<'a>) -> [Option<Line>; 2] {
        let own = match unit.iter().map(|job| job.spec.priority).min() {
            Some(Priority::P0) => Some(Line::P0),
            Some(Priority::P1) => Some(Line::P1),
            _ => None,
        };
        let due = |job: &Job| job.spec.latest_start().is_some_and(|latest| latest >= self.now);
        let is_due = unit.iter().any(|job| due(job)) || (self.is_promoted(unit) && !self.follows_a_peer(unit));
        let other = if own.is_none() { Some(Line::Others) } else { None };
        [own, if is_due { Some(Line::Due) } else { other }]
    }

    /// In a queue that rotates one reservation holds others off, and behind it peers come to their turn by rotation.
    fn follows_a_peer(&self, unit: &Unit<'a>) -> bool {
        let promised =
            self.reserved.iter().filter(|one| one.promoted).filter_map(|one| self.cluster.job(one.reservation.job));
        promised.into_iter().any(|senior| unit.iter().all(|job| attained::are_peers(self.cluster, senior, job)))
    }

    fn is_promoted(&self, unit: &Unit<'a>) -> bool {
        unit.iter().any(|job| self.cluster.is_promoted(job, self.now))
    }

    /// Records the earliest start of the unit, if there is one among the times at which something ends, and returns it.
    /// `from` is the start of an equal unit that goes first: no need to search before it, unless somebody makes way for
    /// this one alone.
    pub fn reserve(&mut self, unit: &Unit<'a>, from: Time) -> Option<Time> {
        let line = self.line(unit)?;
        // A gate may have been closed for it when these were asked, and be open by now: they are not made to wait for it then.
        let avoids = self.is_promoted(unit) && self.timeline().endless;
        let own = (avoids || self.has_own_future(unit)).then(|| self.ends_for(unit));
        let from = match own {
            Some(_) if self.hosts_guests(unit) => Time(0),
            Some(_) => from,
            None => from.max(self.first_room(unit)),
        };
        let times = match &own {
            Some(ends) => self.times(unit, ends.iter().map(|(end, _)| *end)),
            None => self.times(unit, self.timeline.times(from)),
        };
        let mut rest = &times[times.partition_point(|time| *time < from)..];
        let closings = if self.closings { calendar::closings(self.cluster, unit, self.now) } else { Vec::new() };
        for closes in closings.into_iter().chain([Time::NEVER]) {
            let (before, after) = rest.split_at(rest.partition_point(|time| *time <= closes));
            if let Some((start, places)) = self.first_fit(unit, own.as_deref(), before) {
                self.record(unit, line, start, places);
                return Some(start);
            }
            rest = after;
        }
        None
    }

    /// What ends, and when for the unit: without what it is not to wait for.
    fn ends_for(&self, unit: &Unit<'a>) -> Vec<(Time, usize)> {
        let promoted = self.is_promoted(unit);
        let owns = |held: &Held<'a>| held.end_for(unit) < held.end;
        let known = |held: &Held<'a>| !(promoted && held.begins_without_end() && !owns(held));
        let ends = self.ends.iter().enumerate().filter(|(_, held)| known(held));
        let mut ends: Vec<(Time, usize)> = ends.map(|(index, held)| (held.end_for(unit), index)).collect();
        ends.sort_unstable();
        ends
    }

    /// The moments at which more may be free than before, moved to where the unit's windows are open.
    fn times(&self, unit: &Unit<'a>, ends: impl Iterator<Item = Time>) -> Vec<Time> {
        let mut times: Vec<Time> = ends.collect();
        times.extend(self.reserved.iter().map(|reserved| reserved.end));
        if self.closings {
            times.extend(calendar::openings(self.cluster, self.now));
        }
        if unit.iter().any(|job| !job.spec.windows.is_empty()) {
            times = times.into_iter().filter_map(|at| calendar::first_open_for(self.cluster, unit, at)).collect();
        }
        times.sort_unstable();
        times.dedup();
        times
    }

    /// Between two closings of nodes more is free the later it is. What has ended by a time that does not suffice stays off
    /// the unit's own draft for the later ones.
    fn first_fit(
        &mut self,
        unit: &Unit<'a>,
        own: Option<&[(Time, usize)]>,
        times: &[Time],
    ) -> Option<(Time, Vec<Vec<Place>>)> {
        let Some(ends) = own else { return earliest(times, |at| self.placed_later(unit, at)) };
        let (start, mut ended) = (self.draft.mark(), 0);
        let best = earliest(times, |at| {
            let by = ended + ends[ended..].partition_point(|(end, _)| *end <= at);
            let mark = self.draft.mark();
            self.draft.give_all(ends[ended..by].iter().flat_map(|(_, index)| self.ends[*index].places.iter()));
            let found = self.placed_beside_promises(unit, at);
            match found {
                Some(_) => self.draft.undo_to(mark),
                None => ended = by,
            }
            found
        });
        self.draft.undo_to(start);
        best
    }

    /// Where the unit would be at `at`, when all that is expected to end by then has ended.
    pub fn placed_at(&mut self, unit: &Unit<'a>, at: Time) -> Option<Vec<Vec<Place>>> {
        if !self.has_own_future(unit) {
            return self.placed_later(unit, at);
        }
        let mark = self.draft.mark();
        self.draft
            .give_all(self.ends.iter().filter(|held| held.end_for(unit) <= at).flat_map(|held| held.places.iter()));
        let found = self.placed_beside_promises(unit, at);
        self.draft.undo_to(mark);
        found
    }

    /// Where the unit is on a draft of the moment `at` beside the claims and reservations that then still hold.
    fn placed_beside_promises(&mut self, unit: &Unit<'a>, at: Time) -> Option<Vec<Vec<Place>>> {
        let mark = self.draft.mark();
        let reserved = self.reserved.iter().filter(|reserved| reserved.end > at);
        self.draft.take_all(reserved.flat_map(|reserved| reserved.reservation.places.iter()));
        // Of a claim only what its victims have freed by then: the rest was never free on this draft.
        for held in self.ends.iter().filter(|held| held.end > at && held.promise) {
            for place in held.places.iter() {
                // Its part of a GPU lies on the draft since the claim was noted, on top of what its victims hold.
                self.draft.take(&Place::of_devices(place.node, place.gpus, place.cpus));
            }
            for ((node, part), amount) in self.awaited.get(&held.job).into_iter().flatten() {
                self.draft.change(*node, |room| room.take_amount(*part, *amount));
            }
        }
        let found = self.place_unit_at(unit, at).ok();
        self.draft.undo_to(mark);
        found
    }

    /// Memory and bandwidth that come free by `start` for earlier reservations, of which `known` have to do with it, and for
    /// claims, that then still hold them.
    fn spoken_for(&self, start: Time, known: &[usize]) -> impl Iterator<Item = ((NodeId, Part), u64)> {
        let reserved = known.iter().map(|index| &self.reserved[*index]).filter(move |one| one.end > start);
        let claimed = self.ends.iter().filter(move |held| held.end > start && held.promise);
        let claimed = claimed.filter_map(|held| self.awaited.get(&held.job));
        let covered = reserved.map(|one| &one.covered).chain(claimed);
        covered.flat_map(|sums| sums.iter().map(|(at, bytes)| (*at, *bytes)))
    }

    fn record(&mut self, unit: &Unit<'a>, line: Line, start: Time, places: Vec<Vec<Place>>) {
        let promoted = self.is_promoted(unit);
        for (job, places) in unit.iter().zip(places) {
            let nodes: BTreeSet<NodeId> = places.iter().map(|place| place.node).collect();
            let (ends, reserved) = self.on_nodes(nodes.iter().copied());
            let mut ending: Vec<&Held<'a>> = ends
                .into_iter()
                .map(|index| &self.ends[index])
                .filter(|held| held.end_for(unit) <= start && held.places.iter().any(|p| nodes.contains(&p.node)))
                .collect();
            ending.sort_by_key(|held| (std::cmp::Reverse(held.end_for(unit)), held.job));
            let there = ending.iter().flat_map(|held| held.places.iter()).filter(|p| nodes.contains(&p.node));
            let mut freed = amounts_of(there);
            self.spoken_for(start, &reserved).for_each(|(at, bytes)| {
                freed.entry(at).and_modify(|coming| *coming = coming.saturating_sub(bytes));
            });
            let mut covered = amounts_of(places.iter());
            covered.iter_mut().for_each(|(at, need)| *need = (*need).min(freed.get(at).copied().unwrap_or(0)));
            let conditional = ending.iter().any(|held| held.assumed);
            let leaves_first = |held: &&&Held<'a>| held.places.iter().any(|place| meets(&places, place));
            let awaits: Vec<JobId> = ending.iter().filter(leaves_first).map(|held| held.job).take(NAMED).collect();
            let end = self.end_of_start(job, start + self.splitting(job)).0;
            let mut coming = freed.clone();
            let kept = places.iter().map(|place| less_freed(place, &mut coming, |_, _| {})).collect();
            let reservation = Reservation { job: job.id, start, places, conditional, awaits };
            self.reserved.push(Reserved { reservation, kept, freed, covered, end, line, promoted });
        }
    }
}

/// The first of the times that suffices, where each after it would too. Bisected, within twice as far as it has to look: most
/// starts are near, and every end costs a look at its nodes.
fn earliest<T>(times: &[Time], mut found_at: impl FnMut(Time) -> Option<T>) -> Option<(Time, T)> {
    let (mut low, mut high, mut reach) = (0, times.len(), 1);
    let mut best = None;
    while low < high {
        let middle = if best.is_some() { (low + high) / 2 } else { (low + reach - 1).min(high - 1) };
        reach *= 2;
        match found_at(times[middle]) {
            Some(found) => (best, high) = (Some((times[middle], found)), middle),
            None => low = middle + 1,
        }
    }
    best
}
