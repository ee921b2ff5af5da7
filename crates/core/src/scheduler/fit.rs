//! One node: how many workers fit on its free devices, and exactly which devices, cores, memory and NICs each gets.
//!
//! Counting is on devices, never on totals over nodes: a worker lives on one node. Cores and memory come from the sockets
//! of the worker's GPUs first and spill to others only when those are short, so node totals are the exact bound. PCIe
//! bandwidth is that of the switches of its GPUs, an equal part for each GPU, and cannot come from elsewhere.
use super::room::{Room, first_bits};
use crate::model::cpuset::CpuSet;
use crate::model::ids::NodeId;
use crate::model::job::{Place, Shape};
use crate::model::machine::Machine;

/// Where on a node workers may be: a set of its GPUs, and a socket if cores and memory may not come from elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    pub gpus: u64,
    pub socket: Option<u8>,
}

impl Cell {
    pub fn whole(machine: &Machine) -> Cell {
        Cell { gpus: machine.gpu_mask(), socket: None }
    }
}

/// What runs out on a node, for people.
pub const DIMENSIONS: [&str; 5] = ["GPUs", "CPUs", "memory", "PCIe bandwidth", "network bandwidth"];
const GPUS: usize = 0;
const PCIE: usize = 3;

/// Whether a dimension is short only because another is: too few GPUs carry too little.
pub fn follows_from(dimension: usize, workers: &[u32; DIMENSIONS.len()], need: u32) -> bool {
    dimension == PCIE && workers[GPUS] < need
}

/// Workers of `shape` that the room holds, by each of [`DIMENSIONS`] alone; PCIe bandwidth together with the GPUs.
pub fn capacity_by(machine: &Machine, room: &Room, shape: &Shape, cell: Cell) -> [u32; DIMENSIONS.len()] {
    let per = |free: u64, need: u64| free.checked_div(need).map_or(u32::MAX, |n| n.min(u64::from(u32::MAX)) as u32);
    let eligible = super::filter::gpu_mask(machine, shape) & cell.gpus;
    let free = room.gpus & eligible;
    let gpus = match shape.part {
        Some(_) => super::slices::on_whole(machine, free, shape),
        None => per(free.count_ones().into(), shape.gpus.into()),
    };
    let pcie = match shape.pcie_per_gpu_bps() {
        0 => u32::MAX,
        per_gpu => per(room.carried(machine, eligible, per_gpu).count_ones().into(), shape.gpus.into()),
    };
    let (cpus, memory) = match cell.socket.map(usize::from) {
        Some(socket) => {
            let local = machine.sockets.get(socket).map_or(0, |s| room.cpus.intersection(&s.cpus).count());
            (local, room.memory.get(socket).copied().unwrap_or(0))
        }
        None => (room.cpus.count(), room.memory_total()),
    };
    let network = per(room.network_bps, shape.network_bandwidth_bps);
    [gpus, per(cpus.into(), shape.cpus.into()), per(memory, shape.memory_bytes), pcie, network]
}

/// Workers of `shape` that the room holds.
pub fn capacity(machine: &Machine, room: &Room, shape: &Shape, cell: Cell) -> u32 {
    // Most nodes are full, whatever else has to be looked at.
    if shape.part.is_none() && (room.gpus & cell.gpus).count_ones() < shape.gpus {
        return 0;
    }
    capacity_by(machine, room, shape, cell).into_iter().fold(u32::MAX, u32::min)
}

/// Exact places for `count` workers, or `None` if they do not fit. Neighbours in the result are neighbours on the node.
pub fn place_workers(
    machine: &Machine,
    node: NodeId,
    room: &Room,
    shape: &Shape,
    cell: Cell,
    count: u32,
) -> Option<Vec<Place>> {
    if capacity(machine, room, shape, cell) < count {
        return None;
    }
    let mut left = *room;
    let mut masks = chosen_gpus(machine, room, shape, cell, count)?;
    left.gpus &= !masks.iter().fold(0, |all, mask| all | mask);
    masks.sort_by_key(|mask| mask.trailing_zeros());
    masks.into_iter().map(|gpus| complete(machine, node, &mut left, shape, cell, gpus)).collect()
}

