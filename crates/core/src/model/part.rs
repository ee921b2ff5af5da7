//! What a node gives out in amounts and not as devices: memory of a socket, bandwidth of a PCIe switch, of the network.
//! One name for each, so that room, promises, use and the rules count all of them in the same way.
use super::machine::Machine;
use super::node::Node;
use serde::{Deserialize, Serialize};

/// By index of the machine's socket or switch. Bytes for memory, bits per second for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Memory(u8),
    Pcie(u8),
    Network,
}

impl Part {
    pub fn name(self) -> &'static str {
        match self {
            Part::Memory(_) => "memory",
            Part::Pcie(_) => "PCIe bandwidth",
            Part::Network => "network bandwidth",
        }
    }
}

impl Machine {
    /// All that there is of it; nothing of a socket or switch that the machine does not have.
    pub fn amount_of(&self, part: Part) -> u64 {
        match part {
            Part::Memory(socket) => self.sockets.get(usize::from(socket)).map_or(0, |socket| socket.memory_bytes),
            Part::Pcie(switch) => self.switches.get(usize::from(switch)).map_or(0, |switch| switch.bandwidth_bps),
            Part::Network => self.network_bandwidth_bps(),
        }
    }
}

impl Node {
    pub fn amount_used(&self, part: Part) -> u64 {
        match part {
            Part::Memory(socket) => self.memory_used.get(usize::from(socket)).copied().unwrap_or(0),
            Part::Pcie(switch) => self.pcie_used_bps.get(&switch).copied().unwrap_or(0),
            Part::Network => self.network_used_bps,
        }
    }

    /// Replaces what is used of it. An unused switch is not kept, so that a node on which nothing runs equals a new one.
    pub fn set_amount_used(&mut self, part: Part, amount: u64) {
        match part {
            Part::Memory(socket) => {
                if let Some(used) = self.memory_used.get_mut(usize::from(socket)) {
                    *used = amount;
                }
            }
            Part::Pcie(switch) if amount == 0 => drop(self.pcie_used_bps.remove(&switch)),
            Part::Pcie(switch) => drop(self.pcie_used_bps.insert(switch, amount)),
            Part::Network => self.network_used_bps = amount,
        }
    }
}
