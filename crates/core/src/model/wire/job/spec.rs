//! From the file to the checked [`JobSpec`], part by part.
use super::words::{NAME_FIX, is_env_name, is_label, is_name, is_queue_path, parse_rfc3339, parse_signal};
use super::{ARGUMENT_BYTES_MAX, CheckpointFile, FieldError, Findings, GangFile, JobFile, ResourcesFile, TopologyFile};
use crate::model::amounts::{count, parse_bandwidth, parse_bytes};
use crate::model::ids::JobId;
use crate::model::job::{
    ArrayError, ArraySpec, CheckpointPolicy, Dependency, DependencyKind, Gang, Group, JobSpec, Launcher, Level,
    Priority, RunSpec, Shape, Shrink, TopologyWish,
};
use crate::model::time::{Span, Time};
use crate::model::window::Window;
use std::collections::BTreeMap;

type Resolve<'a> = &'a dyn Fn(&str) -> Option<JobId>;

const WORKERS_MAX: u32 = 100_000;
const GPUS_MAX: u32 = 64;
const CPUS_MAX: u32 = 1_024;
const CPUS_PER_GPU: u32 = 4;
const GRACE: Span = Span::seconds(30);
const GRACE_MAX: Span = Span::hours(24);
const COMMAND_BYTES_MAX: usize = 512 * 1024;
const LEVELS: &str = "gpu, switch, socket, island, node, leaf, spine, cluster";

pub(super) fn build(file: JobFile, resolve: Resolve) -> Result<JobSpec, Vec<FieldError>> {
    let mut found = Findings::default();
    if !is_name(&file.name) {
        found.add("name", format!("{:?} is not a name", file.name), NAME_FIX);
    }
    let queue = queue(&mut found, file.queue.as_deref());
    let priority =
        found.word("priority", file.priority.as_deref(), Priority::parse, "P0, P1, P2, P3").unwrap_or_default();
    let islands = file.topology.as_ref().and_then(|topology| topology.ranks_per_island);
    let gang = gang(&mut found, file.gang.as_ref(), islands);
    if gang.min < gang.workers && file.group.is_some() {
        found.add("gang.min", "the jobs of a group run with all their workers".to_string(), "remove it, or `group`");
    }
    let shape = shape(&mut found, file.resources.as_ref());
    total(&mut found, &gang, &shape);
    let topology = topology(&mut found, file.topology.as_ref(), &gang, &shape);
    let group = group(&mut found, file.group.as_deref());
    if file.pool.as_deref().is_some_and(|pool| !is_label(pool)) {
        found.add("pool", format!("{:?} is not a name", file.pool.as_deref().unwrap_or("")), NAME_FIX);
    }
    let time_limit = found.span("time", file.time.as_deref());
    let checkpoint = checkpoint(&mut found, file.checkpoint.as_ref());
    let retries = found.count("retries", file.retries, 0, 0, 1_000);
    let after = after(&mut found, &file.name, &file.after, resolve);
    let begin = moment(&mut found, "begin", file.begin.as_deref());
    let deadline = moment(&mut found, "deadline", file.deadline.as_deref());
    if deadline.is_some() && time_limit.is_none() {
        found.add("deadline", "the job states no time limit", "add `time`, so that it is known when it has to start");
    }
    let windows = windows(&mut found, &file.windows);
    let array = array(&mut found, &file);
    later(&mut found, &file);
    let (name, pool, preemptible) = (file.name.clone(), file.pool.clone(), file.preemptible);
    let intermittent = file.intermittent;
    let run = run(&mut found, file, gang.workers);
    let firm = preemptible == Some(false);
    let preemptible = preemptible.unwrap_or(priority == Priority::P3);
    found.finish(JobSpec {
        name,
        queue,
        priority,
        preemptible,
        firm,
        gang,
        shape,
        topology,
        group,
        pool,
        time_limit,
        checkpoint,
        retries,
        after,
        begin,
        intermittent,
        deadline,
        windows,
        array,
        run,
    })
}

fn array(found: &mut Findings, file: &JobFile) -> Option<ArraySpec> {
    let text = &file.array.as_ref()?.0;
    let array = match ArraySpec::parse(text) {
        Ok(array) => array,
        Err(ArrayError { at, why, fix }) => {
            found.add("array", format!("cannot read {text:?} from character {at} on: {why}"), fix);
            return None;
        }
    };
    if file.group.is_some() {
        found.add("array", "its tasks start each by itself, the jobs of a group together", "remove it, or `group`");
    }
    if file.pty {
        found.add("array", "a terminal is for one process, not for each task", "remove it, or `pty`");
    }
    Some(array)
}

fn later(found: &mut Findings, file: &JobFile) {
    for (field, value) in
        [("roles", &file.roles), ("image", &file.image), ("mounts", &file.mounts), ("budget", &file.budget)]
    {
        found.later(field, value);
    }
}

