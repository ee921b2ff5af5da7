//! The books of a decision: what is free, held, promised, charged and leaving, as it follows from the cluster and from the
//! steps so far. A step is noted when it is added. When something is taken back, all is noted anew: there is no second
//! way by which the books could come to differ from the steps.
use super::elastic::{growing, is_growth};
use super::{Held, Hold, Session};
use crate::model::amounts::Resources;
use crate::model::decision::{Blocker, Claim, Step};
use crate::model::ids::{AttemptNo, JobId, NodeId};
use crate::model::job::{Attempt, Job, Place, Worker};
use crate::model::node::Device;
use crate::model::part::Part;
use crate::model::queue::ancestry;
use crate::model::split;
use crate::model::time::{Span, Time};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// What is given out in amounts, by node and what it is of.
pub type Amounts = BTreeMap<(NodeId, Part), u64>;

impl<'a> Session<'a> {
    pub fn add(&mut self, step: Step) {
        self.holders = None;
        self.kept_nodes = RefCell::default();
        self.note(&step);
        self.steps.push(step);
    }

    /// Takes steps back; the walk then begins again. Nobody grows on what others may have now.
    pub fn take_back(&mut self, gone: impl Fn(&Step) -> bool) {
        let growing = growing(&self.steps);
        self.steps.retain(|step| !gone(step) && !is_growth(&growing, step));
        self.renew();
        self.again = true;
    }

    /// Notes all anew.
    pub fn renew(&mut self) {
        self.draft.restart();
        self.queue_used = self.cluster.queues.iter().map(|(path, queue)| (path.as_str(), queue.used)).collect();
        self.leaving_use.clear();
        self.committed.clear();
        self.holders = None;
        self.kept_nodes = RefCell::default();
        let before = std::mem::take(&mut self.ends);
        self.freed.clear();
        self.awaited.clear();
        self.promised.clear();
        self.leaving.clear();
        self.claiming.clear();
        self.started.clear();
        self.note_all();
        self.follow_ends(&before);
    }

    pub fn note_all(&mut self) {
        self.note_running();
        for claim in self.cluster.claims.values() {
            if self.given_up.contains(&claim.claimant) {
                self.free_what_waits(claim);
            } else {
                self.note_claim_in_flight(claim);
            }
        }
        for step in std::mem::take(&mut self.steps) {
            self.add(step);
        }
    }

    fn note_running(&mut self) {
        for job in self.cluster.jobs.values() {
            let Some(attempt) = &job.attempt else { continue };
            if attempt.leaving().next().is_some() {
                let end = attempt.stopping().map_or(self.now + job.spec.checkpoint.grace, |stop| stop.deadline);
                // Who only moves keeps its part of the share.
                let kept = self.claim_of(job.id).map_or(Resources::ZERO, |claim| held_by(&claim.places));
                let leaves = held_by(attempt.leaving().map(|worker| &worker.place)).less(kept);
                add_along(&mut self.leaving_use, job, leaves);
                let places = Hold::Leaving(attempt);
                let fresh = false;
                self.ends.push(Held {
                    end,
                    assumed: false,
                    told: true,
                    fresh,
                    promise: false,
                    job: job.id,
                    places,
                    guest: None,
                });
            }
            if attempt.stopping().is_none() || self.claim_of(job.id).is_some() {
                self.commit_budget(job, Some(attempt.placed_at), attempt.live_resources().all_gpus_milli());
            }
            if attempt.stopping().is_none() {
                let times = (attempt.placed_at, attempt.ran_from.unwrap_or(self.now.max(attempt.ready_at)));
                let nodes = attempt.staying().map(|worker| worker.place.node);
                let (end, assumed) = self.end_on(job, times, nodes);
                let guest = self.guest(job, &attempt.guest_of);
                let places = Hold::Staying(attempt);
                let fresh = attempt.placed_at == self.now && attempt.ran_from.is_none();
                self.ends.push(Held { end, assumed, told: false, fresh, promise: false, job: job.id, places, guest });
            }
        }
    }