/// The GPUs in the cell that a worker may have, as many on each switch as carry what it asks.
pub fn open_gpus(machine: &Machine, room: &Room, shape: &Shape, cell: Cell) -> u64 {
    let eligible = super::filter::gpu_mask(machine, shape) & cell.gpus;
    room.carried(machine, eligible, shape.pcie_per_gpu_bps())
}

/// The GPUs that each of `count` workers would get, or `None` if there are too few.
pub fn chosen_gpus(machine: &Machine, room: &Room, shape: &Shape, cell: Cell, count: u32) -> Option<Vec<u64>> {
    let open = open_gpus(machine, room, shape, cell);
    let mut together = tightest(machine, open, count.saturating_mul(shape.gpus))?;
    let mut masks = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let gpus = choose_gpus(machine, together, shape.gpus)?;
        together &= !gpus;
        masks.push(gpus);
    }
    Some(masks)
}

/// The free GPUs of the tightest partition cell that holds `need`; in it the fewest free ones, so that big holes stay.
fn tightest(machine: &Machine, free: u64, need: u32) -> Option<u64> {
    if need == 0 {
        return Some(0);
    }
    machine.partitions().iter().find_map(|cells| {
        cells
            .iter()
            .map(|cell| cell & free)
            .filter(|cell| cell.count_ones() >= need)
            .min_by_key(|cell| (cell.count_ones(), cell.trailing_zeros()))
    })
}

/// `need` GPUs out of `free`, inside the tightest cell, broken cells first.
pub fn choose_gpus(machine: &Machine, free: u64, need: u32) -> Option<u64> {
    let cell = tightest(machine, free, need)?;
    if cell.count_ones() == need || need == 0 {
        return Some(cell);
    }
    let mut chosen = 0u64;
    while chosen.count_ones() < need {
        let missing = need - chosen.count_ones();
        let part = largest_whole(machine, cell & !chosen, missing);
        chosen |= first_bits(part, missing);
    }
    Some(chosen)
}

/// The largest group of `free` GPUs in one finer cell that does not exceed `need`, else the smallest group above it.
fn largest_whole(machine: &Machine, free: u64, need: u32) -> u64 {
    let groups = || machine.partitions().iter().flatten().map(|cell| cell & free).filter(|cell| *cell != 0);
    let whole = groups()
        .filter(|group| group.count_ones() <= need)
        .max_by_key(|group| (group.count_ones(), u32::MAX - group.trailing_zeros()));
    whole.or_else(|| groups().min_by_key(|group| (group.count_ones(), group.trailing_zeros()))).unwrap_or(free)
}

/// Adds cores, memory and NICs to a worker's GPUs and takes all of it from `left`.
pub fn complete(
    machine: &Machine,
    node: NodeId,
    left: &mut Room,
    shape: &Shape,
    cell: Cell,
    gpus: u64,
) -> Option<Place> {
    let shares = socket_shares(machine, left, shape, cell, gpus);
    let cpus = choose_cpus(machine, left, &shares, shape.cpus, cell)?;
    let memory = choose_memory(left, &shares, shape.memory_bytes, cell)?;
    let place = Place {
        node,
        gpus,
        cpus,
        memory,
        nics: nics_for(machine, gpus),
        vram_bytes: machine.vram_bytes_of(gpus),
        pcie_bps: pcie_of(machine, gpus, shape.pcie_per_gpu_bps()),
        network_bps: shape.network_bandwidth_bps,
        slice: None,
    };
    left.take(&place);
    Some(place)
}

/// How many of the worker's GPUs each socket holds; for a worker without known sockets the emptiest one that suits it.
fn socket_shares(machine: &Machine, left: &Room, shape: &Shape, cell: Cell, gpus: u64) -> Vec<(u8, u32)> {
    let sockets = 0..machine.sockets.len() as u8;
    if let Some(socket) = cell.socket {
        return vec![(socket, 1)];
    }
    let shares: Vec<(u8, u32)> = sockets
        .clone()
        .map(|s| (s, (machine.mask_of_socket(s) & gpus).count_ones()))
        .filter(|(_, share)| *share > 0)
        .collect();
    if !shares.is_empty() {
        return shares;
    }
    let free_cpus = |s: u8| left.cpus.intersection(&machine.sockets[usize::from(s)].cpus).count();
    sockets
        .filter(|s| free_cpus(*s) >= shape.cpus && left.memory[usize::from(*s)] >= shape.memory_bytes)
        .min_by_key(|s| (free_cpus(*s), *s))
        .map_or(Vec::new(), |s| vec![(s, 1)])
}

