//! Reservations: a blocked unit gets the earliest start at which all of it fits, per device and over event times, even if
//! nothing at all is free now. Whoever comes after it may use those devices only until then.
//!
//! Reservations are made again in every decision, in the order of service. Earlier ones keep their devices for
//! themselves until they are expected to end, so a later one can be pessimistic but never in the way.
use super::book::{Amounts, amounts_of, less_freed};
use super::place::Miss;
use super::{Session, Unit};
use crate::model::decision::Reservation;
use crate::model::ids::NodeId;
use crate::model::job::Place;
use crate::model::part::Part;
use crate::model::time::Time;
use std::collections::BTreeSet;

/// A reservation with what it keeps back from others.
#[derive(Debug, Clone)]
pub struct Reserved {
    pub reservation: Reservation,
    /// Memory and bandwidth that come free on its nodes by its start.
    freed: Amounts,
    /// How much of that it needs.
    covered: Amounts,
    /// When its job is expected to end.
    end: Time,
}

impl<'a> Session<'a> {
    /// Places the unit on what is free and not kept for a reserved start that it would outlast.
    pub fn place_beside_reservations(&mut self, unit: &Unit<'a>) -> Result<Vec<Vec<Place>>, Miss> {
        let mark = self.draft.mark();
        self.hold_back_reservations(unit);
        let found = self.place_unit(unit);
        self.draft.undo_to(mark);
        found
    }

    /// Keeps the devices of every reservation that starts before the unit, started now, would end.
    pub fn hold_back_reservations(&mut self, unit: &Unit<'a>) {
        let kept = self.kept_from(unit);
        self.draft.take_all(&kept);
    }

    /// What earlier reservations keep from the unit. Of memory what does not come free on their devices by their start.
    pub fn kept_from(&self, unit: &Unit<'a>) -> Vec<Place> {
        let end = unit.iter().map(|job| self.expected_end(job, self.now).0).max().unwrap_or(Time::NEVER);
        let before = self.reserved.iter().filter(|one| one.reservation.start < end);
        let kept = before.flat_map(|one| {
            let mut freed = one.freed.clone();
            let less_freed = move |place: &Place| less_freed(place, &mut freed, |_, _| {});
            one.reservation.places.iter().map(less_freed)
        });
        kept.collect()
    }

    /// Records the earliest start of the unit, if there is one among the times at which something ends.
    pub fn reserve(&mut self, unit: &Unit<'a>) {
        if self.reserved.len() >= self.cluster.policy.reservations as usize {
            return;
        }
        let mut times: Vec<Time> = self.ends.iter().map(|held| held.end).collect();
        times.extend(self.reserved.iter().map(|reserved| reserved.end));
        times.sort_unstable();
        times.dedup();
        let mut ends: Vec<usize> = (0..self.ends.len()).collect();
        ends.sort_by_key(|index| self.ends[*index].end);
        // More is free the later it is, so the first time that suffices can be bisected. What has ended by a time that
        // does not suffice stays off the draft for the later ones.
        let (mut low, mut high, mut ended) = (0, times.len(), 0);
        let (mut best, start) = (None, self.draft.mark());
        while low < high {
            let middle = (low + high) / 2;
            let by = ended + ends[ended..].partition_point(|index| self.ends[*index].end <= times[middle]);
            let mark = self.draft.mark();
            self.draft.give_all(ends[ended..by].iter().flat_map(|index| self.ends[*index].places.iter()));
            match self.placed_beside_promises(unit, times[middle]) {
                Some(places) => {
                    best = Some((times[middle], places));
                    high = middle;
                    self.draft.undo_to(mark);
                }
                None => (low, ended) = (middle + 1, by),
            }
        }
        self.draft.undo_to(start);
        if let Some((start, places)) = best {
            self.record(unit, start, places);
        }
    }

    /// Where the unit would be at `at`, when all that is expected to end by then has ended.
    pub fn placed_at(&mut self, unit: &Unit<'a>, at: Time) -> Option<Vec<Vec<Place>>> {
        let mark = self.draft.mark();
        self.draft.give_all(self.ends.iter().filter(|held| held.end <= at).flat_map(|held| held.places.iter()));
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
        for held in self.ends.iter().filter(|held| held.end > at && self.promised.contains(&held.job)) {
            for place in held.places.iter() {
                self.draft.change(place.node, |room| room.take_devices(place));
            }
            for ((node, part), amount) in self.awaited.get(&held.job).into_iter().flatten() {
                self.draft.change(*node, |room| room.take_amount(*part, *amount));
            }
        }
        let found = self.place_unit(unit).ok();
        self.draft.undo_to(mark);
        found
    }

    /// Memory and bandwidth that come free by `start` for earlier reservations and claims which then still hold them.
    fn spoken_for(&self, start: Time) -> impl Iterator<Item = ((NodeId, Part), u64)> {
        let reserved = self.reserved.iter().filter(move |one| one.end > start);
        let claimed = self.ends.iter().filter(move |held| held.end > start && self.promised.contains(&held.job));
        let claimed = claimed.filter_map(|held| self.awaited.get(&held.job));
        let covered = reserved.map(|one| &one.covered).chain(claimed);
        covered.flat_map(|sums| sums.iter().map(|(at, bytes)| (*at, *bytes)))
    }

    fn record(&mut self, unit: &Unit<'a>, start: Time, places: Vec<Vec<Place>>) {
        for (job, places) in unit.iter().zip(places) {
            let ending = self.ends.iter().filter(|held| held.end <= start);
            let nodes: BTreeSet<NodeId> = places.iter().map(|place| place.node).collect();
            let there = ending.clone().flat_map(|held| held.places.iter()).filter(|p| nodes.contains(&p.node));
            let mut freed = amounts_of(there);
            self.spoken_for(start).for_each(|(at, bytes)| {
                freed.entry(at).and_modify(|coming| *coming = coming.saturating_sub(bytes));
            });
            let mut covered = amounts_of(places.iter());
            covered.iter_mut().for_each(|(at, need)| *need = (*need).min(freed.get(at).copied().unwrap_or(0)));
            let conditional =
                ending.clone().any(|held| held.assumed && held.places.iter().any(|place| nodes.contains(&place.node)));
            let end = self.expected_end(job, start).0;
            let reservation = Reservation { job: job.id, start, places, conditional };
            self.reserved.push(Reserved { reservation, freed, covered, end });
        }
    }
}
