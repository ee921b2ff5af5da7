//! From a matrix to a machine. The matrix gives neighbourhood; sizes come from the caller ([`Hardware`]).
//! Nothing is made up: a place that the text does not tell stays unknown, and [`Matrix::doubts`] says what to check.

use super::{Link, Matrix, MatrixError};
use crate::model::cpuset::CpuSet;
use crate::model::machine::derive::join;
use crate::model::machine::gpu_models;
use crate::model::machine::{Gpu, Island, Machine, Nic, NicRole, NvLink, Parts, Socket, Source, Switch};

/// What a matrix does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hardware {
    pub profile: String,
    /// GPU family ([`gpu_models::family`]).
    pub gpu_model: String,
    pub source: Source,
    pub vram_bytes: u64,
    /// Bits per second and direction: of a GPU's own link, and of the way up that the devices of a switch share.
    pub pcie_bandwidth_bps: u64,
    /// Bits per second and direction, per NIC.
    pub network_bandwidth_bps: u64,
    /// Host memory, split evenly over the sockets that the matrix shows; ignored where `sockets` is given.
    pub memory_bytes: u64,
    /// All NUMA nodes that have CPUs. `None`: those that the matrix shows, which may be fewer.
    pub sockets: Option<Vec<Socket>>,
}

impl Hardware {
    /// Figures of the usual board of a GPU model. Memory and network have no usual figure: they start at 0 (unknown).
    pub fn of_model(profile: &str, product: &str, source: Source) -> Result<Self, MatrixError> {
        let gpu_model = gpu_models::family(product);
        let unknown = || {
            let known = gpu_models::known_families().join(", ");
            MatrixError::UnknownGpuModel { model: product.to_owned(), known }
        };
        let facts = gpu_models::facts_of(&gpu_model).ok_or_else(unknown)?;
        Ok(Self {
            profile: profile.to_owned(),
            gpu_model,
            source,
            vram_bytes: facts.vram_bytes,
            pcie_bandwidth_bps: facts.pcie_bandwidth_bps,
            network_bandwidth_bps: 0,
            memory_bytes: 0,
            sockets: None,
        })
    }
}

/// Something that the text does not tell for certain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    #[error("GPU{gpu} has no CPU list: the text was taken inside a container or cpuset; run it on the host")]
    NoCpus { gpu: usize },
    #[error("GPU{gpu} names no single NUMA node: its socket stays unknown unless its CPU list tells it")]
    NoNuma { gpu: usize },
    #[error("no NUMA column: sockets are numbered by their CPU lists")]
    NoNumaColumn,
}

impl Matrix {
    /// What should be checked against the node itself.
    pub fn doubts(&self) -> Vec<Doubt> {
        let gpus = || self.affinity.iter().enumerate();
        let no_cpus = gpus().filter(|(_, row)| row.cpus.is_empty()).map(|(gpu, _)| Doubt::NoCpus { gpu });
        if !self.has_numa {
            return no_cpus.chain([Doubt::NoNumaColumn]).collect();
        }
        let no_numa = gpus().filter(|(_, row)| row.numa.is_none()).map(|(gpu, _)| Doubt::NoNuma { gpu });
        no_cpus.chain(no_numa).collect()
    }

    /// The machine that the matrix and `hardware` describe together.
    pub fn to_machine(&self, hardware: Hardware) -> Result<Machine, MatrixError> {
        let (sockets, gpu_sockets) = self.place(&hardware)?;
        let (switches, device_switches) = self.switches(&gpu_sockets, hardware.pcie_bandwidth_bps);
        let gpus = (0..self.gpus).map(|gpu| Gpu {
            socket: gpu_sockets[gpu],
            switch: device_switches[gpu].unwrap_or_default(),
            vram_bytes: hardware.vram_bytes,
            pcie_bandwidth_bps: hardware.pcie_bandwidth_bps,
        });
        let parts = Parts {
            gpus: gpus.collect(),
            nics: self.build_nics(&gpu_sockets, &device_switches, hardware.network_bandwidth_bps),
            islands: self.islands(),
            nvlink: self.nvlink(),
            profile: hardware.profile,
            gpu_model: hardware.gpu_model,
            source: hardware.source,
            sockets,
            switches,
        };
        Ok(Machine::new(parts)?)
    }

