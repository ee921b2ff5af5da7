//! Claims in flight: what is promised is kept back from others, and the claimant starts once it is free.
use super::draft::Draft;
use super::preempt::may_evict;
use super::{Held, Hold, Session, Unit};
use crate::model::decision::{Blocker, Claim, Step};
use crate::model::ids::{AttemptNo, JobId, NodeId};
use crate::model::job::{Job, Place, Priority};
use crate::model::node::Device;
use std::collections::BTreeMap;

/// Bytes by node and socket.
type MemoryBySocket = BTreeMap<(NodeId, u8), u64>;

impl<'a> Session<'a> {
    /// Takes the CPUs and memory of all claims out of the draft (claimed devices are not free anyway) and charges their
    /// claimants' queues.
    pub fn hold_back_claims(&mut self) {
        // The claims of a group share their victims, and what these free only once.
        let mut freed_by: BTreeMap<&[(JobId, AttemptNo)], MemoryBySocket> = BTreeMap::new();
        for claim in self.cluster.claims.values() {
            let mut freed = freed_by.remove(claim.victims.as_slice()).unwrap_or_else(|| self.freed_memory(claim));
            self.hold_back(&claim.places, &mut freed);
            freed_by.insert(&claim.victims, freed);
            let Some(job) = self.cluster.job(claim.claimant) else { continue };
            self.charge(job);
            let (end, assumed) = self.expected_end(job, claim.deadline);
            self.ends.push(Held { end, assumed, told: false, job: job.id, places: Hold::Chosen(claim.places.clone()) });
        }
    }

    /// Keeps `places` from everybody else: their GPUs and CPUs, and of their memory what is not `freed` for them anyway;
    /// what they need of that is taken from it.
    pub fn hold_back(&mut self, places: &[Place], freed: &mut BTreeMap<(NodeId, u8), u64>) {
        for place in places {
            let mut kept = place.clone();
            for (socket, bytes) in &mut kept.memory {
                let coming = freed.entry((place.node, *socket)).or_default();
                let covered = (*coming).min(*bytes);
                *coming -= covered;
                *bytes -= covered;
            }
            self.draft.change(place.node, |room| room.take(&kept));
        }
    }

    /// Memory that the claim's victims still hold, by node and socket.
    fn freed_memory(&self, claim: &Claim) -> BTreeMap<(NodeId, u8), u64> {
        let victims = claim.victims.iter().filter_map(|(job, attempt)| {
            let job = self.cluster.job(*job)?;
            job.attempt.as_ref().filter(|a| a.number == *attempt)
        });
        memory_of(victims.flat_map(|attempt| attempt.leaving().map(|worker| &worker.place)))
    }

    /// Starts the unit on its claim, or elsewhere if that is sooner, or says that it still waits.
    pub fn continue_claim(&mut self, unit: &Unit<'a>) {
        let claims: Vec<Option<&Claim>> = unit.iter().map(|job| self.claim_of(job.id)).collect();
        if claims.iter().all(|claim| claim.is_some_and(|claim| self.is_free(claim))) {
            if self.yields_claim(unit) {
                return;
            }
            self.started.extend(unit.iter().map(|job| job.id));
            let early = claims.iter().flatten().any(|claim| !self.freed_memory(claim).is_empty());
            for (job, claim) in unit.iter().zip(claims) {
                let Some(claim) = claim else { continue };
                let attempt = AttemptNo(job.attempts.0 + 1);
                self.steps.push(Step::Start { job: job.id, attempt, places: claim.places.clone() });
            }
            // Others freed memory before its victims did: what was to come from these it takes from what is free now.
            if early {
                self.renew_draft();
            }
            return;
        }
        if let Ok(places) = self.place_beside_reservations(unit) {
            if self.yields_claim(unit) {
                return;
            }
            self.give_up(unit, "it starts elsewhere sooner");
            self.start(unit, places);
            return self.renew_draft();
        }
        let deadline = claims.iter().flatten().map(|claim| claim.deadline).max().unwrap_or(self.now);
        let victims = claims.iter().flatten().map(|claim| self.victims_left(claim)).max().unwrap_or(0);
        self.block(unit, Blocker::Yielding { victims, deadline });
    }

    /// Gives up the claim instead of a start that would be undone by the next decision; then all are asked again.
    fn yields_claim(&mut self, unit: &Unit<'a>) -> bool {
        let Some((ahead, class)) = self.outranked_by(unit, waits_for_devices) else { return false };
        self.give_up(unit, &format!("job {ahead} goes first and could stop it at once"));
        self.block(unit, Blocker::Priority { ahead, class });
        self.renew_draft();
        true
    }