fn queue(found: &mut Findings, path: Option<&str>) -> String {
    let path = path.unwrap_or("default");
    if !is_queue_path(path) {
        found.add(
            "queue",
            format!("{path:?} is not a queue's path"),
            "write it like research/nlp; `ganger queues` lists them",
        );
    }
    path.to_string()
}

/// `islands`: so many ranks share one, and come and go together.
fn gang(found: &mut Findings, file: Option<&GangFile>, islands: Option<i64>) -> Gang {
    let GangFile { workers, min, step } = file.cloned().unwrap_or_default();
    let workers = found.count("gang.workers", workers, 1, 1, WORKERS_MAX);
    let min = found.count("gang.min", min, workers, 1, WORKERS_MAX);
    if min > workers {
        found.add(
            "gang.min",
            format!("{min} is more than the {}", count(workers.into(), "worker")),
            "give at most gang.workers, or leave it out",
        );
    }
    let island = islands.and_then(|ranks| u32::try_from(ranks).ok()).unwrap_or(1).max(1);
    let usual = if min < workers { island } else { workers };
    let step = found.count("gang.step", step, usual, 1, WORKERS_MAX);
    let steps = Gang { workers, min, step, shrink: Shrink::Restart };
    if min < workers && steps.least() != min {
        found.add(
            "gang.min",
            format!("with steps of {step} the smallest size below {workers} is {}, not {min}", steps.least()),
            "give workers less a multiple of gang.step",
        );
    } else if min == workers && step != workers {
        found.add("gang.step", "a gang without gang.min has one size".to_string(), "give gang.min too, or remove it");
    } else if min < workers && !step.is_multiple_of(island) {
        found.add(
            "gang.step",
            format!("steps of {step} would break up islands of {island} ranks"),
            "give a multiple of topology.ranks_per_island",
        );
    }
    steps
}

fn shape(found: &mut Findings, file: Option<&ResourcesFile>) -> Shape {
    let file = file.cloned().unwrap_or_default();
    let gpus = found.count("resources.gpus", file.gpus, 0, 0, GPUS_MAX);
    let model = file.gpu_model.as_deref().map(str::to_ascii_uppercase);
    let part = super::parts::part(found, &file);
    // As many CPUs for each GPU, of a part its part of them.
    let parts_cpus = part.map_or(0, |part| (part.milli(model.as_deref()) * CPUS_PER_GPU).div_ceil(1_000));
    let cpus = found.count("resources.cpus", file.cpus, (gpus * CPUS_PER_GPU).max(parts_cpus).max(1), 1, CPUS_MAX);
    let memory_bytes = found.amount("resources.memory", file.memory.as_deref(), parse_bytes);
    let vram_bytes = found.amount("resources.vram", file.vram.as_deref(), parse_bytes);
    let needs_vram_bytes = found.amount("resources.needs_vram", file.needs_vram.as_deref(), parse_bytes);
    let of_gpus = [
        ("resources.gpu_model", file.gpu_model.is_some()),
        ("resources.vram", file.vram.is_some()),
        ("resources.needs_vram", file.needs_vram.is_some()),
        ("resources.pcie_bandwidth", file.pcie_bandwidth.is_some()),
    ];
    for (field, set) in of_gpus {
        if set && gpus == 0 && part.is_none() {
            found.add(field, "the job asks for no GPU", "give resources.gpus, or remove it");
        }
    }
    if let Some(model) = file.gpu_model.as_deref().filter(|model| !is_label(model)) {
        found.add(
            "resources.gpu_model",
            format!("{model:?} is not a model"),
            "write it like H100; `ganger nodes` lists them",
        );
    }
    if let Some((key, value)) = file.labels.iter().find(|(key, value)| !is_label(key) || !is_label(value)) {
        found.add(format!("resources.labels.{key}"), format!("{key:?}: {value:?} is not a label"), NAME_FIX);
    }
    Shape {
        gpus,
        cpus,
        memory_bytes,
        gpu_model: model,
        vram_bytes,
        labels: file.labels,
        pcie_bandwidth_bps: found.amount("resources.pcie_bandwidth", file.pcie_bandwidth.as_deref(), parse_bandwidth),
        network_bandwidth_bps: found.amount(
            "resources.network_bandwidth",
            file.network_bandwidth.as_deref(),
            parse_bandwidth,
        ),
        part,
        distinct_gpus: file.distinct_gpus,
        needs_vram_bytes,
    }
}

