//! Rules 3, 5, 9 and 10 for promises: claims are backed by devices and by the right to evict, and no start moves a
//! reserved one.
use super::Found;
use crate::model::cluster::Cluster;
use crate::model::decision::{Claim, Reservation};
use crate::model::ids::JobId;
use crate::model::job::{Attempt, Job, JobState};
use crate::model::node::Device;
use crate::model::time::Time;
use std::collections::BTreeSet;

pub fn claims(cluster: &Cluster, jobs: &BTreeSet<JobId>, found: &mut Found) {
    for claim in cluster.claims.values().filter(|claim| jobs.contains(&claim.claimant)) {
        backed(cluster, claim, found);
        rightful(cluster, claim, found);
        found.unless(claim.deadline < Time::NEVER, 10, || format!("the claim of job {} has no end", claim.claimant));
    }
}

/// Rule 3: everything claimed is free or becoming free for this claimant.
fn backed(cluster: &Cluster, claim: &Claim, found: &mut Found) {
    let id = claim.claimant;
    let pending = cluster.job(id).is_some_and(|job| job.state == JobState::Pending);
    found.unless(pending, 3, || format!("job {id} has a claim but is not pending"));
    for place in &claim.places {
        let node = cluster.node(place.node);
        let promised = node.mask(|device| match device {
            Device::Claimed(claimant) => claimant == id,
            Device::Draining { claimant, .. } => claimant == Some(id),
            _ => false,
        });
        found.unless(place.gpus & !promised == 0, 3, || {
            format!("job {id} claims GPUs {:b} of {}, promised are {promised:b}", place.gpus, node.name)
        });
    }
    if let Some(job) = cluster.job(id) {
        let size = claim.places.len() as u32;
        let whole = size >= job.spec.gang.min && size <= job.spec.gang.workers;
        found.unless(whole, 3, || format!("job {id} claims places for {size} workers"));
    }
}

/// Rule 3: victims of the claim are of a lower class and said that they yield.
fn rightful(cluster: &Cluster, claim: &Claim, found: &mut Found) {
    let Some(claimant) = cluster.job(claim.claimant) else { return };
    for victim in claim.victims.iter().filter_map(|(job, _)| cluster.job(*job)) {
        let legal = victim.spec.preemptible
            && victim.spec.priority > claimant.spec.priority
            && claimant.spec.priority <= cluster.policy.preempt_from;
        found.unless(legal, 3, || format!("job {} may not stop job {}", claimant.id, victim.id));
    }
}

/// Claims, reservations and reasons belong to jobs that wait.
pub fn orphans(cluster: &Cluster, found: &mut Found) {
    let waits = |id: &JobId| cluster.job(*id).is_some_and(|job| job.state == JobState::Pending);
    for id in cluster.claims.keys() {
        found.unless(waits(id), 3, || format!("job {id} has a claim but does not wait"));
    }
    for id in cluster.blocked.keys() {
        found.unless(cluster.job(*id).is_some(), 9, || format!("a reason is kept for job {id}, which is gone"));
    }
    for id in cluster.reservations.keys() {
        found.unless(cluster.job(*id).is_some(), 5, || format!("a start is reserved for job {id}, which is gone"));
    }
}

/// Rule 5: a start of this moment, decided at `at`, that comes later in the order is over before every reserved start on its devices.
pub fn starts(cluster: &Cluster, jobs: &BTreeSet<JobId>, at: Time, found: &mut Found) {
    if cluster.reservations.is_empty() {
        return;
    }
    for job in jobs.iter().filter_map(|id| cluster.job(*id)) {
        let Some(attempt) = job.attempt.as_ref().filter(|a| a.placed_at == cluster.now && a.ran_from.is_none()) else {
            continue;
        };
        let end = at + job.spec.time_limit.unwrap_or(cluster.policy.assumed_time);
        for reservation in cluster.reservations.values() {
            let in_the_way = reservation.start < end && share_devices(attempt, reservation);
            let junior = cluster.job(reservation.job).is_some_and(|reserved| goes_first(cluster, reserved, job));
            found.unless(!(in_the_way && junior), 5, || {
                format!(
                    "job {} starts on devices reserved for job {} and would outlast its start",
                    job.id, reservation.job
                )
            });
        }
    }
}

fn goes_first(cluster: &Cluster, one: &Job, other: &Job) -> bool {
    let turn = |job: &Job| (cluster.effective_class(job, cluster.now), job.spec.priority, job.submitted_at, job.id);
    turn(one) < turn(other)
}

fn share_devices(attempt: &Attempt, reservation: &Reservation) -> bool {
    attempt.workers.iter().any(|worker| {
        reservation.places.iter().any(|place| place.node == worker.place.node && place.gpus & worker.place.gpus != 0)
    })
}
