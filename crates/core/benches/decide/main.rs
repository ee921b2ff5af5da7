//! How long one decision takes on 1,000, 4,000 and 10,000 × 8 GPUs that are nearly full and fragmented, from a cold start:
//! every run builds its index from the bare cluster. Prints a table; the bars are those of the design. Run it with
//! `cargo bench -p ganger-core`; a word after `--` runs only the rows that contain it (`4000` only those of that size), and
//! `--plot FILE` draws how it all grows.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a benchmark reads the clock")]
mod plot;

use ganger_core::lifecycle::input::NodeSpec;
use ganger_core::lifecycle::{Effects, Input, apply};
use ganger_core::model::cluster::NodePlacement;
use ganger_core::model::cpuset::CpuSet;
use ganger_core::model::decision::{Decision, Step};
use ganger_core::model::job::{Exit, JobSpec, Level, Owner, Place, Priority, Shape, TopologyWish, WorkerPhase};
use ganger_core::model::machine::Machine;
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::report::Report;
use ganger_core::model::{AttemptNo, Cluster, JobId, NodeId, Span, Time};
use ganger_core::scheduler::decide;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SIZES: [u32; 3] = [1_000, 4_000, 10_000];
const NODES_PER_LEAF: u32 = 32;
const LEAVES_PER_SPINE: u32 = 16;
const RUNS: usize = 100;
const NOW: Time = Time(1_000_000_000_000);
const LATER: Time = Time(1_000_003_600_000);

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let plot = words.iter().position(|word| word == "--plot").filter(|at| at + 1 < words.len());
    let file = plot.map(|at| words.drain(at..at + 2).nth(1).expect("two words"));
    let only: Vec<String> = words.into_iter().filter(|word| !word.starts_with('-')).collect();
    println!("{:<54} {:>10} {:>10} {:>10}  {:>8} {:>9}", "one decision", "p50", "p99", "bar (p99)", "steps", "work");
    let mut figures = Figures::default();
    let wanted = |nodes: &u32| SIZES.iter().all(|size| size == nodes || !only.contains(&size.to_string()));
    // All of them are grown before the first decision: what that frees would be taken for room that a cluster needs.
    let plants: Vec<(u32, [Cluster; 2])> =
        SIZES.into_iter().filter(wanted).map(|nodes| (nodes, figures.grow(nodes))).collect();
    for (nodes, [roomy, tight]) in &plants {
        Bench { nodes: *nodes, only: &only }.run(roomy, tight, &mut figures);
    }
    if let Some(file) = file {
        std::fs::write(&file, figures.svg()).expect("the file can be written");
        println!("drawn in {file}");
    }
}

/// What is drawn: by size, p99 in ms, and MiB.
#[derive(Default)]
struct Figures {
    placing: Vec<(u32, f64)>,
    cycles: Vec<(u32, f64)>,
    next_cycles: Vec<(u32, f64)>,
    memory: Vec<(u32, f64)>,
}

impl Figures {
    /// One cluster with room for some, and one with hardly any.
    fn grow(&mut self, nodes: u32) -> [Cluster; 2] {
        let before = resident_bytes();
        let roomy = Plant { nodes, spare_nodes: nodes / 40, holes: 36 }.grow();
        let tight = Plant { nodes, spare_nodes: 0, holes: if nodes > 4_000 { 1 } else { 4 } }.grow();
        let mib = resident_bytes().saturating_sub(before) / 2 / (1 << 20);
        println!("one cluster of {nodes} nodes holds about {mib} MiB in memory");
        self.memory.push((nodes, mib as f64));
        [roomy, tight]
    }

    fn svg(self) -> String {
        let line = |name, points, bar| plot::Line { name, points, bar };
        let times = [
            line("place a gang of 64 x 8 GPUs, cold (bar 10)", self.placing, Some(10.0)),
            line("a whole cycle, 10,000 pending, cold (bar 250)", self.cycles, Some(250.0)),
            line("the next cycle, one job has ended (bar 20)", self.next_cycles, Some(20.0)),
        ];
        plot::svg(&times, &[line("nodes and running jobs", self.memory, None)])
    }
}

struct Bench<'a> {
    nodes: u32,
    only: &'a [String],
}