    /// The sockets, and the index of each GPU's.
    fn place(&self, hardware: &Hardware) -> Result<(Vec<Socket>, Vec<Option<u8>>), MatrixError> {
        let sockets = match &hardware.sockets {
            Some(given) => given.clone(),
            None => self.visible_sockets(hardware.memory_bytes)?,
        };
        let places = (0..self.gpus).map(|gpu| self.socket_of(gpu, &sockets)).collect::<Result<_, _>>()?;
        Ok((sockets, places))
    }

    fn socket_of(&self, gpu: usize, sockets: &[Socket]) -> Result<Option<u8>, MatrixError> {
        let row = &self.affinity[gpu];
        let index = |at: usize| u8::try_from(at).ok();
        let Some(numa) = row.numa else {
            // A list that lies within one of several sockets tells it. Within the only one it tells nothing: that one may be
            // all CPUs of a machine whose nodes are hidden.
            let near = sockets.iter().position(|socket| !row.cpus.is_empty() && row.cpus.is_subset(&socket.cpus));
            return Ok(near.filter(|_| sockets.len() > 1).and_then(index));
        };
        let at = sockets.iter().position(|socket| socket.numa == numa);
        let at = at.ok_or(MatrixError::UnknownNuma { gpu, numa })?;
        let outside = row.cpus.difference(&sockets[at].cpus);
        if outside.is_empty() {
            return Ok(index(at));
        }
        Err(MatrixError::CpusOutsideSocket { gpu, numa, outside: outside.to_string() })
    }

    /// Sockets as far as the rows show them, ascending by NUMA number.
    fn visible_sockets(&self, memory_bytes: u64) -> Result<Vec<Socket>, MatrixError> {
        self.check_overlaps()?;
        let mut nodes: Vec<(u32, CpuSet)> = Vec::new();
        for row in &self.affinity {
            let Some(numa) = row.numa else { continue };
            match nodes.iter_mut().find(|(known, _)| *known == numa) {
                Some((_, cpus)) => *cpus = cpus.union(&row.cpus),
                None => nodes.push((numa, row.cpus)),
            }
        }
        if nodes.is_empty() {
            nodes = self.nodes_by_cpus();
        }
        nodes.sort();
        Ok(with_memory(nodes, memory_bytes))
    }

    /// Without NUMA numbers: distinct CPU lists are sockets, numbered by lowest CPU; overlapping ones tell only the CPUs.
    fn nodes_by_cpus(&self) -> Vec<(u32, CpuSet)> {
        let mut lists: Vec<CpuSet> = self.affinity.iter().map(|row| row.cpus).filter(|cpus| !cpus.is_empty()).collect();
        lists.sort_by_key(|cpus| (cpus.first(), *cpus));
        lists.dedup();
        let all = lists.iter().fold(CpuSet::EMPTY, |all, cpus| all.union(cpus));
        if lists.iter().map(CpuSet::count).sum::<u32>() != all.count() {
            lists = vec![all];
        }
        (0..).zip(lists).collect()
    }

    fn check_overlaps(&self) -> Result<(), MatrixError> {
        for (other, row) in self.affinity.iter().enumerate() {
            for (gpu, earlier) in self.affinity[..other].iter().enumerate() {
                let shared = row.cpus.intersection(&earlier.cpus);
                let apart = row.numa.is_some() && earlier.numa.is_some() && row.numa != earlier.numa;
                if apart && !shared.is_empty() {
                    return Err(MatrixError::OverlappingCpus { gpu, other, shared: shared.to_string() });
                }
            }
        }
        Ok(())
    }

    /// Switches, and the index of the one of each device; a GPU that shares none has its root port to itself. NICs among
    /// themselves are no GPU's business.
    fn switches(&self, gpu_sockets: &[Option<u8>], bandwidth_bps: u64) -> (Vec<Switch>, Vec<Option<u8>>) {
        let mut of_device: Vec<Option<u8>> = vec![None; self.gpus + self.nics.len()];
        let mut switches = Vec::new();
        for gpu in 0..self.gpus {
            if of_device[gpu].is_some() {
                continue;
            }
            let members = self.around(gpu);
            let index = switches.len() as u8; // One per GPU at most.
            members.iter().for_each(|&member| of_device[member] = Some(index));
            let sockets = members.iter().filter(|&&member| member < self.gpus).map(|&member| gpu_sockets[member]);
            switches.push(Switch { socket: only(sockets.flatten()), bandwidth_bps });
        }
        (switches, of_device)
    }

