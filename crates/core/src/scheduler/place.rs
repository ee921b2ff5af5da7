//! Places a whole gang on a draft, or says by how much it does not fit.
//!
//! From the tightest (or preferred) level upwards to the required one, the first level with a domain that holds all
//! workers is taken; among its domains the one with the least left over. Placement is on devices, so what is found here
//! is exact: there is no later step that could refuse it.
mod spare;

use super::draft::Draft;
use super::filter::Pick;
use super::fit::{self, Cell};
use super::tree::{Tree, fill};
use crate::model::ids::{LeafId, NodeId};
use crate::model::job::{JobSpec, Level, Place};
use crate::model::machine::Machine;

/// Why a gang was not placed, in workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// Which job of the unit it is about, by its place in the unit.
    pub member: usize,
    /// Workers that the allowed nodes hold together.
    pub placeable: u32,
    /// Set when that would be enough but no single domain of this level holds all.
    pub level: Option<Level>,
    /// The domain that holds most workers, and how many.
    pub best: u32,
    pub best_domain: String,
    /// Free GPUs in that domain.
    pub best_gpus: u32,
}

/// One search: the job, the nodes it may use, and what each holds.
struct Search<'a, 'd> {
    draft: &'d mut Draft<'a>,
    tree: &'d Tree,
    spec: &'d JobSpec,
    workers: u32,
    /// Workers by node; 0 where the node is not allowed.
    caps: Vec<u32>,
    /// The same by leaf: on islands within nodes, and on islands that span them.
    leaves: Vec<(u32, u32)>,
    pick: Pick,
    /// Leaves count only as far as their ways up go.
    narrow: bool,
}

/// What a node is asked to hold.
struct Share {
    node: NodeId,
    cell: Cell,
    workers: u32,
}

/// Places all `workers`; on success they are taken on the draft, in rank order.
pub fn place_gang(
    draft: &mut Draft<'_>,
    tree: &Tree,
    spec: &JobSpec,
    workers: u32,
    pick: Pick,
) -> Result<Vec<Place>, Miss> {
    let caps = node_capacities(draft, spec, pick);
    let mut search = Search { draft, tree, spec, workers, caps, leaves: Vec::new(), pick, narrow: false };
    search.leaves = tree.leaves.iter().map(|nodes| search.parts_of(nodes)).collect();
    let result = search.run();
    let caps = search.caps;
    draft.keep_counted(caps);
    result
}

/// Levels to try in order, never above `require`.
fn levels(spec: &JobSpec, require: Level) -> Vec<Level> {
    if require < Level::Node {
        return vec![require];
    }
    let preferred = spec.topology.prefer.filter(|level| *level < Level::Node);
    let from = spec.topology.prefer.unwrap_or(Level::Node).max(Level::Node).min(require);
    let above = [Level::Node, Level::Leaf, Level::Spine, Level::Cluster];
    preferred.into_iter().chain(above.into_iter().filter(|level| *level >= from && *level <= require)).collect()
}

fn node_capacities(draft: &mut Draft<'_>, spec: &JobSpec, pick: Pick) -> Vec<u32> {
    draft.counted(spec, pick, |site| match spec.topology.ranks_per_island {
        Some(slice) => sliced_capacity(&site.node.machine, site.room, spec, slice),
        None => spec.topology.on_node(site.workers(&spec.shape, Cell::whole(&site.node.machine))),
    })
}

/// Workers in whole slices on the node's own islands; on islands that span nodes every worker counts, because the slice
/// is completed by neighbours.
fn sliced_capacity(machine: &Machine, room: &super::room::Room, spec: &JobSpec, slice: u32) -> u32 {
    let whole = fit::capacity(machine, room, &spec.shape, Cell::whole(machine));
    let by_island: u32 = machine
        .islands
        .iter()
        .map(|island| {
            let workers = fit::capacity(machine, room, &spec.shape, Cell { gpus: island.gpus, socket: None });
            if island.spans_nodes { workers } else { workers / slice * slice }
        })
        .sum();
    match spans_nodes(machine) {
        true => by_island.min(whole),
        false => by_island.min(whole / slice * slice),
    }
}

fn spans_nodes(machine: &Machine) -> bool {
    machine.islands.iter().any(|island| island.spans_nodes)
}

/// GPUs that a slice or an island-bound gang may use on this machine.
fn island_gpus(machine: &Machine) -> u64 {
    machine.islands.iter().fold(0, |mask, island| mask | island.gpus)
}