/// Sums over the gang must fit the integers that they are kept in.
fn total(found: &mut Findings, gang: &Gang, shape: &Shape) {
    let worker = shape.resources();
    for (field, amount) in [
        ("memory", shape.memory_bytes),
        ("vram", worker.vram_bytes),
        ("pcie_bandwidth", worker.pcie_bandwidth_bps),
        ("network_bandwidth", shape.network_bandwidth_bps),
    ] {
        if amount == u64::MAX || amount.checked_mul(gang.workers.into()).is_none() {
            let problem = format!("{} of so much: more than can be counted", count(gang.workers.into(), "worker"));
            found.add(format!("resources.{field}"), problem, "ask for less per worker");
        }
    }
}

fn topology(found: &mut Findings, file: Option<&TopologyFile>, gang: &Gang, shape: &Shape) -> TopologyWish {
    let file = file.cloned().unwrap_or_default();
    let require = found.word("topology.require", file.require.as_deref(), Level::parse, LEVELS);
    let prefer = found.word("topology.prefer", file.prefer.as_deref(), Level::parse, LEVELS);
    if let (Some(require), Some(prefer)) = (require, prefer)
        && prefer > require
    {
        let problem = format!("{prefer} is wider than the {require} that topology.require asks for");
        found.add("topology.prefer", problem, "prefer a tighter level, or leave it out");
    }
    for (field, level) in [("topology.require", require), ("topology.prefer", prefer)] {
        if matches!(level, Some(Level::Gpu | Level::Switch | Level::Island)) && !shape.asks_gpu() {
            found.add(
                field,
                "switches and islands join GPUs, and the job asks for none",
                "give resources.gpus, or another level",
            );
        }
    }
    let ranks = found.count("topology.ranks_per_island", file.ranks_per_island, 0, 1, WORKERS_MAX);
    let ranks_per_island = file.ranks_per_island.is_some().then_some(ranks);
    if ranks_per_island.is_some() && shape.gpus == 0 {
        found.add("topology.ranks_per_island", "the job asks for no GPU", "give resources.gpus, or remove it");
    } else if ranks_per_island.is_some() && !gang.workers.is_multiple_of(ranks.max(1)) {
        let problem = format!("{} is not a multiple of {ranks}", count(gang.workers.into(), "worker"));
        found.add("topology.ranks_per_island", problem, "give a divisor of gang.workers");
    }
    let each = found.count("topology.ranks_per_node", file.ranks_per_node, 0, 1, WORKERS_MAX);
    let ranks_per_node = file.ranks_per_node.is_some().then_some(each);
    let wish = TopologyWish { require, prefer, ranks_per_island, ranks_per_node };
    if let Err(problem) = wish.spreads(gang) {
        found.add("topology.ranks_per_node", problem, "give a divisor of gang.workers, or remove it");
    }
    wish
}

fn group(found: &mut Findings, text: Option<&str>) -> Option<Group> {
    let text = text?;
    let parsed = text.split_once('/').and_then(|(name, size)| Some((name, size.parse::<u32>().ok()?)));
    match parsed {
        Some((name, size)) if is_label(name) && (2..=64).contains(&size) => {
            Some(Group { name: name.to_string(), size })
        }
        _ => {
            found.add("group", format!("cannot read {text:?}"), "write NAME/SIZE, such as pair/2, with 2 to 64 jobs");
            None
        }
    }
}

fn checkpoint(found: &mut Findings, file: Option<&CheckpointFile>) -> CheckpointPolicy {
    let file = file.cloned().unwrap_or_default();
    if let Some(dir) = file.dir.as_deref() {
        absolute(found, "checkpoint.dir", dir);
    }
    let every = found.span("checkpoint.every", file.every.as_deref());
    if file.every.is_some() && file.dir.is_none() {
        found.add("checkpoint.every", "there is no directory to write to", "give checkpoint.dir, or remove it");
    }
    let signals = "SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGTERM, SIGCONT, SIGWINCH";
    let signal = found.word("checkpoint.signal", file.signal.as_deref(), parse_signal, signals);
    let grace = found.span("checkpoint.grace", file.grace.as_deref()).unwrap_or(GRACE);
    if grace > GRACE_MAX {
        found.add("checkpoint.grace", format!("{grace} is more than a day"), "give at most 24h");
    }
    let on_demand = file.dir.is_some() && signal.is_some();
    CheckpointPolicy {
        dir: file.dir,
        every,
        signal,
        on_demand,
        grace,
        write_time: Span::ZERO,
        restart_time: Span::ZERO,
    }
}

