//! What this node offers: its real machine, read from the kernel, or a virtual one by the name of a profile, for trying
//! things out on any machine. The processes are real in both cases.
//!
//! It never invents what it could not read: a machine whose GPUs cannot be seen has none.
use ganger_core::model::cpuset::CpuSet;
use ganger_core::model::machine::mig::Instance;
use ganger_core::model::machine::profiles::{UnknownProfile, profile};
use ganger_core::model::machine::{Machine, MachineError, Parts, Socket, Source};
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// Where the machine's description comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InventorySource {
    /// CPUs and memory of this machine as the kernel tells them.
    Real,
    /// A shipped machine by its name, such as `dgx-h100`. Pinning to CPUs that do not exist is recorded, not applied.
    Virtual(String),
    /// A machine described elsewhere; virtual too.
    Described(Arc<Machine>),
}

/// Why the machine could not be described.
#[derive(Debug, Error)]
pub enum InventoryError {
    #[error(transparent)]
    Profile(#[from] UnknownProfile),
    #[error("cannot read {path}: {why}; name a virtual machine instead if this kernel does not tell")]
    Kernel { path: String, why: String },
    #[error("the kernel describes a machine that cannot be: {0}")]
    Machine(#[from] MachineError),
}

/// The machine, and what only the node knows of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inventory {
    pub machine: Arc<Machine>,
    /// Its GPUs are imagined: they are split by saying so.
    pub is_virtual: bool,
    node: String,
}

impl Inventory {
    /// # Errors
    /// The profile is unknown, or the kernel's files cannot be read.
    pub fn load(node: &str, source: &InventorySource) -> Result<Inventory, InventoryError> {
        let machine = match source {
            InventorySource::Real => Arc::new(read(Path::new("/sys/devices/system"), Path::new("/proc/meminfo"))?),
            InventorySource::Virtual(name) => profile(name)?,
            InventorySource::Described(machine) => machine.clone(),
        };
        let is_virtual = !matches!(source, InventorySource::Real);
        Ok(Inventory { machine, is_virtual, node: node.to_string() })
    }

    /// The UUID by which a process finds GPU `index`. A virtual GPU has a made-up one: always the same for the same node
    /// and index, and well-formed, so that what reads it does not stumble.
    pub fn gpu_uuid(&self, index: u8) -> String {
        format!("GPU-{}", made_up_uuid(&format!("{}/gpu{index}", self.node)))
    }

    /// The UUID of a MIG instance of a virtual GPU, as made up as that of the GPU.
    pub fn mig_uuid(&self, gpu: u8, instance: Instance) -> String {
        let Instance { compute, memory, start, .. } = instance;
        format!("MIG-{}", made_up_uuid(&format!("{}/gpu{gpu}/{compute}g.{memory}@{start}", self.node)))
    }
}

fn made_up_uuid(of: &str) -> String {
    let hash = blake3::hash(of.as_bytes()).to_hex();
    let (a, b, c, d, e) = (&hash[..8], &hash[8..12], &hash[12..16], &hash[16..20], &hash[20..32]);
    format!("{a}-{b}-{c}-{d}-{e}")
}

/// Reads NUMA nodes with CPUs and their memory; a kernel without NUMA has one.
fn read(system: &Path, meminfo: &Path) -> Result<Machine, InventoryError> {
    let online = cpulist(&system.join("cpu/online"))?;
    let mut sockets = Vec::new();
    for numa in numa_nodes(&system.join("node")) {
        let dir = system.join(format!("node/node{numa}"));
        let cpus = cpulist(&dir.join("cpulist"))?.intersection(&online);
        // A NUMA node without CPUs is memory only.
        if !cpus.is_empty() {
            sockets.push(Socket { numa, cpus, memory_bytes: mem_total(&dir.join("meminfo"))? });
        }
    }
    if sockets.is_empty() {
        sockets.push(Socket { numa: 0, cpus: online, memory_bytes: mem_total(meminfo)? });
    }
    Ok(Machine::new(Parts {
        profile: "this machine".to_string(),
        gpu_model: String::new(),
        source: Source::Discovered,
        sockets,
        switches: Vec::new(),
        gpus: Vec::new(),
        nics: Vec::new(),
        islands: Vec::new(),
        nvlink: Vec::new(),
    })?)
}

fn numa_nodes(dir: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}

fn cpulist(path: &Path) -> Result<CpuSet, InventoryError> {
    let fail = |why: String| InventoryError::Kernel { path: path.display().to_string(), why };
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    text.trim().parse().map_err(|error: ganger_core::model::cpuset::CpuListError| fail(error.to_string()))
}

/// The `MemTotal:` line of either form: `MemTotal: N kB` or `Node 0 MemTotal: N kB`.
fn mem_total(path: &Path) -> Result<u64, InventoryError> {
    let fail = |why: &str| InventoryError::Kernel { path: path.display().to_string(), why: why.to_string() };
    let text = std::fs::read_to_string(path).map_err(|error| fail(&error.to_string()))?;
    let line = text.lines().find_map(|line| line.split_once("MemTotal:")).ok_or_else(|| fail("no MemTotal in it"))?;
    let kilobytes = line.1.trim().strip_suffix("kB").and_then(|number| number.trim().parse::<u64>().ok());
    kilobytes.map(|kb| kb.saturating_mul(1024)).ok_or_else(|| fail("MemTotal is not a number of kB"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn numa_nodes_with_cpus_are_sockets_and_memory_only_ones_are_not() {
        let dir = TempDir::new();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("cpu/online", "0-3\n");
        write("node/node0/cpulist", "0-1\n");
        write("node/node0/meminfo", "Node 0 MemTotal:       2048 kB\nNode 0 MemFree: 1 kB\n");
        write("node/node1/cpulist", "2-5\n");
        write("node/node1/meminfo", "Node 1 MemTotal:       4096 kB\n");
        write("node/node2/cpulist", "\n");
        write("node/node2/meminfo", "Node 2 MemTotal:       9999 kB\n");
        let machine = read(dir.path(), Path::new("/nonexistent")).unwrap();
        let sockets: Vec<_> = machine.sockets.iter().map(|s| (s.numa, s.cpus.to_string(), s.memory_bytes)).collect();
        assert_eq!(sockets, [(0, "0-1".to_string(), 2048 << 10), (1, "2-3".to_string(), 4096 << 10)]);
    }

    #[test]
    fn this_machine_can_be_read() {
        let inventory = Inventory::load("n0", &InventorySource::Real).unwrap();
        assert!(inventory.machine.total_cpus() > 0 && inventory.machine.total_memory_bytes() > 0);
    }

    #[test]
    fn virtual_gpus_have_stable_uuids_of_their_own() {
        let inventory = Inventory::load("n0", &InventorySource::Virtual("dgx-h100".into())).unwrap();
        let other = Inventory::load("n1", &InventorySource::Virtual("dgx-h100".into())).unwrap();
        assert_eq!(inventory.gpu_uuid(3), inventory.gpu_uuid(3));
        assert_ne!(inventory.gpu_uuid(3), inventory.gpu_uuid(4));
        assert_ne!(inventory.gpu_uuid(3), other.gpu_uuid(3));
        assert_eq!(inventory.gpu_uuid(0).len(), "GPU-".len() + 36);
    }
}