impl Bench<'_> {
    fn wanted(&self, name: &str) -> bool {
        self.only.iter().all(|word| name.contains(word.as_str()))
    }

    fn run(&self, roomy: &Cluster, tight: &Cluster, figures: &mut Figures) {
        let nodes = self.nodes;
        let sized = |name: &str| format!("{nodes}: {name}");
        // The smallest cluster has no 64 whole nodes to spare.
        for (shape, workers, gpus) in [("64 x 8", 64, 8), ("512 x 1", 512, 1)] {
            for require in [None, Some(Level::Spine)] {
                let tie = require.map_or(String::new(), |level| format!(", one {level}"));
                let spec = || JobSpec { topology: tied(require), ..gang("asks", Priority::P0, workers, gpus) };
                let name = sized(&format!("place {shape}{tie}"));
                if self.wanted(&name) && nodes >= 4_000 {
                    let (decision, p99_ms) = row(&name, &with(roomy, [spec()]), Duration::from_millis(10), RUNS);
                    figures.placing.extend((workers == 64 && require.is_none()).then_some((nodes, p99_ms)));
                    assert!(matches!(decision.steps[..], [Step::Start { .. }]), "{name}: it is placed");
                }
                let name = sized(&format!("preempt for {shape}{tie}"));
                if self.wanted(&name) && nodes >= 4_000 {
                    let (decision, _) = row(&name, &with(tight, [spec()]), Duration::from_millis(100), RUNS);
                    assert!(matches!(decision.steps[..], [Step::Stop { .. }, .., Step::Claim(_)]), "{name}: it evicts");
                }
            }
        }
        for (room, cluster) in [("room for some", roomy), ("hardly any room", tight)] {
            let name = sized(&format!("cycle with 10,000 pending, {room}"));
            if self.wanted(&name) {
                let crowd = with(cluster, (0..10_000).map(pending));
                let (decision, p99_ms) = row(&name, &crowd, Duration::from_millis(250), RUNS / 5);
                let settled = settle(crowd, decision);
                let name = sized(&format!("the next cycle, one job has ended, {room}"));
                let (_, next_p99_ms) = row(&name, &one_ends(settled), Duration::from_millis(20), RUNS);
                if room == "room for some" {
                    figures.cycles.push((nodes, p99_ms));
                    figures.next_cycles.push((nodes, next_p99_ms));
                }
            }
        }
    }
}

/// Decisions applied until there is nothing to decide: what is left waits.
fn settle(mut cluster: Cluster, mut decision: Decision) -> Cluster {
    for _ in 0..8 {
        if decision.steps.is_empty() {
            break;
        }
        apply(&mut cluster, Input::Decided(Box::new(decision)), LATER).expect("it is accepted");
        decision = decide(&cluster, LATER);
    }
    cluster
}

/// The oldest job that runs is done.
fn one_ends(mut cluster: Cluster) -> Cluster {
    let runs = |job: &&Arc<ganger_core::model::Job>| {
        job.attempt.as_ref().is_some_and(|a| a.workers.iter().all(|w| w.phase == WorkerPhase::Running))
    };
    let job = cluster.jobs.values().find(runs).expect("somebody runs").clone();
    let attempt = job.attempt.as_ref().expect("it runs");
    for worker in &attempt.workers {
        let ended = Report::Ended { job: job.id, attempt: attempt.number, rank: worker.rank, exit: Exit::Code(0) };
        apply(&mut cluster, Input::Report { node: worker.place.node, report: ended }, LATER).expect("it is accepted");
    }
    cluster
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// Times `runs` equal decisions and prints the line; the 99th percentile in ms.
fn row(name: &str, cluster: &Cluster, bar: Duration, runs: usize) -> (Decision, f64) {
    let now = LATER;
    let decision = decide(cluster, now);
    let mut times: Vec<Duration> = (0..runs)
        .map(|_| {
            let start = Clock::start();
            let again = decide(cluster, now);
            let took = start.elapsed();
            assert_eq!(again.steps.len(), decision.steps.len());
            took
        })
        .collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent).div_ceil(100).saturating_sub(1)];
    let (p50, p99) = (at(50), at(99));
    let verdict = if p99 <= bar { "" } else { "  over the bar" };
    let (steps, work) = (decision.steps.len(), decision.work);
    println!("{name:<54} {p50:>10.2?} {p99:>10.2?} {bar:>10.2?}  {steps:>8} {work:>9}{verdict}");
    (decision, p99.as_secs_f64() * 1e3)
}