fn after(found: &mut Findings, own: &str, entries: &[String], resolve: Resolve) -> Vec<Dependency> {
    let mut dependencies = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let field = format!("after[{index}]");
        let (kind, job) = match entry.split_once(':') {
            None => (Some(DependencyKind::AfterOk), entry.as_str()),
            Some(("afterok", job)) => (Some(DependencyKind::AfterOk), job),
            Some(("afternotok", job)) => (Some(DependencyKind::AfterNotOk), job),
            Some(("afterany", job)) => (Some(DependencyKind::AfterAny), job),
            Some((_, job)) => (None, job),
        };
        match (kind, resolve(job)) {
            (None, _) => {
                found.add(field, format!("cannot read {entry:?}"), "write afterok:JOB, afternotok:JOB or afterany:JOB")
            }
            _ if job == own => found.add(field, "the job would wait for itself", "name an earlier job by its id"),
            (_, None) => found.add(field, format!("there is no job {job:?}"), "`ganger jobs --all` lists all jobs"),
            (Some(kind), Some(job)) => dependencies.push(Dependency { job, kind, met: false }),
        }
    }
    dependencies
}

fn moment(found: &mut Findings, field: &str, text: Option<&str>) -> Option<Time> {
    let text = text?;
    let moment = parse_rfc3339(text);
    if moment.is_none() {
        found.add(field, format!("cannot read {text:?} as a moment"), "write it like 2026-12-01T08:00:00Z");
    }
    moment
}

fn windows(found: &mut Findings, texts: &[String]) -> Vec<Window> {
    let mut windows = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match Window::parse(text) {
            Ok(window) => windows.push(window),
            Err(why) => found.add(format!("windows[{index}]"), why, "write it like Mon-Fri 22:00-06:00 Europe/Berlin"),
        }
    }
    windows
}

fn run(found: &mut Findings, file: JobFile, workers: u32) -> RunSpec {
    let launcher =
        found.word("launcher", file.launcher.as_deref(), launcher, "ranks, torchrun, mpi").unwrap_or_default();
    let command = file.command.into_arguments();
    check_command(found, &command);
    check_env(found, &file.env);
    if let Some(workdir) = file.workdir.as_deref() {
        absolute(found, "workdir", workdir);
    }
    if let Some(output) = file.output.as_deref() {
        check_output(found, output);
    }
    if file.pty && workers > 1 {
        found.add(
            "pty",
            format!("a terminal is for one worker, not for {workers}"),
            "remove it, or ask for one worker",
        );
    }
    RunSpec { launcher, command, env: file.env, workdir: file.workdir, output: file.output, pty: file.pty }
}

fn launcher(text: &str) -> Option<Launcher> {
    match text {
        "ranks" => Some(Launcher::Ranks),
        "torchrun" => Some(Launcher::Torchrun),
        "mpi" => Some(Launcher::Mpi),
        _ => None,
    }
}

fn check_command(found: &mut Findings, command: &[String]) {
    if command.first().is_none_or(|program| program.trim().is_empty()) {
        found.add("command", "it is empty", "give the program and its arguments, such as [python, train.py]");
    }
    if command.iter().any(|argument| argument.contains('\0')) {
        found.add("command", "an argument holds a zero byte, which no process can be given", "remove it");
    }
    if let Some(long) = command.iter().map(String::len).find(|len| *len > ARGUMENT_BYTES_MAX) {
        let problem =
            format!("an argument (or the script) is {long} bytes long; Linux hands over at most {ARGUMENT_BYTES_MAX}");
        found.add("command", problem, "put the script into a file that the nodes can read and run that");
    } else if command.iter().map(String::len).sum::<usize>() > COMMAND_BYTES_MAX {
        found.add("command", format!("it is longer than {COMMAND_BYTES_MAX} bytes"), "put the arguments into a file");
    }
}

fn check_env(found: &mut Findings, env: &BTreeMap<String, String>) {
    for (name, value) in env {
        if !is_env_name(name) {
            found.add(
                format!("env.{name}"),
                format!("{name:?} is not a variable's name"),
                "use letters, digits and underscores, not a digit first",
            );
        } else if value.contains('\0') || value.len() > ARGUMENT_BYTES_MAX - name.len() {
            found.add(format!("env.{name}"), "the value holds a zero byte or is too long for a process", "shorten it");
        }
    }
}

fn check_output(found: &mut Findings, output: &str) {
    let mut chars = output.chars();
    while let Some(c) = chars.next() {
        if c == '%' && !matches!(chars.next(), Some('j' | 'x' | 't' | 'a' | 'A' | '%')) {
            let fix = "use %j (job), %x (name), %t (rank), %a (attempt, of an array the index), %A (array) or %%";
            found.add("output", format!("{output:?} has a pattern that is unknown"), fix);
            return;
        }
    }
    if output.is_empty() || output.contains('\0') {
        found.add("output", "it is no file name", "write it like logs/%x-%j-%t.log, or remove it");
    }
}

fn absolute(found: &mut Findings, field: &str, path: &str) {
    if !path.starts_with('/') || path.contains('\0') {
        found.add(
            field,
            format!("{path:?} is not an absolute path"),
            "begin it with a slash (the command line does so for paths it is given)",
        );
    }
}
