//! What one node is made of: sockets, PCIe switches, GPUs, NICs and NVLink islands.
//!
//! A [`Machine`] is checked as a whole when it is made (by [`Machine::new`] or from JSON), never changes afterwards and is
//! shared between nodes of the same kind. What placement asks again and again (masks, partitions, the NIC of a GPU) is
//! computed once. What is not known stays `None`: nothing here may guess "socket 0".

mod cores;
mod derive;
pub mod gpu_models;
pub mod matrix;
pub mod mig;
pub mod profiles;
mod validate;

use std::ops::Deref;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::amounts::Resources;
use super::cpuset::CpuSet;
use derive::Derived;
pub use validate::MachineError;

/// Most GPUs of a node: GPU sets are `u64` masks, bit i for GPU i.
pub const MAX_GPUS: usize = 64;

/// The checked description of a node's hardware. Reads like its [`Parts`]; making one is checked, changing one impossible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Machine {
    parts: Parts,
    derived: Derived,
}

/// The raw description, indices pointing into the lists beside it. The JSON form of a [`Machine`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Machine)]
pub struct Parts {
    /// Name of the kind of machine, for people.
    pub profile: String,
    /// GPU family in capitals without vendor words: "H100", "RTX4090". Empty without GPUs.
    pub gpu_model: String,
    /// Where this description comes from.
    pub source: Source,
    /// NUMA nodes that have CPUs.
    pub sockets: Vec<Socket>,
    /// PCIe switches, or root ports where a GPU has no switch.
    pub switches: Vec<Switch>,
    /// GPUs in the order of their indices.
    pub gpus: Vec<Gpu>,
    /// Network devices.
    pub nics: Vec<Nic>,
    /// Groups of GPUs joined by NVLink, disjoint. A GPU without NVLink is in none.
    pub islands: Vec<Island>,
    /// Link counts per directly joined pair, ascending by (a, b). Empty where the counts are not known.
    pub nvlink: Vec<NvLink>,
}

/// How far a description can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Read from the named captured sample; `cites` names where capture and figures come from.
    Captured { sample: String, cites: String },
    /// Put together from public data sheets; no capture of such a machine was at hand.
    Derived { why: String },
    /// Found on the node itself.
    Discovered,
    /// Stated by a user.
    Declared,
}

/// A NUMA node that has CPUs. (A CPU package set to several NUMA nodes counts as several: it is locality that matters.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Socket {
    /// The kernel's NUMA number.
    pub numa: u32,
    /// Its logical CPUs; empty where the source could not see them.
    pub cpus: CpuSet,
    /// Its host memory.
    pub memory_bytes: u64,
}

/// What several devices share on their way to the CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Switch {
    /// Index into `sockets`; `None`: not known.
    pub socket: Option<u8>,
    /// Bits per second and direction of the way up.
    pub bandwidth_bps: u64,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Gpu {
    /// Index into `sockets`; `None`: not known.
    pub socket: Option<u8>,
    /// Index into `switches`.
    pub switch: u8,
    /// Its memory.
    pub vram_bytes: u64,
    /// Bits per second and direction of its own PCIe link.
    pub pcie_bandwidth_bps: u64,
}

/// What a network device is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NicRole {
    Compute,
    Storage,
    Management,
}

/// One network device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Nic {
    /// Device name, e.g. `mlx5_0`.
    pub name: String,
    /// Index into `sockets`; `None`: not known.
    pub socket: Option<u8>,
    /// Index into `switches`: the switch that it shares with GPUs; `None`: it shares none.
    pub switch: Option<u8>,
    /// Bits per second and direction.
    pub bandwidth_bps: u64,
    pub role: NicRole,
    /// Number of the fabric plane that it is plugged into.
    pub rail: Option<u8>,
}

/// GPUs joined by NVLink, directly or over switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Island {
    /// Mask of this node's GPUs in it.
    pub gpus: u64,
    /// The NVLink domain goes on in other nodes.
    pub spans_nodes: bool,
}

/// NVLinks between a pair of GPUs, `a < b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct NvLink {
    pub a: u8,
    pub b: u8,
    /// How many links are bonded between the two.
    pub links: u8,
}

impl Machine {
    /// Checks `parts` as a whole and computes what placement asks often.
    pub fn new(parts: Parts) -> Result<Self, MachineError> {
        validate::check(&parts)?;
        let derived = Derived::of(&parts);
        Ok(Self { parts, derived })
    }

    /// All GPUs.
    pub fn gpu_mask(&self) -> u64 {
        self.derived.gpu_mask
    }

    /// GPUs known to sit on socket index `socket`; 0 for an index that does not exist.
    pub fn mask_of_socket(&self, socket: u8) -> u64 {
        self.derived.socket_masks.get(usize::from(socket)).copied().unwrap_or(0)
    }

