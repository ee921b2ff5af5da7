//! Rule 1: what a node says is used is what live workers hold, and no more than there is. Rules 8 and 10 for nodes.
use super::Found;
use crate::model::cluster::Cluster;
use crate::model::cpuset::CpuSet;
use crate::model::ids::JobId;
use crate::model::job::{Attempt, Worker, WorkerPhase};
use crate::model::node::{Device, HealthState, Node};
use crate::model::part::Part;
use crate::model::time::Time;
use std::collections::BTreeMap;

pub fn node(cluster: &Cluster, node: &Node, found: &mut Found) {
    let tenants = live_tenants(cluster, node, found);
    devices(cluster, node, &tenants, found);
    cores_and_memory(node, &tenants, found);
    let out = matches!(node.health.state, HealthState::Fenced | HealthState::Dead);
    found.unless(!out || node.tenants.is_empty(), 10, || {
        format!("{} is {} but has {} workers", node.name, node.health.state, node.tenants.len())
    });
    let bounded = node.health.state != HealthState::Probation || node.health.until.is_some_and(|at| at < Time::NEVER);
    found.unless(bounded, 10, || format!("{} is on probation without an end", node.name));
    for (id, attempt) in node.tenants.iter().filter_map(|(id, _)| Some((id, cluster.job(*id)?.attempt.as_ref()?))) {
        no_new_work(cluster, node, *id, attempt, found);
    }
    let begun = node.maintenance.iter().filter(|one| one.begun).count();
    found.unless(begun == 0 || (begun == 1 && node.draining.is_some()), 10, || {
        format!("{} is under maintenance but is not drained", node.name)
    });
    found.unless(node.generation > 0, 8, || format!("{} has generation 0", node.name));
}

/// Rule 10: nothing starts on a node after it was taken out, and what runs on one that is being drained leaves.
fn no_new_work(cluster: &Cluster, node: &Node, id: JobId, attempt: &Attempt, found: &mut Found) {
    let out = matches!(node.health.state, HealthState::Suspect | HealthState::Fenced | HealthState::Quarantined);
    found.unless(!(out && attempt.placed_at > node.health.since), 10, || {
        format!("job {id} was placed on {} after that was {}", node.name, node.health.state)
    });
    let new = attempt.placed_at == cluster.now && attempt.ran_from.is_none() && attempt.stopping().is_none();
    let planned = node.maintenance.iter().filter(|one| new && one.planned_at < attempt.placed_at);
    for one in planned.filter(|one| one.until > cluster.now) {
        let spec = cluster.job(id).map(|job| &job.spec);
        let leaves = spec.is_none_or(|spec| cluster.policy.fits_before(spec, attempt.placed_at, one.from));
        found.unless(leaves, 10, || {
            format!("job {id} starts on {} and could not have left when its maintenance begins", node.name)
        });
    }
    let said = cluster.job(id).and_then(|job| Some((&job.spec, cluster.lending(node, &job.spec)?.1.since)));
    if let Some((spec, _)) = said.filter(|(_, since)| new && *since < attempt.placed_at) {
        found.unless(cluster.lends(node, spec, attempt.placed_at), 10, || {
            format!("job {id} starts on {}, which is not lent to it for as long as it stays", node.name)
        });
    }
    found.unless(node.draining.is_none() || attempt.stopping().is_some(), 10, || {
        format!("{} is being drained but job {id} stays", node.name)
    });
}

/// The workers that the node's index names, each of which must live here.
fn live_tenants<'a>(cluster: &'a Cluster, node: &Node, found: &mut Found) -> Vec<(JobId, bool, &'a Worker)> {
    let mut tenants = Vec::new();
    for (id, rank) in &node.tenants {
        let attempt = cluster.job(*id).and_then(|job| job.attempt.as_ref());
        let worker = attempt.and_then(|a| a.workers.get(rank.0 as usize));
        let here = worker.filter(|worker| worker.place.node == node.id && !worker.phase.ended());
        found.unless(here.is_some(), 1, || {
            format!("{} lists job {id} rank {rank}, which does not live there", node.name)
        });
        if let (Some(worker), Some(attempt)) = (here, attempt) {
            let leaves = attempt.stopping().is_some() || matches!(worker.phase, WorkerPhase::Leaving { .. });
            tenants.push((*id, leaves, worker));
        }
    }
    tenants
}

