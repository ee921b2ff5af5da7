//! The machine that a user describes with a few keys (`nodes 4 custom gpus=8 sockets=2 …`): everything is split evenly over
//! the sockets, in the order of numbers. A description that cannot be split that way is refused, not rounded.

use crate::model::cpuset::CpuSet;
use crate::model::machine::derive::mask_of_first;
use crate::model::machine::gpu_models::PCIE_GEN4_X16_BPS;
use crate::model::machine::{
    Gpu, Island, MAX_GPUS, Machine, MachineError, Nic, NicRole, Parts, Socket, Source, Switch, gpu_models,
};

const GIB: u64 = 1 << 30;

/// Keys of a `custom` machine, all figures per node but those said to be per device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Custom {
    pub gpus: u32,
    pub sockets: u32,
    /// Logical CPUs.
    pub cpus: u32,
    pub memory_bytes: u64,
    /// Per GPU.
    pub vram_bytes: u64,
    /// NVLink islands as `0-3|4-7`; `None`: no NVLink.
    pub islands: Option<String>,
    /// A count, split evenly over the sockets, or the GPUs of each as `0-3|4-7`; `None`: one a socket.
    pub switches: Option<String>,
    /// `None`: no NIC, or one where `network_bandwidth_bps` is given.
    pub nics: Option<u32>,
    /// Bits per second and direction: of each GPU's link, and of the way up that the devices of a switch share.
    pub pcie_bandwidth_bps: u64,
    /// Bits per second and direction, per NIC; `None`: 100 Gb/s.
    pub network_bandwidth_bps: Option<u64>,
    /// Family name; product names are shortened to it.
    pub gpu_model: String,
}

impl Default for Custom {
    fn default() -> Self {
        Self {
            gpus: 0,
            sockets: 1,
            cpus: 64,
            memory_bytes: 512 * GIB,
            vram_bytes: 80 * GIB,
            islands: None,
            switches: None,
            nics: None,
            pcie_bandwidth_bps: PCIE_GEN4_X16_BPS,
            network_bandwidth_bps: None,
            gpu_model: "GENERIC".to_owned(),
        }
    }
}

/// Why a description was refused; `key` is named as users write it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CustomError {
    #[error("custom machine: {key}={value} is not between {least} and {most}")]
    Count { key: &'static str, value: u32, least: u32, most: u32 },
    #[error("custom machine: {key}={value:?}: {problem}; write GPU numbers as 0-3|4-7")]
    Groups { key: &'static str, value: String, problem: String },
    #[error(
        "custom machine: switches={switches} cannot be split evenly over sockets={sockets}; use a multiple, or list the GPUs of each"
    )]
    UnevenSwitches { switches: u32, sockets: u32 },
    #[error("custom machine: network_bandwidth is given but nics=0; give nics=1 or more, or leave one out")]
    BandwidthWithoutNic,
    #[error(transparent)]
    Machine(#[from] MachineError),
}

impl Custom {
    /// The machine.
    pub fn build(&self) -> Result<Machine, CustomError> {
        Ok(Machine::new(self.parts()?)?)
    }

    pub(super) fn parts(&self) -> Result<Parts, CustomError> {
        self.check_counts()?;
        let sockets = self.build_sockets();
        let of_gpu: Vec<u8> = (0..self.gpus).map(|gpu| (gpu * self.sockets / self.gpus) as u8).collect();
        let (switches, switch_of_gpu) = self.build_switches(&of_gpu)?;
        let gpus = of_gpu.iter().zip(switch_of_gpu).map(|(&socket, switch)| Gpu {
            socket: Some(socket),
            switch,
            vram_bytes: self.vram_bytes,
            pcie_bandwidth_bps: self.pcie_bandwidth_bps,
        });
        Ok(Parts {
            profile: "custom".to_owned(),
            gpu_model: if self.gpus == 0 { String::new() } else { gpu_models::family(&self.gpu_model) },
            source: Source::Declared,
            gpus: gpus.collect(),
            nics: self.build_nics(&switches)?,
            islands: self.build_islands()?,
            nvlink: Vec::new(),
            sockets,
            switches,
        })
    }

    fn check_counts(&self) -> Result<(), CustomError> {
        let counts = [
            ("gpus", self.gpus, 0, MAX_GPUS as u32),
            ("sockets", self.sockets, 1, 64),
            ("cpus", self.cpus, 1, CpuSet::CAPACITY),
            ("nics", self.nics.unwrap_or(0), 0, 255),
        ];
        match counts.into_iter().find(|(_, value, least, most)| value < least || value > most) {
            Some((key, value, least, most)) => Err(CustomError::Count { key, value, least, most }),
            None => Ok(()),
        }
    }