    /// GPUs on switch index `switch`; 0 for an index that does not exist.
    pub fn mask_of_switch(&self, switch: u8) -> u64 {
        self.derived.switch_masks.get(usize::from(switch)).copied().unwrap_or(0)
    }

    /// GPUs of island index `island`; 0 for an index that does not exist.
    pub fn mask_of_island(&self, island: u8) -> u64 {
        self.islands.get(usize::from(island)).map_or(0, |island| island.gpus)
    }

    /// Index of the island that `gpu` is in.
    pub fn island_of_gpu(&self, gpu: u8) -> Option<u8> {
        let at = self.islands.iter().position(|island| gpu < 64 && island.gpus >> gpu & 1 == 1)?;
        u8::try_from(at).ok()
    }

    /// Ever coarser partitions of the GPUs, finest first; each is a list of disjoint masks, ascending by lowest GPU, that
    /// covers all GPUs: same switch within an island and socket, island within a socket, island, sockets joined by islands,
    /// node. A level equal to the next coarser one is left out. GPUs without NVLink are grouped by socket where others are
    /// by island; GPUs of unknown socket count as one group. No GPUs, no levels.
    pub fn partitions(&self) -> &[Vec<u64>] {
        &self.derived.partitions
    }

    /// NVLinks between two GPUs; 0 where none or unknown.
    pub fn links(&self, one: u8, other: u8) -> u8 {
        let (a, b) = (one.min(other), one.max(other));
        self.nvlink.iter().find(|link| (link.a, link.b) == (a, b)).map_or(0, |link| link.links)
    }

    /// Index of the compute NIC that `gpu` should use: one on its switch, else one on its socket. GPUs with the same
    /// choice share it round-robin. `None`: every compute NIC is across the sockets, or unknown.
    pub fn nic_for_gpu(&self, gpu: u8) -> Option<u8> {
        self.derived.nics.get(usize::from(gpu)).copied().flatten()
    }

    /// What GPU `gpu` can be split into; `None`: it knows no MIG, or its card is not known.
    pub fn mig_card(&self, gpu: u8) -> Option<&'static mig::Sku> {
        self.derived.cards.get(usize::from(gpu)).copied().flatten()
    }

    /// Logical CPUs of all sockets.
    pub fn total_cpus(&self) -> u32 {
        self.derived.total_cpus
    }

    /// Host memory of all sockets.
    pub fn total_memory_bytes(&self) -> u64 {
        self.derived.total_memory_bytes
    }

    /// Memory of the GPUs of a mask.
    pub fn vram_bytes_of(&self, gpus: u64) -> u64 {
        let chosen = self.gpus.iter().enumerate().filter(|(index, _)| gpus >> index & 1 == 1);
        chosen.fold(0, |sum, (_, gpu)| sum.saturating_add(gpu.vram_bytes))
    }

    /// Bits per second and direction of the compute NICs together.
    pub fn network_bandwidth_bps(&self) -> u64 {
        self.derived.capacity.network_bandwidth_bps
    }

    /// All that the machine has. PCIe bandwidth is that of the switches with GPUs.
    pub fn capacity(&self) -> Resources {
        self.derived.capacity
    }

    /// The physical cores of a socket, each the set of its logical CPUs; single CPUs where the shape of the list does not
    /// tell the pairs. Empty for an index that does not exist.
    pub fn cores(&self, socket: u8) -> &[CpuSet] {
        self.derived.cores.get(usize::from(socket)).map_or(&[], Vec::as_slice)
    }

    /// `n` CPUs of a socket out of `free`, whole cores first, then CPUs of cores already broken; `None` where `free` has too
    /// few there. The same input gives the same set.
    pub fn take_cpus(&self, socket: u8, free: &CpuSet, n: u32) -> Option<CpuSet> {
        cores::take(self.cores(socket), free, n)
    }
}

// Reading a part must be as short as `machine.gpus`; writing one would outdate what was derived, so there is no DerefMut.
impl Deref for Machine {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl TryFrom<Parts> for Machine {
    type Error = MachineError;

    fn try_from(parts: Parts) -> Result<Self, MachineError> {
        Self::new(parts)
    }
}

impl From<Machine> for Parts {
    fn from(machine: Machine) -> Self {
        machine.parts
    }
}

impl utoipa::PartialSchema for Machine {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        Parts::schema()
    }
}

impl ToSchema for Machine {
    fn name() -> std::borrow::Cow<'static, str> {
        "Machine".into()
    }

    fn schemas(schemas: &mut Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>) {
        Parts::schemas(schemas);
    }
}