    /// The devices on the switch of `gpu`. A tree below one root port (PXB) counts as one switch, unless each of its GPUs has
    /// a nearer neighbour (PIX): then the leaf switches are what counts.
    fn around(&self, gpu: usize) -> Vec<usize> {
        let devices = self.gpus + self.nics.len();
        let leaf = |one, other| self.link(one, other) == Some(Link::Pix);
        let tree = reachable(gpu, devices, |one, other| self.shares_switch(one, other));
        let has_neighbour = |one: usize| tree.iter().any(|&other| leaf(one, other));
        let split = tree.iter().filter(|&&one| one < self.gpus).all(|&one| has_neighbour(one));
        if split { reachable(gpu, devices, leaf) } else { tree }
    }

    fn shares_switch(&self, one: usize, other: usize) -> bool {
        matches!(self.link(one, other), Some(Link::Pix | Link::Pxb))
    }

    fn build_nics(&self, gpu_sockets: &[Option<u8>], switches: &[Option<u8>], bandwidth_bps: u64) -> Vec<Nic> {
        let near = |nic: usize| (0..self.gpus).any(|gpu| self.shares_switch(gpu, self.gpus + nic));
        let any_near = (0..self.nics.len()).any(near);
        let rails = self.rails(switches);
        let nics = self.nics.iter().enumerate().map(|(nic, name)| {
            let device = self.gpus + nic;
            let same_node = |&gpu: &usize| self.link(gpu, device).is_some_and(|link| link <= Link::Node);
            // Where some NICs sit beside GPUs, those that do not are for storage or management: no rails.
            let role = if any_near && !near(nic) { NicRole::Storage } else { NicRole::Compute };
            Nic {
                name: name.clone(),
                socket: only((0..self.gpus).filter(same_node).filter_map(|gpu| gpu_sockets[gpu])),
                switch: switches[device],
                bandwidth_bps,
                role,
                rail: rails[nic],
            }
        });
        nics.collect()
    }

    /// Rails in the order of the GPUs that the NICs sit beside: the same plugging gives the same numbers on every node.
    fn rails(&self, switches: &[Option<u8>]) -> Vec<Option<u8>> {
        let mut order: Vec<(u8, usize)> =
            (0..self.nics.len()).filter_map(|nic| Some((switches[self.gpus + nic]?, nic))).collect();
        order.sort();
        let mut rails = vec![None; self.nics.len()];
        for (rail, (_, nic)) in order.into_iter().enumerate() {
            rails[nic] = u8::try_from(rail).ok();
        }
        rails
    }

    fn nvlink(&self) -> Vec<NvLink> {
        let pairs = (0..self.gpus).flat_map(|a| (a + 1..self.gpus).map(move |b| (a, b)));
        let joined = pairs.filter_map(|(a, b)| match self.link(a, b) {
            Some(Link::NvLink(links)) => Some(NvLink { a: a as u8, b: b as u8, links }),
            _ => None,
        });
        joined.collect()
    }

    /// Connected by NVLink is one island, all-to-all or not: the link counts tell the difference.
    fn islands(&self) -> Vec<Island> {
        let pairs: Vec<u64> = self.nvlink().iter().map(|link| 1 << link.a | 1 << link.b).collect();
        join(&pairs, &[]).into_iter().map(|gpus| Island { gpus, spans_nodes: false }).collect()
    }
}

/// The one value that occurs; `None` where there is none or they differ.
fn only(values: impl Iterator<Item = u8>) -> Option<u8> {
    let mut values: Vec<u8> = values.collect();
    values.sort();
    values.dedup();
    if values.len() == 1 { values.pop() } else { None }
}

/// Devices connected with `from`, itself included, ascending.
fn reachable(from: usize, devices: usize, near: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let mut found = vec![from];
    let mut at = 0;
    while let Some(&one) = found.get(at) {
        let more: Vec<usize> = (0..devices).filter(|other| near(one, *other) && !found.contains(other)).collect();
        found.extend(more);
        at += 1;
    }
    found.sort();
    found
}

fn with_memory(nodes: Vec<(u32, CpuSet)>, memory_bytes: u64) -> Vec<Socket> {
    let share = memory_bytes / nodes.len().max(1) as u64;
    nodes.into_iter().map(|(numa, cpus)| Socket { numa, cpus, memory_bytes: share }).collect()
}
