//! Least attained service: in a queue of this policy whoever had little goes first, and whoever had much may be rotated out
//! for it. Nothing has to be known about how long a job will run.
//!
//! What a job had is counted in GPU time and sorted into levels that double. Below `las.levels` the lower level goes first;
//! inside one, and above, seniority decides. Above, each further level lets the age of a job count `las.discount` percent
//! less, so that the largest jobs give way to others of their age but never fall behind for good.
use super::cluster::Cluster;
use super::ids::JobId;
use super::job::{Attempt, Job, Priority};
use super::policy::LeastAttained;
use super::queue::{Queue, QueuePolicy};
use super::time::{Span, Time};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Place in the order of its peers; the lower one goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    level: u32,
    age_ms: Reverse<u64>,
    senior: (Time, JobId),
}

/// GPU-milliseconds that the job held so far.
pub fn gpu_ms(job: &Job, now: Time) -> u64 {
    let live = job.attempt.as_ref().map_or(0, |attempt| {
        let held = now.since(attempt.placed_at).0;
        held.saturating_mul(live_gpus(attempt))
    });
    (job.gpu_us / 1_000).saturating_add(live)
}

fn live_gpus(attempt: &Attempt) -> u64 {
    attempt.live().map(|worker| u64::from(worker.place.gpus.count_ones())).sum()
}

/// 0 below one quantum, then one more with each doubling.
fn level(las: &LeastAttained, gpu_ms: u64) -> u32 {
    match gpu_ms / las.quantum.0.max(1) {
        0 => 0,
        quanta => quanta.ilog2() + 1,
    }
}

/// Where the next level begins; `None` if none does.
fn next_level_ms(las: &LeastAttained, gpu_ms: u64) -> Option<u64> {
    las.quantum.0.max(1).checked_mul(1u64.checked_shl(level(las, gpu_ms))?)
}

pub fn rank(cluster: &Cluster, job: &Job, now: Time) -> Rank {
    let las = &cluster.policy.las;
    let level = level(las, gpu_ms(job, now));
    let discounts = level.saturating_sub(las.levels);
    let kept = u128::from(100 - las.discount.min(99));
    let age = (0..discounts).fold(u128::from(now.since(job.submitted_at).0), |age, _| age * kept / 100);
    let age_ms = Reverse(u64::try_from(age).unwrap_or(u64::MAX));
    Rank { level: level.min(las.levels), age_ms, senior: (job.submitted_at, job.id) }
}

/// What rotating the job out is worth in milliseconds of lost work: the less it had and the longer it is there, the more
/// others are asked first. A day of age counts four minutes.
pub fn worth_ms(cluster: &Cluster, job: &Job, now: Time) -> u64 {
    const AGE_PART: u64 = 360;
    if !is_las(cluster, job) {
        return 0;
    }
    let rank = rank(cluster, job, now);
    let levels = u64::from(cluster.policy.las.levels - rank.level);
    (rank.age_ms.0 / AGE_PART).saturating_add(levels * Span::hours(24).0)
}

pub fn is_las(cluster: &Cluster, job: &Job) -> bool {
    cluster.queues.get(&job.spec.queue).is_some_and(rotates)
}

fn rotates(queue: &Queue) -> bool {
    queue.policy == QueuePolicy::LeastAttained
}

/// Of one queue of this policy and of one class; the own jobs of a kept pool are apart.
pub fn are_peers(cluster: &Cluster, one: &Job, other: &Job) -> bool {
    one.spec.queue == other.spec.queue
        && one.spec.priority == other.spec.priority
        && cluster.own_pool(&one.spec) == cluster.own_pool(&other.spec)
        && is_las(cluster, one)
}

/// Whether `victim` may be rotated out for `claimant`: a peer that goes later, yields, and has run for a while. It ends,
/// because levels only rise and double, and inside a level only the senior may.
pub fn may_rotate(cluster: &Cluster, claimant: &Job, victim: &Job, now: Time) -> bool {
    victim.spec.preemptible
        && are_peers(cluster, claimant, victim)
        && protected_until(cluster, victim).is_some_and(|until| until <= now)
        && rank(cluster, claimant, now) < rank(cluster, victim, now)
}

/// A run shorter than this is not worth the restart.
fn protected_until(cluster: &Cluster, victim: &Job) -> Option<Time> {
    victim.attempt.as_ref()?.ran_from.map(|from| from + cluster.policy.las.run.max(Span(1)))
}

/// Whether `junior`, started now, could be rotated out in time for the `start` that is promised to `senior`.
pub fn makes_way_by(cluster: &Cluster, senior: &Job, start: Time, junior: &Job, now: Time) -> bool {
    junior.spec.preemptible
        && are_peers(cluster, senior, junior)
        && start >= now + cluster.policy.las.run.max(Span(1))
        && rank(cluster, senior, now) < rank(cluster, junior, now)
}

/// The next moment after `since` at which somebody who runs may be rotated out for a waiting peer and could not before.
pub fn next_change(cluster: &Cluster, since: Time) -> Option<Time> {
    let rotating: Vec<&str> = cluster.queues.values().filter(|queue| rotates(queue)).map(|q| q.path.as_str()).collect();
    if rotating.is_empty() {
        return None;
    }
    let mut waiting: BTreeSet<(&str, Priority)> = BTreeSet::new();
    for job in cluster.jobs.values().filter(|job| job.attempt.is_none()) {
        let peers = (job.spec.queue.as_str(), job.spec.priority);
        if !waiting.contains(&peers) && rotating.contains(&peers.0) {
            waiting.insert(peers);
        }
    }
    if waiting.is_empty() {
        return None;
    }
    let waited_for =
        |job: &&Job| job.spec.preemptible && waiting.contains(&(job.spec.queue.as_str(), job.spec.priority));
    let running = cluster.jobs.values().map(AsRef::as_ref).filter(|job| job.is_running()).filter(waited_for);
    running.flat_map(|job| changes(cluster, job, since)).filter(|at| *at > since).min()
}

fn changes(cluster: &Cluster, job: &Job, since: Time) -> impl Iterator<Item = Time> {
    let next = next_level_ms(&cluster.policy.las, gpu_ms(job, since));
    let level = job.attempt.as_ref().zip(next).and_then(|(attempt, next_ms)| {
        let rest_ms = next_ms.saturating_sub(job.gpu_us / 1_000);
        Some(attempt.placed_at + Span(rest_ms.div_ceil(Some(live_gpus(attempt)).filter(|gpus| *gpus > 0)?)))
    });
    protected_until(cluster, job).into_iter().chain(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_double_and_say_where_the_next_begins() {
        let las = LeastAttained { quantum: Span(10), ..LeastAttained::default() };
        for (gpu_ms, expected, next) in [(0, 0, 10), (9, 0, 10), (10, 1, 20), (19, 1, 20), (20, 2, 40), (80, 4, 160)] {
            assert_eq!((level(&las, gpu_ms), next_level_ms(&las, gpu_ms)), (expected, Some(next)), "{gpu_ms}");
        }
        assert_eq!(next_level_ms(&las, u64::MAX), None);
    }
}
