//! From nodes, tasks and amounts per node, task, CPU or GPU to workers and what each needs.
use super::super::job::{GangFile, JobFile, ResourcesFile, TopologyFile};
use super::SbatchError;
use super::flags::Asked;
use crate::model::amounts::count;
use crate::model::machine::mig::ProfileName;

/// How many workers there are, and what part of a node's amounts each gets.
struct Split {
    workers: u64,
    /// Workers on each node, where nodes or tasks per node are asked for.
    on_each: Option<u64>,
    per_node: u64,
    /// Tasks that one worker stands for.
    tasks_each: u64,
}

/// Fills gang and resources; answers the number of workers.
pub(super) fn fill(job: &mut JobFile, asked: &Asked, has_srun: bool, errors: &mut Vec<SbatchError>) -> u64 {
    let mut fail = |what: &str, problem: String, fix: &str| {
        errors.push(SbatchError { line: asked.line, what: what.to_string(), problem, fix: fix.to_string() });
    };
    let Some(split) = split(asked, has_srun, &mut fail) else { return 1 };
    let gpus = gpus(asked, &split, &mut fail);
    let cpus = match (asked.cpus_per_task, asked.cpus_per_gpu) {
        (Some(per_task), _) => Some(per_task.saturating_mul(split.tasks_each)),
        (None, Some(per_gpu)) => Some(per_gpu.saturating_mul(gpus)),
        // One CPU per task is Slurm's default; with GPUs the default of job files feeds them better.
        (None, None) => (gpus == 0).then_some(split.tasks_each),
    };
    let memory = memory(asked, &split, cpus, gpus);
    let mig = profile(asked, gpus, &mut fail);
    job.gang = Some(GangFile { workers: i64::try_from(split.workers).ok(), ..GangFile::default() });
    if let Some(each) = split.on_each {
        job.topology = Some(TopologyFile { ranks_per_node: Some(to_i64(each)), ..TopologyFile::default() });
    }
    job.resources = Some(ResourcesFile {
        gpus: (gpus > 0 && mig.is_none()).then(|| to_i64(gpus)),
        gpu_model: asked.gpu_model.clone().filter(|_| gpus > 0 && mig.is_none()),
        mig,
        cpus: cpus.map(to_i64),
        memory: memory.map(|bytes| bytes.to_string()),
        ..ResourcesFile::default()
    });
    split.workers
}

/// Slurm's users name MIG instances as a type of GPU: `gpu:3g.40gb:1`.
fn profile(asked: &Asked, gpus: u64, fail: &mut impl FnMut(&str, String, &str)) -> Option<String> {
    let name = asked.gpu_model.as_deref()?.to_ascii_lowercase();
    ProfileName::parse(&name).filter(|_| gpus > 0)?;
    if gpus > 1 {
        let problem = format!("{gpus} instances of {name} for one task: a process can use one");
        fail("--gres", problem, "ask for one a task, with more tasks and srun");
    }
    Some(name)
}

fn to_i64(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

fn split(asked: &Asked, has_srun: bool, fail: &mut impl FnMut(&str, String, &str)) -> Option<Split> {
    let from_nodes = || asked.nodes.unwrap_or(1).saturating_mul(asked.tasks_per_node.unwrap_or(1));
    let tasks = asked.tasks.unwrap_or_else(from_nodes);
    let nodes = asked.nodes.unwrap_or_else(|| asked.tasks_per_node.map_or(1, |per| tasks.div_ceil(per)));
    let per_node = tasks.div_ceil(nodes).max(1);
    if tasks < nodes {
        fail(
            "--ntasks",
            format!("{} cannot be on {}", count(tasks, "task"), count(nodes, "node")),
            "ask for fewer nodes or more tasks",
        );
        return None;
    }
    if asked.nodes.is_some() && asked.tasks_per_node.is_some_and(|per| per < per_node) {
        fail("--ntasks", format!("{tasks} are too many for --ntasks-per-node"), "make the two agree");
        return None;
    }
    let placed = asked.nodes.is_some() || asked.tasks_per_node.is_some();
    if has_srun && placed && !tasks.is_multiple_of(nodes) {
        let problem = format!("{} cannot be spread evenly over {}", count(tasks, "task"), count(nodes, "node"));
        fail("--ntasks", problem, "make --ntasks a multiple of the nodes");
        return None;
    }
    match (has_srun, nodes) {
        (true, _) => {
            let on_each = (placed && tasks > 1).then_some(per_node);
            Some(Split { workers: tasks, on_each, per_node, tasks_each: 1 })
        }
        (false, 1) => Some(Split { workers: 1, on_each: None, per_node: 1, tasks_each: tasks }),
        (false, _) => {
            let problem = format!("the script never calls srun, so it would use only the first of its {nodes} nodes");
            fail("--nodes", problem, "put srun before the command that every task shall run, or ask for one node");
            None
        }
    }
}

fn gpus(asked: &Asked, split: &Split, fail: &mut impl FnMut(&str, String, &str)) -> u64 {
    if let Some(per_task) = asked.gpus_per_task {
        return per_task.saturating_mul(split.tasks_each);
    }
    let (flag, amount, parts) = match (asked.gpus_per_node, asked.gpus) {
        (Some(amount), _) => ("--gpus-per-node", amount, split.per_node),
        (None, Some(amount)) => ("--gpus", amount, split.workers),
        (None, None) => return 0,
    };
    if !amount.is_multiple_of(parts) {
        fail(
            flag,
            format!("{} cannot be shared evenly by {}", count(amount, "GPU"), count(parts, "task")),
            "make one a multiple of the other",
        );
    }
    amount / parts
}

fn memory(asked: &Asked, split: &Split, cpus: Option<u64>, gpus: u64) -> Option<u64> {
    if let Some(bytes) = asked.memory_per_node {
        return Some(bytes.div_ceil(split.per_node));
    }
    let per_gpu = asked.memory_per_gpu.map(|bytes| bytes.saturating_mul(gpus));
    per_gpu.or_else(|| asked.memory_per_cpu.map(|bytes| bytes.saturating_mul(cpus.unwrap_or(4 * gpus))))
}
