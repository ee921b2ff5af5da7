//! From what a scenario writes to what the core takes: nodes in their fabric, queues, settings, job specs.
use crate::script::ast::{Begin, NodesLine, Script, Submit};
use crate::script::{Problem, ScriptError};
use crate::world::World;
use crate::world::training::WorkPlan;
use ganger_core::lifecycle::input::{NodePlacement, NodeSpec, QueueSpec};
use ganger_core::model::ids::JobId;
use ganger_core::model::job::{
    CheckpointPolicy, Dependency, DependencyKind, Gang, Group, JobSpec, JobState, RunSpec, Shape, TopologyWish,
};
use ganger_core::model::time::{Span, Time};

/// How often a run may fail by itself; in a scenario none does.
const RETRIES: u32 = 3;

pub fn world(script: &Script) -> Result<World, ScriptError> {
    let mut world = World::default();
    let refused =
        |line: u32, what: &str, why: String| ScriptError::new(line, Problem::Refused { what: what.to_string(), why });
    for setting in &script.settings {
        world.set(&setting.name, &setting.value).map_err(|e| refused(setting.line, "set", e.to_string()))?;
    }
    for queue in &script.queues {
        let spec = QueueSpec {
            path: queue.path.clone(),
            weight: Some(queue.weight),
            guarantee: Some(queue.guarantee),
            limit: Some(queue.limit),
            policy: Some(queue.policy),
            budget: queue.budget,
            whole_nodes: queue.whole_nodes.clone(),
        };
        world.set_queues(vec![spec]).map_err(|e| refused(queue.line, "queue", e.to_string()))?;
    }
    let mut fabric = FabricNames::default();
    for line in &script.nodes {
        for (index, name) in line.names().enumerate() {
            let spec = node(line, index as u32, name, &mut fabric);
            world.add_node(spec).map_err(|e| refused(line.line, "nodes", e.to_string()))?;
        }
        fabric.end_line();
    }
    for pool in &script.pools {
        let known: Vec<&str> = script.nodes.iter().filter_map(|nodes| nodes.pool.as_deref()).collect();
        if !known.contains(&pool.name.as_str()) {
            return Err(ScriptError::unknown(pool.line, "pool", &pool.name, &known));
        }
        let lending = Some(pool.lending.clone());
        world.set_pool(&pool.name, lending).map_err(|e| refused(pool.line, "pool", e.to_string()))?;
    }
    for uplink in &script.uplinks {
        let leaves: Vec<&str> = world.cluster().fabric.leaves.iter().map(|leaf| leaf.name.as_str()).collect();
        if !leaves.contains(&uplink.leaf.as_str()) {
            return Err(ScriptError::unknown(uplink.line, "leaf", &uplink.leaf, &leaves));
        }
        world.set_uplink(&uplink.leaf, uplink.bps).map_err(|e| refused(uplink.line, "uplink", e.to_string()))?;
    }
    Ok(world)
}

fn node(line: &NodesLine, index: u32, name: String, fabric: &mut FabricNames) -> NodeSpec {
    let (leaf, spine) = fabric.place(line, index);
    let placement =
        NodePlacement { leaf: Some(leaf), spine: Some(spine), pool: line.pool.clone(), labels: line.labels.clone() };
    let (address, boot_id) = (format!("{name}.sim"), format!("{name}-boot-1"));
    NodeSpec { name, machine: line.machine.clone(), placement, address, boot_id, agent: String::new() }
}

/// Gives leaves and spines their names. Numbered leaves count over all lines; each line begins a new one. Lines without
/// leaf keys share one leaf.
#[derive(Default)]
struct FabricNames {
    /// Leaves that lines with `leaf=` and no name have filled or begun.
    numbered: u32,
    shared: Option<String>,
    /// Leaves of this line so far, in order.
    of_line: u32,
    spines: u32,
}

impl FabricNames {
    /// The leaf and spine of the node at `index` of its line.
    fn place(&mut self, line: &NodesLine, index: u32) -> (String, String) {
        let at = line.nodes_per_leaf.map_or(0, |size| index / size);
        self.of_line = at + 1;
        let leaf = match (&line.leaf_name, line.nodes_per_leaf) {
            (Some(name), None) => name.clone(),
            (Some(name), Some(_)) => format!("{name}{at}"),
            (None, Some(_)) => format!("leaf{}", self.numbered + at),
            (None, None) => self.shared_leaf(),
        };
        let spine = line.leaves_per_spine.map_or(0, |size| self.spines + at / size);
        (leaf, format!("spine{spine}"))
    }

