//! Applies a decision as one whole, or drops it: every step is checked against the state of now, and the result against
//! the rules, before anything is kept.
use super::attempts::Beginning;
use super::change::Change;
use super::input::{Effects, Refusal};
use crate::check;
use crate::model::amounts::count;
use crate::model::cluster::Cluster;
use crate::model::decision::{Claim, Decision, Step};
use crate::model::ids::{AttemptNo, JobId, Rank};
use crate::model::job::{Job, JobState, Place, Priority};
use crate::model::node::Device;
use crate::model::split;
use crate::model::time::Time;
use std::collections::{BTreeMap, BTreeSet};

pub fn apply(change: Change<'_>, decision: Decision) -> Result<Effects, Refusal> {
    if decision.steps.is_empty() {
        let mut change = change;
        change.note_results(decision);
        return Ok(change.finish());
    }
    let now = change.now;
    let target = change.cluster;
    let ready = ready_times(target, &decision.steps, now);
    let mut trial = target.clone();
    let mut change = Change::new(&mut trial, now);
    for step in &decision.steps {
        change.take_step(step, &ready)?;
    }
    let (touched, at) = (decision.touched_nodes(), decision.at);
    let jobs: BTreeSet<JobId> = change.effects.dirty.jobs.union(&change.effects.dirty.claims).copied().collect();
    change.note_results(decision);
    let effects = change.finish();
    let broken = check::decided(&trial, &touched, &jobs, at).into_iter().chain(check::kept(target, &trial)).next();
    if let Some(violation) = broken {
        return Err(Refusal::StaleDecision { why: violation.to_string() });
    }
    *target = trial;
    Ok(effects)
}

/// When the GPUs of each start are split as it needs them, from what they are before the decision.
fn ready_times(cluster: &Cluster, steps: &[Step], now: Time) -> BTreeMap<JobId, Time> {
    let takes = cluster.policy.repartition_time;
    let ready = |place: &Place| split::ready_at(cluster.node(place.node), place, now, takes);
    let starts = steps.iter().filter_map(|step| match step {
        Step::Start { job, places, .. } => Some((*job, places.iter().map(ready).max()?)),
        _ => None,
    });
    starts.collect()
}

