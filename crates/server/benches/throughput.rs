//! Durable submission → placement: a real store with `synchronous=FULL`, the real loop, virtual agents in this process.
//!
//! `cargo bench -p ganger-server --bench throughput [-- JOBS [NODES [SUBMITTERS]]]`. Prints figures; the bar is 2,000 jobs/s
//! from the first submission until the last is placed.
use ganger_core::lifecycle::input::{Input, NodePlacement, NodeSpec};
use ganger_core::lifecycle::orders;
use ganger_core::model::JobId;
use ganger_core::model::ids::NodeId;
use ganger_core::model::job::{Exit, JobSpec, Owner, RunSpec, Shape};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::report::Report;
use ganger_core::model::wire::agent::{Action, NumberedReport};
use ganger_server::cycle::Cycle;
use ganger_server::store::{Store, StoreOptions};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

struct Scale {
    jobs: u64,
    nodes: u32,
    submitters: u64,
}

fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let jobs = numbers.next().unwrap_or(10_000);
    let nodes = numbers.next().unwrap_or(64) as u32;
    let submitters = numbers.next().unwrap_or(512);
    let directory = scratch();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(measure(directory.clone(), Scale { jobs, nodes, submitters }));
    std::fs::remove_dir_all(&directory)?;
    outcome
}

/// Beside the build, on a real disk: a memory file system would make every commit free.
fn scratch() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_path_buf()));
    beside.unwrap_or_else(std::env::temp_dir).join(format!("bench-throughput-{}", std::process::id()))
}

async fn measure(directory: PathBuf, scale: Scale) -> anyhow::Result<()> {
    let (store, cluster) = Store::open(&directory, StoreOptions::default())?;
    let (cycle, running) = Cycle::start(store, cluster, Vec::new())?;
    for index in 0..scale.nodes {
        cycle.apply(Input::Register(Box::new(node(index)?))).await?;
    }
    let agents: Vec<_> = (0..scale.nodes).map(|index| tokio::spawn(agent(cycle.clone(), NodeId(index)))).collect();
    let next = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let submitters: Vec<_> =
        (0..scale.submitters).map(|_| tokio::spawn(submitter(cycle.clone(), next.clone(), scale.jobs))).collect();
    let mut latencies = Vec::new();
    for submitter in submitters {
        latencies.extend(submitter.await??);
    }
    let submitted = began.elapsed();
    while cycle.view().cluster.jobs.values().any(|job| job.attempts.0 == 0) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let placed = began.elapsed();
    while !cycle.view().cluster.jobs.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let ended = began.elapsed();
    agents.iter().for_each(|agent| agent.abort());
    latencies.sort_unstable();
    let metrics = cycle.view().metrics;
    let rate = |time: Duration| (scale.jobs as f64 / time.as_secs_f64()).round();
    println!("{} jobs, {} nodes of 8 GPUs, {} submitters", scale.jobs, scale.nodes, scale.submitters);
    println!(
        "submitted and stored   {:>8} jobs/s   (p50 {:?}, p99 {:?})",
        rate(submitted),
        at(&latencies, 50),
        at(&latencies, 99)
    );
    println!("placed and stored      {:>8} jobs/s   (bar 2000)", rate(placed));
    println!("run to their end       {:>8} jobs/s", rate(ended));
    println!(
        "{} commits, {} decisions ({} stale), last {} us",
        metrics.commits, metrics.decisions, metrics.stale_decisions, metrics.last_decision_us
    );
    tokio::task::spawn_blocking(move || running.stop()).await?;
    Ok(())
}

fn at(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}

async fn submitter(cycle: Cycle, next: Arc<AtomicU64>, jobs: u64) -> anyhow::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= jobs {
            return Ok(latencies);
        }
        let began = Instant::now();
        let owner = Owner { user: "bench".to_string(), uid: 1000, gid: 1000 };
        cycle.apply(Input::Submit { spec: Arc::new(spec(number)), owner }).await?;
        latencies.push(began.elapsed());
    }
}

/// Does all it is told at once, and ends each worker as soon as it runs.
async fn agent(cycle: Cycle, node: NodeId) -> anyhow::Result<()> {
    let mut done: BTreeSet<(JobId, bool)> = BTreeSet::new();
    let (mut number, mut seen) = (0, 0);
    loop {
        let bell = cycle.board().node_bell(node);
        let rung = bell.rung();
        tokio::pin!(rung);
        rung.as_mut().enable();
        let cluster = cycle.view().cluster.clone();
        if cluster.node(node).generation == seen {
            rung.await;
            continue;
        }
        seen = cluster.node(node).generation;
        let mut reports = Vec::new();
        for order in orders(&cluster, node) {
            let (job, attempt, rank) = (order.job, order.attempt, order.rank);
            match order.action {
                Action::Prepare if done.insert((job, false)) => {
                    reports.push(Report::Prepared { job, attempt, rank, port: 20_000 });
                }
                Action::Go { .. } if done.insert((job, true)) => {
                    reports.push(Report::Running { job, attempt, rank });
                    reports.push(Report::Ended { job, attempt, rank, exit: Exit::Code(0) });
                }
                _ => {}
            }
        }
        let numbered = reports.into_iter().map(|report| {
            number += 1;
            NumberedReport { number, report }
        });
        let numbered: Vec<NumberedReport> = numbered.collect();
        if !numbered.is_empty() {
            cycle.sync(node, numbered.into()).await?;
        }
    }
}

fn node(index: u32) -> anyhow::Result<NodeSpec> {
    Ok(NodeSpec {
        name: format!("n{index}"),
        machine: profile("dgx-h100")?,
        placement: NodePlacement::default(),
        address: "127.0.0.1".to_string(),
        boot_id: "boot".to_string(),
        agent: String::new(),
    })
}

fn spec(number: u64) -> JobSpec {
    let shape = Shape { gpus: 1, cpus: 4, memory_bytes: 8 << 30, ..Shape::default() };
    let run = RunSpec { command: vec!["train".to_string()], ..RunSpec::default() };
    JobSpec { run, ..JobSpec::new(&format!("job-{number}"), 1, shape) }
}