    fn shared_leaf(&mut self) -> String {
        if self.shared.is_none() {
            self.shared = Some(format!("leaf{}", self.numbered));
        }
        self.of_line = 1;
        self.shared.clone().unwrap_or_default()
    }

    /// The next line begins with leaves and spines of its own.
    fn end_line(&mut self) {
        self.numbered += self.of_line;
        self.spines += 1;
        self.of_line = 0;
    }
}

pub fn work_plan(submit: &Submit) -> WorkPlan {
    WorkPlan {
        work: submit.work,
        ckpt_every: submit.ckpt_every,
        ckpt_time: submit.ckpt_time,
        start_time: Span::ZERO,
        restart_time: submit.restart_time,
        on_demand_ckpt: submit.on_demand_ckpt,
    }
}

pub fn job(world: &World, submit: &Submit) -> JobSpec {
    let checkpoints = submit.ckpt_every.is_some() || submit.on_demand_ckpt;
    JobSpec {
        name: submit.name.clone(),
        queue: submit.queue.clone(),
        priority: submit.priority,
        preemptible: submit.preemptible,
        firm: submit.firm,
        gang: gang(submit),
        shape: Shape {
            gpus: submit.gpus,
            cpus: submit.cpus,
            memory_bytes: submit.memory_bytes,
            gpu_model: submit.gpu_model.clone(),
            vram_bytes: submit.vram_bytes,
            labels: submit.labels.clone(),
            pcie_bandwidth_bps: submit.pcie_bandwidth_bps,
            network_bandwidth_bps: submit.network_bandwidth_bps,
            part: submit.part,
            distinct_gpus: submit.distinct_gpus,
            needs_vram_bytes: submit.needs_vram_bytes,
        },
        topology: TopologyWish {
            require: submit.require,
            prefer: submit.prefer,
            ranks_per_island: submit.ranks_per_island,
            ranks_per_node: submit.ranks_per_node,
        },
        group: submit.group.clone().map(|(name, size)| Group { name, size }),
        pool: submit.pool.clone(),
        time_limit: submit.time,
        checkpoint: CheckpointPolicy {
            dir: checkpoints.then(|| format!("/checkpoints/{}", submit.name)),
            every: submit.ckpt_every,
            signal: None,
            on_demand: submit.on_demand_ckpt,
            grace: submit.grace,
            write_time: submit.ckpt_time,
            restart_time: submit.restart_time,
        },
        retries: RETRIES,
        after: submit.after.iter().map(|(kind, name)| dependency(world, kind, name)).collect(),
        begin: submit.begin.as_ref().map(|begin| match begin {
            Begin::At(time) => *time,
            Begin::Clock(of_day) => next_time_of_day(world.now(), *of_day),
        }),
        intermittent: submit.intermittent,
        deadline: submit.deadline,
        windows: submit.windows.clone(),
        array: submit.array.clone(),
        run: RunSpec { command: vec!["simulated".to_string()], ..RunSpec::default() },
    }
}

fn next_time_of_day(now: Time, of_day: Span) -> Time {
    let day = Span::hours(24);
    let today = Time(now.0 / day.0 * day.0) + of_day;
    if today < now { today + day } else { today }
}

/// Without `min` the gang keeps all its workers; with it, it gives up as few as others need, in steps of one unless
/// `step` says more.
fn gang(submit: &Submit) -> Gang {
    let workers = submit.workers;
    let min = submit.min.unwrap_or(workers);
    let usual = if min < workers { 1 } else { workers };
    Gang { min, step: submit.step.unwrap_or(usual), shrink: submit.shrink, ..Gang::rigid(workers) }
}

/// A job that has ended already as it should have is no reason to wait.
fn dependency(world: &World, kind: &DependencyKind, name: &str) -> Dependency {
    let job = world.job_id(name).unwrap_or(JobId(0));
    let state = world.job(job).map(|job| job.state).filter(|state| state.is_terminal());
    let met = match kind {
        DependencyKind::AfterOk => state == Some(JobState::Done),
        DependencyKind::AfterNotOk => state.is_some_and(|state| state != JobState::Done),
        DependencyKind::AfterAny => state.is_some(),
    };
    Dependency { job, kind: kind.clone(), met }
}
