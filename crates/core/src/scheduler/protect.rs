//! What keeps the same job from being sent away again and again: the cost of evicting it grows with what restarts have
//! taken of its life. The protected run time that evictions earn is in [`crate::model::future`].
use crate::model::job::Job;
use crate::model::time::Time;

/// The cost grows no further than by this.
const MOST: u128 = 16;

/// Sia multiplies what a move is worth by (T - N S) / (T + S), with T the age of the job, N its restarts so far and S what
/// one costs. Evicting is the other way round: the cost is divided by it. Who was never evicted keeps the plain cost, so
/// that being young is no shield.
pub fn against_thrashing(job: &Job, now: Time, cost: u128) -> u128 {
    if job.evictions == 0 {
        return cost;
    }
    let age = u128::from(now.since(job.submitted_at).0);
    let restart = u128::from(job.spec.checkpoint.restart_time.0);
    let (whole, spent) = (age + restart, restart.saturating_mul(job.evictions.into()));
    if whole == 0 {
        return cost;
    }
    let left = age.saturating_sub(spent).max(whole.div_ceil(MOST));
    cost.saturating_mul(whole) / left
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]
    use super::*;
    use crate::model::ids::JobId;
    use crate::model::job::{JobSpec, Shape};
    use crate::model::time::Span;
    use std::sync::Arc;

    fn job(evictions: u32, restart: Span) -> Job {
        let mut spec = JobSpec::new("often", 1, Shape { gpus: 1, ..Shape::default() });
        spec.checkpoint.restart_time = restart;
        Job { evictions, ..Job::new(JobId(1), Arc::new(spec), Default::default(), Time(0)) }
    }

    #[test]
    fn each_restart_makes_the_next_eviction_dearer_up_to_a_bound() {
        let hour = Time(Span::hours(1).0);
        let cost = |evictions, minutes| against_thrashing(&job(evictions, Span::minutes(minutes)), hour, 6_000);
        assert_eq!(cost(0, 12), 6_000, "never evicted");
        assert_eq!(cost(1, 12), 6_000 * 72 / 48);
        assert_eq!(cost(3, 12), 6_000 * 72 / 24);
        assert_eq!(cost(5, 12), 6_000 * 16, "nothing of its life is left");
        assert_eq!(cost(5, 0), 6_000, "restarts that cost nothing");
    }
}
