//! Durable submission → placement: a real store with `synchronous=FULL`, the real loop, virtual agents in this process.
//!
//! `cargo bench -p ganger-server --bench throughput [-- JOBS [NODES [SUBMITTERS]]]`. Prints figures; the bar is 2,000 jobs/s
//! from the first submission until the last is placed.
mod fleet;

use fleet::{Work, at};
use ganger_core::model::job::{JobSpec, Shape};
use ganger_server::cycle::Cycle;
use ganger_server::store::{Store, StoreOptions};
use std::path::Path;
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
    let directory = fleet::scratch("throughput");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(measure(&directory, Scale { jobs, nodes, submitters }));
    std::fs::remove_dir_all(&directory)?;
    outcome
}

async fn measure(directory: &Path, scale: Scale) -> anyhow::Result<()> {
    let (store, cluster) = Store::open(directory, StoreOptions::default())?;
    let (cycle, running) = Cycle::start(store, cluster, Vec::new())?;
    fleet::register(&cycle, scale.nodes).await?;
    let agents = fleet::agents(&cycle, scale.nodes, &Work::AtOnce);
    let began = Instant::now();
    let latencies = fleet::submit(&cycle, scale.submitters, scale.jobs, spec).await?;
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

fn spec(number: u64) -> JobSpec {
    fleet::job(format!("job-{number}"), 1, Shape { gpus: 1, cpus: 4, memory_bytes: 8 << 30, ..Shape::default() })
}
