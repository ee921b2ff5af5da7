//! Which rank is where: the gang seen as nodes with their ranks, numbered in rank order.
use super::Scene;
use ganger_core::model::wire::agent::{Devices, Launch};

/// One node of the gang.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GangNode {
    pub name: String,
    pub address: String,
    pub ranks: Vec<u32>,
    pub gpus: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub world_size: usize,
    /// Never empty; in order of their lowest rank.
    pub nodes: Vec<GangNode>,
    pub node_rank: usize,
    pub local_rank: u32,
}

impl Layout {
    pub fn of(scene: &Scene) -> Layout {
        let mut nodes = nodes(scene.launch);
        let at = nodes.iter().position(|node| node.name == scene.node);
        let node_rank = at.unwrap_or_else(|| {
            // Orders name the nodes they are sent to; a node that finds itself missing still has its own ranks.
            let ranks = scene.members.iter().map(|member| member.rank.0).collect();
            let visible = |devices: &Devices| devices.gpus.len() as u32 + u32::from(devices.slice.is_some());
            let gpus = scene.members.iter().map(|member| visible(&member.devices)).sum();
            nodes.push(GangNode { name: scene.node.to_string(), address: String::new(), ranks, gpus });
            nodes.len() - 1
        });
        let site = scene.launch.ranks.get(scene.key.lead.0 as usize);
        let local_rank = site.map_or(0, |site| site.local_rank);
        Layout { world_size: scene.launch.ranks.len().max(1), nodes, node_rank, local_rank }
    }

    pub fn here(&self) -> &GangNode {
        &self.nodes[self.node_rank]
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|node| node.name.as_str())
    }

    /// Ranks per node, if all nodes have as many.
    pub fn uniform(&self) -> Option<usize> {
        let first = self.here().ranks.len();
        self.nodes.iter().all(|node| node.ranks.len() == first).then_some(first)
    }
}

pub(super) fn nodes(launch: &Launch) -> Vec<GangNode> {
    let mut nodes: Vec<GangNode> = Vec::new();
    for (rank, site) in launch.ranks.iter().enumerate() {
        let at = nodes.iter().position(|node| node.name == site.node).unwrap_or_else(|| {
            let (name, address) = (site.node.clone(), site.address.clone());
            nodes.push(GangNode { name, address, ranks: Vec::new(), gpus: 0 });
            nodes.len() - 1
        });
        nodes[at].ranks.push(rank as u32);
        nodes[at].gpus += site.gpus;
    }
    nodes
}
