//! Starts of this decision that somebody who waits could stop as soon as they run: made, they would be told to leave by the
//! next decision.
use super::book::held_by;
use super::preempt::{PLANS_TRIED, Trial, may_free};
use super::reclaim::{Claimant, Leaving};
use super::{Session, Unit};
use crate::model::decision::{Blocker, Step};
use crate::model::future::meets;
use crate::model::ids::JobId;
use crate::model::job::{Job, Place};
use std::collections::{BTreeMap, BTreeSet};

/// Starts of this decision that somebody could stop as soon as they run, with their places.
pub type Juniors = BTreeMap<JobId, Vec<Place>>;

/// Why a claim is given up for somebody who could stop its start.
const GOES_FIRST: &str = "somebody who goes first could stop it at once";

impl<'a> Session<'a> {
    /// The places of starts of this decision that `unit` could stop as soon as they run, by job; of groups only whole ones.
    fn juniors(&mut self, unit: &Unit<'a>) -> Juniors {
        let claimant = self.claimant(unit);
        let mut found = Juniors::new();
        if self.is_powerless(unit, claimant.as_ref()) {
            return found;
        }
        let mut members: BTreeMap<&str, u32> = BTreeMap::new();
        let starts = self.steps.iter().filter_map(|step| match step {
            Step::Start { job, places, .. } => Some((self.cluster.job(*job)?, places)),
            _ => None,
        });
        let guests: Vec<&Job> =
            starts.clone().filter(|(job, places)| self.is_guest(unit, job, *places)).map(|(job, _)| job).collect();
        for (job, places) in starts {
            let id = &job.id;
            let mate =
                |guest: &&Job| guest.id == job.id || (group_of(job).is_some() && group_of(guest) == group_of(job));
            if self.may_stop(unit, claimant.as_ref(), (job, held_by(places)), guests.iter().any(mate)) {
                found.insert(*id, places.clone());
                group_of(job).into_iter().for_each(|name| *members.entry(name).or_default() += 1);
            }
        }
        let whole = |name: &str| members.get(name).copied() == self.groups.get(name).map(|group| group.live);
        found.retain(|id, _| self.group_of(*id).is_none_or(whole));
        found
    }

    /// Starts of this decision that the unit could stop at once are not made if that makes room for it.
    pub fn displace(&mut self, unit: &Unit<'a>) -> bool {
        let mut juniors = self.juniors(unit);
        for _ in 0..PLANS_TRIED {
            let Some(places) = self.placed_without(unit, &juniors) else { return false };
            if self.over_limit_on(unit, &places).is_some() {
                return false;
            }
            let (mut gone, mut places) = self.fewer_gone(unit, &juniors, places);
            if self.wrong_junior(unit, &gone).is_some() {
                (gone, places) = self.fewest_gone(unit, gone, places);
            }
            match self.wrong_junior(unit, &gone) {
                Some(stays) => self.keep(&mut juniors, stays),
                None => {
                    self.send_back(&gone);
                    self.start(unit, places);
                    return true;
                }
            }
        }
        false
    }

    /// Where the unit is beside reservations if these starts are not made.
    fn placed_without(&mut self, unit: &Unit<'a>, juniors: &Juniors) -> Option<Vec<Vec<Place>>> {
        if juniors.is_empty() {
            return None;
        }
        let mark = self.draft.mark();
        self.draft.give_all(juniors.values().flatten());
        let found = self.place_beside_reservations(unit);
        self.draft.undo_to(mark);
        found.ok()
    }

    /// Only those whose devices it takes, where that is enough.
    fn fewer_gone(
        &mut self,
        unit: &Unit<'a>,
        juniors: &Juniors,
        places: Vec<Vec<Place>>,
    ) -> (Juniors, Vec<Vec<Place>>) {
        let gone = self.meeting(juniors, &places.concat());
        match self.placed_without(unit, &gone) {
            Some(places) if self.over_limit_on(unit, &places).is_none() => (gone, places),
            _ => (juniors.clone(), places),
        }
    }

    /// None of whom could stay, as of victims: the most senior stay first.
    fn fewest_gone(
        &mut self,
        unit: &Unit<'a>,
        mut gone: Juniors,
        mut places: Vec<Vec<Place>>,
    ) -> (Juniors, Vec<Vec<Place>>) {
        for job in gone.keys().copied().collect::<Vec<_>>() {
            let mut fewer = gone.clone();
            self.keep(&mut fewer, job);
            let found = self.placed_without(unit, &fewer);
            if let Some(found) = found.filter(|found| self.over_limit_on(unit, found).is_none()) {
                (gone, places) = (fewer, found);
            }
        }
        (gone, places)
    }

    /// One that may be stopped for a guarantee by itself, but not together with the others: else two units could take each
    /// other's places in turn, for ever.
    fn wrong_junior(&mut self, unit: &Unit<'a>, gone: &Juniors) -> Option<JobId> {
        let claimant = self.claimant(unit)?;
        self.wrong_juniors(unit, &claimant, gone).last().copied()
    }