fn choose_cpus(machine: &Machine, left: &Room, shares: &[(u8, u32)], need: u32, cell: Cell) -> Option<CpuSet> {
    let mut chosen = CpuSet::default();
    let mut free = left.cpus;
    for (socket, wanted) in spread(shares, need.into()) {
        let on_socket = machine.sockets[usize::from(socket)].cpus.intersection(&free).count();
        let some = machine.take_cpus(socket, &free, (wanted as u32).min(on_socket))?;
        chosen = chosen.union(&some);
        free = free.difference(&some);
    }
    for socket in spill_order(machine, cell) {
        let missing = need - chosen.count();
        if missing == 0 {
            break;
        }
        let on_socket = machine.sockets[usize::from(socket)].cpus.intersection(&free).count();
        let some = machine.take_cpus(socket, &free, missing.min(on_socket))?;
        chosen = chosen.union(&some);
        free = free.difference(&some);
    }
    (chosen.count() == need).then_some(chosen)
}

fn choose_memory(left: &Room, shares: &[(u8, u32)], need: u64, cell: Cell) -> Option<Vec<(u8, u64)>> {
    let mut chosen: Vec<(u8, u64)> = Vec::new();
    let mut missing = need;
    let sockets: Vec<u8> = match cell.socket {
        Some(socket) => vec![socket],
        None => (0..left.memory.len() as u8).collect(),
    };
    let wanted = spread(shares, need);
    let rest = sockets.iter().map(|socket| (*socket, u64::MAX));
    for (socket, wanted) in wanted.into_iter().chain(rest) {
        let taken = chosen.iter().find(|(s, _)| *s == socket).map_or(0, |(_, bytes)| *bytes);
        let free = left.memory[usize::from(socket)].saturating_sub(taken);
        let some = free.min(wanted).min(missing);
        missing -= some;
        match chosen.iter_mut().find(|(s, _)| *s == socket) {
            Some((_, bytes)) => *bytes += some,
            None if some > 0 => chosen.push((socket, some)),
            None => {}
        }
    }
    chosen.sort_unstable();
    (missing == 0).then_some(chosen)
}

/// Splits `need` over the sockets by their shares; the largest remainders round up.
fn spread(shares: &[(u8, u32)], need: u64) -> Vec<(u8, u64)> {
    let total: u64 = shares.iter().map(|(_, share)| u64::from(*share)).sum();
    let mut left = need;
    let mut weight_left = total;
    let mut parts = Vec::with_capacity(shares.len());
    for (socket, share) in shares {
        let part = (u128::from(left) * u128::from(*share)).div_ceil(u128::from(weight_left.max(1))) as u64;
        weight_left -= u64::from(*share);
        left -= part.min(left);
        parts.push((*socket, part));
    }
    parts
}

fn spill_order(machine: &Machine, cell: Cell) -> Vec<u8> {
    match cell.socket {
        Some(_) => Vec::new(),
        None => (0..machine.sockets.len() as u8).collect(),
    }
}

/// What GPUs with so much bandwidth each take of their switches.
fn pcie_of(machine: &Machine, gpus: u64, per_gpu_bps: u64) -> Vec<(u8, u64)> {
    let on = |switch: u8| u64::from((gpus & machine.mask_of_switch(switch)).count_ones());
    let switches = (0..machine.switches.len() as u8).map(|switch| (switch, on(switch).saturating_mul(per_gpu_bps)));
    switches.filter(|(_, bps)| *bps > 0).collect()
}

/// Only the rails tied to these GPUs.
fn nics_for(machine: &Machine, gpus: u64) -> u64 {
    (0..machine.gpus.len() as u8)
        .filter(|gpu| gpus >> gpu & 1 == 1)
        .filter_map(|gpu| machine.nic_for_gpu(gpu))
        .fold(0, |mask, nic| mask | (1 << nic))
}
