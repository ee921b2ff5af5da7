//! What is free on a node, small enough to copy: the unit that a draft changes and takes back.
use crate::model::cpuset::CpuSet;
use crate::model::job::Place;
use crate::model::machine::Machine;
use crate::model::node::{Device, Node};

/// NUMA nodes with CPUs that a machine may have; registration refuses more.
pub const MAX_SOCKETS: usize = 16;

/// Free GPUs, CPUs and memory of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub gpus: u64,
    pub cpus: CpuSet,
    pub memory: [u64; MAX_SOCKETS],
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
        room
    }

    /// The node with nothing on it.
    pub fn empty_machine(machine: &Machine) -> Room {
        let mut room = Room { gpus: machine.gpu_mask(), cpus: CpuSet::default(), memory: [0; MAX_SOCKETS] };
        for (index, socket) in machine.sockets.iter().enumerate().take(MAX_SOCKETS) {
            room.cpus = room.cpus.union(&socket.cpus);
            room.memory[index] = socket.memory_bytes;
        }
        room
    }

    pub fn take(&mut self, place: &Place) {
        self.gpus &= !place.gpus;
        self.cpus = self.cpus.difference(&place.cpus);
        place.memory.iter().for_each(|(socket, bytes)| self.take_memory(*socket, *bytes));
    }

    pub fn take_memory(&mut self, socket: u8, bytes: u64) {
        let free = &mut self.memory[usize::from(socket)];
        *free = free.saturating_sub(bytes);
    }

    pub fn give(&mut self, place: &Place) {
        self.gpus |= place.gpus;
        self.cpus = self.cpus.union(&place.cpus);
        for (socket, bytes) in &place.memory {
            let free = &mut self.memory[usize::from(*socket)];
            *free = free.saturating_add(*bytes);
        }
    }

    /// Takes out what nobody may have, whoever held it: sick devices, and the GPUs and CPUs of stray processes.
    pub fn withhold(&mut self, node: &Node) {
        self.gpus &= !node.mask(|device| matches!(device, Device::Sick { .. }));
        for stray in &node.strays {
            self.gpus &= !stray.gpus;
            self.cpus = self.cpus.difference(&stray.cpus);
        }
    }

    pub fn memory_total(&self) -> u64 {
        self.memory.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}
