//! Equal nodes behind one switch, as the scheduler sees them, with one queue.
use crate::world::{Care, World};
use ganger_core::lifecycle::input::{NodePlacement, NodeSpec, QueueSpec};
use ganger_core::model::machine::profiles::Custom;
use ganger_core::model::queue::QueuePolicy;
use std::sync::Arc;

pub const QUEUE: &str = "default";
/// Virtual agents are never silent here, so their leases need not be renewed often.
const LEASE: &str = "8000h";

/// `pool` names the pool of each node, if it is in one.
pub fn cluster_of(
    nodes: usize,
    gpus_each: u32,
    policy: QueuePolicy,
    pool: impl Fn(usize) -> Option<&'static str>,
) -> Result<World, String> {
    let mut world = World::with_care(Care::Quick);
    // Moving running jobs together is an experiment of its own.
    for (name, value) in [("lease", LEASE), ("consolidate", "off")] {
        world.set(name, value).map_err(|why| why.to_string())?;
    }
    let queue = QueueSpec { path: QUEUE.to_string(), policy: Some(policy), ..QueueSpec::default() };
    world.set_queues(vec![queue]).map_err(|why| why.to_string())?;
    let custom = Custom { gpus: gpus_each, cpus: gpus_each, ..Custom::default() };
    let machine = custom.build().map(Arc::new);
    let machine = machine.map_err(|why| format!("cannot replay on nodes of {gpus_each} GPUs: {why}"))?;
    for index in 0..nodes {
        let name = format!("n{index}");
        let (address, boot_id) = (format!("{name}.sim"), format!("{name}-boot-1"));
        let (leaf, pool) = (Some("leaf0".to_string()), pool(index).map(str::to_string));
        let placement = NodePlacement { leaf, pool, ..NodePlacement::default() };
        let spec = NodeSpec { name, machine: machine.clone(), placement, address, boot_id, agent: String::new() };
        world.add_node(spec).map_err(|why| why.to_string())?;
    }
    Ok(world)
}