impl Search<'_, '_> {
    fn run(&mut self) -> Result<Vec<Place>, Miss> {
        let placeable = self.placeable();
        if placeable < self.workers {
            return Err(self.miss(placeable, None));
        }
        let require = self.spec.topology.require.unwrap_or(Level::Cluster);
        for level in levels(self.spec, require) {
            if let Some(places) = self.at_level(level).and_then(|shares| self.take(shares)) {
                return Ok(places);
            }
        }
        Err(self.miss(placeable, Some(require)))
    }

    fn machine(&self, node: NodeId) -> &Machine {
        &self.draft.cluster.node(node).machine
    }

    fn placeable(&self) -> u32 {
        let leaves = (0..self.tree.leaves.len()).map(|leaf| self.leaf_capacity(LeafId(leaf as u32)));
        leaves.fold(0, u32::saturating_add)
    }

    /// Whole slices only, where the job has slices and the leaf's islands span its nodes.
    fn leaf_capacity(&self, leaf: LeafId) -> u32 {
        let (local, spanning) = self.leaves[leaf.index()];
        local.saturating_add(self.whole_slices(spanning))
    }

    fn parts_of(&self, nodes: &[NodeId]) -> (u32, u32) {
        let sliced = self.spec.topology.ranks_per_island.is_some();
        let mut parts = (0u32, 0u32);
        for node in nodes {
            let part = match sliced && spans_nodes(self.machine(*node)) {
                true => &mut parts.1,
                false => &mut parts.0,
            };
            *part = part.saturating_add(self.caps[node.index()]);
        }
        parts
    }

    fn whole_slices(&self, workers: u32) -> u32 {
        match self.spec.topology.ranks_per_island {
            Some(slice) if slice > 0 => workers / slice * slice,
            _ => workers,
        }
    }

    fn at_level(&mut self, level: Level) -> Option<Vec<Share>> {
        self.draft.work += 1;
        match level {
            Level::Gpu | Level::Switch | Level::Socket => self.in_one_cell(level),
            Level::Island => self.in_one_cell(level).or_else(|| self.in_one_spanning_island()),
            Level::Node => self.in_one_node(),
            Level::Leaf => self.in_one_leaf(),
            Level::Spine => self.narrowly(Self::in_one_spine),
            Level::Cluster => self.narrowly(Self::over_spines),
        }
    }

    /// Over several leaves so that no way up is asked too much of, else as if there were no such thing.
    fn narrowly(&mut self, search: fn(&mut Self) -> Option<Vec<Share>>) -> Option<Vec<Share>> {
        self.narrow = true;
        let found = search(self);
        self.narrow = false;
        found.or_else(|| search(self))
    }

    /// The best node part that holds the gang.
    fn in_one_cell(&mut self, level: Level) -> Option<Vec<Share>> {
        let spots =
            self.candidates().flat_map(|node| cells(self.machine(node), level).into_iter().map(move |c| (node, c)));
        self.best_cell(spots.collect())
    }

    /// Tightest partition first, over all nodes: a gang that fits on one switch anywhere goes there.
    fn in_one_node(&mut self) -> Option<Vec<Share>> {
        if self.spec.topology.ranks_per_island.is_some() || self.spec.shape.gpus == 0 {
            let spots = self.candidates().map(|node| (node, Cell::whole(self.machine(node))));
            let (node, cell) = self.best(spots.collect())?;
            return Some(vec![
                match self.spec.topology.ranks_per_island.is_some() && spans_nodes(self.machine(node)) {
                    true => self.island_share(node, self.workers),
                    false => self.share(node, cell, self.workers),
                },
            ]);
        }
        let candidates: Vec<NodeId> = self.candidates().collect();
        let deepest = candidates.iter().map(|node| self.machine(*node).partitions().len()).max()?;
        for depth in 0..deepest.max(1) {
            let spots = candidates.iter().flat_map(|node| {
                let parts = self.machine(*node).partitions();
                let masks = parts.get(depth.min(parts.len().saturating_sub(1))).map_or(&[0][..], Vec::as_slice);
                masks.iter().map(move |gpus| (*node, Cell { gpus: *gpus, socket: None }))
            });
            if let Some(found) = self.best_cell(spots.collect()) {
                return Some(found);
            }
        }
        None
    }

