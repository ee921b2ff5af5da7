//! What the processes really hold, whatever the server believes: the rules that no bookkeeping can prove.
use super::agent::Agent;
use ganger_core::model::cpuset::CpuSet;
use ganger_core::model::ids::{AttemptNo, JobId, Rank};
use std::collections::BTreeMap;

/// Rule 1: no device or core has two live processes. Rule 7: no rank lives twice, no job in two attempts.
pub(super) fn check(agents: &[Agent]) -> Vec<(u8, String)> {
    let mut found = Vec::new();
    let mut lives: BTreeMap<(JobId, Rank), u32> = BTreeMap::new();
    let mut attempts: BTreeMap<JobId, AttemptNo> = BTreeMap::new();
    for agent in agents {
        let (mut gpus, mut cpus) = (0u64, CpuSet::EMPTY);
        for ((job, attempt, rank), held) in agent.ranks.iter().filter(|(_, held)| held.is_alive()) {
            if gpus & held.gpus != 0 || !cpus.is_disjoint(&held.cpus) {
                found.push((1, format!("job {job} rank {rank} runs on devices of another on node {}", agent.node)));
            }
            gpus |= held.gpus;
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