    /// What was kept for a claim that is given up. What its victims still free comes by itself.
    fn free_what_waits(&mut self, claim: &Claim) {
        for place in &claim.places {
            let claimant = Some(claim.claimant);
            let waiting = self.cluster.node(place.node).mask(|device| match device {
                Device::Claimed(by) => Some(by) == claimant,
                Device::Split { claimant: by } => by == claimant,
                _ => false,
            });
            self.draft.give_gpus(place.node, waiting);
        }
    }

    /// Takes its CPUs and memory out of the draft (claimed devices are not free anyway) and charges its claimant's queues.
    /// Of what starts early the memory is taken from what is free now: its victims still hold what it was to get.
    fn note_claim_in_flight(&mut self, claim: &'a Claim) {
        let starts = self.steps.iter().any(|step| matches!(step, Step::Start { job, .. } if *job == claim.claimant));
        let freed = if starts { Amounts::new() } else { self.freed_amounts(claim) };
        self.promise(claim, freed);
    }

    /// Memory that the claim's victims still hold and are leaving.
    pub fn freed_amounts(&self, claim: &Claim) -> Amounts {
        let victims = claim.victims.iter().filter_map(|(id, attempt)| {
            let job = self.cluster.job(*id)?;
            Some((job, job.attempt.as_ref().filter(|a| a.number == *attempt)?))
        });
        // Of a gang that restarts with fewer workers only those that it gives up; the rest is its own.
        let freed = victims.flat_map(|(job, attempt)| {
            let resizing = job.is_resizing();
            attempt.leaving().filter(move |worker| !resizing || worker.phase.is_given_up() != claim.resizes)
        });
        amounts_of(freed.map(|worker| &worker.place))
    }

    /// Keeps what is claimed. The claims of a group share their victims, and what these free, only once.
    fn promise(&mut self, claim: &Claim, freed: Amounts) {
        let mut freed = self.freed.remove(&key_of(claim)).unwrap_or(freed);
        let awaited = self.hold_back(&claim.places, &mut freed);
        self.awaited.insert(claim.claimant, awaited);
        self.freed.insert(key_of(claim), freed);
        let Some(job) = self.cluster.job(claim.claimant) else { return };
        self.promised.insert(job.id);
        self.draft.uplinks.add(self.cluster, &job.spec, claim.places.iter());
        self.charge(job, &claim.places);
        let has = job.attempt.as_ref().map(Attempt::live_resources).unwrap_or_default();
        self.commit_budget(job, None, held_by(&claim.places).less(has).all_gpus_milli());
        let from = claim.deadline + self.splitting_at(job, &claim.places);
        let (end, assumed) = self.end_on(job, (claim.deadline, from), claim.places.iter().map(|place| place.node));
        let places = Hold::Chosen(claim.places.clone());
        let (fresh, promise) = (false, true);
        self.ends.push(Held { end, assumed, told: false, fresh, promise, job: job.id, places, guest: None });
    }

    /// Keeps `places` from everybody else: their GPUs and CPUs, and of their amounts what is not `freed` for them anyway;
    /// what they need of that is taken from it, and returned.
    pub fn hold_back(&mut self, places: &[Place], freed: &mut Amounts) -> Amounts {
        let mut awaited = Amounts::new();
        for place in places {
            let kept = less_freed(place, freed, |at, bytes| *awaited.entry(at).or_default() += bytes);
            self.draft.take(&kept);
        }
        awaited
    }

    fn note(&mut self, step: &Step) {
        match step {
            Step::Start { job, places, guest_of, .. } => self.note_start(*job, places, guest_of),
            Step::Stop { job, .. } => {
                self.leaving.insert(*job);
                self.forget_budget_of(*job);
            }
            Step::Shrink { job, .. } => drop(self.leaving.insert(*job)),
            Step::Claim(claim) => self.note_claim(claim),
            // What is split anew follows from the starts.
            Step::Unclaim { .. } | Step::Repartition { .. } => {}
        }
    }