    /// Of neighbours that are alike the first: none of the others is better.
    fn candidates(&self) -> impl Iterator<Item = NodeId> {
        let enough = self.caps.iter().enumerate().filter(|(_, cap)| **cap >= self.workers);
        let mut last: Option<NodeId> = None;
        enough.map(|(index, _)| NodeId(index as u32)).filter(move |node| {
            let alike = last.is_some_and(|last| self.draft.are_alike(last, *node));
            last = last.filter(|_| alike).or(Some(*node));
            !alike
        })
    }

    fn best_cell(&mut self, mut spots: Vec<(NodeId, Cell)>) -> Option<Vec<Share>> {
        spots.retain(|(node, cell)| self.draft.site(*node).workers(&self.spec.shape, *cell) >= self.workers);
        let (node, cell) = self.best(spots)?;
        Some(vec![self.share(node, cell, self.workers)])
    }

    fn share(&self, node: NodeId, cell: Cell, workers: u32) -> Share {
        Share { node, cell, workers }
    }

    fn in_one_spanning_island(&self) -> Option<Vec<Share>> {
        let holds = |leaf: &usize| -> Option<(u32, usize, Vec<u32>)> {
            let caps: Vec<u32> = self.tree.leaves[*leaf].iter().map(|node| self.spanning_capacity(*node)).collect();
            let sum = caps.iter().fold(0u32, |a, b| a.saturating_add(*b));
            (sum >= self.workers).then_some((sum, *leaf, caps))
        };
        let (_, leaf, caps) =
            (0..self.tree.leaves.len()).filter_map(|l| holds(&l)).min_by_key(|(sum, l, _)| (*sum, *l))?;
        let taken = fill(&caps, self.workers)?;
        Some(taken.into_iter().map(|(i, n)| self.island_share(self.tree.leaves[leaf][i], n)).collect())
    }

    fn spanning_capacity(&self, node: NodeId) -> u32 {
        let machine = self.machine(node);
        if self.caps[node.index()] == 0 || !spans_nodes(machine) {
            return 0;
        }
        let cell = Cell { gpus: island_gpus(machine), socket: None };
        self.draft.site(node).workers(&self.spec.shape, cell)
    }

    fn island_share(&self, node: NodeId, workers: u32) -> Share {
        self.share(node, Cell { gpus: island_gpus(self.machine(node)), socket: None }, workers)
    }

    fn in_one_leaf(&mut self) -> Option<Vec<Share>> {
        let leaves = (0..self.tree.leaves.len()).map(|l| LeafId(l as u32));
        let (_, _, _, leaf) = leaves
            .map(|leaf| (self.leaf_capacity(leaf), leaf))
            .filter(|(cap, _)| *cap >= self.workers)
            .map(|(cap, leaf)| (self.keeps_off(leaf), cap, self.whole_free_nodes(leaf), leaf))
            .min()?;
        self.fill_leaf(leaf, self.workers)
    }

    fn whole_free_nodes(&self, leaf: LeafId) -> usize {
        let whole = |node: &&NodeId| self.draft.room(**node).gpus == self.machine(**node).gpu_mask();
        self.tree.leaves[leaf.index()].iter().filter(whole).count()
    }

    fn fill_leaf(&mut self, leaf: LeafId, need: u32) -> Option<Vec<Share>> {
        let (local, spanning) = self.leaves[leaf.index()];
        let spanning = self.whole_slices(spanning).min(need);
        let spanning = if spanning < need && local >= need { 0 } else { spanning };
        let mut shares = self.fill_nodes(leaf, spanning, true)?;
        shares.extend(self.fill_nodes(leaf, need - spanning, false)?);
        Some(shares)
    }

    /// Shares of the leaf's nodes, of one kind of island. Of nodes that hold equally many those come first of which less is
    /// spoilt: over the nodes of the gang that sums up.
    fn fill_nodes(&mut self, leaf: LeafId, need: u32, spanning: bool) -> Option<Vec<Share>> {
        let sliced = self.spec.topology.ranks_per_island;
        let slice = if spanning { 1 } else { self.spec.topology.together() };
        let of_kind = |node: &NodeId| (sliced.is_some() && spans_nodes(self.machine(*node))) == spanning;
        let mut nodes: Vec<(u32, NodeId)> = self.tree.leaves[leaf.index()]
            .iter()
            .filter(|node| of_kind(node))
            .map(|node| (self.caps[node.index()] / slice, *node))
            .filter(|(cap, _)| *cap > 0)
            .collect();
        if need > 0 {
            self.least_harm_first(&mut nodes, slice);
        }
        let caps: Vec<u32> = nodes.iter().map(|(cap, _)| *cap).collect();
        let taken = fill(&caps, need / slice)?;
        Some(
            taken
                .into_iter()
                .map(|(i, n)| match spanning {
                    true => self.island_share(nodes[i].1, n),
                    false => self.share(nodes[i].1, Cell::whole(self.machine(nodes[i].1)), n * slice),
                })
                .collect(),
        )
    }