/// Time on the CPU where the kernel tells it, so that neighbours on a shared machine do not count; else time on the wall.
enum Clock {
    OnCpu(Duration),
    Wall(Instant),
}

impl Clock {
    /// The kernel brings the figure up to date when a thread gives way.
    fn on_cpu() -> Option<Duration> {
        std::thread::yield_now();
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        Some(Duration::from_nanos(text.split(' ').next()?.parse().ok()?))
    }

    fn start() -> Clock {
        Clock::on_cpu().map_or_else(|| Clock::Wall(Instant::now()), Clock::OnCpu)
    }

    fn elapsed(&self) -> Duration {
        match self {
            Clock::OnCpu(start) => Clock::on_cpu().unwrap_or_default().saturating_sub(*start),
            Clock::Wall(start) => start.elapsed(),
        }
    }
}

fn tied(require: Option<Level>) -> TopologyWish {
    TopologyWish { require, ..TopologyWish::default() }
}

fn with(cluster: &Cluster, specs: impl IntoIterator<Item = JobSpec>) -> Cluster {
    let mut cluster = cluster.clone();
    for spec in specs {
        submit(&mut cluster, spec);
    }
    cluster
}

/// One of 10,000 that wait: a mix of sizes, classes, limits and wishes.
fn pending(index: u32) -> JobSpec {
    let (workers, gpus) = [(1, 1), (1, 2), (1, 8), (2, 8), (4, 8), (16, 8), (64, 8), (8, 1)][index as usize % 8];
    let priority = [Priority::P1, Priority::P2, Priority::P2, Priority::P3][index as usize / 8 % 4];
    let hours = [1, 4, 24][index as usize / 32 % 3];
    JobSpec {
        topology: tied((index / 96).is_multiple_of(4).then_some(Level::Leaf)),
        time_limit: Some(Span::hours(hours)),
        ..gang(&format!("pending{index}"), priority, workers, gpus)
    }
}

fn gang(name: &str, priority: Priority, workers: u32, gpus: u32) -> JobSpec {
    JobSpec {
        priority,
        preemptible: priority == Priority::P3,
        ..JobSpec::new(name, workers, Shape { gpus, cpus: gpus, ..Shape::default() })
    }
}

/// How full the cluster is: nodes with nothing on them, and of a hundred other nodes how many miss one GPU or two.
struct Plant {
    nodes: u32,
    spare_nodes: u32,
    holes: u32,
}

/// Always the same numbers.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(bound)) as u32
    }
}

impl Plant {
    /// Nodes, then running jobs: 2,000 that yield, the rest normal; of one to three to a node, some over two nodes.
    fn grow(&self) -> Cluster {
        let (nodes, yields_at_most) = (self.nodes, self.nodes / 2);
        let mut cluster = bare_cluster(nodes);
        let mut dice = Dice(7);
        let mut jobs: Vec<(JobSpec, Vec<Place>)> = Vec::new();
        let mut yielding = 0;
        let mut node = 0;
        while node < nodes {
            if self.is_spare(node) {
                node += 1;
                continue;
            }
            let wide = dice.below(10) == 0 && node + 1 < nodes && !self.is_spare(node + 1);
            let parts: &[u32] = match dice.below(4) {
                _ if wide => &[8],
                0 => &[4, 4],
                1 => &[2, 6],
                _ => &[8],
            };
            let mut first = 0;
            for (index, part) in parts.iter().enumerate() {
                let hole = if index == 0 && dice.below(100) < self.holes { 1 + dice.below(2) } else { 0 };
                let gpus = part - hole.min(part - 1);
                let class = if yielding < yields_at_most && dice.below(2) == 0 { Priority::P3 } else { Priority::P2 };
                yielding += u32::from(class == Priority::P3);
                let nodes = if wide { node..node + 2 } else { node..node + 1 };
                let places: Vec<Place> = nodes.map(|node| place(&cluster, NodeId(node), first, gpus)).collect();
                let spec = JobSpec {
                    time_limit: Some(Span::hours(u64::from(2 + dice.below(40)))),
                    ..gang(&format!("r{}", jobs.len()), class, places.len() as u32, gpus)
                };
                jobs.push((spec, places));
                first += part;
            }
            node += if wide { 2 } else { 1 };
        }
        start(&mut cluster, jobs);
        let used = cluster.queues["default"].used.gpus;
        println!("{used} of {} GPUs held by {} jobs, {yielding} of them yield", nodes * 8, cluster.jobs.len());
        cluster
    }