impl Change<'_> {
    fn take_step(&mut self, step: &Step, ready: &BTreeMap<JobId, Time>) -> Result<(), Refusal> {
        match step {
            Step::Stop { job, attempt, why } => {
                self.expect_live(*job, *attempt)?;
                self.stop(*job, why.clone());
            }
            Step::Shrink { job, attempt, ranks, claimant } => {
                self.expect_shrinkable(*job, *attempt, ranks)?;
                self.shrink(*job, *attempt, ranks, *claimant);
            }
            Step::Claim(claim) => self.claim(claim)?,
            Step::Unclaim { claimant, why } => self.unclaim(*claimant, why),
            Step::Repartition { node, gpu, layout } => self.repartition(*node, *gpu, layout)?,
            Step::Start { job, attempt, places, guest_of } => {
                self.expect_startable(*job, *attempt, places)?;
                let ready_at = ready.get(job).copied().unwrap_or(self.now);
                self.start(*job, *attempt, places.clone(), Beginning { ready_at, guest_of: guest_of.clone() });
            }
        }
        Ok(())
    }

    fn expect_live(&self, id: JobId, number: AttemptNo) -> Result<(), Refusal> {
        let job = self.cluster.job(id).ok_or_else(|| stale(format!("job {id} has ended")))?;
        let live = job.attempt.as_ref().is_some_and(|a| a.number == number && a.stopping().is_none());
        if live { Ok(()) } else { Err(stale(format!("job {id} no longer runs attempt {number}"))) }
    }

    fn expect_shrinkable(&self, id: JobId, number: AttemptNo, ranks: &[Rank]) -> Result<(), Refusal> {
        self.expect_live(id, number)?;
        let job = self.cluster.job(id).ok_or_else(|| stale(format!("job {id} has ended")))?;
        let staying = |rank: &Rank| {
            let attempt = job.attempt.as_ref();
            attempt.is_some_and(|attempt| attempt.staying().any(|worker| worker.rank == *rank))
        };
        let left = job.attempt.as_ref().map_or(0, |attempt| attempt.staying().count()).saturating_sub(ranks.len());
        if !job.is_running() || !ranks.iter().all(staying) || left < job.spec.gang.min as usize {
            return Err(stale(format!("job {id} cannot give up {}", count(ranks.len() as u64, "worker"))));
        }
        Ok(())
    }

    fn expect_startable(&self, id: JobId, number: AttemptNo, places: &[Place]) -> Result<(), Refusal> {
        let job = self.cluster.job(id).ok_or_else(|| stale(format!("job {id} has ended")))?;
        if job.state != JobState::Pending || job.held_by.is_some() || job.attempts.0 + 1 != number.0 {
            return Err(stale(format!("job {id} is not pending for attempt {number}")));
        }
        let yields = job.spec.priority == Priority::P3;
        let free = |device: Device| matches!(device, Device::Free) || device == Device::Claimed(id);
        for place in places {
            let node = self.cluster.node(place.node);
            let open = |gpu: u8| {
                matches!(node.devices.get(usize::from(gpu)), Some(Device::Free | Device::Split { claimant: None }))
            };
            let there = place.gpus & !node.mask(free) == 0
                && place.slice.is_none_or(|slice| open(slice.gpu))
                && !self.is_promised_to_another(id, place);
            if !node.accepts(yields, self.now) || !there {
                return Err(stale(format!("devices on {} for job {id} are not free", node.name)));
            }
        }
        self.expect_room(id, places)
    }

    /// Cores, memory and bandwidth: nothing used, nothing twice, nothing beyond what the machine has.
    fn expect_room(&self, id: JobId, places: &[Place]) -> Result<(), Refusal> {
        let mut cpus = BTreeMap::new();
        let mut sums = BTreeMap::new();
        for place in places {
            let node = self.cluster.node(place.node);
            let taken = cpus.entry(place.node).or_insert(node.cpus_used);
            if !place.cpus.is_disjoint(taken) {
                return Err(stale(format!("cores on {} for job {id} are in use", node.name)));
            }
            *taken = taken.union(&place.cpus);
            for (part, amount) in place.amounts() {
                let sum: &mut u64 = sums.entry((place.node, part)).or_insert(node.amount_used(part));
                *sum = sum.saturating_add(amount);
                // The machine may have changed since the decision: a socket or switch that is gone holds nothing.
                if *sum > node.machine.amount_of(part) {
                    return Err(stale(format!("{} on {} for job {id} is in use", part.name(), node.name)));
                }
            }
        }
        Ok(())
    }

    pub fn claim(&mut self, claim: &Claim) -> Result<(), Refusal> {
        let id = claim.claimant;
        let waits = |job: &&Job| job.may_claim() && job.held_by.is_none();
        let Some(job) = self.cluster.job(id).filter(waits).filter(|_| !self.cluster.claims.contains_key(&id)) else {
            return Err(stale(format!("job {id} cannot claim: it is not pending, or has a claim in flight")));
        };
        let (yields, now) = (job.spec.priority == Priority::P3, self.now);
        for place in &claim.places {
            let node = self.node_mut(place.node);
            // Closed since the decision: nobody is stopped for devices on which nothing may start.
            if !node.accepts(yields, now) {
                return Err(stale(format!("{} takes no new work for job {id}", node.name)));
            }
            for (index, device) in node.devices.iter_mut().enumerate().filter(|(i, _)| place.gpus >> i & 1 == 1) {
                *device = match *device {
                    Device::Free => Device::Claimed(id),
                    Device::Draining { owner, claimant: None } => Device::Draining { owner, claimant: Some(id) },
                    Device::Split { claimant: None } => Device::Split { claimant: Some(id) },
                    other => return Err(stale(format!("GPU {index} of {} is {other:?}", node.name))),
                };
            }
        }
        let name = self.cluster.job(id).map_or(String::new(), Job::title);
        let victims: Vec<String> = claim.victims.iter().map(|(job, _)| job.to_string()).collect();
        let jobs = if victims.len() == 1 { "job" } else { "jobs" };
        let lost = count(claim.lost_gpu_ms / 1_000, "GPU-second");
        let resizes = self.cluster.job(id).is_some_and(Job::is_resizing);
        let (kind, workers) =
            (if resizes { "resizing" } else { "claimed" }, count(claim.places.len() as u64, "worker"));
        let text = match claim.victims.iter().any(|(job, _)| *job == id) {
            true if resizes => format!("{name} is to go on with {workers} on {}", self.node_list(&claim.places)),
            true => format!("{name} moves to {}", self.node_list(&claim.places)),
            false => format!("{name} claims the devices of {jobs} {}: {lost} of work lost", victims.join(", ")),
        };
        self.cluster.claims.insert(id, claim.clone());
        self.effects.dirty.claims.insert(id);
        self.event(kind, Some(id), None, text);
        Ok(())
    }

    /// Reservations and reasons replace those of the decision before.
    fn note_results(&mut self, decision: Decision) {
        let reservations: BTreeMap<JobId, _> = decision
            .reservations
            .into_iter()
            .filter(|reservation| self.waits(reservation.job))
            .map(|reservation| (reservation.job, reservation))
            .collect();
        if reservations != self.cluster.reservations {
            self.cluster.reservations = reservations;
            self.effects.dirty.reservations = true;
        }
        let mut blocked = decision.blocked;
        blocked.retain(|job, _| self.waits(*job));
        self.cluster.blocked = blocked;
    }

    fn waits(&self, id: JobId) -> bool {
        self.cluster.job(id).is_some_and(|job| job.state == JobState::Pending)
    }
}

fn stale(why: String) -> Refusal {
    Refusal::StaleDecision { why }
}
