//! What is free on a node, small enough to copy: the unit that a draft changes and takes back.
use crate::model::cpuset::CpuSet;
use crate::model::job::{PCIE_UNIT_BPS, Place};
use crate::model::machine::Machine;
use crate::model::node::{Device, Node};
use crate::model::part::Part;

/// NUMA nodes with CPUs that a machine may have; registration refuses more.
pub const MAX_SOCKETS: usize = 16;

/// Switches whose bandwidth is counted. GPUs on a switch beyond these are not given to those who ask for bandwidth.
const MAX_SWITCHES: usize = 32;

/// Free GPUs, CPUs, memory and bandwidth of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub gpus: u64,
    pub cpus: CpuSet,
    pub memory: [u64; MAX_SOCKETS],
    /// By switch, in units of [`PCIE_UNIT_BPS`]: half the size, and exact because all that is asked is whole units.
    pcie: [u32; MAX_SWITCHES],
    pub network_bps: u64,
}

impl Room {
    /// What is free now: claimed, used, draining and sick devices are not.
    pub fn now(node: &Node) -> Room {
        Room::empty_machine(&node.machine).less_what_is_used(node)
    }

    /// Of an empty machine of the node's kind, what is free now.
    pub fn less_what_is_used(self, node: &Node) -> Room {
        let mut room = self;
        room.gpus = node.mask(|device| device == Device::Free);
        room.cpus = room.cpus.difference(&node.cpus_used);
        room.withhold(node);
        for (free, used) in room.memory.iter_mut().zip(&node.memory_used) {
            *free = free.saturating_sub(*used);
        }
        for (switch, used) in &node.pcie_used_bps {
            room.take_amount(Part::Pcie(*switch), *used);
        }
        room.take_amount(Part::Network, node.network_used_bps);
        room
    }

    /// The node with nothing on it.
    pub fn empty_machine(machine: &Machine) -> Room {
        let mut room = Room {
            gpus: machine.gpu_mask(),
            cpus: CpuSet::default(),
            memory: [0; MAX_SOCKETS],
            pcie: [0; MAX_SWITCHES],
            network_bps: machine.network_bandwidth_bps(),
        };
        for (index, socket) in machine.sockets.iter().enumerate().take(MAX_SOCKETS) {
            room.cpus = room.cpus.union(&socket.cpus);
            room.memory[index] = socket.memory_bytes;
        }
        for (free, switch) in room.pcie.iter_mut().zip(&machine.switches) {
            *free = units(switch.bandwidth_bps);
        }
        room
    }

    pub fn take(&mut self, place: &Place) {
        self.take_devices(place);
        place.amounts().for_each(|(part, amount)| self.take_amount(part, amount));
    }

    /// Only its GPUs and CPUs.
    pub fn take_devices(&mut self, place: &Place) {
        self.gpus &= !place.gpus;
        self.cpus = self.cpus.difference(&place.cpus);
    }

    pub fn give(&mut self, place: &Place) {
        self.gpus |= place.gpus;
        self.cpus = self.cpus.union(&place.cpus);
        for (part, amount) in place.amounts() {
            match part {
                Part::Memory(socket) => {
                    let free = &mut self.memory[usize::from(socket)];
                    *free = free.saturating_add(amount);
                }
                Part::Pcie(switch) => {
                    if let Some(free) = self.pcie.get_mut(usize::from(switch)) {
                        *free = free.saturating_add(units(amount));
                    }
                }
                Part::Network => self.network_bps = self.network_bps.saturating_add(amount),
            }
        }
    }

    pub fn take_amount(&mut self, part: Part, amount: u64) {
        match part {
            Part::Memory(socket) => {
                let free = &mut self.memory[usize::from(socket)];
                *free = free.saturating_sub(amount);
            }
            Part::Pcie(switch) => {
                if let Some(free) = self.pcie.get_mut(usize::from(switch)) {
                    *free = free.saturating_sub(units(amount));
                }
            }
            Part::Network => self.network_bps = self.network_bps.saturating_sub(amount),
        }
    }

    /// What is free of it; nothing of a socket or switch that is not there.
    pub fn amount(&self, part: Part) -> u64 {
        match part {
            Part::Memory(socket) => self.memory.get(usize::from(socket)).copied().unwrap_or(0),
            Part::Pcie(switch) => self.pcie_bps(switch.into()),
            Part::Network => self.network_bps,
        }
    }

    fn pcie_bps(&self, switch: usize) -> u64 {
        self.pcie.get(switch).map_or(0, |free| u64::from(*free) * PCIE_UNIT_BPS)
    }

    /// Of the free GPUs in `among` as many on each switch as it can carry with so much bandwidth each.
    pub fn carried(&self, machine: &Machine, among: u64, per_gpu_bps: u64) -> u64 {
        let free = self.gpus & among;
        if per_gpu_bps == 0 {
            return free;
        }
        let on = |switch: usize| {
            let many = (self.pcie_bps(switch) / per_gpu_bps).min(64) as u32;
            first_bits(free & machine.mask_of_switch(switch as u8), many)
        };
        (0..machine.switches.len().min(MAX_SWITCHES)).fold(0, |all, switch| all | on(switch))
    }

    /// Whether [`Room::withhold`] has something to take out.
    pub fn is_withheld(node: &Node) -> bool {
        !node.strays.is_empty() || node.mask(|device| matches!(device, Device::Sick { .. })) != 0
    }

    /// Takes out what nobody may have, whoever held it: sick devices, and the GPUs and CPUs of stray processes.
    pub fn withhold(&mut self, node: &Node) {
        self.gpus &= !node.mask(|device| matches!(device, Device::Sick { .. }));
        for stray in &node.strays {
            self.gpus &= !stray.gpus;
            self.cpus = self.cpus.difference(&stray.cpus);
        }
    }

    /// Free amounts in the order of [`super::fit::DIMENSIONS`].
    pub fn totals(&self) -> [u64; 5] {
        let pcie = (0..MAX_SWITCHES).fold(0u64, |sum, switch| sum.saturating_add(self.pcie_bps(switch)));
        [self.gpus.count_ones().into(), self.cpus.count().into(), self.memory_total(), pcie, self.network_bps]
    }

    pub fn memory_total(&self) -> u64 {
        self.memory.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

fn units(bps: u64) -> u32 {
    (bps / PCIE_UNIT_BPS).min(u64::from(u32::MAX)) as u32
}

/// The lowest `count` of the mask's GPUs.
pub fn first_bits(mut mask: u64, count: u32) -> u64 {
    let mut chosen = 0;
    for _ in 0..count.min(mask.count_ones()) {
        let bit = mask & mask.wrapping_neg();
        chosen |= bit;
        mask &= !bit;
    }
    chosen
}
