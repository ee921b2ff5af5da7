//! Elastic gangs in the order of service: a pending one asks for its smallest size and, when its turn comes, takes the
//! largest that there is room for; a running one that is too small asks for more as the last of its class.
//!
//! Whatever is asked of a pending gang (limits, victims, a reserved start) is asked for its smallest size: nobody is stopped
//! for workers that it can do without. To grow is to restart: the gang is placed anew on what is free and on its own devices,
//! these are claimed for it, and it is told to save and leave.
use super::claims::waits_for_devices;
use super::preempt::waits_or_is_limited;
use super::{Session, Unit};
use crate::model::amounts::Resources;
use crate::model::cluster::Cluster;
use crate::model::decision::{Claim, Step};
use crate::model::ids::{JobId, Rank};
use crate::model::job::{Gang, Job, JobSpec, JobState, Place, Shrink, StopWhy};
use crate::model::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::book::held_by;
use super::filter::Pick;
use super::place::place_gang;

/// Jobs that stand in the order otherwise than as they were submitted: elastic gangs, with the size that they ask for.
#[derive(Debug, Default)]
pub struct Asking {
    jobs: BTreeMap<JobId, Job>,
    /// What those with a claim ask for without it.
    unclaimed: BTreeMap<JobId, Job>,
}

impl Asking {
    pub fn of(cluster: &Cluster, now: Time) -> Asking {
        let elastic = cluster.jobs.values().filter(|job| job.spec.is_elastic());
        let mut asking = Asking::default();
        for job in elastic {
            asking.jobs.extend(asks(cluster, job, now).map(|asked| (job.id, asked)));
            if cluster.claims.contains_key(&job.id) && job.state == JobState::Pending {
                asking.unclaimed.insert(job.id, sized(job, job.spec.gang.least()));
            }
        }
        asking
    }

    /// Who waits, and who wants to grow.
    pub fn units<'a>(&'a self, cluster: &'a Cluster) -> impl Iterator<Item = &'a Job> {
        let pending = cluster.jobs.values().map(AsRef::as_ref).filter(|job| job.state == JobState::Pending);
        let growing = self.jobs.values().filter(|job| job.attempt.is_some());
        pending.map(|job| self.as_asked(job)).chain(growing)
    }

    /// The job with what it asks for.
    pub fn as_asked<'a>(&'a self, job: &'a Job) -> &'a Job {
        self.jobs.get(&job.id).unwrap_or(job)
    }
}

/// A pending gang asks for its least, or for what it claims; one that is too small for a step more. That comes after all
/// who wait in its class: it counts as submitted now.
fn asks(cluster: &Cluster, job: &Job, now: Time) -> Option<Job> {
    let gang = job.spec.gang;
    match job.state {
        JobState::Pending => {
            let claimed = cluster.claims.get(&job.id).map(|claim| claim.places.len() as u32);
            Some(sized(job, claimed.unwrap_or(gang.least())))
        }
        JobState::Running if cluster.may_grow(job, now) => {
            let step = gang.size_below(gang.sizes_above(job.size()).saturating_sub(1)).saturating_sub(job.size());
            Some(Job { submitted_at: now, eligible_at: now, ..undated(sized(job, step)) })
        }
        _ => None,
    }
}

/// More workers are no matter of its deadline: that is met with what it has.
fn undated(job: Job) -> Job {
    Job { spec: Arc::new(JobSpec { deadline: None, ..JobSpec::clone(&job.spec) }), ..job }
}

fn sized(job: &Job, workers: u32) -> Job {
    let gang = Gang { workers, min: workers, step: workers, shrink: job.spec.gang.shrink };
    Job { spec: Arc::new(JobSpec { gang, ..JobSpec::clone(&job.spec) }), ..job.clone() }
}

