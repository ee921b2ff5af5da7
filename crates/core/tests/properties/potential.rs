//! Evictions for guarantees end because each lowers a potential: what is missing of all guarantees, counting what jobs of a class
//! and those above it hold and were promised. Looked at from the state before a decision to the one after it.
use ganger_core::model::attained;
use ganger_core::model::decision::{Decision, Step};
use ganger_core::model::job::{Job, Place, Priority, StopWhy};
use ganger_core::model::queue::{Queue, ancestry};
use ganger_core::model::{Cluster, JobId, Resources};
use std::sync::Arc;

/// No class is worse off by what those of its own class do; and better off, if they stop any of that class. Of whole nodes that
/// are promised never fewer are there; whoever is asked back from them is of a lower class, so that counts for none of these.
pub fn assert_falls(before: &Cluster, decision: &Decision, after: &Cluster) {
    let had = before.kept_nodes(before.holds(), after.now);
    let has = after.kept_nodes(after.holds(), after.now);
    for (had, has) in had.iter().zip(&has) {
        assert!(has.taken + has.open >= had.taken + had.open, "{had:?} were {has:?} after {decision:#?}");
    }
    for class in Priority::ALL {
        let stopped = victims(before, decision).filter(|(_, victim)| victim.spec.priority <= class);
        let stopped: Vec<(&Job, &Job)> = stopped.collect();
        if stopped.iter().any(|(claimant, victim)| !is_reclaim(before, claimant, victim, class)) || gives_up(decision) {
            continue;
        }
        let (was, is) = (potential(before, class), potential(after, class));
        match stopped.is_empty() {
            true => assert!(is <= was, "{class}: {is:?} is missing, {was:?} was, by {decision:#?}"),
            false => {
                assert!(is < was, "{class}: {is:?} is missing, {was:?} was, though some are stopped: {decision:#?}")
            }
        }
    }
}

/// Who is stopped, and for whom.
fn victims<'c>(cluster: &'c Cluster, decision: &'c Decision) -> impl Iterator<Item = (&'c Job, &'c Job)> {
    decision.steps.iter().filter_map(|step| match step {
        Step::Stop { job, why: StopWhy::Preempted { claimant }, .. } => {
            Some((cluster.job(*claimant)?, cluster.job(*job)?))
        }
        Step::Stop { job, .. } => Some((cluster.job(*job)?, cluster.job(*job)?)),
        Step::Shrink { job, claimant, .. } => Some((cluster.job(*claimant)?, cluster.job(*job)?)),
        _ => None,
    })
}

/// For a guarantee, within the class. Higher classes, peers by rotation and owners of pools stop others by rights that
/// end by other arguments; who moves or changes its size stops itself.
fn is_reclaim(cluster: &Cluster, claimant: &Job, victim: &Job, class: Priority) -> bool {
    claimant.id != victim.id
        && claimant.spec.priority == class
        && victim.spec.priority == class
        && !attained::are_peers(cluster, claimant, victim)
        && cluster.own_pool(&claimant.spec).is_none()
}

fn gives_up(decision: &Decision) -> bool {
    decision.steps.iter().any(|step| matches!(step, Step::Unclaim { .. }))
}

/// In parts of what the cluster has, of each resource.
fn potential(cluster: &Cluster, class: Priority) -> u128 {
    let capacity = cluster.listed_nodes().fold(Resources::ZERO, |sum, node| sum.plus(node.capacity())).amounts();
    let missing = |queue: &Queue| {
        let inside = |job: &&Arc<Job>| ancestry(&job.spec.queue).any(|path| path == queue.path);
        let counted = cluster.jobs.values().filter(|job| job.spec.priority <= class).filter(inside);
        let held = counted.fold(Resources::ZERO, |sum, job| sum.plus(holds(cluster, job.id))).amounts();
        let part = |(r, bound): (usize, Option<u64>)| {
            let missing = u128::from(bound?.saturating_sub(held[r])) << 50;
            (capacity[r] > 0).then(|| missing / u128::from(capacity[r]))
        };
        queue.guaranteed().bounds().into_iter().enumerate().filter_map(part).sum::<u128>()
    };
    cluster.queues.values().map(missing).sum()
}

/// What it holds and was not told to give up, or else what it claims.
fn holds(cluster: &Cluster, id: JobId) -> Resources {
    let sum = |sum: Resources, place: &Place| sum.plus(place.resources());
    let attempt = cluster.job(id).and_then(|job| job.attempt.as_ref()).filter(|attempt| attempt.stopping().is_none());
    match (attempt, cluster.claims.get(&id)) {
        (Some(attempt), _) => attempt.staying().map(|worker| &worker.place).fold(Resources::ZERO, sum),
        (None, Some(claim)) => claim.places.iter().fold(Resources::ZERO, sum),
        _ => Resources::ZERO,
    }
}
