//! Random clusters and jobs for fault storms: small, so that every shape meets every other often.
use super::dice::Dice;
use crate::world::World;
use crate::world::training::WorkPlan;
use ganger_core::lifecycle::Refusal;
use ganger_core::lifecycle::input::{NodePlacement, NodeSpec, QueueSpec};
use ganger_core::model::amounts::Limit;
use ganger_core::model::budget::{Budget, Period};
use ganger_core::model::job::{
    ArraySpec, CheckpointPolicy, Gang, Group, JobSpec, Level, Priority, RunSpec, Shape, Shrink, TopologyWish,
};
use ganger_core::model::machine::Machine;
use ganger_core::model::machine::mig::ProfileName;
use ganger_core::model::machine::profiles::Custom;
use ganger_core::model::queue::QueuePolicy;
use ganger_core::model::split::{PartAsk, ShareMode};
use ganger_core::model::time::Span;
use std::sync::Arc;

const GIB: u64 = 1 << 30;
const GBPS: u64 = 1_000_000_000;

const QUEUES: [&str; 4] = ["default", "lab", "lab/nlp", "prod"];
const OTHERS: [&str; 3] = ["lab/cv", "lab/nlp", "prod"];

/// A cluster of 2 to 8 nodes of mixed kinds in leaves of two, with a small tree of queues.
pub fn world(dice: &mut Dice) -> Result<World, String> {
    let mut world = World::default();
    let queue = |path: &str, gpus: Option<u64>| QueueSpec {
        path: path.to_string(),
        limit: Some(Limit { gpus, ..Limit::default() }),
        ..QueueSpec::default()
    };
    let mut queues = vec![queue("lab", Some(dice.between(4, 32))), queue("lab/nlp", Some(8)), queue("prod", None)];
    let mut shares = dice.child("shares");
    queues.push(queue("default", None));
    queues.push(queue("lab/cv", None));
    rotate_some(&mut world, dice, &mut queues)?;
    let after = ["0s", "1m", "10m"][dice.child("grow").below(3) as usize];
    world.set("grow.after", after).map_err(|e| e.to_string())?;
    queues.iter_mut().for_each(|queue| tenant(&mut shares, queue));
    if shares.one_in(3) {
        world.set("usage.half_life", "1h").map_err(|e| e.to_string())?;
    }
    world.set_queues(queues).map_err(|e| e.to_string())?;
    for index in 0..dice.between(2, 8) {
        let name = format!("n{index}");
        let placement = NodePlacement {
            leaf: Some(format!("leaf{}", index / 2)),
            spine: Some(format!("spine{}", index / 4)),
            pool: dice.one_in(4).then(|| "side".to_string()),
            labels: [("half".to_string(), (index % 2).to_string())].into(),
        };
        let (address, boot_id) = (format!("{name}.sim"), format!("{name}-boot-1"));
        let spec = NodeSpec { machine: machine(dice)?, name, placement, address, boot_id, agent: String::new() };
        world.add_node(spec).map_err(|e| e.to_string())?;
    }
    uplinks(dice, &mut world).map_err(|e| e.to_string())?;
    Ok(world)
}

/// Half of the leaves have a way up that is known, and mostly too narrow.
fn uplinks(dice: &mut Dice, world: &mut World) -> Result<(), Refusal> {
    let leaves: Vec<String> = world.cluster().fabric.leaves.iter().map(|leaf| leaf.name.clone()).collect();
    for leaf in leaves {
        if dice.one_in(2) {
            world.set_uplink(&leaf, dice.between(10, 400) * 1_000_000_000)?;
        }
    }
    Ok(())
}

