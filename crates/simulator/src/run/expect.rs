//! Compares what an expectation asks for with the cluster as it is, and tells the actual values.
use crate::script::Op;
use crate::script::ast::{ClusterCheck, ClusterCount, Expectation, JobCheck, JobCount, JobMoment, JobWords, Subject};
use crate::world::World;
use ganger_core::model::ids::NodeId;
use ganger_core::model::job::{Job, JobState, Level, Place};
use ganger_core::model::node::{Device, HealthState, Node};
use ganger_core::model::time::{Span, Time};
use ganger_core::scheduler;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether it holds, and the actual values in the order of the question.
pub fn look(world: &World, expectation: &Expectation) -> (bool, String) {
    let found: Vec<(bool, String)> = match &expectation.subject {
        Subject::Cluster { checks } => checks.iter().map(|check| cluster(world, check)).collect(),
        Subject::Job { name, state, checks } => match world.job_id(name).and_then(|id| world.job(id)) {
            None => vec![(false, format!("no job {name}"))],
            Some(job) => {
                // An array runs while a task of it does.
                let actual = world.cluster().array_state(&job);
                let said = state.iter().map(|state| (*state == actual, actual.to_string()));
                said.chain(checks.iter().map(|check| job_check(world, &job, check))).collect()
            }
        },
    };
    let ok = found.iter().all(|(ok, _)| *ok);
    let actual = found.into_iter().map(|(_, actual)| actual).collect::<Vec<_>>().join(" ");
    (ok, actual)
}

fn job_check(world: &World, job: &Job, check: &JobCheck) -> (bool, String) {
    match check {
        JobCheck::Count { field, op, value } => {
            let (name, actual) = job_count(job, *field);
            (op.holds(actual.cmp(value)), format!("{name}={actual}"))
        }
        JobCheck::Moment { field, op, value } => {
            let (name, actual) = job_moment(world, job, *field);
            moment(name, actual, *op, *value)
        }
        JobCheck::Words { field, op, value } => {
            let (name, actual) = job_words(world, job, *field);
            let ok = match op {
                Op::Contains => actual.contains(value.as_str()),
                op => op.holds(actual.as_str().cmp(value)),
            };
            (ok, format!("{name}={actual:?}"))
        }
        JobCheck::On { op, nodes } => {
            let actual: BTreeSet<String> =
                places(job).iter().map(|place| world.cluster().node(place.node).name.clone()).collect();
            let shown = actual.iter().cloned().collect::<Vec<_>>().join(",");
            ((actual == *nodes) == (*op == Op::Equal), format!("on={shown}"))
        }
        JobCheck::Same { op, level } => {
            let shared = share(world, job, *level);
            let shown = if shared { "one" } else { "no common" };
            (shared == (*op == Op::Equal), format!("{shown} {level}"))
        }
    }
}

fn job_count(job: &Job, field: JobCount) -> (&'static str, u64) {
    match field {
        JobCount::Workers => ("workers", job.attempt.as_ref().map_or(0, |attempt| attempt.live().count() as u64)),
        JobCount::Attempts => ("attempts", job.attempts.0.into()),
        JobCount::Evictions => ("evictions", job.evictions.into()),
    }
}

fn job_moment(world: &World, job: &Job, field: JobMoment) -> (&'static str, Option<Span>) {
    let since_zero = |time: Option<Time>| time.map(|time| Span(time.0));
    match field {
        JobMoment::Started => ("started", since_zero(job.started_at)),
        JobMoment::Ended => ("ended", since_zero(job.ended_at)),
        JobMoment::ResumedFrom => ("resumed_from", world.resumed_from(job.id)),
    }
}

/// What has not happened is equal to no time and before none.
fn moment(name: &str, actual: Option<Span>, op: Op, expected: Span) -> (bool, String) {
    match actual {
        Some(actual) => (op.holds(actual.cmp(&expected)), format!("{name}={actual}")),
        None => (op == Op::NotEqual, format!("{name}=never")),
    }
}

/// A live job is explained by the scheduler; one that has ended by its note.
fn job_words(world: &World, job: &Job, field: JobWords) -> (&'static str, String) {
    let why = scheduler::why(world.cluster(), job.id, world.now());
    match (field, why) {
        (JobWords::Reason, why) => {
            ("reason", why.and_then(|why| why.reason).map_or(String::new(), |reason| reason.to_string()))
        }
        (JobWords::Slices, _) => ("slices", slices(world, job)),
        (JobWords::Text, Some(why)) => ("text", why.summary),
        (JobWords::Text, None) => ("text", job.note.clone().unwrap_or_default()),
    }
}

/// `n0/0/3g.40gb@4`: node, GPU, and what of it each worker holds, in rank order.
fn slices(world: &World, job: &Job) -> String {
    let part = |place: &&Place| {
        let (node, slice) = (world.cluster().node(place.node), place.slice?);
        Some(format!("{}/{}/{}", node.name, slice.gpu, slice.name_on(&node.machine)))
    };
    places(job).iter().filter_map(part).collect::<Vec<_>>().join(",")
}

