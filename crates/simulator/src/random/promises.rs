//! Whole nodes that are promised to queues, in storms: to some queues, of some size, and other ones now and then.
use super::dice::Dice;
use crate::world::World;
use ganger_core::lifecycle::Refusal;
use ganger_core::lifecycle::input::QueueSpec;
use ganger_core::model::time::Span;
use ganger_core::model::whole::WholeNodes;

const QUEUES: [&str; 5] = ["lab", "lab", "lab/nlp", "prod", "prod"];

/// Says of one queue what is promised to it; of one below another that may be refused.
pub fn say(dice: &mut Dice, world: &mut World) -> Result<(), Refusal> {
    let queue = QUEUES[dice.below(5) as usize];
    let (nodes, gpus) = (dice.below(4) as u32, [1, 2, 4, 4, 8][dice.below(5) as usize]);
    let gpu_model = dice.one_in(4).then(|| "H100".to_string());
    promise(world, queue, WholeNodes { nodes, gpus, gpu_model })
}

/// Nothing is promised any more, so that everybody comes to an end.
pub fn take_back(world: &mut World) -> Result<(), Refusal> {
    let none = || WholeNodes { nodes: 0, gpus: 0, gpu_model: None };
    ["lab/nlp", "lab", "prod"].into_iter().try_for_each(|queue| promise(world, queue, none()))
}

fn promise(world: &mut World, queue: &str, whole: WholeNodes) -> Result<(), Refusal> {
    world.note("statement", format!("{} are promised to {queue}", whole.words()));
    // A promise that is made or taken back in the very millisecond of a claim would look as if the claim had broken it.
    world.advance_to(world.now() + Span(1));
    let whole_nodes = Some(whole);
    world.set_queues(vec![QueueSpec { path: queue.to_string(), whole_nodes, ..QueueSpec::default() }])
}
