//! What is free once those are gone who were told to go: kept beside the draft of now, node by node.
//!
//! Every claimant that could evict is first asked whether it only has to wait for them. They are many and so are claimants,
//! so this draft is not made anew for each: a node is looked at again when something on it changed.
use super::counts::{Stamp, differing};
use super::draft::Draft;
use super::room::Room;
use super::{Held, Session, Unit};
use crate::model::ids::NodeId;
use crate::model::part::Part;
use crate::model::time::Time;

/// The draft of a coming moment.
pub struct Later<'a> {
    by: Time,
    draft: Draft<'a>,
    /// Up to here the entries of `ends` are in it.
    seen: usize,
    /// By node, the entries of `ends` that have or had places there.
    on: Vec<Vec<usize>>,
    /// What the nodes of the draft of now were like when they were looked at.
    of: Vec<Stamp>,
}

impl<'a> Session<'a> {
    /// Whether the unit fits on what those free who leave anyway: then it waits for that, and nobody else has to go.
    pub fn frees_by_itself(&mut self, unit: &Unit<'a>) -> bool {
        let Some(by) = self.ends.iter().filter(|held| held.told).map(|held| held.end).max() else { return false };
        // For whom guests would leave sooner than for others there is no draft that others could share; nor where GPUs are in
        // parts, of which rooms know nothing.
        let apart = self.is_about_parts(unit) || self.draft.has_parts();
        if apart || self.ends.iter().any(|held| held.end_for(unit) < held.end) {
            return self.placed_at(unit, by).is_some();
        }
        let mut later = self.brought_to(by);
        std::mem::swap(&mut self.draft, &mut later.draft);
        let mark = self.draft.mark();
        let reserved = self.reserved.iter().filter(|reserved| reserved.end > by);
        self.draft.take_all(reserved.flat_map(|reserved| reserved.reservation.places.iter()));
        let fits = self.place_unit(unit).is_ok();
        self.draft.undo_to(mark);
        std::mem::swap(&mut self.draft, &mut later.draft);
        self.draft.work += std::mem::take(&mut later.draft.work);
        self.later = Some(later);
        fits
    }

    fn brought_to(&mut self, by: Time) -> Later<'a> {
        let on = || vec![Vec::new(); self.cluster.nodes.len()];
        let never = || vec![Stamp::MAX; self.cluster.nodes.len()];
        let fresh = || Later { by, draft: Draft::now(self.cluster), seen: 0, on: on(), of: never() };
        let mut later = self.later.take().unwrap_or_else(fresh);
        let mut stale: Vec<usize> = differing(self.draft.stamps(), &later.of).map(|(index, _)| index).collect();
        let between = |held: &Held<'_>| held.end > later.by.min(by) && held.end <= later.by.max(by);
        let news = self.ends.iter().enumerate().filter(|(index, held)| *index >= later.seen || between(held));
        stale.extend(news.flat_map(|(_, held)| held.places.iter()).map(|place| place.node.index()));
        stale.sort_unstable();
        stale.dedup();
        later.index(&self.ends);
        later.by = by;
        later.of.copy_from_slice(self.draft.stamps());
        for index in stale {
            let node = NodeId(index as u32);
            let room = self.room_by(node, by, &later.on[index]);
            if *later.draft.room(node) != room {
                later.draft.change(node, |old| *old = room);
            }
        }
        later.draft.forget_past();
        later
    }

    /// Of a claim only what its victims have freed by then: the rest was never free on this draft.
    fn room_by(&self, node: NodeId, by: Time, here: &[usize]) -> Room {
        let mut room = *self.draft.room(node);
        let held = || here.iter().map(|index| &self.ends[*index]);
        let places =
            |held: &'_ Held<'a>| held.places.iter().filter(|place| place.node == node).cloned().collect::<Vec<_>>();
        for place in held().filter(|held| held.end <= by).flat_map(places) {
            room.give(&place);
            self.draft.withhold(node, &mut room);
        }
        for claimed in held().filter(|held| held.end > by && self.promised.contains(&held.job)) {
            places(claimed).iter().for_each(|place| room.take_devices(place));
            let Some(awaited) = self.awaited.get(&claimed.job) else { continue };
            let here = awaited.range((node, Part::Memory(0))..).take_while(|((on, _), _)| *on == node);
            here.for_each(|((_, part), amount)| room.take_amount(*part, *amount));
        }
        room
    }
}

impl Later<'_> {
    /// Takes in the entries that came since.
    fn index(&mut self, ends: &[Held<'_>]) {
        for (index, held) in ends.iter().enumerate().skip(self.seen) {
            for place in held.places.iter() {
                let here = &mut self.on[place.node.index()];
                if here.last() != Some(&index) {
                    here.push(index);
                }
            }
        }
        self.seen = ends.len();
    }
}