fn places(job: &Job) -> Vec<&Place> {
    job.attempt.iter().flat_map(|attempt| attempt.live().map(|worker| &worker.place)).collect()
}

/// Whether all workers of a job that has some share one domain of the level.
fn share(world: &World, job: &Job, level: Level) -> bool {
    let places = places(job);
    let node = |id: NodeId| world.cluster().node(id);
    let Some(first) = places.first().map(|place| node(place.node)) else { return false };
    let one_node = places.iter().all(|place| place.node == first.id);
    let one_leaf = places.iter().all(|place| node(place.node).leaf == first.leaf);
    match level {
        Level::Leaf => one_leaf,
        Level::Node => one_node,
        Level::Socket => one_node && one_socket(first, &places),
        Level::Island if one_node => one_island(first, &places),
        Level::Island => one_leaf && places.iter().all(|place| in_wide_island(node(place.node), place)),
        _ => false,
    }
}

fn one_socket(node: &Node, places: &[&Place]) -> bool {
    let gpus = places.iter().fold(0, |mask, place| mask | place.touched_gpus());
    let sockets = || 0..node.machine.sockets.len() as u8;
    if gpus != 0 {
        return sockets().any(|socket| gpus & !node.machine.mask_of_socket(socket) == 0);
    }
    let cpus_of = |socket: u8| &node.machine.sockets[usize::from(socket)].cpus;
    sockets().any(|socket| places.iter().all(|place| place.cpus.is_subset(cpus_of(socket))))
}

fn one_island(node: &Node, places: &[&Place]) -> bool {
    let gpus = places.iter().fold(0, |mask, place| mask | place.touched_gpus());
    gpus != 0 && node.machine.islands.iter().any(|island| gpus & !island.gpus == 0)
}

/// All its GPUs are in a part of an island that goes on in the other nodes of the leaf.
fn in_wide_island(node: &Node, place: &Place) -> bool {
    let wide =
        |island: &&ganger_core::model::machine::Island| island.spans_nodes && place.touched_gpus() & !island.gpus == 0;
    place.touched_gpus() != 0 && node.machine.islands.iter().any(|island| wide(&island))
}

fn cluster(world: &World, check: &ClusterCheck) -> (bool, String) {
    match check {
        ClusterCheck::Count { field, op, value } => {
            let (name, actual) = cluster_count(world, field);
            (op.holds(actual.cmp(value)), format!("{name}={actual}"))
        }
        ClusterCheck::Frag { op, millionths } => {
            let part = scheduler::fragment::fragmentation(world.cluster()).millionths();
            (op.holds(part.cmp(millionths)), format!("frag={}.{:02}%", part / 10_000, part / 100 % 100))
        }
        ClusterCheck::LostGpuHours { op, gpu_ms } => {
            let actual = world.lost_gpu_ms();
            let hundredths = actual / 36_000;
            let shown = format!("lost_gpu_hours={}.{:02}", hundredths / 100, hundredths % 100);
            (op.holds(actual.cmp(gpu_ms)), shown)
        }
    }
}

fn cluster_count(world: &World, field: &ClusterCount) -> (String, u64) {
    let in_state = |state| world.cluster().jobs.values().filter(|job| job.state == state).count() as u64;
    let unmade = || world.cluster().tasks_unmade();
    let nodes = || world.cluster().nodes.iter();
    match field {
        ClusterCount::Evictions => ("evictions".into(), world.all_jobs().map(|job| u64::from(job.evictions)).sum()),
        ClusterCount::Violations => ("violations".into(), world.broken().len() as u64),
        ClusterCount::Running => ("running".into(), in_state(JobState::Running)),
        ClusterCount::Pending => ("pending".into(), in_state(JobState::Pending) + unmade()),
        ClusterCount::Free => ("free".into(), free_gpus(world)),
        ClusterCount::Used(queue) => {
            let used = world.cluster().queues.get(queue).map_or(0, |queue| queue.used.all_gpus());
            (format!("used({queue})"), used)
        }
        ClusterCount::Repartitions => {
            let made = world.trace().iter().filter(|line| line.kind == "repartitioned");
            ("repartitions".into(), made.count() as u64)
        }
        ClusterCount::Spent(queue) => {
            let spent = world.cluster().queues.get(queue).map_or(0, |queue| queue.spent_gpu_ms(world.now()));
            (format!("spent({queue})"), spent / 1_000)
        }
        ClusterCount::Quarantined => {
            let out = nodes().filter(|node| node.health.state == HealthState::Quarantined);
            ("quarantined".into(), out.count() as u64)
        }
    }
}

/// GPUs that are free on nodes that take work.
fn free_gpus(world: &World) -> u64 {
    let takes_work = |node: &&Arc<Node>| {
        let healthy = matches!(node.health.state, HealthState::Ready | HealthState::Probation);
        healthy && !node.cordoned && node.draining.is_none()
    };
    let nodes = world.cluster().nodes.iter().filter(takes_work);
    nodes.map(|node| node.devices.iter().filter(|device| **device == Device::Free).count() as u64).sum()
}
