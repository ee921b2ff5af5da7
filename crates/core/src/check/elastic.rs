//! Rules 3 and 5 for gangs that a decision restarts: the places that they go on with are kept, and whoever grows stands behind
//! all who wait in its class.
use super::Found;
use super::promises::goes_first;
use crate::model::cluster::Cluster;
use crate::model::future::meets;
use crate::model::ids::JobId;
use crate::model::job::{Attempt, Job, JobSpec};
use crate::model::time::Time;
use std::collections::BTreeSet;
use std::sync::Arc;

pub fn grown(cluster: &Cluster, jobs: &BTreeSet<JobId>, at: Time, found: &mut Found) {
    for job in jobs.iter().filter_map(|id| cluster.job(*id)).filter(|job| is_told_now(cluster, job)) {
        let kept = |attempt: &Attempt| attempt.live().filter(|worker| !worker.phase.is_given_up()).count();
        let gives_up = |attempt: &Attempt| attempt.live().any(|worker| worker.phase.is_given_up());
        let (has, shrinks) = job.attempt.as_ref().map_or((0, false), |attempt| (kept(attempt), gives_up(attempt)));
        let Some(claim) = cluster.claims.get(&job.id) else {
            found.unless(false, 3, || format!("job {} is told to restart, but no place is kept for it", job.id));
            continue;
        };
        let sized = if shrinks { claim.places.len() == has } else { claim.places.len() > has };
        found.unless(sized && claim.resizes, 3, || {
            format!("job {} restarts with {} workers, but has {has}", job.id, claim.places.len())
        });
        if shrinks {
            continue;
        }
        let end = claim.deadline + job.spec.time_limit.unwrap_or(cluster.policy.assumed_time);
        let nodes = claim.places.iter().map(|place| place.node);
        let end = cluster.gone_by(job, (at, claim.deadline), nodes).map_or(end, |gone| gone.min(end));
        let undated = Arc::new(JobSpec { deadline: None, ..JobSpec::clone(&job.spec) });
        let last_of_its_class = Job { submitted_at: at, eligible_at: at, spec: undated, ..job.clone() };
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
