//! Who has to leave where parts of GPUs are asked for or held: counting rooms node by node does not see them, so sets of
//! victims are tried on the draft.
use crate::model::ids::NodeId;
use crate::model::job::Place;
use crate::scheduler::preempt::{Plan, Trial, cheaper};
use crate::scheduler::victims::Victim;
use crate::scheduler::{Session, Unit};
use std::collections::{BTreeMap, BTreeSet};

/// At most so many GPUs are looked at one by one.
const GPUS_TRIED: usize = 32;

impl<'a> Session<'a> {
    /// Whether the plan for the unit has to look at parts of GPUs.
    pub fn is_about_parts(&self, unit: &Unit<'a>) -> bool {
        self.splits || unit.iter().any(|job| job.spec.shape.part.is_some())
    }

    /// The cheapest of: all who are on one GPU, for each GPU in turn; and the cheapest by what they free, all over the
    /// cluster. Of each set those who need not go are put back.
    pub fn plan_parts(&mut self, trial: &Trial<'_, 'a>) -> Option<Plan> {
        let legal: Vec<usize> = (0..trial.legal.len()).filter(|index| trial.legal[*index]).collect();
        let all: BTreeSet<usize> = legal.iter().copied().collect();
        if all.is_empty() || !self.fits_without(trial, &all) {
            return None;
        }
        let victims = &trial.pool.victims;
        let mut best: Option<Plan> = None;
        for set in on_one_gpu(victims, &legal).into_iter().take(GPUS_TRIED) {
            // No set gets cheaper than its cheapest member.
            let least = set.iter().map(|index| victims[*index].cost).min().unwrap_or_default();
            if best.as_ref().is_some_and(|plan| plan.cost <= least) || !self.fits_without(trial, &set) {
                continue;
            }
            best = cheaper(best, self.prune(trial, set));
        }
        if best.is_some() && trial.unit.iter().all(|job| job.spec.gang.workers == 1) {
            return best;
        }
        let first = self.first_of(trial, legal);
        cheaper(best, self.prune(trial, first))
    }

    /// Of all who may be told, cheapest by what they free first, so many as are enough.
    fn first_of(&mut self, trial: &Trial<'_, 'a>, mut order: Vec<usize>) -> BTreeSet<usize> {
        order.sort_by_key(|index| (per_freed(&trial.pool.victims[*index]), *index));
        let (mut low, mut high) = (0, order.len());
        while low < high {
            let middle = (low + high) / 2;
            let set: BTreeSet<usize> = order[..middle].iter().copied().collect();
            if self.fits_without(trial, &set) { high = middle } else { low = middle + 1 }
        }
        order[..low].iter().copied().collect()
    }
}

fn per_freed(victim: &Victim<'_>) -> u128 {
    let freed = victim.places.iter().fold(0u64, |sum, place| sum.saturating_add(place.resources().all_gpus_milli()));
    victim.cost.saturating_mul(1_000) / u128::from(freed.max(1))
}

/// By GPU everybody who is on it, cheapest sets first.
fn on_one_gpu(victims: &[Victim<'_>], legal: &[usize]) -> Vec<BTreeSet<usize>> {
    let mut by_gpu: BTreeMap<(NodeId, u8), BTreeSet<usize>> = BTreeMap::new();
    for index in legal.iter().copied() {
        for place in &victims[index].places {
            for gpu in gpus(place) {
                by_gpu.entry((place.node, gpu)).or_default().insert(index);
            }
        }
    }
    let mut sets: Vec<BTreeSet<usize>> = by_gpu.into_values().collect();
    sets.sort_by_cached_key(|set| set.iter().map(|index| victims[*index].cost).sum::<u128>());
    sets.dedup();
    sets
}

fn gpus(place: &Place) -> impl Iterator<Item = u8> {
    let mask = place.touched_gpus();
    (0..64u8).filter(move |gpu| mask >> gpu & 1 == 1)
}