    /// Spare nodes stand apart from one another, all but a fifth of them under the second spine.
    fn is_spare(&self, node: u32) -> bool {
        let per_spine = NODES_PER_LEAF * LEAVES_PER_SPINE;
        let (inside, outside) = (self.spare_nodes * 4 / 5, self.spare_nodes / 5);
        let spread = |nodes: u32, spares: u32| spares > 0 && node.is_multiple_of(nodes / spares);
        if node / per_spine == 1 { spread(per_spine, inside) } else { spread(self.nodes - per_spine, outside) }
    }
}

fn bare_cluster(nodes: u32) -> Cluster {
    let mut cluster = Cluster::new();
    let machine = profile("dgx-h100").expect("a shipped profile");
    for index in 0..nodes {
        let leaf = index / NODES_PER_LEAF;
        let placement = NodePlacement {
            leaf: Some(format!("leaf{leaf}")),
            spine: Some(format!("spine{}", leaf / LEAVES_PER_SPINE)),
            ..NodePlacement::default()
        };
        let spec = NodeSpec {
            name: format!("n{index}"),
            machine: machine.clone(),
            placement,
            address: "10.0.0.1".to_string(),
            boot_id: "boot".to_string(),
            agent: String::new(),
        };
        input(&mut cluster, Input::Register(Box::new(spec)));
    }
    cluster
}

fn place(cluster: &Cluster, node: NodeId, first: u32, gpus: u32) -> Place {
    let machine: &Machine = &cluster.node(node).machine;
    let mut cpus = CpuSet::default();
    for gpu in first..first + gpus {
        let socket = &machine.sockets[usize::from(machine.gpus[gpu as usize].socket.unwrap_or(0))];
        let own = socket.cpus.iter().nth(gpu as usize).expect("more cores than GPUs");
        cpus.insert(own);
    }
    Place {
        node,
        gpus: ((1 << gpus) - 1) << first,
        cpus,
        memory: Vec::new(),
        nics: 0,
        vram_bytes: 0,
        pcie_bps: Vec::new(),
        network_bps: 0,
        slice: None,
    }
}

/// All of them at once, and running an hour after.
fn start(cluster: &mut Cluster, jobs: Vec<(JobSpec, Vec<Place>)>) {
    let mut steps = Vec::new();
    for (spec, places) in jobs {
        let job = submit(cluster, spec);
        steps.push(Step::Start { job, attempt: AttemptNo(1), places, guest_of: Vec::new() });
    }
    let decision = Decision { at: NOW, based_on: cluster.version, steps, ..Decision::default() };
    input(cluster, Input::Decided(Box::new(decision)));
    let workers: Vec<(NodeId, JobId, ganger_core::model::Rank)> = cluster
        .jobs
        .values()
        .flat_map(|job| job.attempt.iter().flat_map(|attempt| &attempt.workers).map(|w| (w.place.node, job.id, w.rank)))
        .collect();
    let attempt = AttemptNo(1);
    for (node, job, rank) in &workers {
        let report = Report::Prepared { job: *job, attempt, rank: *rank, port: 29_500 };
        input(cluster, Input::Report { node: *node, report });
    }
    for (node, job, rank) in &workers {
        input(cluster, Input::Report { node: *node, report: Report::Running { job: *job, attempt, rank: *rank } });
    }
    let runs = |job: &Arc<ganger_core::model::Job>| {
        job.attempt.as_ref().is_some_and(|a| a.workers.iter().all(|w| w.phase == WorkerPhase::Running))
    };
    assert!(cluster.jobs.values().all(runs), "all of them run");
}

fn submit(cluster: &mut Cluster, spec: JobSpec) -> JobId {
    let submitted = input(cluster, Input::Submit { spec: Arc::new(spec), owner: Owner::default() }).submitted;
    submitted.expect("a number")
}

fn input(cluster: &mut Cluster, input: Input) -> Effects {
    apply(cluster, input, NOW).expect("the input is accepted")
}
