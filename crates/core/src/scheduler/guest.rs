//! Guests: a job that yields and saves may use devices whose reserved start lies ahead, if it can be told, save and be gone
//! before that start whenever it comes. It keeps no device from the start: for the owners of the reservations its devices
//! count as free once its grace is over, and [`crate::lifecycle`] tells it in time.
use super::reserve::Reserved;
use super::{Session, Unit};
use crate::model::decision::Step;
use crate::model::future::meets;
use crate::model::ids::{AttemptNo, JobId};
use crate::model::job::{Job, Place};
use crate::model::time::Time;
use std::collections::BTreeSet;

impl<'a> Session<'a> {
    /// Starts the unit on reserved devices that it can give back in time.
    pub fn start_as_guest(&mut self, unit: &Unit<'a>) -> bool {
        let welcome = |job: &&Job| job.spec.may_be_guest() && !self.unwelcome.contains(&job.id);
        if self.reserved.is_empty() || !unit.iter().all(welcome) {
            return false;
        }
        let Some(back_by) = unit.iter().map(|job| self.now + self.cluster.policy.least_stay(&job.spec)).max() else {
            return false;
        };
        // Where there are cores enough it takes none that are reserved; never memory or bandwidth, of which nobody can say whose part it is.
        let found = self.place_as_guest(unit, back_by, false).or_else(|| self.place_as_guest(unit, back_by, true));
        let Some(places) = found else { return false };
        if self.over_limit_on(unit, &places).is_some() {
            return false;
        }
        for (job, places) in unit.iter().zip(places) {
            let (guest_of, attempt) = (self.owners(unit, &places), AttemptNo(job.attempts.0 + 1));
            self.add(Step::Start { job: job.id, attempt, places, guest_of });
        }
        true
    }

    /// Takes back starts of guests whose owners can start sooner since, because somebody else was told to leave: they would
    /// be told as soon as they run.
    pub fn sends_guests_home(&mut self, units: &[Unit<'a>]) -> bool {
        let too_near = |job: &Job, places: &[Place], owners: &[JobId]| {
            let back_by = self.now + self.cluster.policy.least_stay(&job.spec);
            let reserved = self.reserved.iter().map(|one| &one.reservation);
            let mut owned = reserved.filter(|one| owners.contains(&one.job) && one.start < back_by);
            owned.any(|one| places.iter().any(|place| meets(&one.places, place)))
        };
        let unwelcome = self.steps.iter().find_map(|step| match step {
            Step::Start { job, places, guest_of, .. } if !guest_of.is_empty() => {
                self.cluster.job(*job).filter(|job| too_near(job, places, guest_of))
            }
            _ => None,
        });
        let Some(one) = unwelcome.map(|job| job.id) else { return false };
        let unit = units.iter().find(|unit| unit.iter().any(|job| job.id == one));
        let home: BTreeSet<JobId> = unit.into_iter().flatten().map(|job| job.id).collect();
        self.take_back(|step| matches!(step, Step::Start { job, .. } if home.contains(job)));
        self.unwelcome.extend(home);
        true
    }

    /// Guests that were sent home are asked once more when all else is settled: the start that came too near may lie further
    /// off since, or elsewhere.
    pub fn asks_unwelcome_again(&mut self) -> bool {
        let asks = !self.unwelcome.is_empty() && !self.asked_unwelcome && self.draft.work <= self.cluster.policy.budget;
        if asks {
            self.unwelcome.clear();
            self.asked_unwelcome = true;
        }
        asks
    }

    fn place_as_guest(&mut self, unit: &Unit<'a>, back_by: Time, cores: bool) -> Option<Vec<Vec<Place>>> {
        let mark = self.draft.mark();
        let (reserved, stay) = (std::mem::take(&mut self.reserved), self.stay(unit));
        let kept: Vec<&Reserved> = reserved.iter().filter(|one| self.keeps_from(one, unit, stay)).collect();
        for one in kept {
            let places: Vec<Place> = match one.reservation.start >= back_by {
                true => one.reservation.places.iter().map(|place| lent(place, cores)).collect(),
                false => one.reservation.places.clone(),
            };
            self.hold_back(&places, &mut one.freed.clone());
        }
        self.reserved = reserved;
        let found = self.place_unit(unit).ok();
        self.draft.undo_to(mark);
        found
    }

    /// Whose reserved devices these are while the unit would still be on them, with all of their groups: those may change
    /// places among themselves.
    fn owners(&self, unit: &Unit<'a>, places: &[Place]) -> Vec<JobId> {
        let on_them = |one: &&Reserved| places.iter().any(|place| meets(&one.reservation.places, place));
        let stay = self.stay(unit);
        let kept = self.reserved.iter().filter(|one| self.keeps_from(one, unit, stay));
        let owners: Vec<JobId> = kept.filter(on_them).map(|one| one.reservation.job).collect();
        let group = |id: JobId| self.cluster.job(id).and_then(|job| job.spec.group.as_ref());
        let groups: BTreeSet<&str> =
            owners.iter().filter_map(|id| group(*id)).map(|group| group.name.as_str()).collect();
        let ours = |id: &JobId| owners.contains(id) || group(*id).is_some_and(|g| groups.contains(g.name.as_str()));
        self.reserved.iter().map(|one| one.reservation.job).filter(ours).collect()
    }
}

/// What of a reserved place is not lent to guests.
fn lent(place: &Place, cores: bool) -> Place {
    let mut kept = Place { gpus: 0, ..place.clone() };
    if cores {
        kept.cpus = Default::default();
    }
    kept
}
