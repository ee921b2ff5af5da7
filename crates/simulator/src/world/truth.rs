//! What the processes really hold, whatever the server believes: the rules that no bookkeeping can prove.
use super::agent::Agent;
use ganger_core::model::cluster::Cluster;
use ganger_core::model::cpuset::CpuSet;
use ganger_core::model::ids::{AttemptNo, JobId, Rank};
use ganger_core::model::split::{Slice, WHOLE_MILLI};
use std::collections::{BTreeMap, BTreeSet};

/// Rule 1: no device or core has two live processes. Rule 7: no rank lives twice, no job in two attempts.
pub(super) fn check(agents: &[Agent]) -> Vec<(u8, String)> {
    let mut found = Vec::new();
    let mut lives: BTreeMap<(JobId, Rank), u32> = BTreeMap::new();
    let mut attempts: BTreeMap<JobId, AttemptNo> = BTreeMap::new();
    for agent in agents {
        let (mut gpus, mut cpus) = (0u64, CpuSet::EMPTY);
        let mut slices: Vec<Slice> = Vec::new();
        for ((job, attempt, rank), held) in agent.ranks.iter().filter(|(_, held)| held.is_alive()) {
            let parts = held.slice.is_some_and(|slice| is_too_much(&slices, &slice));
            let in_parts = slices.iter().fold(0, |mask, slice| mask | slice.mask());
            let whole = gpus & held.touched_gpus() | in_parts & held.gpus;
            if parts || whole != 0 || !cpus.is_disjoint(&held.cpus) {
                found.push((1, format!("job {job} rank {rank} runs on devices of another on node {}", agent.node)));
            }
            gpus |= held.gpus;
            slices.extend(held.slice);
            cpus = cpus.union(&held.cpus);
            *lives.entry((*job, *rank)).or_default() += 1;
            if *attempts.entry(*job).or_insert(*attempt) != *attempt {
                found.push((7, format!("job {job} lives in two attempts, one of them {attempt}")));
            }
        }
    }
    let twice = lives.into_iter().filter(|(_, copies)| *copies > 1);
    found.extend(twice.map(|((job, rank), copies)| (7, format!("job {job} rank {rank} lives {copies} times"))));
    found
}

/// Rule 6: never do more tasks of an array run at once than its user lets.
pub(super) fn arrays(cluster: &Cluster, agents: &[Agent]) -> Vec<(u8, String)> {
    let limits = cluster.arrays.values().filter_map(|array| Some((array, array.spec.array.as_ref()?.limit?)));
    let too_many = limits.filter_map(|(array, limit)| {
        let ranks = agents.iter().flat_map(|agent| agent.ranks.iter()).filter(|(_, held)| held.is_alive());
        let tasks: BTreeSet<JobId> =
            ranks.map(|((job, ..), _)| *job).filter(|job| array.place_of(*job).is_some()).collect();
        let text = format!("{} tasks of array {} run at once, at most {limit} may", tasks.len(), array.id);
        (tasks.len() > limit as usize).then_some((6, text))
    });
    too_many.collect()
}

/// Whether one more process on a part of a GPU runs into another, or is more than a GPU has.
fn is_too_much(others: &[Slice], new: &Slice) -> bool {
    let same_gpu = || others.iter().filter(|other| other.gpu == new.gpu);
    let milli = same_gpu().fold(new.milli, |sum, other| sum.saturating_add(other.milli));
    let shared = new.instance().is_none() && milli > WHOLE_MILLI;
    shared || same_gpu().any(|other| other.excludes(new))
}