impl<'a> Session<'a> {
    /// The unit as it asks since this decision gave up its claim.
    pub fn without_claim(&self, unit: &Unit<'a>) -> Option<Unit<'a>> {
        let [asked] = unit[..] else { return None };
        let least = self.asking.unclaimed.get(&asked.id).filter(|_| self.given_up.contains(&asked.id))?;
        (least.spec.gang.workers != asked.spec.gang.workers).then(|| vec![least])
    }

    /// The places of a start, of an elastic gang as many as there is room for.
    pub fn widened(&mut self, unit: &Unit<'a>, places: Vec<Vec<Place>>) -> Vec<Vec<Place>> {
        let [asked] = unit[..] else { return places };
        let size = places.first().map_or(0, Vec::len) as u32;
        match self.cluster.job(asked.id).filter(|job| job.spec.is_elastic()) {
            Some(job) => self.largest(unit, job, size).map_or(places, |more| vec![more]),
            None => places,
        }
    }

    /// Restarts a running gang with more workers, if there is room for them and nobody could take them at once.
    pub fn grow(&mut self, unit: &Unit<'a>) {
        let Some(job) = unit.first().and_then(|asked| self.cluster.job(asked.id)) else { return };
        let Some(attempt) = job.attempt.as_ref() else { return };
        let told = self.claiming.contains_key(&job.id) || self.leaving.contains(&job.id);
        // To grow is to start again, so what may not start now stays as it is.
        let stays = told || !self.is_open(job) || self.draft.work > self.cluster.policy.budget;
        if stays || !self.keeps_what_it_gets(unit) {
            return;
        }
        let mark = self.draft.mark();
        self.draft.give_all(attempt.staying().map(|worker| &worker.place));
        self.hold_back_wanted_pools(unit);
        let found = self.largest(unit, job, job.size());
        self.draft.undo_to(mark);
        let Some(places) = found else { return };
        let (workers, victims) = (places.len() as u32, vec![(job.id, attempt.number)]);
        self.add(Step::Stop { job: job.id, attempt: attempt.number, why: StopWhy::Resized { workers } });
        let (claimant, made_at) = (job.id, self.now);
        let deadline = self.now + job.spec.checkpoint.grace + self.margins();
        self.add(Step::Claim(Claim {
            claimant,
            places,
            victims,
            made_at,
            deadline,
            lost_gpu_ms: 0,
            moves: true,
            resizes: true,
        }));
        self.ask_guests_again();
    }

    fn keeps_what_it_gets(&mut self, unit: &Unit<'a>) -> bool {
        let by_class = self.outranked_by(unit, waits_or_is_limited).is_none();
        let holds: Vec<Resources> = unit.iter().map(|job| job.holds()).collect();
        by_class && self.reclaimed_by(unit, &holds, waits_for_devices).is_none()
    }

    /// The places of the largest legal size above `size` that fits beside reservations and within limits and budgets.
    fn largest(&mut self, unit: &Unit<'a>, job: &'a Job, size: u32) -> Option<Vec<Place>> {
        let gang = job.spec.gang;
        let (mut low, mut high) = (0, gang.sizes_above(size));
        let mut best = None;
        let mut middle = low;
        while low < high {
            match self.fits_at(unit, job, gang.size_below(middle)) {
                Some(places) => (best, high) = (Some(places), middle),
                None => low = middle + 1,
            }
            middle = (low + high) / 2;
        }
        best
    }

    fn fits_at(&mut self, unit: &Unit<'a>, job: &'a Job, workers: u32) -> Option<Vec<Place>> {
        let mark = self.draft.mark();
        self.hold_back_reservations(unit);
        self.fence_off(unit, self.now);
        let found = place_gang(&mut self.draft, &self.tree, &job.spec, workers, Pick::Accepting(self.now));
        self.draft.undo_to(mark);
        let places = found.ok()?;
        let has = job.attempt.as_ref().map_or(Resources::ZERO, |attempt| attempt.live_resources());
        let more = held_by(&places).less(has);
        let open = self.over_limit_with(unit, std::iter::once(more)).is_none();
        (open && self.over_budget_with(unit, more.all_gpus_milli()).is_none()).then_some(places)
    }

    /// Claims the places that a gang keeps which restarts without `ranks`.
    pub fn claim_rest(&mut self, job: &Job, ranks: &[Rank], deadline: Time) {
        let Some(attempt) = job.attempt.as_ref().filter(|_| job.spec.gang.shrink == Shrink::Restart) else { return };
        let kept = attempt.staying().filter(|worker| !ranks.contains(&worker.rank));
        self.add(Step::Claim(Claim {
            claimant: job.id,
            places: kept.map(|worker| worker.place.clone()).collect(),
            victims: vec![(job.id, attempt.number)],
            made_at: self.now,
            deadline,
            lost_gpu_ms: 0,
            moves: true,
            resizes: true,
        }));
    }

    /// A gang that moves on frees what it leaves, so reserved starts of those ahead may come sooner than was said to guests.
    fn ask_guests_again(&mut self) {
        let before = self.steps.len();
        self.steps.retain(|step| !matches!(step, Step::Start { guest_of, .. } if !guest_of.is_empty()));
        if self.steps.len() < before {
            self.renew();
            self.again = true;
        }
    }
}

/// The gangs that these steps make grow.
pub fn growing(steps: &[Step]) -> BTreeSet<JobId> {
    let grows = |step: &Step| match step {
        Step::Stop { job, why: StopWhy::Resized { .. }, .. } => Some(*job),
        _ => None,
    };
    steps.iter().filter_map(grows).collect()
}

/// Whether it is one of their steps.
pub fn is_growth(growing: &BTreeSet<JobId>, step: &Step) -> bool {
    match step {
        Step::Stop { job, .. } => growing.contains(job),
        Step::Claim(claim) => growing.contains(&claim.claimant),
        _ => false,
    }
}
