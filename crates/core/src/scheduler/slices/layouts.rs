//! Which GPUs have to be split anew for the starts of a decision. It follows from the starts alone, so it is worked out once
//! they are settled.
use crate::model::cluster::Cluster;
use crate::model::decision::Step;
use crate::model::ids::NodeId;
use crate::model::job::Place;
use crate::model::machine::mig::Instance;
use crate::model::node::Node;
use crate::model::split::{Layout, Mode, Slice, Split};
use std::collections::BTreeMap;

/// The steps with what has to be split anew before each start.
pub fn with_repartitions(cluster: &Cluster, steps: Vec<Step>) -> Vec<Step> {
    let mut layouts = BTreeMap::new();
    let mut all = Vec::with_capacity(steps.len());
    for step in steps {
        if let Step::Start { places, .. } = &step {
            all.extend(needed(cluster, &mut layouts, places));
        }
        all.push(step);
    }
    all
}

/// Whether some GPU is in parts once these steps are done.
pub fn leaves_splits(cluster: &Cluster, steps: &[Step]) -> bool {
    let mut layouts = BTreeMap::new();
    for step in steps {
        if let Step::Start { places, .. } = step {
            needed(cluster, &mut layouts, places);
        }
    }
    let before = cluster.nodes.iter().flat_map(|node| node.splits.keys().map(|gpu| (node.id, *gpu)));
    layouts.values().any(|layout| *layout != Layout::Whole) || before.into_iter().any(|at| !layouts.contains_key(&at))
}

/// Layouts as they are after the steps so far, by node and GPU.
type Layouts = BTreeMap<(NodeId, u8), Layout>;

fn needed(cluster: &Cluster, layouts: &mut Layouts, places: &[Place]) -> Vec<Step> {
    let mut changed = BTreeMap::new();
    for place in places {
        let node = cluster.node(place.node);
        if node.splits.is_empty() && place.slice.is_none() && layouts.is_empty() {
            continue;
        }
        for gpu in (0..64u8).filter(|gpu| place.touched_gpus() >> gpu & 1 == 1) {
            let at = (place.node, gpu);
            let now = layouts.get(&at).cloned().unwrap_or_else(|| layout_of(node, gpu));
            let next = place.slice.map_or(Layout::Whole, |slice| with_slice(node, &now, &slice));
            // Taking turns needs nothing of a whole GPU.
            let turns = |one: &Layout, two: &Layout| *one == Layout::Whole && *two == Layout::TimeSlice;
            if next != now && !turns(&now, &next) && !turns(&next, &now) {
                changed.insert(at, next.clone());
            }
            layouts.insert(at, next);
        }
    }
    let step = |((node, gpu), layout)| Step::Repartition { node, gpu, layout };
    changed.into_iter().map(step).collect()
}

fn layout_of(node: &Node, gpu: u8) -> Layout {
    node.splits.get(&gpu).map_or(Layout::Whole, Split::layout)
}

/// Idle instances stay where they are not in the way.
fn with_slice(node: &Node, now: &Layout, slice: &Slice) -> Layout {
    let Some(new) = slice.instance() else {
        return if slice.mode() == Mode::Mps { Layout::Mps } else { Layout::TimeSlice };
    };
    let before: &[Instance] = match now {
        Layout::Mig(instances) => instances,
        _ => &[],
    };
    if before.contains(&new) {
        return now.clone();
    }
    // Those that are held, or made by this decision, go before idle ones: they stay in any case.
    let split = node.splits.get(&slice.gpu);
    let held = |one: &Instance| {
        let idle = split.is_some_and(|split| split.instances.iter().any(|made| made.instance == *one));
        !idle || node.held_slices().any(|h| h.gpu == slice.gpu && h.instance() == Some(*one))
    };
    let (kept, idle): (Vec<Instance>, Vec<Instance>) = before.iter().partition(|one| held(one));
    let mut set = kept;
    set.push(new);
    let card = node.machine.mig_card(slice.gpu);
    for one in idle {
        if card.is_some_and(|card| card.beside(&set, one).is_ok()) {
            set.push(one);
        }
    }
    set.sort_unstable_by_key(|one| one.start);
    Layout::Mig(set)
}
