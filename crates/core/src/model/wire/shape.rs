//! The cluster's shape and settings as they are, in the form of the file that sets them: what is shown can be edited and
//! applied again.
use super::cluster::{ClusterFile, ClusterPlan};
use super::pool::{LendFile, LendRules, PoolFile};
use crate::model::amounts::exact_bandwidth;
use crate::model::cluster::{Cluster, NodePlacement};
use crate::model::node::Node;
use crate::model::pool::{LendTime, Lending};
use std::collections::{BTreeMap, BTreeSet};

impl ClusterFile {
    /// Nodes that have registered, and those that are only named so far.
    pub fn of(cluster: &Cluster) -> ClusterFile {
        let mut leaves: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut spine_of: BTreeMap<String, String> = BTreeMap::new();
        for (node, leaf, spine) in places(cluster) {
            leaves.entry(leaf.clone()).or_default().push(node);
            spine_of.insert(leaf, spine);
        }
        let uplink = cluster.fabric.uplinks.iter().map(|(leaf, bps)| (leaf.clone(), exact_bandwidth(*bps)));
        let uplink: BTreeMap<String, String> = uplink.collect();
        for leaf in uplink.keys() {
            leaves.entry(leaf.clone()).or_default();
        }
        leaves.values_mut().for_each(|nodes| nodes.sort_unstable());
        let mut spines: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (leaf, spine) in spine_of {
            spines.entry(spine).or_default().push(leaf);
        }
        let settings = cluster.policy.settings().map(|(name, value)| (name.to_string(), value)).collect();
        ClusterFile { leaves, spines, uplink, pools: pools(cluster), settings }
    }
}

impl ClusterPlan {
    /// A pool has the nodes that a file names for it: any other leaves it, to be in none.
    pub fn with_leaving(mut self, cluster: &Cluster) -> ClusterPlan {
        let registered = cluster.listed_nodes().filter_map(|node| Some((&node.name, node.pool.as_ref()?)));
        let named = unregistered(cluster).filter_map(|(name, placement)| Some((name, placement.pool.as_ref()?)));
        let leaving = registered.chain(named).filter(|(_, pool)| self.pools.contains_key(*pool));
        let leaving: Vec<String> = leaving.map(|(name, _)| name.clone()).collect();
        for name in leaving {
            self.placements.entry(name).or_default().pool.get_or_insert_default();
        }
        self
    }
}

/// Each node with its leaf and spine.
fn places(cluster: &Cluster) -> Vec<(String, String, String)> {
    let fabric = &cluster.fabric;
    let spine_named = |leaf: &str| {
        let known = fabric.leaves.iter().find(|known| known.name == leaf);
        known.map_or("spine0".to_string(), |leaf| fabric.spines[leaf.spine.0 as usize].clone())
    };
    let registered = cluster.listed_nodes().map(|node| {
        let leaf = fabric.leaves[node.leaf.index()].name.clone();
        let spine = spine_named(&leaf);
        (node.name.clone(), leaf, spine)
    });
    let named = unregistered(cluster).filter_map(|(name, placement)| {
        let leaf = placement.leaf.clone()?;
        let spine = placement.spine.clone().unwrap_or_else(|| spine_named(&leaf));
        Some((name.clone(), leaf, spine))
    });
    registered.chain(named).collect()
}

/// Nodes of which a file spoke, and no agent yet.
fn unregistered(cluster: &Cluster) -> impl Iterator<Item = (&String, &NodePlacement)> {
    cluster.placements.iter().filter(|(name, _)| !cluster.node_names.contains_key(*name))
}

fn pools(cluster: &Cluster) -> Vec<PoolFile> {
    let mut nodes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in cluster.pools.keys() {
        nodes.entry(name.clone()).or_default();
    }
    let registered = cluster.listed_nodes().filter_map(|node: &Node| Some((node.pool.clone()?, node.name.clone())));
    let named = unregistered(cluster);
    let named = named.filter_map(|(name, placement)| Some((placement.pool.clone()?, name.clone())));
    for (pool, node) in registered.chain(named.filter(|(pool, _)| !pool.is_empty())) {
        nodes.entry(pool).or_default().insert(node);
    }
    let pool = |(name, nodes): (String, BTreeSet<String>)| {
        let lend = cluster.pools.get(&name).map(lend);
        PoolFile { name, nodes: nodes.into_iter().collect(), lend }
    };
    nodes.into_iter().map(pool).collect()
}

fn lend(lending: &Lending) -> LendFile {
    let windows = match &lending.when {
        LendTime::Never => return LendFile::Word("never".to_string()),
        LendTime::Always => Vec::new(),
        LendTime::Windows { windows, .. } => windows.iter().map(ToString::to_string).collect(),
    };
    let classes: Vec<String> = lending.classes.iter().map(ToString::to_string).collect();
    let rules = LendRules { windows, to: lending.to.clone(), classes };
    if rules == LendRules::default() { LendFile::Word("always".to_string()) } else { LendFile::Rules(rules) }
}
