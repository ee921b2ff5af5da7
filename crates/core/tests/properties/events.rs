//! What may happen: a kind and three numbers, read against the state of the moment.
use ganger_core::lifecycle::Input;
use ganger_core::lifecycle::input::QueueSpec;
use ganger_core::model::amounts::Limit;
use ganger_core::model::budget::{Budget, Period};
use ganger_core::model::cpuset::CpuSet;
use ganger_core::model::job::{
    CheckpointPolicy, Dependency, DependencyKind, Exit, Gang, Group, JobSpec, Level, Priority, Shape, Shrink,
    TopologyWish,
};
use ganger_core::model::machine::mig::ProfileName;
use ganger_core::model::queue::QueuePolicy;
use ganger_core::model::report::Report;
use ganger_core::model::split::{PartAsk, ShareMode};
use ganger_core::model::whole::WholeNodes;
use ganger_core::model::window::Window;
use ganger_core::model::zone::Zone;
use ganger_core::model::{AttemptNo, Cluster, JobId, NodeId, Rank, Span, Time};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub kind: u8,
    pub a: u16,
    pub b: u16,
    pub c: u16,
}

/// Kinds below this only submit, decide, obey, finish and let time pass.
pub const CROWD: u8 = 26;
/// Kinds below this also cancel, hold, requeue and change settings and queues.
pub const PEOPLE: u8 = 36;
/// All kinds: also faults, strange reports and late decisions.
pub const ALL: u8 = 63;

const GIB: u64 = 1 << 30;
const GBPS: u64 = 1_000_000_000;

fn pick<T: Copy>(from: &[T], by: u16) -> T {
    from[usize::from(by) % from.len()]
}

pub const QUEUES: [&str; 5] = ["default", "lab", "lab/a", "lab/b", "shop"];

/// A job of any shape. Most are plain, so that wishes meet competition.
pub fn spec(event: Event, number: u32, now: Time, jobs: &[JobId]) -> JobSpec {
    let Event { a, b, c, .. } = event;
    let gpus = pick(&[0, 1, 1, 2, 2, 4, 4, 8], a);
    let workers = pick(&[1, 1, 2, 2, 3, 4, 4, 6], a >> 3);
    let priority = pick(&[Priority::P0, Priority::P1, Priority::P2, Priority::P3, Priority::P3, Priority::P3], a >> 6);
    let limit = pick(&[None, Some(Span::minutes(10)), Some(Span::hours(1)), Some(Span::hours(2))], a >> 12);
    let rare = |bits: u16, one_in: u16| (c >> bits).is_multiple_of(one_in);
    let group = || Group { name: format!("g{}", b % 3), size: 2 };
    let after = || Dependency {
        job: pick(jobs, b),
        kind: pick2(&[DependencyKind::AfterOk, DependencyKind::AfterNotOk, DependencyKind::AfterAny], b >> 4),
        met: false,
    };
    let part = rare(10, 5).then(|| part(a >> 3, priority));
    JobSpec {
        name: format!("job{number}"),
        queue: pick(&QUEUES, b).to_string(),
        priority,
        preemptible: if rare(0, 9) { priority != Priority::P3 } else { priority == Priority::P3 },
        firm: rare(12, 5),
        gang: gang(workers, b),
        shape: Shape {
            gpus: if part.is_some() { 0 } else { gpus },
            part,
            distinct_gpus: part.is_some() && b & 1 == 0,
            cpus: pick(&[1, 1, 2, 4], b >> 2),
            memory_bytes: pick(&[0, 0, GIB, 6 * GIB], b >> 4),
            gpu_model: rare(1, 16).then(|| "H100".to_string()),
            vram_bytes: if part.is_some() {
                20 * GIB
            } else if rare(2, 16) {
                60 * GIB
            } else {
                0
            },
            labels: BTreeMap::new(),
            pcie_bandwidth_bps: if part.is_none() && gpus > 0 && rare(10, 5) { 100 * GBPS } else { 0 },
            network_bandwidth_bps: if rare(11, 7) { 60 * GBPS } else { 0 },
            ..Shape::default()
        },
        topology: match part {
            Some(_) => TopologyWish { ranks_per_island: None, ..topology(b >> 6, workers) },
            None => topology(b >> 6, workers),
        },
        group: rare(3, 6).then(group),
        pool: rare(4, 20).then(|| "blue".to_string()),
        time_limit: limit,
        checkpoint: CheckpointPolicy {
            grace: pick(&[Span::ZERO, Span::seconds(30)], c >> 6),
            on_demand: rare(7, 3),
            ..CheckpointPolicy::default()
        },
        retries: u32::from(c >> 8) % 3,
        after: if !jobs.is_empty() && rare(5, 20) { vec![after()] } else { Vec::new() },
        begin: rare(9, 30).then(|| now + Span::minutes(5)),
        deadline: limit.filter(|_| (a ^ b).is_multiple_of(7)).map(|limit| now + limit + Span::minutes((b % 64).into())),
        windows: if (a ^ c).is_multiple_of(7) { vec![window(now, b)] } else { Vec::new() },
        array: None,
        intermittent: part.is_some(),
        run: Default::default(),
    }
}

