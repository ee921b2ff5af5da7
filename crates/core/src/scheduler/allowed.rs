//! What limits and budgets allow to a gang at most, if nobody else held anything: beyond that no waiting helps. Asked of a
//! unit that a limit or a budget keeps out now.
use super::{Session, Unit};
use crate::model::amounts::{Resources, amount_words, count};
use crate::model::decision::Blocker;
use crate::model::job::Job;
use crate::model::queue::ancestry;
use std::collections::BTreeMap;

impl<'a> Session<'a> {
    /// Why no waiting helps the unit; `None`: it does, as far as limits and budgets go.
    pub fn never_allowed(&self, unit: &Unit<'a>) -> Option<String> {
        self.beyond_limits(unit).or_else(|| self.without_budget(unit))
    }

    /// The blocker of now, or that it is none that goes away.
    pub fn or_never(&self, unit: &Unit<'a>, blocker: Blocker) -> Blocker {
        self.never_allowed(unit).map_or(blocker, |text| Blocker::Unsatisfiable { text })
    }

    fn beyond_limits(&self, unit: &Unit<'a>) -> Option<String> {
        let mut sums: BTreeMap<&str, Resources> = BTreeMap::new();
        for job in unit {
            for path in ancestry(&job.spec.queue) {
                let asks = sums.entry(path).or_default();
                *asks = asks.plus(job.spec.total());
            }
        }
        sums.into_iter().find_map(|(path, asks)| {
            let (resource, asks, limit) = self.cluster.queues.get(path)?.limit.exceeded_by(asks, asks)?;
            let (limit, asks) = (amount_words(resource, limit), amount_words(resource, asks));
            Some(format!("queue {path} may hold {limit} at most, and {} {asks}{}", self.who_asks(unit), sum_of(unit)))
        })
    }

    fn who_asks(&self, unit: &Unit<'a>) -> String {
        let elastic = |job: &&Job| self.cluster.job(job.id).is_some_and(|job| job.spec.is_elastic());
        match unit.first().filter(|_| unit.len() == 1) {
            Some(job) if elastic(job) => "its smallest size asks for".to_string(),
            Some(_) => "it asks for".to_string(),
            None => format!("the {} of its group ask for", count(unit.len() as u64, "job")),
        }
    }

    fn without_budget(&self, unit: &Unit<'a>) -> Option<String> {
        let asks = |job: &&&'a Job| job.spec.total().all_gpus_milli() > 0;
        let purses = unit.iter().filter(asks).flat_map(|job| self.cluster.purses_of(&job.spec.queue, &job.owner.user));
        let nothing = purses.into_iter().find(|purse| purse.gpu_ms == 0)?;
        Some(format!("the budget of {} is 0 GPU-hours a {}", nothing.name(), nothing.per))
    }
}

/// What the sum is made of, where that is more than one worker: ` (3 workers of 8 GPUs each)`.
fn sum_of(unit: &Unit<'_>) -> String {
    let workers = |job: &&Job| {
        let spec = &job.spec;
        let workers = count(spec.gang.workers.into(), "worker");
        if spec.shape.asks_gpu() { format!("{workers} of {} each", spec.shape.gpu_words()) } else { workers }
    };
    match unit.iter().map(|job| job.spec.gang.workers).sum::<u32>() {
        1 => String::new(),
        _ => format!(" ({})", unit.iter().map(workers).collect::<Vec<_>>().join(" + ")),
    }
}