fn devices(cluster: &Cluster, node: &Node, tenants: &[(JobId, bool, &Worker)], found: &mut Found) {
    let count = node.machine.gpus.len();
    found.unless(node.devices.len() == count, 1, || {
        format!("{} has {} devices, not {count}", node.name, node.devices.len())
    });
    let mut owners: BTreeMap<usize, (JobId, bool)> = BTreeMap::new();
    for (id, stopping, worker) in tenants {
        for gpu in (0..64).filter(|gpu| worker.place.gpus >> gpu & 1 == 1) {
            found.unless(gpu < count, 1, || format!("job {id} holds GPU {gpu} of {}, which has {count}", node.name));
            let twice = owners.insert(gpu, (*id, *stopping));
            found.unless(twice.is_none(), 1, || {
                format!("GPU {gpu} of {} is held by job {id} and job {}", node.name, twice.map_or(*id, |t| t.0))
            });
        }
    }
    for (gpu, device) in node.devices.iter().enumerate() {
        let says = || format!("GPU {gpu} of {} is {device:?}, but {:?} holds it", node.name, owners.get(&gpu));
        let holds = match (device, owners.get(&gpu)) {
            (Device::Free, None) | (Device::Sick { owner: None }, None) => true,
            (Device::Claimed(claimant), None) => promised(cluster, node, *claimant, gpu),
            // Who holds its parts is another question.
            (Device::Split { claimant }, None) => claimant.is_none_or(|c| promised(cluster, node, c, gpu)),
            (Device::Used(owner), Some((holder, stopping))) => owner == holder && !stopping,
            (Device::Draining { owner, claimant }, Some((holder, stopping))) => {
                owner == holder && *stopping && claimant.is_none_or(|c| promised(cluster, node, c, gpu))
            }
            (Device::Sick { owner: Some(owner) }, Some((holder, _))) => owner == holder,
            _ => false,
        };
        found.unless(holds, 1, says);
    }
}

fn promised(cluster: &Cluster, node: &Node, claimant: JobId, gpu: usize) -> bool {
    cluster
        .claims
        .get(&claimant)
        .is_some_and(|claim| claim.places.iter().any(|place| place.node == node.id && place.gpus >> gpu & 1 == 1))
}

fn cores_and_memory(node: &Node, tenants: &[(JobId, bool, &Worker)], found: &mut Found) {
    let mut cpus = CpuSet::default();
    let mut sums: BTreeMap<Part, u64> = parts(node).map(|part| (part, 0)).collect();
    for (id, _, worker) in tenants {
        found.unless(cpus.is_disjoint(&worker.place.cpus), 1, || {
            format!("cores of job {id} rank {} on {} are also somebody else's", worker.rank, node.name)
        });
        cpus = cpus.union(&worker.place.cpus);
        for (part, amount) in worker.place.amounts() {
            let sum = sums.entry(part).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    found.unless(cpus == node.cpus_used, 1, || {
        format!("{} says cores {} are used, but {cpus} are", node.name, node.cpus_used)
    });
    let all = node.machine.sockets.iter().fold(CpuSet::default(), |all, socket| all.union(&socket.cpus));
    found.unless(cpus.is_subset(&all), 1, || format!("cores {cpus} are used on {}, which has {all}", node.name));
    for (part, sum) in sums {
        let (used, total) = (node.amount_used(part), node.machine.amount_of(part));
        found.unless(sum == used, 1, || format!("{} says {used} of {part:?} are used, but {sum} are", node.name));
        found.unless(sum <= total, 1, || format!("{sum} of {total} are used of {part:?} on {}", node.name));
    }
}

/// What the node gives out in amounts, and whatever else it says is used.
fn parts(node: &Node) -> impl Iterator<Item = Part> {
    let memory = (0..node.machine.sockets.len() as u8).map(Part::Memory);
    let pcie = node.pcie_used_bps.keys().map(|switch| Part::Pcie(*switch));
    memory.chain(pcie).chain([Part::Network])
}

/// Rule 8: names and ids match, and ids only rise.
pub fn identities(cluster: &Cluster, found: &mut Found) {
    for (index, node) in cluster.nodes.iter().enumerate() {
        let named = cluster.node_names.get(&node.name).is_some_and(|id| id.index() == index);
        found.unless(named && node.id.index() == index, 8, || format!("node {} is not found by its name", node.name));
        let leaf = node.leaf.index() < cluster.fabric.leaves.len();
        found.unless(leaf, 8, || format!("node {} is under leaf {}, which does not exist", node.name, node.leaf));
    }
    let highest = cluster.jobs.keys().next_back();
    found.unless(highest.is_none_or(|id| id.0 < cluster.next_job), 8, || {
        format!("the next job number {} was given before", cluster.next_job)
    });
}