/// One in four can go on with fewer workers.
fn gang(workers: u32, by: u16) -> Gang {
    let (min, step) = (1 + u32::from(by >> 11) % workers, 1 + u32::from(by >> 14) % 2);
    let shrink = if (by >> 7) & 1 == 0 { Shrink::Restart } else { Shrink::InPlace };
    if (by >> 9) & 3 == 0 { Gang { min, step, shrink, ..Gang::rigid(workers) } } else { Gang::rigid(workers) }
}

/// Around this time of day; long enough for any limit, or too short for most.
fn window(now: Time, by: u16) -> Window {
    let minute = (now.0 / 60_000 % 1_440) as u16;
    let from_min = (minute + 1_440 - 40 + pick(&[0, 20, 40, 60], by >> 2)) % 1_440;
    let until_min = (from_min + pick(&[30, 50, 70, 600], by >> 5)) % 1_440;
    Window { days: 0x7f, from_min, until_min, zone: Zone::default() }
}

/// Planned maintenance: soon or later, short or until somebody ends it.
pub fn maintenance(event: Event, node: NodeId, now: Time) -> Input {
    let from = now + Span::minutes(pick(&[0, 1, 10, 45, 120], event.b));
    let lasts = pick(&[Some(5), Some(30), Some(120), None], event.c);
    let until = lasts.map_or(Time::NEVER, |minutes| from + Span::minutes(minutes));
    Input::Maintain { node, from, until, by: "ops".to_string() }
}

fn pick2<T: Clone>(from: &[T], by: u16) -> T {
    from[usize::from(by) % from.len()].clone()
}

