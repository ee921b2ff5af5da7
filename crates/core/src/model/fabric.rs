//! The network above the nodes: leaves and the spines that join them.
use super::ids::{LeafId, SpineId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    pub name: String,
    pub spine: SpineId,
}

/// Leaves and spines in the order of their ids. A cluster that names none has one of each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fabric {
    pub leaves: Vec<Leaf>,
    pub spines: Vec<String>,
    /// Leaf → bits per second of its way up, also of leaves that no node has joined yet. Others are not known.
    #[serde(default)]
    pub uplinks: BTreeMap<String, u64>,
}

impl Default for Fabric {
    fn default() -> Self {
        Fabric {
            leaves: vec![Leaf { name: "leaf0".to_string(), spine: SpineId(0) }],
            spines: vec!["spine0".to_string()],
            uplinks: BTreeMap::new(),
        }
    }
}

impl Fabric {
    /// The leaf of this name, made under `spine` if there is none yet.
    pub fn leaf(&mut self, name: &str, spine: &str) -> LeafId {
        let spine = self.spine(spine);
        if let Some(found) = self.leaves.iter().position(|l| l.name == name) {
            self.leaves[found].spine = spine;
            return LeafId(found as u32);
        }
        self.leaves.push(Leaf { name: name.to_string(), spine });
        LeafId(self.leaves.len() as u32 - 1)
    }

    fn spine(&mut self, name: &str) -> SpineId {
        let found = self.spines.iter().position(|s| s == name).unwrap_or_else(|| {
            self.spines.push(name.to_string());
            self.spines.len() - 1
        });
        SpineId(found as u32)
    }

    pub fn spine_of(&self, leaf: LeafId) -> SpineId {
        self.leaves[leaf.index()].spine
    }
}
