//! Rule 1 for parts of GPUs: a GPU is whole or split in one way; its parts are those that live workers hold, legal for the
//! exact card, and never more than there is. Rule 3: a part that is claimed will be free.
use super::Found;
use crate::model::cluster::Cluster;
use crate::model::decision::Claim;
use crate::model::ids::{JobId, NodeId, Rank};
use crate::model::job::{Priority, Worker, WorkerPhase};
use crate::model::machine::mig::Instance;
use crate::model::node::{Device, Node};
use crate::model::split::{self, Mode, Slice, Split};
use crate::model::time::Time;
use std::collections::{BTreeMap, BTreeSet};

pub fn node(cluster: &Cluster, node: &Node, found: &mut Found) {
    held_by_workers(cluster, node, found);
    for (gpu, device) in (0u8..).zip(&node.devices) {
        let parts = node.splits.get(&gpu).map_or(0, |split| split.held.len());
        let says = matches!(device, Device::Split { .. });
        found.unless(says == (parts > 0), 1, || format!("GPU {gpu} of {} is {device:?} with {parts} parts", node.name));
    }
    for (gpu, split) in &node.splits {
        legal(node, *gpu, split, found);
        found.unless(split.ready_at < Time::NEVER, 10, || format!("GPU {gpu} of {} is never split", node.name));
        promised_whole(node, *gpu, split, found);
    }
}

/// Every part has its live worker on this node, and every worker with a part is there.
fn held_by_workers(cluster: &Cluster, node: &Node, found: &mut Found) {
    let mut parts: BTreeSet<(JobId, Rank, Slice, bool)> = BTreeSet::new();
    for held in node.splits.values().flat_map(|split| &split.held) {
        let new = parts.insert((held.job, held.rank, held.slice, held.leaving));
        found.unless(new, 1, || format!("{} lists a part of job {} rank {} twice", node.name, held.job, held.rank));
    }
    for (id, rank) in &node.tenants {
        let attempt = cluster.job(*id).and_then(|job| job.attempt.as_ref());
        let Some(worker) = attempt.and_then(|attempt| attempt.workers.get(rank.0 as usize)) else { continue };
        let Some(slice) = worker.place.slice else { continue };
        let leaves = attempt.is_some_and(|attempt| attempt.stopping().is_some()) || is_leaving(worker);
        found.unless(parts.remove(&(*id, *rank, slice, leaves)), 1, || {
            format!("job {id} rank {rank} holds a part of GPU {} of {}, which does not know it", slice.gpu, node.name)
        });
        turns(cluster, *id, &slice, found);
    }
    for (job, rank, slice, _) in parts {
        found.unless(false, 1, || {
            format!("{} lists a part of GPU {} for job {job} rank {rank}, which holds none", node.name, slice.gpu)
        });
    }
}

fn is_leaving(worker: &Worker) -> bool {
    matches!(worker.phase, WorkerPhase::Leaving { .. })
}

/// Nobody who is owed something takes turns.
fn turns(cluster: &Cluster, id: JobId, slice: &Slice, found: &mut Found) {
    let may = |spec: &crate::model::job::JobSpec| spec.priority >= Priority::P2 && spec.intermittent;
    let fine = slice.mode() != Mode::TimeSlice || cluster.job(id).is_some_and(|job| may(&job.spec));
    found.unless(fine, 1, || format!("job {id} takes turns on a GPU, for which it is not made"));
}

/// The parts of one GPU are legal together, and made.
fn legal(node: &Node, gpu: u8, split: &Split, found: &mut Found) {
    let mut beside: Vec<Slice> = Vec::new();
    for held in &split.held {
        let slice = held.slice;
        let fits = match slice.gpu == gpu && slice.mode() == split.mode {
            true => split::beside(&node.machine, &beside, &slice),
            false => Err(format!("it is split by {}", split.mode)),
        };
        let text = |why: &String| format!("job {} cannot hold its part of GPU {gpu} of {}: {why}", held.job, node.name);
        found.unless(fits.is_ok(), 1, || fits.as_ref().err().map_or(String::new(), text));
        found.unless(split.has(&slice).is_some(), 1, || {
            format!("job {} holds an instance of GPU {gpu} of {} that was never made", held.job, node.name)
        });
        beside.push(slice);
    }
    let made: Vec<Instance> = split.instances.iter().map(|made| made.instance).collect();
    let clash = match node.machine.mig_card(gpu) {
        _ if made.is_empty() => None,
        Some(card) => card.check(&made).err().map(|clash| clash.to_string()),
        None => Some("it knows no MIG".to_string()),
    };
    found.unless(clash.is_none(), 1, || {
        format!("GPU {gpu} of {} is split in a way that it cannot be: {}", node.name, clash.unwrap_or_default())
    });
}

/// A GPU in parts that is promised as a whole: all of them leave.
fn promised_whole(node: &Node, gpu: u8, split: &Split, found: &mut Found) {
    let promised = matches!(node.devices.get(usize::from(gpu)), Some(Device::Split { claimant: Some(_) }));
    let all_leave = split.held.iter().all(|held| held.leaving);
    found.unless(!promised || all_leave, 3, || {
        format!("GPU {gpu} of {} is promised as a whole, but some of its parts stay", node.name)
    });
}

/// Rule 3: what a claim says of parts is free or becoming free, beside what stays and what else is claimed.
pub fn claim(cluster: &Cluster, claim: &Claim, found: &mut Found) {
    let mut kept: BTreeMap<(NodeId, u8), Vec<Slice>> = BTreeMap::new();
    for place in &claim.places {
        let Some(slice) = place.slice else { continue };
        let node = cluster.node(place.node);
        let open = match node.devices.get(usize::from(slice.gpu)) {
            Some(Device::Free | Device::Split { claimant: None } | Device::Draining { claimant: None, .. }) => true,
            Some(_) | None => false,
        };
        let beside = kept.entry((place.node, slice.gpu)).or_insert_with(|| stays(cluster, claim, node, slice.gpu));
        let against = match open {
            true => split::beside(&node.machine, beside, &slice).err(),
            false => Some("all of it is somebody's".to_string()),
        };
        found.unless(against.is_none(), 3, || {
            let why = against.unwrap_or_default();
            format!("job {} claims a part of GPU {} of {}: {why}", claim.claimant, slice.gpu, node.name)
        });
        beside.push(slice);
    }
}

/// The parts of a GPU that stay, and those that others claim.
fn stays(cluster: &Cluster, claim: &Claim, node: &Node, gpu: u8) -> Vec<Slice> {
    let split = node.splits.get(&gpu);
    let staying = split.into_iter().flat_map(|split| &split.held).filter(|held| !held.leaving).map(|held| held.slice);
    let others = cluster.claims.values().filter(|other| other.claimant != claim.claimant);
    let places = others.flat_map(|other| &other.places).filter(|place| place.node == node.id);
    let claimed = places.filter_map(|place| place.slice).filter(|slice| slice.gpu == gpu);
    staying.chain(claimed).collect()
}