    fn in_one_spine(&mut self) -> Option<Vec<Share>> {
        let spines = 0..self.tree.spines.len();
        let (_, spine) =
            spines.map(|spine| (self.spine_capacity(spine), spine)).filter(|(cap, _)| *cap >= self.workers).min()?;
        self.fill_spine(spine, self.workers)
    }

    fn spine_capacity(&self, spine: usize) -> u32 {
        self.tree.spines[spine].iter().fold(0, |sum, leaf| sum.saturating_add(self.share_of_leaf(*leaf)))
    }

    /// What a leaf holds of a gang that goes on under others.
    fn share_of_leaf(&self, leaf: LeafId) -> u32 {
        let cap = self.leaf_capacity(leaf);
        if !self.narrow {
            return cap;
        }
        let slice = self.spec.topology.together();
        cap.min(self.draft.uplinks.workers(leaf, self.spec)) / slice * slice
    }

    fn fill_spine(&mut self, spine: usize, need: u32) -> Option<Vec<Share>> {
        let leaves = &self.tree.spines[spine];
        let caps: Vec<u32> = leaves.iter().map(|leaf| self.share_of_leaf(*leaf)).collect();
        let taken = self.fill_sliced(&caps, need)?;
        let parts: Option<Vec<Vec<Share>>> = taken.into_iter().map(|(i, n)| self.fill_leaf(leaves[i], n)).collect();
        Some(parts?.into_iter().flatten().collect())
    }

    fn over_spines(&mut self) -> Option<Vec<Share>> {
        let caps: Vec<u32> = (0..self.tree.spines.len()).map(|spine| self.spine_capacity(spine)).collect();
        let taken = self.fill_sliced(&caps, self.workers)?;
        let parts: Option<Vec<Vec<Share>>> = taken.into_iter().map(|(i, n)| self.fill_spine(i, n)).collect();
        Some(parts?.into_iter().flatten().collect())
    }

    /// As `fill`, in whole slices where the job has them.
    fn fill_sliced(&self, caps: &[u32], need: u32) -> Option<Vec<(usize, u32)>> {
        let slice = self.spec.topology.together();
        let caps: Vec<u32> = caps.iter().map(|cap| cap / slice).collect();
        Some(fill(&caps, need / slice)?.into_iter().map(|(i, n)| (i, n * slice)).collect())
    }

    /// Takes the shares on the draft. Shares come in the order of the fabric, so ranks follow it. `None`, and nothing
    /// taken, if the islands of a part do not hold its slices.
    fn take(&mut self, mut shares: Vec<Share>) -> Option<Vec<Place>> {
        let mark = self.draft.mark();
        let cluster = self.draft.cluster;
        shares.sort_by_key(|share| {
            let leaf = cluster.node(share.node).leaf;
            (cluster.fabric.spine_of(leaf), leaf, share.node)
        });
        let mut places = Vec::with_capacity(self.workers as usize);
        for share in shares {
            let chosen = self.place_share(&share);
            self.draft.take_all(&chosen);
            places.extend(chosen);
        }
        if places.len() != self.workers as usize {
            self.draft.undo_to(mark);
            return None;
        }
        Some(places)
    }

    fn place_share(&self, share: &Share) -> Vec<Place> {
        if self.spec.shape.part.is_some() {
            let site = self.draft.site(share.node);
            return site.place_workers(&self.spec.shape, share.cell, share.workers).unwrap_or_default();
        }
        let machine = self.machine(share.node);
        let mut room = *self.draft.room(share.node);
        let slice = match self.spec.topology.ranks_per_island {
            Some(slice) if !spans_nodes(machine) => slice,
            _ => share.workers,
        };
        let mut places = Vec::with_capacity(share.workers as usize);
        while (places.len() as u32) < share.workers && slice > 0 {
            let cell = if slice == share.workers && self.spec.topology.ranks_per_island.is_none() {
                share.cell
            } else {
                match self.island_cell(machine, &room, share, slice) {
                    Some(cell) => cell,
                    None => break,
                }
            };
            let chosen = fit::place_workers(machine, share.node, &room, &self.spec.shape, cell, slice);
            let Some(chosen) = chosen else { break };
            chosen.iter().for_each(|place| room.take(place));
            places.extend(chosen);
        }
        places
    }