    /// A start on a claim in flight holds nothing more than the claim did, but ends sooner than was expected.
    fn note_start(&mut self, id: JobId, places: &[Place], guest_of: &[JobId]) {
        self.started.insert(id);
        let Some(job) = self.cluster.job(id) else { return };
        let takes = self.cluster.policy.repartition_time;
        let ready = |place: &Place| split::ready_at(self.cluster.node(place.node), place, self.now, takes);
        let from = places.iter().map(ready).max().unwrap_or(self.now);
        let (end, assumed) = self.end_on(job, (self.now, from), places.iter().map(|place| place.node));
        if self.claim_of(id).is_some() {
            self.promised.remove(&id);
            for index in 0..self.ends.len() {
                let held = &mut self.ends[index];
                if held.job != id {
                    continue;
                }
                let before = std::mem::replace(&mut held.end, end);
                (held.assumed, held.fresh, held.promise) = (assumed, true, false);
                self.follow_end(index, before);
            }
            return;
        }
        self.draft.take_all(places);
        self.draft.uplinks.add(self.cluster, &job.spec, places.iter());
        self.charge(job, places);
        self.commit_budget(job, None, held_by(places).all_gpus_milli());
        let (guest, places) = (self.guest(job, guest_of), Hold::Chosen(places.to_vec()));
        let (fresh, promise) = (true, false);
        self.ends.push(Held { end, assumed, told: false, fresh, promise, job: id, places, guest });
    }

    /// The same whether it is told now or later: a guest that leaves is gone when its grace is over.
    fn guest(&self, job: &Job, owners: &[JobId]) -> Option<(Vec<JobId>, Time)> {
        (!owners.is_empty()).then(|| (owners.to_vec(), self.now + job.spec.checkpoint.grace))
    }

    /// The steps that tell its victims to leave come before it.
    fn note_claim(&mut self, claim: &Claim) {
        let mut freed = Amounts::new();
        if !self.freed.contains_key(&key_of(claim)) {
            for (job, _) in &claim.victims {
                let places = self.told_to_leave(*job, claim.resizes);
                if let Some(job) = self.cluster.job(*job).filter(|_| !claim.moves) {
                    add_along(&mut self.leaving_use, job, held_by(&places));
                }
                for (at, bytes) in amounts_of(places.iter()) {
                    *freed.entry(at).or_default() += bytes;
                }
                for (index, held) in self.ends.iter_mut().enumerate().filter(|(_, held)| held.job == *job) {
                    let rest = held.places.iter().filter(|place| !places.contains(place)).cloned().collect();
                    held.places = Hold::Chosen(rest);
                    self.timeline.replaced(index, held, places.iter().map(|place| place.node));
                }
                let (places, fresh) = (Hold::Chosen(places), false);
                let (assumed, promise) = (false, false);
                // Not the deadline of the claim: each of several victims has a time of its own to leave in.
                let grace = self.cluster.job(*job).map_or(Span::ZERO, |job| job.spec.checkpoint.grace);
                let end = self.now + grace;
                self.ends.push(Held { end, assumed, told: true, fresh, promise, job: *job, places, guest: None });
            }
        }
        self.promise(claim, freed);
        let victims = claim.victims.len() as u32;
        self.claiming.insert(claim.claimant, Blocker::Yielding { victims, deadline: claim.deadline });
    }

    /// How long a job that is not placed yet may have to wait for its GPUs to be split anew, or to be whole again.
    pub fn splitting(&self, job: &Job) -> Span {
        match self.splits || job.spec.shape.part.is_some() {
            true => self.cluster.policy.repartition_time,
            false => Span::ZERO,
        }
    }

    /// As [`Session::splitting`] where the places are known.
    fn splitting_at(&self, job: &Job, places: &[Place]) -> Span {
        let is_split =
            |place: &Place| self.cluster.node(place.node).splits.keys().any(|gpu| place.gpus >> gpu & 1 == 1);
        match job.spec.shape.part.is_some() || places.iter().any(is_split) {
            true => self.cluster.policy.repartition_time,
            false => Span::ZERO,
        }
    }

