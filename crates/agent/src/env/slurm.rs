//! The `SLURM_` names that scripts and frameworks written for Slurm read.
use super::layout::Layout;
use super::{Names, Scene, devices, hostlist};
use ganger_core::model::wire::agent::TaskSite;

pub(super) fn identity(scene: &Scene, layout: &Layout, names: &mut Names) {
    job(scene, layout, names);
    task(scene, layout, names);
    devices(scene, layout, names);
}

fn job(scene: &Scene, layout: &Layout, names: &mut Names) {
    let hosts = hostlist::compress(layout.names());
    let per_node = tasks_per_node(layout);
    names.set_all(&["SLURM_JOB_ID", "SLURM_JOBID"], scene.key.job);
    names.set("SLURM_JOB_NAME", &scene.launch.name);
    names.set_all(&["SLURM_JOB_PARTITION", "SLURM_JOB_ACCOUNT"], &scene.launch.queue);
    names.set("SLURM_JOB_USER", &scene.account.name);
    names.set("SLURM_JOB_UID", scene.account.uid);
    names.set("SLURM_JOB_GID", scene.account.gid);
    names.set("SLURM_CLUSTER_NAME", "ganger");
    names.set_all(&["SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST"], hosts);
    names.set_all(&["SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_STEP_NUM_NODES"], layout.nodes.len());
    names.set_all(&["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"], layout.world_size);
    names.set_all(&["SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"], per_node);
    if let Some(count) = layout.uniform() {
        names.set("SLURM_NTASKS_PER_NODE", count);
    }
    names.set_all(&["SLURM_STEP_ID", "SLURM_STEPID"], 0);
    names.set("SLURM_SUBMIT_DIR", scene.workdir.display());
    names.set("SLURM_RESTART_COUNT", scene.key.attempt.0.saturating_sub(1));
    names.set("SLURM_JOB_START_TIME", scene.now.0 / 1_000);
    if let Some(limit) = scene.launch.time_limit {
        names.set("SLURM_JOB_END_TIME", (scene.now + limit).0 / 1_000);
    }
    if let Some(task) = &scene.launch.task {
        array(task, names);
    }
}

fn array(task: &TaskSite, names: &mut Names) {
    names.set("SLURM_ARRAY_JOB_ID", task.array);
    names.set("SLURM_ARRAY_TASK_ID", task.index);
    names.set("SLURM_ARRAY_TASK_COUNT", task.count);
    names.set("SLURM_ARRAY_TASK_MIN", task.lowest);
    names.set("SLURM_ARRAY_TASK_MAX", task.highest);
    names.set("SLURM_ARRAY_TASK_STEP", task.step);
}

fn task(scene: &Scene, layout: &Layout, names: &mut Names) {
    let ranks: Vec<String> = layout.here().ranks.iter().map(u32::to_string).collect();
    names.set("SLURM_PROCID", scene.key.lead);
    names.set("SLURM_LOCALID", layout.local_rank);
    names.set("SLURM_NODEID", layout.node_rank);
    names.set("SLURM_GTIDS", ranks.join(","));
    names.set("SLURMD_NODENAME", scene.node);
    names.set_all(&["SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST"], &layout.nodes[0].address);
    if let Some(leaf) = scene.leaf {
        names.set("SLURM_TOPOLOGY_ADDR", format!("{leaf}.{}", scene.node));
        names.set("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.node");
    }
}

fn devices(scene: &Scene, layout: &Layout, names: &mut Names) {
    let cpus = scene.members.first().map_or(0, |member| u64::from(member.devices.cpus.count()));
    names.set("SLURM_CPUS_PER_TASK", cpus);
    // All workers of a gang have one shape.
    names.set("SLURM_CPUS_ON_NODE", cpus * layout.here().ranks.len() as u64);
    names.set("SLURM_GPUS_ON_NODE", layout.here().gpus);
    let gpus: Vec<String> = devices::gpus(scene).map(|gpu| gpu.to_string()).collect();
    if !gpus.is_empty() {
        names.set_all(&["SLURM_JOB_GPUS", "SLURM_STEP_GPUS"], gpus.join(","));
    }
}

/// Ranks per node in Slurm's short form: `2(x3),1`.
fn tasks_per_node(layout: &Layout) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for count in layout.nodes.iter().map(|node| node.ranks.len()) {
        match runs.last_mut() {
            Some((last, times)) if *last == count => *times += 1,
            _ => runs.push((count, 1)),
        }
    }
    let text = |(count, times): &(usize, usize)| match times {
        1 => count.to_string(),
        _ => format!("{count}(x{times})"),
    };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
}