    fn build_sockets(&self) -> Vec<Socket> {
        let (share, rest) = (self.memory_bytes / u64::from(self.sockets), self.memory_bytes % u64::from(self.sockets));
        let edge = |socket: u32| socket * self.cpus / self.sockets;
        let socket = |numa: u32| Socket {
            numa,
            cpus: CpuSet::range(edge(numa), edge(numa + 1)),
            memory_bytes: share + if numa == 0 { rest } else { 0 },
        };
        (0..self.sockets).map(socket).collect()
    }

    fn build_switches(&self, socket_of_gpu: &[u8]) -> Result<(Vec<Switch>, Vec<u8>), CustomError> {
        let listed = self.switches.as_deref().filter(|text| text.parse::<u32>().is_err());
        match listed {
            Some(text) => self.listed_switches(text, socket_of_gpu),
            None => self.counted_switches(socket_of_gpu),
        }
    }

    fn counted_switches(&self, socket_of_gpu: &[u8]) -> Result<(Vec<Switch>, Vec<u8>), CustomError> {
        let stated = self.switches.as_deref().and_then(|text| text.parse().ok());
        let count: u32 = stated.unwrap_or(self.sockets);
        if !(1..=255).contains(&count) {
            return Err(CustomError::Count { key: "switches", value: count, least: 1, most: 255 });
        }
        if !count.is_multiple_of(self.sockets) {
            return Err(CustomError::UnevenSwitches { switches: count, sockets: self.sockets });
        }
        let per_socket = (count / self.sockets) as usize;
        let switch =
            |at: u32| Switch { socket: Some((at as usize / per_socket) as u8), bandwidth_bps: self.pcie_bandwidth_bps };
        let of_gpu = socket_of_gpu.iter().enumerate().map(|(gpu, &socket)| {
            let first = socket_of_gpu.iter().take_while(|&&other| other < socket).count();
            let peers = socket_of_gpu.iter().filter(|&&other| other == socket).count();
            (socket as usize * per_socket + (gpu - first) * per_socket / peers) as u8
        });
        Ok(((0..count).map(switch).collect(), of_gpu.collect()))
    }

    fn listed_switches(&self, text: &str, socket_of_gpu: &[u8]) -> Result<(Vec<Switch>, Vec<u8>), CustomError> {
        let groups = self.read_groups("switches", text)?;
        if groups.iter().fold(0, |all, group| all | group) != mask_of_first(self.gpus as usize) {
            let problem = "every GPU needs a switch".to_owned();
            return Err(CustomError::Groups { key: "switches", value: text.to_owned(), problem });
        }
        let socket_of = |group: u64| {
            let mut sockets: Vec<u8> = members(group).map(|gpu| socket_of_gpu[gpu]).collect();
            sockets.dedup();
            // A switch listed across sockets is nobody's neighbour more than the other's.
            if sockets.len() == 1 { sockets.pop() } else { None }
        };
        let switch = |&group: &u64| Switch { socket: socket_of(group), bandwidth_bps: self.pcie_bandwidth_bps };
        let mut of_gpu = vec![0; self.gpus as usize];
        for (index, &group) in groups.iter().enumerate() {
            members(group).for_each(|gpu| of_gpu[gpu] = index as u8);
        }
        Ok((groups.iter().map(switch).collect(), of_gpu))
    }

    fn build_islands(&self) -> Result<Vec<Island>, CustomError> {
        let groups = self.islands.as_deref().map_or(Ok(Vec::new()), |text| self.read_groups("islands", text))?;
        Ok(groups.into_iter().map(|gpus| Island { gpus, spans_nodes: false }).collect())
    }

    /// NICs spread evenly over the switches, in order.
    fn build_nics(&self, switches: &[Switch]) -> Result<Vec<Nic>, CustomError> {
        let count = self.nics.unwrap_or(u32::from(self.network_bandwidth_bps.is_some()));
        if count == 0 && self.network_bandwidth_bps.is_some() {
            return Err(CustomError::BandwidthWithoutNic);
        }
        let nic = |at: u32| {
            let switch = at as usize * switches.len() / count as usize;
            Nic {
                name: format!("mlx5_{at}"),
                socket: switches[switch].socket,
                switch: Some(switch as u8),
                bandwidth_bps: self.network_bandwidth_bps.unwrap_or(100_000_000_000),
                role: NicRole::Compute,
                rail: Some(at as u8),
            }
        };
        Ok((0..count).map(nic).collect())
    }