    /// Takes a start, with those of its group, out of what may be taken back.
    fn keep(&self, juniors: &mut Juniors, stays: JobId) {
        let group = self.group_of(stays);
        juniors.retain(|job, _| *job != stays && (group.is_none() || self.group_of(*job) != group));
    }

    fn wrong_juniors(&self, unit: &Unit<'a>, claimant: &Claimant<'a>, juniors: &Juniors) -> Vec<JobId> {
        let starts = juniors.iter().filter_map(|(id, places)| Some((self.cluster.job(*id)?, places.iter().collect())));
        let starts: Vec<(&'a Job, Vec<&Place>)> = starts.collect();
        let by_class = |(job, places): &(&'a Job, Vec<&Place>)| {
            may_free(self, unit, job, self.is_guest(unit, job, places.iter().copied()))
        };
        let leaving = |of_class: bool| -> Vec<Leaving<'_, 'a>> {
            let some = starts.iter().filter(|start| by_class(start) == of_class);
            some.map(|(job, places)| Leaving { jobs: std::slice::from_ref(job), places }).collect()
        };
        let (freed, reclaimed) = (leaving(true), leaving(false));
        let wrong = self.wrongly_stopped(claimant, &reclaimed, &freed);
        wrong.into_iter().filter_map(|at| reclaimed[at].jobs.first().map(|job| job.id)).collect()
    }

    /// Takes the starts back. Who was to start on a claim gives it up: it would be in the way again.
    fn send_back(&mut self, juniors: &Juniors) {
        self.unclaim(juniors.keys().copied(), GOES_FIRST);
        self.take_back(|step| is_start_of(step, juniors));
    }

    /// Of the starts those on devices of `places`, with all of their groups.
    fn meeting(&self, juniors: &Juniors, places: &[Place]) -> Juniors {
        let met = |held: &[Place]| held.iter().any(|place| meets(places, place));
        let directly: BTreeSet<JobId> = juniors.iter().filter(|(_, held)| met(held)).map(|(job, _)| *job).collect();
        let groups: BTreeSet<&str> = directly.iter().filter_map(|job| self.group_of(*job)).collect();
        let waits =
            |job: JobId| directly.contains(&job) || self.group_of(job).is_some_and(|name| groups.contains(name));
        juniors.iter().filter(|(job, _)| waits(**job)).map(|(job, held)| (*job, held.clone())).collect()
    }

    fn group_of(&self, job: JobId) -> Option<&'a str> {
        self.cluster.job(job).and_then(group_of)
    }

    /// As [`Session::preempt`], where starts of this decision have to make room as well.
    pub fn displace_and_preempt(&mut self, unit: &Unit<'a>) -> Option<Blocker> {
        let juniors = self.juniors(unit);
        if juniors.is_empty() || self.stops_in_vain(unit) {
            return None;
        }
        let pool = self.pool();
        let claimant = self.claimant(unit);
        let legal = self.legal_for(unit, claimant.as_ref(), &pool);
        let mark = self.draft.mark();
        self.draft.give_all(juniors.values().flatten());
        let trial = Trial { unit, pool: &pool, legal: &legal, kept: self.keep_back(unit) };
        let helps = self.fits_without(&trial, &(0..legal.len()).filter(|i| legal[*i]).collect());
        self.draft.undo_to(mark);
        if !helps {
            return None;
        }
        let before = (self.steps.clone(), self.given_up.clone());
        self.send_back(&juniors);
        if let Some(yielding) = self.preempt(unit) {
            return Some(yielding);
        }
        (self.steps, self.given_up) = before;
        let waits = self.wait_without(unit, &juniors);
        self.renew();
        self.again = waits.is_some();
        waits
    }

    /// Without the starts the unit would fit on what others leave anyway: then those of them that are in its way wait with it.
    /// Made now they would be told to leave by the next decision.
    fn wait_without(&mut self, unit: &Unit<'a>, juniors: &Juniors) -> Option<Blocker> {
        let before = self.steps.clone();
        self.steps.retain(|step| !is_start_of(step, juniors));
        self.renew();
        let found = self.on_what_is_left(unit);
        self.steps = before;
        // What is right is asked of the books with these starts in them.
        self.renew();
        let (deadline, places) = found?;
        let waiting = self.meeting(juniors, &places.concat());
        if self.wrong_junior(unit, &waiting).is_some() {
            return None;
        }
        let (ahead, class) = (unit[0].id, unit[0].spec.priority);
        self.outdone.extend(waiting.keys().map(|job| (*job, Blocker::Priority { ahead, class })));
        self.steps.retain(|step| !is_start_of(step, &waiting));
        self.unclaim(waiting.keys().copied(), GOES_FIRST);
        (!waiting.is_empty()).then_some(Blocker::Yielding { victims: 0, deadline })
    }
}

fn group_of(job: &Job) -> Option<&str> {
    job.spec.group.as_ref().map(|group| group.name.as_str())
}

fn is_start_of(step: &Step, juniors: &Juniors) -> bool {
    matches!(step, Step::Start { job, .. } if juniors.contains_key(job))
}
