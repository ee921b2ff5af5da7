//! `nvidia-smi topo -m` text → [`Matrix`] → machine.
//!
//! The text is made for eyes: escapes, wrapped or split headers, cells left out or glued together, a second matrix behind the
//! first. What can be told apart for certain is read; what cannot is refused with its line, because a column that slipped
//! gives a machine that looks right. It is the fallback and the test format: a live node trusts sysfs first.

mod affinity;
mod build;
mod error;
mod header;
mod peers;
mod read;
mod scan;

pub use affinity::Affinity;
pub use build::{Doubt, Hardware};
pub use error::MatrixError;

/// How two devices reach each other, near to far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// The device itself.
    Own,
    /// So many bonded NVLinks.
    NvLink(u8),
    /// Over one PCIe bridge.
    Pix,
    /// Over several PCIe bridges, but not over the host bridge.
    Pxb,
    /// Over one PCIe host bridge.
    Phb,
    /// Over host bridges of one NUMA node.
    Node,
    /// Over the link between NUMA nodes ("SOC" with old drivers).
    Sys,
}

/// The matrix as read. Devices are the GPUs in order and then the NICs in the order of their columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    gpus: usize,
    /// Device names, from the legend where there is one.
    nics: Vec<String>,
    /// A row per device, `None` where the text has no row for a NIC.
    rows: Vec<Option<Vec<Link>>>,
    affinity: Vec<Affinity>,
    /// Whether the text has a NUMA column: old drivers print none.
    has_numa: bool,
    /// Mask per GPU of the peers that it can read and write, where a `topo -p2p` matrix follows.
    peers: Option<Vec<u64>>,
}

impl Matrix {
    /// Reads the first matrix in `text`; anything may stand before and after it.
    pub fn parse(text: &str) -> Result<Self, MatrixError> {
        read::read(text)
    }

    /// How many GPUs.
    pub fn gpu_count(&self) -> usize {
        self.gpus
    }

    /// NIC names in the order of their columns.
    pub fn nics(&self) -> &[String] {
        &self.nics
    }

    /// The link between two devices: GPUs first, then NICs. `None` for devices that do not exist and for pairs of NICs
    /// without a row.
    pub fn link(&self, one: usize, other: usize) -> Option<Link> {
        let cell = |row: usize, column: usize| self.rows.get(row)?.as_ref()?.get(column).copied();
        cell(one, other).or_else(|| cell(other, one))
    }

    /// What the right-hand columns say about a GPU.
    pub fn affinity(&self, gpu: usize) -> Option<&Affinity> {
        self.affinity.get(gpu)
    }

    /// Which GPUs `gpu` can reach peer to peer, as a mask; `None` without a `-p2p` matrix. The two directions may differ.
    pub fn peers(&self, gpu: usize) -> Option<u64> {
        self.peers.as_ref()?.get(gpu).copied()
    }
}