/// Instances of the cards that the machines have, and shares.
fn part(by: u16, priority: Priority) -> PartAsk {
    let name = pick(&["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "1g.23gb", "3g.93gb"], by >> 3);
    let turns = priority >= Priority::P2 && by & 4 != 0;
    match by % 2 {
        0 => PartAsk::Mig { profile: ProfileName::parse(name).expect("a profile") },
        _ => PartAsk::Share {
            milli: pick(&[100, 500, 1_000], by >> 6),
            mode: if turns { ShareMode::TimeSlice } else { ShareMode::Mps },
        },
    }
}

fn topology(by: u16, workers: u32) -> TopologyWish {
    let level = pick(&Level::ALL, by >> 3);
    match by % 8 {
        0 | 1 => TopologyWish { require: Some(level), ..TopologyWish::default() },
        2 => TopologyWish { prefer: Some(level), ..TopologyWish::default() },
        3 => TopologyWish {
            ranks_per_island: Some(if workers.is_multiple_of(2) { 2 } else { 1 }),
            require: (by & 64 != 0).then_some(level),
            ..TopologyWish::default()
        },
        _ => TopologyWish::default(),
    }
}

/// A new limit of one queue, or none.
pub fn queue(event: Event) -> QueueSpec {
    let limit = match event.b % 5 {
        0 => Limit::default(),
        1 => Limit { gpus: Some(u64::from(event.c % 24)), ..Limit::default() },
        2 => Limit { vram_bytes: Some(u64::from(event.c % 16) * 40 * GIB), ..Limit::default() },
        3 => Limit { network_bandwidth_bps: Some(100 * GBPS), ..Limit::default() },
        _ => Limit { cpus: Some(u64::from(event.c % 32)), memory_bytes: Some(20 * GIB), ..Limit::default() },
    };
    let guarantee = match event.b / 5 % 6 {
        0 => Limit::default(),
        1 => Limit { gpus: Some(0), ..Limit::default() },
        2 => Limit { gpus: Some(u64::from(event.c >> 4) % 12), ..Limit::default() },
        3 => Limit { cpus: Some(u64::from(event.c >> 4) % 16), ..Limit::default() },
        4 => Limit { gpus: Some(4), memory_bytes: Some(12 * GIB), ..Limit::default() },
        _ => Limit { vram_bytes: Some(160 * GIB), network_bandwidth_bps: Some(0), ..Limit::default() },
    };
    let path = pick(&QUEUES, event.a).to_string();
    let weight = Some(pick(&[1, 1, 2, 5, 0], event.a >> 3));
    let hours = [1, 2, 4, 24][usize::from(event.c >> 8) % 4];
    let per = pick(&[Period::Day, Period::Week, Period::Month], event.c >> 10);
    let budget = (event.c.is_multiple_of(3)).then_some(Budget {
        gpu_ms: hours * Span::hours(1).0,
        per,
        user_gpu_ms: event.c.is_multiple_of(2).then_some(Span::hours(1).0),
    });
    let policy = [None, Some(QueuePolicy::LeastAttained), Some(QueuePolicy::Seniority)][usize::from(event.b / 3 % 3)];
    QueueSpec {
        path,
        weight,
        guarantee: Some(guarantee),
        limit: event.b.is_multiple_of(2).then_some(limit),
        policy,
        budget,
        whole_nodes: whole_nodes(event),
    }
}

/// Whole nodes are promised now and then, and mostly taken back.
fn whole_nodes(event: Event) -> Option<WholeNodes> {
    let (nodes, gpus) = (u32::from(event.c >> 2) % 4, pick(&[1, 2, 4, 8], event.c >> 6));
    (event.b / 7).is_multiple_of(3).then_some(WholeNodes { nodes, gpus, gpu_model: None })
}

pub fn setting(event: Event) -> (&'static str, &'static str) {
    pick(
        &[
            ("las.quantum", "20m"),
            ("las.run", "0s"),
            ("las.levels", "1"),
            ("preempt.from", "P0"),
            ("usage.half_life", "1h"),
            ("budget.policy", "stop"),
            ("budget.policy", "none"),
            ("preempt.from", "P2"),
            ("preempt.from", "P1"),
            ("reservations", "0"),
            ("reservations", "1"),
            ("reservations", "8"),
            ("reservations.urgent", "1"),
            ("reservations.urgent", "3"),
            ("aging.step", "10m"),
            ("aging.step", "6h"),
            ("aging.ceiling", "P0"),
            ("assumed.time", "30m"),
            ("assumed.time", "no time"),
            ("lease", "20s"),
            ("promote.after", "20m"),
            ("protect.after", "1"),
            ("protect.time", "10m"),
            ("stay.least", "10s"),
        ],
        event.a,
    )
}

/// How a worker may end.
pub fn exit(by: u16) -> Exit {
    match by % 8 {
        0 | 1 => Exit::Code(0),
        2 => Exit::Code(1),
        3 => Exit::Code(ganger_core::model::job::EXIT_REQUEUE),
        4 => Exit::Signal(9),
        5 => Exit::Refused("disk full".to_string()),
        6 => Exit::Lost,
        _ => Exit::LeaseExpired,
    }
}

/// A report that may be stale, early, repeated, about another node's worker or about nothing at all.
pub fn strange_report(event: Event, cluster: &Cluster, jobs: &[JobId]) -> Report {
    let Event { a, b, c, .. } = event;
    let job = if jobs.is_empty() { JobId(99) } else { pick(jobs, a) };
    let newest = cluster.job(job).map_or(1, |job| job.attempts.0);
    let attempt = AttemptNo((newest + u32::from(b % 3)).saturating_sub(1));
    let rank = Rank(u32::from(b >> 2) % 7);
    match c % 7 {
        0 => Report::Prepared { job, attempt, rank, port: 29_500 },
        1 => Report::Running { job, attempt, rank },
        2 => Report::Ended { job, attempt, rank, exit: exit(c >> 3) },
        3 => Report::Checkpoint { job, attempt, step: u64::from(b), path: "/ckpt/x".to_string() },
        4 => Report::CheckpointRejected { job, attempt, path: "/ckpt/x".to_string(), why: "torn".to_string() },
        _ => {
            Report::Stray { job, attempt, rank, gpus: 1 << (c >> 3 & 3), cpus: CpuSet::range(0, u32::from(c >> 5 & 3)) }
        }
    }
}
