//! Machines by name, for virtual inventories, scenarios and what-if questions: built from a captured matrix where there is
//! one, else from data sheets and then marked [`Source::Derived`]. Also the `custom` machine that a user describes.
//! A profile is an assumption about hardware, never a measurement of the node at hand.

mod custom;

use std::sync::Arc;

pub use custom::{Custom, CustomError};

use super::gpu_models::{PCIE_GEN4_X16_BPS, PCIE_GEN5_X16_BPS};
use super::matrix::{Hardware, Matrix, MatrixError};
use super::{Machine, MachineError, NicRole, Parts, Socket, Source};
use crate::model::cpuset::CpuSet;

const DGX_A100: &str = include_str!("../../../data/topology/dgx-a100-40gb-10nic.txt");
const HGX_H100: &str = include_str!("../../../data/topology/hgx-h100-8nic-rail.txt");
const GB200_TRAY: &str = include_str!("../../../data/topology/gb200-tray-container.txt");

const GIB: u64 = 1 << 30;
const GBPS: u64 = 1_000_000_000;

/// Why no machine of that name can be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no machine profile is called {name:?}; use one of {} or describe it as `custom`", .known.join(", "))]
pub struct UnknownProfile {
    pub name: String,
    pub known: Vec<&'static str>,
}

/// What can be wrong inside a shipped profile. The tests build every one of them.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error(transparent)]
    Matrix(#[from] MatrixError),
    #[error(transparent)]
    Machine(#[from] MachineError),
    #[error(transparent)]
    Custom(#[from] CustomError),
}

type Build = fn() -> Result<Machine, Broken>;

const PROFILES: [(&str, Build); 6] = [
    ("dgx-a100", dgx_a100),
    ("dgx-h100", dgx_h100),
    ("hgx-h200", hgx_h200),
    ("l40s-8", l40s_8),
    ("pcie-4", pcie_4),
    ("gb200-nvl72", gb200_nvl72),
];

/// The names that [`profile`] knows.
pub fn profile_names() -> Vec<&'static str> {
    PROFILES.iter().map(|(name, _)| *name).collect()
}

/// The machine of that name. Each call builds it anew: keep the `Arc`.
pub fn profile(name: &str) -> Result<Arc<Machine>, UnknownProfile> {
    let unknown = || UnknownProfile { name: name.to_owned(), known: profile_names() };
    let (_, build) = PROFILES.iter().find(|(known, _)| *known == name).ok_or_else(unknown)?;
    // A shipped profile that does not build is a fault of this crate, caught by its tests, not the caller's.
    build().map(Arc::new).map_err(|_| unknown())
}

fn captured(sample: &str, cites: &str) -> Source {
    Source::Captured { sample: sample.to_owned(), cites: cites.to_owned() }
}

// NVIDIA's DGX A100 introduction (developer.nvidia.com/blog/defining-ai-innovation-with-dgx-a100): 2 × EPYC 7742 of 64 cores,
// 1 TB of memory, A100 with 40 GB, HDR 200 Gb/s ports. The capture shows four of the eight NUMA nodes (NPS4): those with GPUs.
fn dgx_a100() -> Result<Machine, Broken> {
    let cites = "data/topology/README.md; CPUs, memory, ports: NVIDIA DGX A100 data sheet";
    let mut hardware = Hardware::of_model("dgx-a100", "A100", captured("dgx-a100-40gb-10nic", cites))?;
    hardware.vram_bytes = 40 * GIB;
    hardware.network_bandwidth_bps = 200 * GBPS;
    let node = |numa: u32| {
        let cpus = CpuSet::range(numa * 16, numa * 16 + 16).union(&CpuSet::range(128 + numa * 16, 144 + numa * 16));
        Socket { numa, cpus, memory_bytes: 128 * GIB }
    };
    hardware.sockets = Some((0..8).map(node).collect());
    Ok(Matrix::parse(DGX_A100)?.to_machine(hardware)?)
}

// NVIDIA's DGX H100 data sheet: 2 TB of memory, H100 with 80 GB, 8 ConnectX-7 ports of 400 Gb/s for compute. The capture is of
// an HGX board in a host with 2 × 48 cores; a DGX has 2 × 56.
fn dgx_h100() -> Result<Machine, Broken> {
    let cites = "data/topology/README.md (HGX board, 2 × 48 cores); memory, ports: NVIDIA DGX H100 data sheet";
    hgx("dgx-h100", "H100", captured("hgx-h100-8nic-rail", cites))
}

// H200 with 141 GB on the same board and 2 TB of host memory: system descriptions of MLPerf inference 4.1, H200-SXM-141GBx8.
fn hgx_h200() -> Result<Machine, Broken> {
    let why = "the H200 sits on the board of the H100: wiring of the capture hgx-h100-8nic-rail, memory as in the MLPerf \
               inference 4.1 description of H200-SXM-141GBx8";
    hgx("hgx-h200", "H200", Source::Derived { why: why.to_owned() })
}

fn hgx(profile: &str, model: &str, source: Source) -> Result<Machine, Broken> {
    let mut hardware = Hardware::of_model(profile, model, source)?;
    hardware.memory_bytes = 2048 * GIB;
    hardware.network_bandwidth_bps = 400 * GBPS;
    Ok(Matrix::parse(HGX_H100)?.to_machine(hardware)?)
}

// NVIDIA's L40S data sheet: 48 GB, PCIe gen 4 × 16, no NVLink. The host is the usual dual-socket one with two GPUs a switch
// and a 200 Gb/s NIC a socket.
fn l40s_8() -> Result<Machine, Broken> {
    let why = "8 L40S (48 GB, PCIe gen 4, no NVLink) two to a switch in a dual-socket host of 2 × 32 cores; no capture of \
               such a host at hand";
    derived(
        "l40s-8",
        why,
        Custom {
            gpus: 8,
            sockets: 2,
            cpus: 128,
            memory_bytes: 1024 * GIB,
            vram_bytes: 48 * GIB,
            switches: Some("4".to_owned()),
            nics: Some(2),
            pcie_bandwidth_bps: PCIE_GEN4_X16_BPS,
            network_bandwidth_bps: Some(200 * GBPS),
            gpu_model: "L40S".to_owned(),
            ..Custom::default()
        },
    )
}

// Four PCIe cards (NVIDIA's A100 80GB PCIe data sheet: gen 4 × 16) without bridges, a root port each.
fn pcie_4() -> Result<Machine, Broken> {
    let why = "4 A100 80GB PCIe without NVLink bridges, each on a root port of its own, in a dual-socket host of 2 × 32 \
               cores; a plain server of no certain make";
    derived(
        "pcie-4",
        why,
        Custom {
            gpus: 4,
            sockets: 2,
            cpus: 128,
            memory_bytes: 512 * GIB,
            switches: Some("4".to_owned()),
            nics: Some(1),
            network_bandwidth_bps: Some(100 * GBPS),
            gpu_model: "A100".to_owned(),
            ..Custom::default()
        },
    )
}

fn derived(profile: &str, why: &str, custom: Custom) -> Result<Machine, Broken> {
    let source = Source::Derived { why: why.to_owned() };
    Ok(Machine::new(Parts { profile: profile.to_owned(), source, ..custom.parts()? })?)
}

// NVIDIA's GB200 NVL72 page and the MLPerf inference 6.1 description of GB200-NVL72: a tray has 2 Grace of 72 cores and 480 GB
// and 4 GPUs of 186 GB; 2 GPUs and 2 of the 4 ConnectX-7 (400 Gb/s) belong to each Grace; 2 BlueField-3 serve storage and
// management. The NVLink domain has 72 GPUs in 18 trays.
fn gb200_nvl72() -> Result<Machine, Broken> {
    let cites =
        "data/topology/README.md; CPUs and memory: NVIDIA GB200 NVL72 description; NIC sockets and roles are assumed";
    let mut hardware = Hardware::of_model("gb200-nvl72", "GB200", captured("gb200-tray-container", cites))?;
    hardware.network_bandwidth_bps = 400 * GBPS;
    hardware.pcie_bandwidth_bps = PCIE_GEN5_X16_BPS;
    let grace = |numa: u32| Socket { numa, cpus: CpuSet::range(numa * 72, numa * 72 + 72), memory_bytes: 480 * GIB };
    hardware.sockets = Some(vec![grace(0), grace(1)]);
    let mut parts = Parts::from(Matrix::parse(GB200_TRAY)?.to_machine(hardware)?);
    // Which of the six are the BlueFields the capture does not tell; the last two are taken to be.
    for (nic, rail) in parts.nics.iter_mut().zip(0u8..) {
        let compute = rail < 4;
        nic.role = if compute { NicRole::Compute } else { NicRole::Storage };
        nic.socket = Some(if compute { rail / 2 } else { rail - 4 });
        nic.rail = compute.then_some(rail);
    }
    parts.islands.iter_mut().for_each(|island| island.spans_nodes = true);
    Ok(Machine::new(parts)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_builds() {
        for (name, build) in PROFILES {
            let machine = build().unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(machine.profile, name);
            assert!(machine.total_memory_bytes() > 0 && machine.total_cpus() > 0, "{name}");
            assert!(!matches!(machine.source, Source::Declared | Source::Discovered), "{name}");
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = profile("dgx-z9").unwrap_err();
        assert_eq!(error.known, profile_names());
        assert!(error.to_string().contains("dgx-h100"));
    }

    #[test]
    fn a_dgx_a100_has_pairs_of_gpus_on_every_other_numa_node() {
        let machine = profile("dgx-a100").unwrap();
        let numas: Vec<_> = machine.gpus.iter().map(|gpu| machine.sockets[gpu.socket.unwrap() as usize].numa).collect();
        assert_eq!(numas, [3, 3, 1, 1, 7, 7, 5, 5]);
        let nics: Vec<_> = (0..8).map(|gpu| machine.nic_for_gpu(gpu)).collect();
        assert_eq!(nics, (0..8).map(Some).collect::<Vec<_>>());
        assert_eq!(machine.nics[8].role, NicRole::Storage);
        assert_eq!(machine.partitions(), [vec![0x03, 0x0c, 0x30, 0xc0], vec![0xff]]);
        assert_eq!((machine.total_cpus(), machine.links(0, 7)), (256, 12));
        assert_eq!(machine.take_cpus(3, &machine.sockets[3].cpus, 2).unwrap().to_string(), "48,176");
    }

    #[test]
    fn an_hgx_h100_has_a_rail_for_each_gpu() {
        let machine = profile("dgx-h100").unwrap();
        let nics: Vec<_> = (0..8).map(|gpu| machine.nic_for_gpu(gpu)).collect();
        assert_eq!(nics, (0..8).map(Some).collect::<Vec<_>>());
        assert_eq!(machine.nics.iter().map(|nic| nic.rail).collect::<Vec<_>>(), nics);
        assert_eq!(machine.partitions()[1..], [vec![0x0f, 0xf0], vec![0xff]]);
        assert_eq!((machine.total_cpus(), machine.gpu_model.as_str()), (192, "H100"));
    }

    #[test]
    fn a_gb200_tray_is_one_piece_of_a_wider_island() {
        let machine = profile("gb200-nvl72").unwrap();
        assert_eq!((machine.islands[0].gpus, machine.islands[0].spans_nodes), (0xf, true));
        assert_eq!((machine.mask_of_socket(0), machine.mask_of_socket(1)), (0b0011, 0b1100));
        let nics: Vec<_> = (0..4).map(|gpu| machine.nic_for_gpu(gpu)).collect();
        assert_eq!(nics, [Some(0), Some(1), Some(2), Some(3)]);
        assert_eq!(machine.total_cpus(), 144);
    }

    #[test]
    fn machines_without_nvlink_are_parted_by_switch_and_socket() {
        let machine = profile("l40s-8").unwrap();
        assert_eq!(machine.partitions(), [vec![0x03, 0x0c, 0x30, 0xc0], vec![0x0f, 0xf0], vec![0xff]]);
        assert_eq!((machine.nic_for_gpu(0), machine.nic_for_gpu(7)), (Some(0), Some(1)));
    }
}