    /// The island with the fewest free GPUs that still holds a slice; on islands that span nodes all of them.
    fn island_cell(&self, machine: &Machine, room: &super::room::Room, share: &Share, slice: u32) -> Option<Cell> {
        if spans_nodes(machine) {
            return Some(share.cell);
        }
        machine
            .islands
            .iter()
            .map(|island| Cell { gpus: island.gpus & share.cell.gpus, socket: share.cell.socket })
            .filter(|cell| fit::capacity(machine, room, &self.spec.shape, *cell) >= slice)
            .min_by_key(|cell| ((room.gpus & cell.gpus).count_ones(), cell.gpus.trailing_zeros()))
    }

    fn miss(&self, placeable: u32, level: Option<Level>) -> Miss {
        let (best, best_gpus, best_domain) = self.best_domain(level.unwrap_or(Level::Cluster));
        Miss { member: 0, placeable, level, best, best_domain, best_gpus }
    }

    /// The domain of `level` that holds most workers (of equals the one with most free GPUs).
    fn best_domain(&self, level: Level) -> (u32, u32, String) {
        let cluster = self.draft.cluster;
        let free = |node: &NodeId| match self.caps[node.index()] {
            0 if level >= Level::Node => 0,
            _ => self.draft.room(*node).gpus.count_ones(),
        };
        let leaf_free = |leaf: &LeafId| self.tree.leaves[leaf.index()].iter().map(free).sum::<u32>();
        let best = match level {
            Level::Gpu | Level::Switch | Level::Socket | Level::Island => return self.best_part(level),
            Level::Node => (0..self.caps.len())
                .map(|i| NodeId(i as u32))
                .map(|node| (self.caps[node.index()], free(&node), cluster.node(node).name.clone()))
                .max_by(|a, b| (a.0, a.1, &b.2).cmp(&(b.0, b.1, &a.2))),
            Level::Leaf => (0..self.tree.leaves.len())
                .map(|i| LeafId(i as u32))
                .map(|leaf| {
                    let name = cluster.fabric.leaves[leaf.index()].name.clone();
                    (self.leaf_capacity(leaf), leaf_free(&leaf), name)
                })
                .max_by(|a, b| (a.0, a.1, &b.2).cmp(&(b.0, b.1, &a.2))),
            Level::Spine => (0..self.tree.spines.len())
                .map(|spine| {
                    let free = self.tree.spines[spine].iter().map(leaf_free).sum::<u32>();
                    (self.spine_capacity(spine), free, cluster.fabric.spines[spine].clone())
                })
                .max_by(|a, b| (a.0, a.1, &b.2).cmp(&(b.0, b.1, &a.2))),
            Level::Cluster => Some((self.placeable(), 0, "cluster".to_string())),
        };
        best.unwrap_or((0, 0, "none".to_string()))
    }

    fn best_part(&self, level: Level) -> (u32, u32, String) {
        let mut best = (0, 0, "none".to_string());
        for node in self.draft.cluster.nodes.iter().filter(|n| self.pick.allows(self.draft.cluster, n, self.spec)) {
            let room = self.draft.room(node.id);
            for cell in cells(&node.machine, level) {
                let workers = self.draft.site(node.id).workers(&self.spec.shape, cell).min(self.caps[node.id.index()]);
                let gpus = (room.gpus & cell.gpus).count_ones();
                if (workers, gpus) > (best.0, best.1) {
                    best = (workers, gpus, node.name.clone());
                }
            }
        }
        best
    }
}

/// The parts of a machine at a level below the node.
fn cells(machine: &Machine, level: Level) -> Vec<Cell> {
    match level {
        Level::Gpu => (0..machine.gpus.len()).map(|gpu| Cell { gpus: 1 << gpu, socket: None }).collect(),
        Level::Switch => (0..machine.switches.len() as u8)
            .map(|switch| Cell { gpus: machine.mask_of_switch(switch), socket: None })
            .collect(),
        Level::Socket => (0..machine.sockets.len() as u8)
            .map(|socket| Cell { gpus: machine.mask_of_socket(socket), socket: Some(socket) })
            .collect(),
        Level::Island => machine.islands.iter().map(|island| Cell { gpus: island.gpus, socket: None }).collect(),
        _ => vec![Cell::whole(machine)],
    }
}