/// Some queues order by attained service, in levels short enough that jobs pass several.
fn rotate_some(world: &mut World, dice: &mut Dice, queues: &mut [QueueSpec]) -> Result<(), String> {
    for queue in queues.iter_mut().filter(|_| dice.one_in(2)) {
        queue.policy = Some(QueuePolicy::LeastAttained);
    }
    for (name, value) in [
        ("las.quantum", format!("{}m", dice.between(5, 60))),
        ("las.levels", dice.below(4).to_string()),
        ("las.discount", dice.below(40).to_string()),
        ("las.run", format!("{}s", dice.between(0, 600))),
    ] {
        world.set(name, &value).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Weights, also 0, and in some clusters guarantees and budgets.
fn tenant(dice: &mut Dice, queue: &mut QueueSpec) {
    queue.weight = Some([1, 1, 2, 3, 0][dice.below(5) as usize]);
    if dice.one_in(2) {
        let (gpus, cpus) = (dice.below(7), dice.below(25));
        let named = dice.below(3);
        queue.guarantee =
            Some(Limit { gpus: (named != 1).then_some(gpus), cpus: (named != 0).then_some(cpus), ..Limit::default() });
    }
    if dice.one_in(4) {
        let per = [Period::Day, Period::Week][dice.below(2) as usize];
        queue.budget = Some(Budget { gpu_ms: dice.between(1, 40) * Span::hours(1).0, per, user_gpu_ms: None });
    }
}

fn machine(dice: &mut Dice) -> Result<Arc<Machine>, String> {
    let gpus = [0, 1, 2, 4, 8][dice.below(5) as usize];
    let mut wire = dice.child("bandwidth");
    let custom = Custom {
        gpus,
        sockets: if gpus >= 4 { 2 } else { 1 },
        cpus: dice.between(4, 32) as u32 / 2 * 2,
        memory_bytes: dice.between(16, 64) << 30,
        islands: (gpus == 8).then(|| "0-3|4-7".to_string()),
        gpu_model: if dice.one_in(3) { "H100" } else { "A100" }.to_string(),
        nics: Some(wire.between(0, 2) as u32),
        vram_bytes: [40 * GIB, 80 * GIB][wire.below(2) as usize],
        ..Custom::default()
    };
    custom.build().map(Arc::new).map_err(|e| e.to_string())
}

/// A job of any shape, class and wish, and how its work goes on.
pub fn job(dice: &mut Dice, name: String, group: Option<Group>) -> (JobSpec, WorkPlan) {
    let priority = Priority::ALL[dice.below(4) as usize];
    let workers = if dice.one_in(2) { 1 } else { dice.between(2, 6) as u32 };
    // Parts of GPUs are drawn apart, so that storms without them stay what they were.
    let part = part(&mut dice.child("parts"), priority);
    let gpus = [0, 1, 1, 2, 4, 8][dice.below(6) as usize];
    // From dice of their own: what was drawn for a seed before there were bandwidths stays the same.
    let mut wire = dice.child("bandwidth");
    let plan = WorkPlan {
        work: Span::seconds(dice.between(0, 4 * 3_600)),
        ckpt_every: dice.one_in(2).then(|| Span::minutes(dice.between(1, 30))),
        ckpt_time: Span::seconds(dice.below(60)),
        start_time: Span::ZERO,
        restart_time: Span::seconds(dice.below(120)),
        on_demand_ckpt: dice.one_in(2),
    };
    let spec = JobSpec {
        queue: queue(dice.below(4), &mut wire),
        priority,
        preemptible: priority == Priority::P3 || dice.one_in(4),
        firm: wire.one_in(6),
        gang: gang(dice, workers),
        shape: Shape {
            gpus,
            cpus: dice.between(1, 4) as u32,
            memory_bytes: dice.below(8) << 30,
            gpu_model: (gpus > 0 && dice.one_in(5)).then(|| "H100".to_string()),
            labels: if dice.one_in(8) { [("half".to_string(), "0".to_string())].into() } else { Default::default() },
            pcie_bandwidth_bps: if gpus > 0 && wire.one_in(4) { wire.between(1, 250) * GBPS } else { 0 },
            network_bandwidth_bps: if wire.one_in(5) { wire.between(1, 120) * GBPS } else { 0 },
            ..Shape::default()
        },
        topology: wish(dice, gpus, workers),
        group,
        pool: dice.one_in(10).then(|| "side".to_string()),
        time_limit: dice.one_in(2).then(|| Span::minutes(dice.between(1, 300))),
        checkpoint: CheckpointPolicy {
            dir: Some(format!("/checkpoints/{name}")),
            every: plan.ckpt_every,
            signal: None,
            on_demand: plan.on_demand_ckpt,
            grace: Span::seconds(dice.below(90)),
            write_time: plan.ckpt_time,
            restart_time: plan.restart_time,
        },
        retries: dice.below(4) as u32,
        after: Vec::new(),
        begin: None,
        intermittent: false,
        deadline: None,
        windows: Vec::new(),
        array: None,
        run: RunSpec { command: vec!["simulated".to_string()], ..RunSpec::default() },
        name,
    };
    (with_part(spec, part), plan)
}

/// Now and then a job is an array, mostly with few tasks at once.
pub fn array(dice: &mut Dice) -> Option<ArraySpec> {
    if !dice.one_in(5) {
        return None;
    }
    let texts = ["0-5", "0-9%1", "1,3,5-7%2", "0-15:4", "8,2,4-6%3", "0-20:2%4", "7"];
    dice.pick(&texts).and_then(|text| ArraySpec::parse(text).ok())
}

/// What a worker asks instead of whole GPUs: the part, its memory, and whether each has a GPU of its own.
type Wanted = (PartAsk, u64, bool);

fn part(dice: &mut Dice, priority: Priority) -> Option<Wanted> {
    if !dice.one_in(4) {
        return None;
    }
    let distinct = dice.one_in(4);
    if dice.one_in(2) {
        let names = ["1g.10gb", "1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
        let profile = dice.pick(&names).and_then(|name| ProfileName::parse(name))?;
        return Some((PartAsk::Mig { profile }, 0, distinct));
    }
    let turns = priority >= Priority::P2 && dice.one_in(3);
    let mode = if turns { ShareMode::TimeSlice } else { ShareMode::Mps };
    let milli = [100, 250, 500, 1_000][dice.below(4) as usize];
    Some((PartAsk::Share { milli, mode }, [5, 10, 40][dice.below(3) as usize] << 30, distinct))
}

fn with_part(spec: JobSpec, wanted: Option<Wanted>) -> JobSpec {
    let Some((part, vram_bytes, distinct_gpus)) = wanted else { return spec };
    let shape = Shape { gpus: 0, part: Some(part), vram_bytes, distinct_gpus, ..spec.shape };
    let mut topology = TopologyWish { ranks_per_island: None, ..spec.topology };
    // A level that a job without GPUs drew is one for these as well; some want to be all on one GPU.
    if distinct_gpus && topology.prefer.is_some() {
        topology.prefer = Some(Level::Gpu);
    }
    JobSpec { shape, topology, intermittent: true, ..spec }
}

fn queue(drawn: u64, dice: &mut Dice) -> String {
    let chosen = if dice.one_in(4) { OTHERS[dice.below(3) as usize] } else { QUEUES[drawn as usize] };
    chosen.to_string()
}

/// Whole or elastic, also with steps that do not divide what may leave.
fn gang(dice: &mut Dice, workers: u32) -> Gang {
    if workers == 1 || dice.one_in(2) {
        return Gang::rigid(workers);
    }
    let min = dice.between(1, workers.into()) as u32;
    let step = dice.between(1, 3) as u32;
    let shrink = if dice.child("shrink").one_in(2) { Shrink::Restart } else { Shrink::InPlace };
    Gang { min, step, shrink, ..Gang::rigid(workers) }
}

fn wish(dice: &mut Dice, gpus: u32, workers: u32) -> TopologyWish {
    let levels = if gpus > 0 {
        [Level::Leaf, Level::Node, Level::Socket, Level::Island]
    } else {
        [Level::Leaf, Level::Node, Level::Spine, Level::Leaf]
    };
    let mut level = |n| if dice.one_in(n) { dice.pick(&levels).copied() } else { None };
    let (require, prefer) = (level(4), level(3));
    let ranks_per_island = (gpus > 0 && workers.is_multiple_of(2) && dice.one_in(8)).then_some(2);
    // What it contradicts is refused and no event.
    let mut spread = dice.child("spread");
    let each = spread.between(1, workers.into()) as u32;
    let even = ranks_per_island.is_none() && workers.is_multiple_of(each) && spread.one_in(6);
    TopologyWish { require, prefer, ranks_per_island, ranks_per_node: even.then_some(each) }
}
