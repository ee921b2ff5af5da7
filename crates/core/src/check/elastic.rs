//! Rules 3 and 5 for gangs that a decision makes grow: they keep what they have, and stand behind all who wait in their class.
use super::Found;
use super::promises::goes_first;
use crate::model::cluster::Cluster;
use crate::model::future::meets;
use crate::model::ids::JobId;
use crate::model::job::Job;
use crate::model::time::Time;
use std::collections::BTreeSet;

pub fn grown(cluster: &Cluster, jobs: &BTreeSet<JobId>, at: Time, found: &mut Found) {
    for job in jobs.iter().filter_map(|id| cluster.job(*id)).filter(|job| is_told_now(cluster, job)) {
        let has = job.attempt.as_ref().map_or(0, |attempt| attempt.live().count());
        let Some(claim) = cluster.claims.get(&job.id) else {
            found.unless(false, 3, || format!("job {} is told to restart, but no place is kept for it", job.id));
            continue;
        };
        found.unless(claim.places.len() > has, 3, || {
            format!("job {} restarts with {} workers, but has {has}", job.id, claim.places.len())
        });
        let end = claim.deadline + job.spec.time_limit.unwrap_or(cluster.policy.assumed_time);
        let last_of_its_class = Job { submitted_at: at, eligible_at: at, ..job.clone() };
        for reservation in cluster.reservations.values().filter(|one| one.start < end) {
            let clash = claim.places.iter().any(|place| meets(&reservation.places, place));
            let ahead = cluster.job(reservation.job).is_some_and(|one| goes_first(cluster, one, &last_of_its_class));
            found.unless(!(clash && ahead), 5, || {
                format!("job {} grows on devices reserved for job {}", job.id, reservation.job)
            });
        }
    }
}

fn is_told_now(cluster: &Cluster, job: &Job) -> bool {
    let stop = job.attempt.as_ref().and_then(|attempt| attempt.stopping());
    job.is_resizing() && stop.is_some_and(|stop| stop.asked_at == cluster.now)
}
