//! What follows from a checked description, computed once: masks, partitions, the NIC of each GPU, cores.
//! Holds no fact of its own: dropping it and computing it again gives the same.

use std::collections::BTreeMap;

use super::cores;
use super::mig::Sku;
use super::{NicRole, Parts};
use crate::model::amounts::Resources;
use crate::model::cpuset::CpuSet;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Derived {
    pub gpu_mask: u64,
    pub socket_masks: Vec<u64>,
    pub switch_masks: Vec<u64>,
    pub partitions: Vec<Vec<u64>>,
    pub nics: Vec<Option<u8>>,
    pub cores: Vec<Vec<CpuSet>>,
    /// By GPU: what it can be split into.
    pub cards: Vec<Option<&'static Sku>>,
    pub total_cpus: u32,
    pub total_memory_bytes: u64,
    pub capacity: Resources,
}

impl Derived {
    pub fn of(parts: &Parts) -> Self {
        let masks = |count: usize, belongs: &dyn Fn(usize, usize) -> bool| -> Vec<u64> {
            (0..count).map(|index| mask_where(parts, |gpu| belongs(gpu, index))).collect()
        };
        let on_socket = |gpu: usize, index: usize| parts.gpus[gpu].socket.map(usize::from) == Some(index);
        let on_switch = |gpu: usize, index: usize| usize::from(parts.gpus[gpu].switch) == index;
        Self {
            gpu_mask: mask_of_first(parts.gpus.len()),
            socket_masks: masks(parts.sockets.len(), &on_socket),
            switch_masks: masks(parts.switches.len(), &on_switch),
            partitions: partitions(parts),
            nics: choose_nics(parts),
            cores: parts.sockets.iter().map(|socket| cores::split(&socket.cpus)).collect(),
            cards: parts.gpus.iter().map(|gpu| Sku::of(&parts.gpu_model, gpu.vram_bytes)).collect(),
            total_cpus: parts.sockets.iter().map(|socket| socket.cpus.count()).sum(),
            total_memory_bytes: parts.sockets.iter().map(|socket| socket.memory_bytes).sum(),
            capacity: capacity(parts),
        }
    }
}

fn capacity(parts: &Parts) -> Resources {
    let sum = |amounts: &mut dyn Iterator<Item = u64>| amounts.fold(0, u64::saturating_add);
    let carries = |switch: usize| parts.gpus.iter().any(|gpu| usize::from(gpu.switch) == switch);
    let switches = parts.switches.iter().enumerate().filter(|(switch, _)| carries(*switch));
    let compute = parts.nics.iter().filter(|nic| nic.role == NicRole::Compute);
    Resources {
        gpus: parts.gpus.len() as u64,
        cpus: parts.sockets.iter().map(|socket| u64::from(socket.cpus.count())).sum(),
        memory_bytes: sum(&mut parts.sockets.iter().map(|socket| socket.memory_bytes)),
        vram_bytes: sum(&mut parts.gpus.iter().map(|gpu| gpu.vram_bytes)),
        pcie_bandwidth_bps: sum(&mut switches.map(|(_, switch)| switch.bandwidth_bps)),
        network_bandwidth_bps: sum(&mut compute.map(|nic| nic.bandwidth_bps)),
        gpu_milli: 0,
    }
}

/// The mask of GPUs 0 to `count` − 1.
pub(super) fn mask_of_first(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

fn mask_where(parts: &Parts, belongs: impl Fn(usize) -> bool) -> u64 {
    (0..parts.gpus.len()).filter(|&gpu| belongs(gpu)).fold(0, |mask, gpu| mask | 1 << gpu)
}

fn partitions(parts: &Parts) -> Vec<Vec<u64>> {
    if parts.gpus.is_empty() {
        return Vec::new();
    }
    let island = |gpu: usize| parts.islands.iter().position(|island| island.gpus >> gpu & 1 == 1);
    let socket = |gpu: usize| parts.gpus[gpu].socket;
    let by_socket = group(parts, socket);
    // Without NVLink the socket is what separates GPUs where the island does for others.
    let by_island = group(parts, |gpu| (island(gpu), island(gpu).is_none().then(|| socket(gpu))));
    let mut levels = vec![
        group(parts, |gpu| (island(gpu), socket(gpu), parts.gpus[gpu].switch)),
        group(parts, |gpu| (island(gpu), socket(gpu))),
        by_island.clone(),
        join(&by_island, &by_socket),
        vec![mask_of_first(parts.gpus.len())],
    ];
    levels.dedup();
    levels
}

/// GPUs with equal keys, ascending by lowest GPU.
fn group<K: Ord>(parts: &Parts, key: impl Fn(usize) -> K) -> Vec<u64> {
    let mut groups: BTreeMap<K, u64> = BTreeMap::new();
    for gpu in 0..parts.gpus.len() {
        *groups.entry(key(gpu)).or_default() |= 1 << gpu;
    }
    ordered(groups.into_values().collect())
}

fn ordered(mut masks: Vec<u64>) -> Vec<u64> {
    masks.sort_by_key(|mask| mask.trailing_zeros());
    masks
}

/// The finest partition that both `one` and `other` refine.
pub(super) fn join(one: &[u64], other: &[u64]) -> Vec<u64> {
    let mut joined: Vec<u64> = Vec::new();
    for &mask in one.iter().chain(other) {
        let (touching, mut apart): (Vec<u64>, Vec<u64>) = joined.into_iter().partition(|have| have & mask != 0);
        apart.push(touching.into_iter().fold(mask, |all, part| all | part));
        joined = apart;
    }
    ordered(joined)
}

/// For each GPU its compute NIC. GPUs with the same candidates take turns, in the order of their numbers.
fn choose_nics(parts: &Parts) -> Vec<Option<u8>> {
    let mut turns: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let choose = |gpu| {
        let candidates = candidates(parts, gpu);
        let turn = turns.entry(candidates.clone()).or_default();
        let chosen = candidates.get(*turn % candidates.len().max(1)).copied();
        *turn += 1;
        chosen
    };
    (0..parts.gpus.len()).map(choose).collect()
}

fn candidates(parts: &Parts, gpu: usize) -> Vec<u8> {
    let gpu = &parts.gpus[gpu];
    let on_switch = compute_nics(parts, |nic| parts.nics[nic].switch == Some(gpu.switch));
    if !on_switch.is_empty() {
        return on_switch;
    }
    compute_nics(parts, |nic| gpu.socket.is_some() && parts.nics[nic].socket == gpu.socket)
}

fn compute_nics(parts: &Parts, near: impl Fn(usize) -> bool) -> Vec<u8> {
    let wanted = |&nic: &usize| parts.nics[nic].role == NicRole::Compute && near(nic);
    // At most 255 NICs: checked before anything is derived.
    (0..parts.nics.len()).filter(wanted).map(|nic| nic as u8).collect()
}