    /// What a stop may take longer than the grace of who is stopped.
    pub fn margins(&self) -> Span {
        self.cluster.policy.stop_margin + self.cluster.policy.claim_margin
    }

    /// The places that a victim of this decision leaves: some of an elastic gang, all of any other. What is left of a gang
    /// that restarts is what it leaves for itself.
    fn told_to_leave(&self, id: JobId, for_itself: bool) -> Vec<Place> {
        let some = self.steps.iter().find_map(|step| match step {
            Step::Shrink { job, ranks, .. } if *job == id => Some(ranks),
            _ => None,
        });
        let attempt = self.cluster.job(id).and_then(|job| job.attempt.as_ref());
        let leaves = |worker: &&Worker| some.is_none_or(|ranks| ranks.contains(&worker.rank) != for_itself);
        attempt.into_iter().flat_map(Attempt::live).filter(leaves).map(|worker| worker.place.clone()).collect()
    }

    /// What a job that moves still holds is charged already.
    fn charge(&mut self, job: &'a Job, places: &[Place]) {
        let already = job.attempt.as_ref().map(Attempt::live_resources).unwrap_or_default();
        add_along(&mut self.queue_used, job, held_by(places).less(already));
    }

    /// What a queue and those below it hold and were promised, without what was told to leave.
    pub fn staying_use(&self, path: &str) -> Resources {
        let used = self.queue_used.get(path).copied().unwrap_or_default();
        used.less(self.leaving_use.get(path).copied().unwrap_or_default())
    }

    /// What is held and promised in the whole cluster.
    pub fn held_in_all(&self) -> Resources {
        let tops = self.queue_used.iter().filter(|(path, _)| !path.contains('/'));
        tops.fold(Resources::ZERO, |sum, (_, used)| sum.plus(*used))
    }
}

/// Whose victims a claim is about: what they free is kept for all claims that share them.
pub type FreedKey = (bool, Vec<(JobId, AttemptNo)>);

fn key_of(claim: &Claim) -> FreedKey {
    (claim.resizes, claim.victims.clone())
}

/// A place without what of its amounts is `freed` for it anyway; that is taken from `freed` and told.
pub fn less_freed(place: &Place, freed: &mut Amounts, mut told: impl FnMut((NodeId, Part), u64)) -> Place {
    let mut kept = place.clone();
    let mut cover = |part: Part, amount: &mut u64| {
        let at = (place.node, part);
        let Some(coming) = freed.get_mut(&at) else { return };
        let covered = (*coming).min(*amount);
        *coming -= covered;
        *amount -= covered;
        told(at, covered);
    };
    kept.memory.iter_mut().for_each(|(socket, bytes)| cover(Part::Memory(*socket), bytes));
    kept.pcie_bps.iter_mut().for_each(|(switch, bps)| cover(Part::Pcie(*switch), bps));
    cover(Part::Network, &mut kept.network_bps);
    kept
}

/// Adds to the sums of the job's queue and of those above it.
fn add_along<'a>(sums: &mut BTreeMap<&'a str, Resources>, job: &'a Job, amount: Resources) {
    for path in ancestry(&job.spec.queue) {
        let sum = sums.entry(path).or_default();
        *sum = sum.plus(amount);
    }
}

/// All that `places` hold.
pub fn held_by<'p>(places: impl IntoIterator<Item = &'p Place>) -> Resources {
    places.into_iter().fold(Resources::ZERO, |sum, place| sum.plus(place.resources()))
}

/// What `places` hold in amounts.
pub fn amounts_of<'p>(places: impl Iterator<Item = &'p Place>) -> Amounts {
    let mut sums = Amounts::new();
    for (node, (part, amount)) in places.flat_map(|place| place.amounts().map(|held| (place.node, held))) {
        *sums.entry((node, part)).or_default() += amount;
    }
    sums
}