    /// Who is blocked in one of these ways, goes first, and could stop the unit as soon as it runs: starting it would be in
    /// vain.
    pub fn outranked_by(&self, unit: &Unit<'a>, blocked: fn(&Blocker) -> bool) -> Option<(JobId, Priority)> {
        if !unit.iter().all(|job| job.spec.preemptible) {
            return None;
        }
        self.blocked.iter().filter(|(_, blocker)| blocked(blocker)).find_map(|(id, _)| {
            let spec = &self.cluster.job(*id)?.spec;
            unit.iter().all(|job| may_evict(self, spec, job)).then_some((*id, spec.priority))
        })
    }

    /// Ends the claims of the unit. The caller renews the draft when it has said what becomes of the unit.
    pub fn give_up(&mut self, unit: &Unit<'a>, why: &str) {
        let claimants: Vec<&Job> = unit.iter().copied().filter(|job| self.claim_of(job.id).is_some()).collect();
        for job in claimants {
            self.steps.push(Step::Unclaim { claimant: job.id, why: why.to_string() });
            self.uncharge(job);
        }
        self.given_up.extend(unit.iter().map(|job| job.id));
        self.ends.retain(|held| unit.iter().all(|job| job.id != held.job));
    }

    /// The draft anew, without what was kept for claims that were given up.
    pub fn renew_draft(&mut self) {
        let cluster = self.cluster;
        let mut draft = Draft::now(cluster);
        draft.work += self.draft.work;
        self.draft = draft;
        for claim in cluster.claims.values() {
            if !self.given_up.contains(&claim.claimant) {
                let mut freed = if self.starts(claim.claimant) { BTreeMap::new() } else { self.freed_memory(claim) };
                self.hold_back(&claim.places, &mut freed);
                continue;
            }
            for place in &claim.places {
                let waiting = cluster.node(place.node).mask(|device| device == Device::Claimed(claim.claimant));
                self.draft.change(place.node, |room| room.gpus |= waiting);
            }
        }
        for step in std::mem::take(&mut self.steps) {
            match &step {
                Step::Start { job, places, .. } if !cluster.claims.contains_key(job) || self.given_up.contains(job) => {
                    self.draft.take_all(places);
                }
                Step::Claim(claim) => {
                    let victims = claim.victims.iter().filter_map(|(job, _)| cluster.job(*job)?.attempt.as_ref());
                    let mut freed = memory_of(victims.flat_map(|a| a.live().map(|worker| &worker.place)));
                    self.hold_back(&claim.places, &mut freed);
                }
                _ => {}
            }
            self.steps.push(step);
        }
    }

    /// Whether this decision starts the job.
    fn starts(&self, id: JobId) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Start { job, .. } if *job == id))
    }

    fn victims_left(&self, claim: &Claim) -> u32 {
        let left = claim.victims.iter().filter(|(job, attempt)| {
            self.cluster.job(*job).is_some_and(|job| job.attempt.as_ref().is_some_and(|a| a.number == *attempt))
        });
        left.count() as u32
    }

    /// Whether everything that the claim promises is free for its claimant.
    fn is_free(&self, claim: &Claim) -> bool {
        let mut need: BTreeMap<(NodeId, u8), u64> = BTreeMap::new();
        let devices_free = claim.places.iter().all(|place| {
            for (socket, bytes) in &place.memory {
                *need.entry((place.node, *socket)).or_default() += bytes;
            }
            self.devices_wait_for(claim.claimant, place)
        });
        devices_free
            && need.into_iter().all(|((node, socket), bytes)| {
                let node = self.cluster.node(node);
                let socket = usize::from(socket);
                let total = node.machine.sockets.get(socket).map_or(0, |s| s.memory_bytes);
                node.memory_used.get(socket).is_some_and(|used| used.saturating_add(bytes) <= total)
            })
    }

    fn devices_wait_for(&self, claimant: JobId, place: &Place) -> bool {
        let node = self.cluster.node(place.node);
        let claimed = node.mask(|device| device == Device::Claimed(claimant));
        let yields = self.cluster.job(claimant).is_some_and(|j| j.spec.priority == Priority::P3);
        place.gpus & !claimed == 0 && place.cpus.is_disjoint(&node.cpus_used) && node.accepts(yields, self.now)
    }
}

/// Whether devices are what the blocked one is waiting for.
pub fn waits_for_devices(blocker: &Blocker) -> bool {
    matches!(
        blocker,
        Blocker::Resources { .. } | Blocker::Topology { .. } | Blocker::Priority { .. } | Blocker::Health { .. }
    )
}

/// Memory of `places` by node and socket.
pub fn memory_of<'p>(places: impl Iterator<Item = &'p Place>) -> BTreeMap<(NodeId, u8), u64> {
    let mut sums: BTreeMap<(NodeId, u8), u64> = BTreeMap::new();
    for place in places {
        for (socket, bytes) in &place.memory {
            *sums.entry((place.node, *socket)).or_default() += bytes;
        }
    }
    sums
}
