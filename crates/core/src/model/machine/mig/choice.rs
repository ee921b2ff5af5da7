//! Where a new instance does least harm: where the largest profile that can still be made stays largest, then where most
//! placements stay possible. Cards are small (at most eight slots), so several instances are planned together by trying
//! every way.
use super::{Extra, Instance, Profile, Sku};
use std::cmp::Reverse;

/// What a card could still be split into; more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Prospect {
    /// Compute slices and memory slots of the largest profile that still fits; zeros: none.
    pub largest: (u8, u8),
    /// Placements of plain profiles, each looked at alone. Extras share the slots of plain ones and would count them twice.
    pub placements: u32,
}

impl Sku {
    /// What fits beside `held`.
    pub fn prospect(&self, held: &[Instance]) -> Prospect {
        let plain = self.profiles.iter().filter(|profile| profile.extra == Extra::Plain);
        plain.fold(Prospect::default(), |sum, profile| {
            let placements = self.placements(held, profile).count() as u32;
            let largest = if placements > 0 { sum.largest.max(profile.size()) } else { sum.largest };
            Prospect { largest, placements: sum.placements + placements }
        })
    }

    /// The best placements for all of `wanted` beside `held`, in the order of `wanted`; `None`: they do not fit together.
    pub fn plan(&self, held: &[Instance], wanted: &[&Profile]) -> Option<Vec<Instance>> {
        if wanted.len() > usize::from(self.compute) {
            return None;
        }
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        // The rarest first: what has the fewest places to go, of these the largest. Equal ones stand together.
        let places = |index: usize| self.placements(held, wanted[index]).count();
        order.sort_by_key(|index| (places(*index), Reverse(wanted[*index].size()), wanted[*index].extra, *index));
        let mut search = Search { sku: self, wanted, order: &order, set: held.to_vec(), held: held.len(), best: None };
        search.go_on(0);
        let (_, found) = search.best?;
        let mut plan = found.clone();
        order.iter().zip(found).for_each(|(index, instance)| plan[*index] = instance);
        Some(plan)
    }

    /// How many more of one profile fit beside `held`: its starts never overlap each other, so each that is free counts.
    pub fn more_of(&self, held: &[Instance], profile: &Profile) -> u32 {
        let mut set = held.to_vec();
        let before = set.len();
        for start in profile.starts {
            let new = profile.at(*start);
            if self.beside(&set, new).is_ok() {
                set.push(new);
            }
        }
        (set.len() - before) as u32
    }
}

/// Every way to place the rest of `order`, one instance after the other.
struct Search<'a> {
    sku: &'a Sku,
    wanted: &'a [&'a Profile],
    order: &'a [usize],
    /// What was held before, then what is placed so far.
    set: Vec<Instance>,
    held: usize,
    best: Option<(Prospect, Vec<Instance>)>,
}

impl Search<'_> {
    fn go_on(&mut self, depth: usize) {
        let Some(index) = self.order.get(depth) else { return self.weigh() };
        let profile = self.wanted[*index];
        let placements: Vec<Instance> = self.sku.placements(&self.set, profile).collect();
        for new in placements {
            // Equal instances go from the highest start down: the other orders are the same set.
            let twin = depth.checked_sub(1).map(|_| self.set[self.set.len() - 1]);
            if twin.is_some_and(|twin| profile.is(twin) && twin.start < new.start) {
                continue;
            }
            self.set.push(new);
            self.go_on(depth + 1);
            self.set.pop();
        }
    }

    /// Of equal prospects the one with the highest starts: small instances go to the far edge of the card.
    fn weigh(&mut self) {
        let (found, prospect) = (&self.set[self.held..], self.sku.prospect(&self.set));
        let starts = |set: &[Instance]| set.iter().map(|instance| instance.start).collect::<Vec<_>>();
        let better = self.best.as_ref().is_none_or(|(best, set)| (prospect, starts(found)) > (*best, starts(set)));
        if better {
            self.best = Some((prospect, found.to_vec()));
        }
    }
}
