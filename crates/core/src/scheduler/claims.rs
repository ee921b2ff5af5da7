//! Claims in flight: what is promised is kept back from others, and the claimant starts once it is free.
use super::book::{Amounts, amounts_of, held_by};
use super::preempt::may_evict;
use super::{Session, Unit};
use crate::model::amounts::Resources;
use crate::model::decision::{Blocker, Claim, Step};
use crate::model::ids::{AttemptNo, JobId, NodeId};
use crate::model::job::{Job, Place, Priority, StopWhy};
use crate::model::node::Device;
use crate::model::split::{self, Slice};
use std::collections::{BTreeMap, BTreeSet};

impl<'a> Session<'a> {
    /// The claim in flight of a job, unless this decision gave it up.
    pub fn claim_of(&self, id: JobId) -> Option<&'a Claim> {
        self.cluster.claims.get(&id).filter(|_| !self.given_up.contains(&id))
    }

    /// The claim of a job, in flight or of this decision: what it promises is in the books.
    pub fn promised_to(&self, id: JobId) -> Option<&Claim> {
        let claims = self.claiming.contains_key(&id).then(|| self.steps.iter().rev());
        let made = claims.into_iter().flatten().find_map(|step| match step {
            Step::Claim(claim) if claim.claimant == id => Some(claim),
            _ => None,
        });
        made.or_else(|| self.claim_of(id))
    }

    /// Starts the unit on its claim, or elsewhere if that is sooner, or says that it still waits.
    pub fn continue_claim(&mut self, unit: &Unit<'a>) {
        let claims: Vec<Option<&Claim>> = unit.iter().map(|job| self.claim_of(job.id)).collect();
        let all: Option<Vec<&Claim>> = claims.iter().copied().collect();
        if unit.iter().zip(&claims).any(|(job, claim)| claim.is_some_and(|claim| !self.stays_open(job, claim))) {
            self.give_up(unit, "maintenance of a node, or the end of its lending time, comes too soon for it");
            return;
        }
        if all.is_some_and(|claims| self.are_free(unit, &claims)) {
            let places: Vec<&[Place]> = claims.iter().flatten().map(|claim| claim.places.as_slice()).collect();
            if self.yields_claim(unit, &places) {
                return;
            }
            let early = claims.iter().flatten().any(|claim| !self.freed_amounts(claim).is_empty());
            for (job, claim) in unit.iter().zip(claims) {
                let Some(claim) = claim else { continue };
                let attempt = AttemptNo(job.attempts.0 + 1);
                let (places, guest_of) = (claim.places.clone(), Vec::new());
                self.add(Step::Start { job: job.id, attempt, places, guest_of });
            }
            // Others freed memory before its victims did: what was to come from these it takes from what is free now.
            if early {
                self.renew();
            }
            return;
        }
        if let Some(places) = self.place_elsewhere(unit) {
            if self.yields_claim(unit, &places.iter().map(Vec::as_slice).collect::<Vec<_>>()) {
                return;
            }
            self.give_up(unit, "it starts elsewhere sooner");
            return self.start(unit, places);
        }
        let deadline = claims.iter().flatten().map(|claim| claim.deadline).max().unwrap_or(self.now);
        let victims = claims.iter().flatten().map(|claim| self.victims_left(claim)).max().unwrap_or(0);
        self.block(unit, Blocker::Yielding { victims, deadline });
    }

    /// Asks again about a claim that this decision made: beside what starts since, or beside reservations that lie elsewhere
    /// since, there may be room without it.
    pub fn reconsider_claim(&mut self, unit: &Unit<'a>, yielding: Blocker) {
        if let Some(closed) = self.closed_gate(unit) {
            self.withdraw(unit);
            self.vain.insert(unit[0].id, closed.clone());
            return self.block(unit, closed);
        }
        if let Some(places) = self.place_elsewhere(unit) {
            self.withdraw(unit);
            return self.start(unit, places);
        }
        let made = self.steps.iter().filter_map(|step| match step {
            Step::Claim(claim) if unit.iter().any(|job| job.id == claim.claimant) => Some(claim.clone()),
            _ => None,
        });
        let made: Vec<Claim> = made.collect();
        if self.are_free(unit, &made.iter().collect::<Vec<_>>()) {
            self.withdraw(unit);
            return self.start(unit, made.into_iter().map(|claim| claim.places).collect());
        }
        self.block(unit, yielding);
    }

    /// Where the unit could start without its claim, within all limits.
    fn place_elsewhere(&mut self, unit: &Unit<'a>) -> Option<Vec<Vec<Place>>> {
        let places = self.place_beside_reservations(unit).ok()?;
        self.over_limit_on(unit, &places).is_none().then_some(places)
    }

    /// Takes back the claims that this decision made for the unit: nobody has to leave for it.
    fn withdraw(&mut self, unit: &Unit<'a>) {
        let mut ids: Vec<JobId> = unit.iter().map(|job| job.id).collect();
        // Nor has anybody to move for it.
        let moved = self.steps.iter().filter_map(|step| match step {
            Step::Stop { job, why: StopWhy::Moved { claimant }, .. } if ids.contains(claimant) => Some(*job),
            _ => None,
        });
        let moved: Vec<JobId> = moved.collect();
        let shrunk = self.steps.iter().filter_map(|step| match step {
            Step::Shrink { job, claimant, .. } if ids.contains(claimant) => Some(*job),
            _ => None,
        });
        let shrunk: Vec<JobId> = shrunk.collect();
        ids.extend(moved.into_iter().chain(shrunk));
        self.take_back(|step| match step {
            Step::Stop { why: StopWhy::Preempted { claimant } | StopWhy::Moved { claimant }, .. } => {
                ids.contains(claimant)
            }
            Step::Shrink { claimant, .. } => ids.contains(claimant),
            Step::Claim(claim) => ids.contains(&claim.claimant),
            _ => false,
        });
    }

    /// Gives up the claim instead of a start that would be undone by the next decision; then all are asked again.
    fn yields_claim(&mut self, unit: &Unit<'a>, places: &[&[Place]]) -> bool {
        let owed = self.has_owed_nodes(unit);
        let by_class = if owed { None } else { self.outranked_by(unit, waits_for_devices) };
        let by_class = by_class.or_else(|| self.taken_back_by(unit, places, waits_for_devices));
        let holds: Vec<Resources> = places.iter().map(|places| held_by(*places)).collect();
        let reclaimed = |session: &mut Self| session.reclaimed_by(unit, &holds, waits_for_devices).filter(|_| !owed);
        let Some((ahead, class)) = by_class.or_else(|| reclaimed(self)) else {
            return false;
        };
        self.give_up(unit, &format!("job {ahead} goes first and could stop it at once"));
        self.block(unit, Blocker::Priority { ahead, class });
        true
    }

    /// Who is blocked in one of these ways, goes first, and could stop the unit as soon as it runs: starting it would be in
    /// vain.
    pub fn outranked_by(&self, unit: &Unit<'a>, blocked: fn(&Blocker) -> bool) -> Option<(JobId, Priority)> {
        if !unit.iter().all(|job| job.spec.preemptible) {
            return None;
        }
        self.blocked.iter().filter(|(_, blocker)| blocked(blocker)).find_map(|(id, _)| {
            let ahead = self.cluster.job(*id)?;
            unit.iter().all(|job| may_evict(self, ahead, job)).then_some((*id, ahead.spec.priority))
        })
    }

    /// As [`Session::outranked_by`], for what is guaranteed to the queue of the one who waits, where the jobs of the unit hold
    /// so much. The claims of the unit are charged already.
    pub fn reclaimed_by(
        &mut self,
        unit: &Unit<'a>,
        holds: &[Resources],
        blocked: fn(&Blocker) -> bool,
    ) -> Option<(JobId, Priority)> {
        let waits: Vec<JobId> =
            self.blocked.iter().filter(|(_, blocker)| blocked(blocker)).map(|(id, _)| *id).collect();
        waits.into_iter().find_map(|id| {
            let ahead = self.asking.as_asked(self.cluster.job(id)?);
            let claimant = self.claimant(&vec![ahead])?;
            let may = |(job, holds): (&&Job, &Resources)| self.may_reclaim(&claimant, job, *holds);
            unit.iter().zip(holds).all(may).then_some((id, ahead.spec.priority))
        })
    }

    fn stays_open(&self, job: &Job, claim: &Claim) -> bool {
        let node = |place: &Place| self.cluster.node(place.node);
        claim.places.iter().all(|place| self.cluster.stays_open(node(place), &job.spec, self.now))
    }

    /// Ends the claims of the unit.
    pub fn give_up(&mut self, unit: &Unit<'a>, why: &str) {
        self.unclaim(unit.iter().map(|job| job.id), why);
        self.renew();
        self.again = true;
    }

    /// Ends the claims of those who have one; the books have to be made anew.
    pub fn unclaim(&mut self, jobs: impl Iterator<Item = JobId>, why: &str) {
        let claimants: Vec<JobId> = jobs.filter(|id| self.claim_of(*id).is_some()).collect();
        let unclaim = |claimant| Step::Unclaim { claimant, why: why.to_string() };
        self.steps.extend(claimants.iter().copied().map(unclaim));
        self.given_up.extend(claimants);
    }

    fn victims_left(&self, claim: &Claim) -> u32 {
        let left = claim.victims.iter().filter(|(job, attempt)| {
            self.cluster.job(*job).is_some_and(|job| job.attempt.as_ref().is_some_and(|a| a.number == *attempt))
        });
        left.count() as u32
    }

    /// Whether everything that the claims of a unit promise is free for it.
    fn are_free(&mut self, unit: &Unit<'a>, claims: &[&Claim]) -> bool {
        let there = |place: &Place, claim: &Claim| self.devices_wait_for(claim.claimant, place);
        self.parts_are_free(unit, claims)
            && claims.iter().all(|claim| claim.places.iter().all(|place| there(place, claim)))
            && self.amounts_are_free(unit, claims)
            && self.awaits_nothing(unit, claims)
    }

    /// The places of the starts of this decision, but for those of the unit.
    fn started_beside(&self, unit: &Unit<'a>) -> impl Iterator<Item = &Place> {
        let others = self.steps.iter().filter_map(|step| match step {
            Step::Start { job, places, .. } if unit.iter().all(|one| one.id != *job) => Some(places),
            _ => None,
        });
        others.flatten()
    }

    /// The claimed parts of GPUs, all of them together, beside those that the other starts of this decision take.
    fn parts_are_free(&self, unit: &Unit<'a>, claims: &[&Claim]) -> bool {
        let mut held: BTreeMap<(NodeId, u8), Vec<Slice>> = BTreeMap::new();
        claims.iter().flat_map(|claim| &claim.places).all(|place| {
            let (node, Some(slice)) = (self.cluster.node(place.node), place.slice) else { return true };
            let device = node.devices.get(usize::from(slice.gpu));
            let stray = node.strays.iter().any(|stray| stray.gpus & slice.mask() != 0);
            let open = matches!(device, Some(Device::Free | Device::Split { claimant: None }));
            let now = || {
                let started = self.started_beside(unit).filter(|other| other.node == node.id);
                let taken = node.held_slices().chain(started.filter_map(|other| other.slice.as_ref()));
                taken.filter(|taken| taken.gpu == slice.gpu).copied().collect()
            };
            let taken = held.entry((node.id, slice.gpu)).or_insert_with(now);
            let fits = split::beside(&node.machine, taken, &slice).is_ok();
            taken.push(slice);
            open && !stray && fits
        })
    }

    /// Memory and bandwidth, beside what the other starts of this decision take.
    fn amounts_are_free(&self, unit: &Unit<'a>, claims: &[&Claim]) -> bool {
        let needs = amounts_of(claims.iter().flat_map(|claim| claim.places.iter()));
        let nodes: BTreeSet<NodeId> = needs.keys().map(|(node, _)| *node).collect();
        let taken = amounts_of(self.started_beside(unit).filter(|place| nodes.contains(&place.node)));
        needs.into_iter().all(|((node, part), amount)| {
            let (here, started) = (self.cluster.node(node), taken.get(&(node, part)).copied().unwrap_or(0));
            here.amount_used(part).saturating_add(started).saturating_add(amount) <= here.machine.amount_of(part)
        })
    }

    /// Memory and bandwidth that its victims still hold may be there early, freed by others; but not out of what is kept for somebody
    /// else.
    fn awaits_nothing(&mut self, unit: &Unit<'a>, claims: &[&Claim]) -> bool {
        let mut awaited = Amounts::new();
        for (at, bytes) in claims.iter().filter_map(|claim| self.awaited.get(&claim.claimant)).flatten() {
            *awaited.entry(*at).or_default() += bytes;
        }
        let mark = self.draft.mark();
        self.hold_back_reservations(unit);
        let there = awaited.into_iter().all(|((node, part), amount)| amount <= self.draft.room(node).amount(part));
        self.draft.undo_to(mark);
        there
    }

    fn devices_wait_for(&self, claimant: JobId, place: &Place) -> bool {
        let node = self.cluster.node(place.node);
        let own = node.mask(|device| matches!(device, Device::Free) || device == Device::Claimed(claimant));
        let yields = self.cluster.job(claimant).is_some_and(|j| j.spec.priority == Priority::P3);
        place.gpus & !own == 0 && place.cpus.is_disjoint(&node.cpus_used) && node.accepts(yields, self.now)
    }
}

/// Whether devices are what the blocked one is waiting for.
pub fn waits_for_devices(blocker: &Blocker) -> bool {
    matches!(
        blocker,
        Blocker::Resources { .. }
            | Blocker::Topology { .. }
            | Blocker::Priority { .. }
            | Blocker::Health { .. }
            | Blocker::Lending { .. }
            | Blocker::Promised { .. }
    )
}
