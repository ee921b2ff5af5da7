//! The fabric as lists: which nodes hang under which leaf, which leaves under which spine. Derived, droppable.
use crate::model::cluster::Cluster;
use crate::model::ids::{LeafId, NodeId};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// By leaf id, nodes ascending.
    pub leaves: Vec<Vec<NodeId>>,
    /// By spine id, leaves ascending.
    pub spines: Vec<Vec<LeafId>>,
}

impl Tree {
    pub fn of(cluster: &Cluster) -> Tree {
        let mut leaves = vec![Vec::new(); cluster.fabric.leaves.len()];
        for node in &cluster.nodes {
            leaves[node.leaf.index()].push(node.id);
        }
        let mut spines = vec![Vec::new(); cluster.fabric.spines.len()];
        for (index, leaf) in cluster.fabric.leaves.iter().enumerate() {
            spines[leaf.spine.0 as usize].push(LeafId(index as u32));
        }
        Tree { leaves, spines }
    }
}

/// How much to take from each child so that `need` is met with few children and big ones stay whole: while no single
/// child holds the rest, the largest is taken whole; then the smallest that holds the rest. `None` if all are not enough.
pub fn fill(capacities: &[u32], need: u32) -> Option<Vec<(usize, u32)>> {
    let mut order: Vec<usize> = (0..capacities.len()).filter(|i| capacities[*i] > 0).collect();
    order.sort_by_key(|i| (capacities[*i], std::cmp::Reverse(*i)));
    let mut taken = Vec::new();
    let mut rest = need;
    while rest > 0 {
        let enough = order.partition_point(|i| capacities[*i] < rest);
        if let Some(smallest) = smallest_of(capacities, &order, enough) {
            taken.push((smallest, rest));
            break;
        }
        let largest = order.pop()?;
        rest -= capacities[largest];
        taken.push((largest, capacities[largest]));
    }
    taken.sort_unstable();
    Some(taken)
}

/// Of the children from `from` on with the same smallest capacity, the one with the lowest index.
fn smallest_of(capacities: &[u32], order: &[usize], from: usize) -> Option<usize> {
    let smallest = capacities[*order.get(from)?];
    order[from..].iter().take_while(|i| capacities[**i] == smallest).min().copied()
}

#[cfg(test)]
mod tests {
    use super::fill;

    #[test]
    fn takes_large_children_whole_and_the_tightest_for_the_rest() {
        assert_eq!(fill(&[8, 3, 8, 5], 8), Some(vec![(0, 8)]));
        assert_eq!(fill(&[8, 3, 8, 5], 11), Some(vec![(0, 8), (1, 3)]));
        assert_eq!(fill(&[8, 3, 8, 5], 4), Some(vec![(3, 4)]));
        assert_eq!(fill(&[2, 2], 5), None);
        assert_eq!(fill(&[], 0), Some(vec![]));
    }
}