    /// Reads `0-3|4-7` into disjoint masks of this machine's GPUs.
    fn read_groups(&self, key: &'static str, text: &str) -> Result<Vec<u64>, CustomError> {
        let refuse = |problem: String| CustomError::Groups { key, value: text.to_owned(), problem };
        let mut groups = Vec::new();
        let mut seen = CpuSet::EMPTY;
        for part in text.split('|') {
            // A list of GPU numbers has the form of a CPU list.
            let list: CpuSet = part.parse().map_err(|_| refuse(format!("{part:?} is not a list of GPU numbers")))?;
            if list.is_empty() || !list.is_subset(&CpuSet::range(0, self.gpus)) {
                return Err(refuse(format!(
                    "{part:?} is empty or names a GPU that the machine (gpus={}) lacks",
                    self.gpus
                )));
            }
            if !list.is_disjoint(&seen) {
                return Err(refuse(format!("{part:?} names a GPU again")));
            }
            seen = seen.union(&list);
            groups.push(list.iter().fold(0, |mask, gpu| mask | 1 << gpu));
        }
        Ok(groups)
    }
}

fn members(group: u64) -> impl Iterator<Item = usize> {
    (0..MAX_GPUS).filter(move |gpu| group >> gpu & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(gpus: u32, sockets: u32) -> Custom {
        Custom { gpus, sockets, ..Custom::default() }
    }

    #[test]
    fn the_defaults_are_a_plain_cpu_node() {
        let machine = Custom::default().build().unwrap();
        assert_eq!((machine.gpus.len(), machine.sockets.len(), machine.total_cpus()), (0, 1, 64));
        assert_eq!(machine.total_memory_bytes(), 512 * GIB);
        assert!(machine.nics.is_empty() && machine.islands.is_empty() && machine.partitions().is_empty());
    }

    #[test]
    fn everything_is_split_evenly_over_sockets() {
        let machine = node(8, 2).build().unwrap();
        assert_eq!((machine.mask_of_socket(0), machine.mask_of_socket(1)), (0x0f, 0xf0));
        assert_eq!(machine.switches.len(), 2);
        assert_eq!(machine.sockets[1].cpus.to_string(), "32-63");
        assert_eq!(machine.gpus[0].vram_bytes, 80 * GIB);
        assert_eq!(machine.partitions(), [vec![0x0f, 0xf0], vec![0xff]]);
    }

    #[test]
    fn islands_and_switches_can_be_listed() {
        let islands = Some("0-3|4-7".to_owned());
        let switches = Some("0-1|2-3|4-5|6-7".to_owned());
        let machine = Custom { islands, switches, nics: Some(2), ..node(8, 1) }.build().unwrap();
        assert_eq!(machine.mask_of_island(1), 0xf0);
        assert_eq!(machine.mask_of_switch(3), 0xc0);
        assert_eq!(machine.nics.iter().map(|nic| nic.switch).collect::<Vec<_>>(), [Some(0), Some(2)]);
        let counted = Custom { switches: Some("4".to_owned()), ..node(8, 2) }.build().unwrap();
        assert_eq!(counted.mask_of_switch(1), 0x0c);
    }

    #[test]
    fn an_island_may_cross_sockets() {
        let machine = Custom { islands: Some("0,2|1,3".to_owned()), ..node(4, 2) }.build().unwrap();
        assert_eq!(machine.partitions(), [vec![1, 2, 4, 8], vec![0b0101, 0b1010], vec![0b1111]]);
    }

    #[test]
    fn what_cannot_be_meant_is_refused_by_key() {
        let with = |islands: &str, switches: &str| {
            let set = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            Custom { islands: set(islands), switches: set(switches), ..node(8, 2) }.build().unwrap_err()
        };
        for islands in ["0-3|3-7", "0-8", "0-3|", "a"] {
            assert!(matches!(with(islands, ""), CustomError::Groups { key: "islands", .. }), "{islands}");
        }
        assert!(matches!(with("", "0-3|4-6"), CustomError::Groups { key: "switches", .. }));
        assert!(matches!(with("", "3"), CustomError::UnevenSwitches { .. }));
        assert!(matches!(with("", "0"), CustomError::Count { key: "switches", .. }));
        assert!(matches!(node(65, 1).build(), Err(CustomError::Count { key: "gpus", .. })));
        assert!(matches!(node(1, 0).build(), Err(CustomError::Count { key: "sockets", .. })));
        let no_nic = Custom { nics: Some(0), network_bandwidth_bps: Some(1), ..node(1, 1) };
        assert_eq!(no_nic.build(), Err(CustomError::BandwidthWithoutNic));
    }
}
