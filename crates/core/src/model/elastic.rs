//! Elastic gangs: which sizes are legal, and when one that is smaller than it wants to be may grow.
//!
//! Growing costs a restart, so it has to pay: the gang ran for [`WORTH`] times what a restart costs before, and can run as
//! long after it. So gangs spend at most a part of their time on it, whatever comes and goes around them.
//!
//! For a fixed set of jobs it ends. A gang only grows onto what is free, and not while somebody waits who could take it
//! back at once; so it shrinks again only for a job that was running or held back at that time. Whoever makes others
//! yield does so finitely often ([`crate::scheduler`]), and between two of these moments every resize makes the sum of the
//! workers that are missing smaller.
use super::amounts::count;
use super::cluster::Cluster;
use super::job::{Gang, Job, JobSpec};
use super::time::{Span, Time};

/// A resize pays if the gang works so many times as long as it costs.
const WORTH: u64 = 3;

impl Gang {
    /// Sizes are whole steps below the wanted one, none below the minimum. This is the smallest.
    pub fn least(&self) -> u32 {
        let step = self.step.max(1);
        self.workers - self.workers.saturating_sub(self.min) / step * step
    }

    pub fn may_be(&self, size: u32) -> bool {
        (self.least()..=self.workers).contains(&size) && (self.workers - size).is_multiple_of(self.step.max(1))
    }

    /// The legal sizes in words: `8, 12 or 16 workers`, `8 to 32 workers in steps of 4`.
    pub fn sizes(&self) -> String {
        let (least, step) = (self.least(), self.step.max(1));
        match (self.workers - least) / step {
            0 => count(least.into(), "worker"),
            1 => format!("{least} or {}", count(self.workers.into(), "worker")),
            2 => format!("{least}, {} or {}", least + step, count(self.workers.into(), "worker")),
            _ if step == 1 => format!("{least} to {} workers", self.workers),
            _ => format!("{least} to {} workers in steps of {step}", self.workers),
        }
    }

    /// How many legal sizes are larger.
    pub fn sizes_above(&self, size: u32) -> u32 {
        self.workers.saturating_sub(size).div_ceil(self.step.max(1))
    }

    /// The legal size that has so many above it.
    pub fn size_below(&self, larger: u32) -> u32 {
        self.workers.saturating_sub(larger.saturating_mul(self.step.max(1))).max(self.min)
    }
}

impl JobSpec {
    /// Whether it can run with fewer workers than it wants. The jobs of a group run whole.
    pub fn is_elastic(&self) -> bool {
        self.gang.least() < self.gang.workers && self.group.is_none()
    }
}

impl Job {
    /// The workers that it goes on with; 0: it has no attempt, or that one ends.
    pub fn size(&self) -> u32 {
        self.attempt.as_ref().filter(|attempt| attempt.stopping().is_none()).map_or(0, |a| a.staying().count() as u32)
    }

    /// Whether it runs undisturbed with fewer workers than it wants, and may be asked to restart with more.
    fn is_short(&self) -> bool {
        let Some(attempt) = self.attempt.as_ref().filter(|_| self.is_running() && self.spec.is_elastic()) else {
            return false;
        };
        // A rank that is through has no more to do: the others are about to end.
        let all_there = attempt.live().count() + attempt.given_up as usize == attempt.workers.len();
        all_there
            && attempt.leaving().next().is_none()
            && attempt.guest_of.is_empty()
            && self.size() < self.spec.gang.workers
            && self.spec.can_save()
            && self.spec.shape.part.is_none()
    }

    /// Whether a person asked for another size since it was placed: then no price is too high.
    fn is_asked_to_resize(&self) -> bool {
        self.attempt.as_ref().zip(self.resized_at).is_some_and(|(attempt, at)| at >= attempt.placed_at)
    }

    /// Work that a restart loses, and the time that it takes.
    fn restart_cost(&self, now: Time) -> Span {
        let saving = &self.spec.checkpoint;
        let lost = if saving.on_demand { saving.write_time } else { now.since(self.unsaved_since(now)) };
        lost + saving.restart_time
    }
}

impl Cluster {
    /// From when on a gang that is too small may grow, as far as the clock says; `None`: it may not.
    pub fn grows_from(&self, job: &Job) -> Option<Time> {
        let attempt = job.attempt.as_ref().filter(|_| job.is_short())?;
        let from = attempt.ran_from?.max(attempt.resized_at.unwrap_or_default());
        if job.is_asked_to_resize() {
            return Some(from);
        }
        let saving = &job.spec.checkpoint;
        let cost = if saving.on_demand { saving.write_time + saving.restart_time } else { saving.restart_time };
        Some(from + self.policy.grow_after.max(cost.times(WORTH)))
    }

    /// Whether the gang may grow now. One that saves by the clock can do so after a checkpoint, before it is old.
    pub fn may_grow(&self, job: &Job, now: Time) -> bool {
        let Some(from) = self.grows_from(job).filter(|from| *from <= now) else { return false };
        let cost = job.restart_cost(now).times(WORTH);
        let ran_from = job.attempt.as_ref().and_then(|attempt| attempt.ran_from).unwrap_or(from);
        let ends = job.spec.time_limit.map_or(Time::NEVER, |limit| ran_from + limit);
        job.is_asked_to_resize() || (ran_from + cost <= now && now + cost <= ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gang(workers: u32, min: u32, step: u32) -> Gang {
        Gang { workers, min, step, ..Gang::rigid(1) }
    }

    #[test]
    fn sizes_are_whole_steps_below_the_wanted_one() {
        let sizes = |gang: Gang, above: u32| -> Vec<u32> {
            (0..gang.sizes_above(above)).map(|larger| gang.size_below(larger)).collect()
        };
        assert_eq!((gang(16, 8, 8).least(), sizes(gang(16, 8, 8), 8)), (8, vec![16]));
        assert_eq!((gang(8, 3, 2).least(), sizes(gang(8, 3, 2), 4)), (4, vec![8, 6]));
        assert_eq!((gang(8, 5, 4).least(), sizes(gang(8, 5, 4), 8)), (8, vec![]), "a step too large for any");
        assert_eq!(sizes(gang(7, 1, 2), 2), vec![7, 5, 3], "from a size that is none of them any more");
        assert_eq!((gang(4, 4, 4).least(), gang(3, 1, 0).least()), (4, 1));
    }

    #[test]
    fn legal_sizes_are_told_as_they_are() {
        for (gang, words) in [
            (gang(4, 4, 1), "4 workers"),
            (gang(8, 4, 4), "4 or 8 workers"),
            (gang(16, 7, 4), "8, 12 or 16 workers"),
            (gang(6, 1, 1), "1 to 6 workers"),
            (gang(32, 8, 4), "8 to 32 workers in steps of 4"),
        ] {
            assert_eq!(gang.sizes(), words);
            let legal: Vec<u32> = (0..=gang.workers + 4).filter(|size| gang.may_be(*size)).collect();
            let below = (0..gang.sizes_above(gang.least()) + 1).rev().map(|larger| gang.size_below(larger));
            assert_eq!(legal, below.collect::<Vec<u32>>(), "{words}");
        }
    }
}
