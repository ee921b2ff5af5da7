//! A full cluster with a long queue: what a decision, the idle server and the next start cost. The same situation is made
//! with real Slurm by `benches/slurm/run`.
//!
//! `cargo bench -p ganger-server --bench pending [-- PENDING [NODES [FREED [IDLE_S]]]]`: two-node gangs of whole nodes fill the
//! cluster, PENDING more wait; the server is left alone for IDLE_S seconds, then FREED gangs end, one after the other.
//! A real store, the real loop, virtual agents in this process, whose cost is counted with the server's.
mod fleet;

use fleet::{Work, at};
use ganger_core::model::ids::JobId;
use ganger_core::model::job::{JobSpec, JobState, Shape};
use ganger_server::cycle::{Cycle, Metrics};
use ganger_server::store::{Store, StoreOptions};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::watch;

const SUBMITTERS: u64 = 64;
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// No decision for so long: the server has nothing more to say.
const SETTLED: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

struct Scale {
    pending: u64,
    nodes: u32,
    freed: u64,
    idle: Duration,
}

fn main() -> anyhow::Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let pending = numbers.next().unwrap_or(10_000);
    let nodes = numbers.next().unwrap_or(64) as u32;
    let freed = numbers.next().unwrap_or(20);
    let idle = Duration::from_secs(numbers.next().unwrap_or(60));
    let directory = fleet::scratch("pending");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(measure(&directory, &Scale { pending, nodes, freed, idle }));
    std::fs::remove_dir_all(&directory)?;
    outcome
}

async fn measure(directory: &Path, scale: &Scale) -> anyhow::Result<()> {
    let (store, cluster) = Store::open(directory, StoreOptions::default())?;
    let (cycle, running) = Cycle::start(store, cluster, Vec::new())?;
    fleet::register(&cycle, scale.nodes).await?;
    let (tell, told) = watch::channel(BTreeSet::new());
    let agents = fleet::agents(&cycle, scale.nodes, &Work::WhenTold(told));
    let gangs = u64::from(scale.nodes / 2);
    fleet::submit(&cycle, 1, gangs, |number| gang(format!("holder-{number}"))).await?;
    wait_until(&cycle, "the cluster is full", || runs(&cycle).len() as u64 == gangs).await?;
    println!("{} nodes of 8 GPUs full, {} gangs of two nodes pending", scale.nodes, scale.pending);
    fill_queue(&cycle, scale.pending).await?;
    idle(&cycle, scale.idle).await;
    free(&cycle, &tell, scale.freed).await?;
    agents.iter().for_each(|agent| agent.abort());
    tokio::task::spawn_blocking(move || running.stop()).await?;
    Ok(())
}

fn gang(name: String) -> JobSpec {
    fleet::job(name, 2, Shape { gpus: 8, cpus: 16, ..Shape::default() })
}

async fn fill_queue(cycle: &Cycle, pending: u64) -> anyhow::Result<()> {
    let (began, cpu) = (Instant::now(), cpu_us());
    fleet::submit(cycle, SUBMITTERS, pending, |number| gang(format!("waiting-{number}"))).await?;
    let took = began.elapsed();
    let mut last = (cycle.view().metrics.decisions, Instant::now());
    while last.1.elapsed() < SETTLED {
        tokio::time::sleep(LOOK_EVERY).await;
        let decisions = cycle.view().metrics.decisions;
        if decisions != last.0 {
            last = (decisions, Instant::now());
        }
    }
    let cpu_us = (cpu_us() - cpu) / pending.max(1);
    let rate = (pending as f64 / took.as_secs_f64()).round();
    println!("submitted and stored   {rate} jobs/s, {cpu_us} us of CPU each, decisions on them included");
    Ok(())
}

async fn idle(cycle: &Cycle, time: Duration) {
    let (before, cpu) = (cycle.view().metrics, cpu_us());
    tokio::time::sleep(time).await;
    let after = cycle.view().metrics;
    let share = (cpu_us() - cpu) as f64 / time.as_micros().max(1) as f64 * 100.0;
    let (decisions, commits) = (after.decisions - before.decisions, after.commits - before.commits);
    println!(
        "idle                   {share:.2} % of a core over {} s: {decisions} decisions, {commits} commits   (bar 1 %)",
        time.as_secs()
    );
}

/// One gang ends, the next in the queue runs on its two nodes; again and again.
async fn free(cycle: &Cycle, tell: &watch::Sender<BTreeSet<JobId>>, count: u64) -> anyhow::Result<()> {
    let (mut starts, mut passes) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let before = runs(cycle);
        let Some(ends) = before.first().copied() else { anyhow::bail!("nothing runs that could end") };
        let mut metrics = cycle.view().metrics;
        let began = Instant::now();
        tell.send_modify(|over| over.extend([ends]));
        let started = || {
            note_pass(cycle, &mut metrics, &mut passes);
            runs(cycle).iter().any(|job| !before.contains(job))
        };
        wait_until(cycle, "the next gang runs", started).await?;
        starts.push(began.elapsed());
        wait_for_the_last_pass(cycle, &mut metrics, &mut passes).await;
    }
    starts.sort_unstable();
    passes.sort_unstable();
    println!(
        "two nodes freed → next gang runs   p50 {:?}, max {:?} of {count}   (bar 0.3 s)",
        at(&starts, 50),
        at(&starts, 100)
    );
    println!(
        "pass over the queue                p50 {:?}, max {:?} of {}   (bar 10 ms)",
        at(&passes, 50),
        at(&passes, 100),
        passes.len()
    );
    Ok(())
}

/// Starting a gang is news, on which one more decision follows.
async fn wait_for_the_last_pass(cycle: &Cycle, metrics: &mut Metrics, passes: &mut Vec<Duration>) {
    let began = Instant::now();
    while began.elapsed() < SETTLED / 4 {
        note_pass(cycle, metrics, passes);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn note_pass(cycle: &Cycle, known: &mut Metrics, passes: &mut Vec<Duration>) {
    let metrics = cycle.view().metrics;
    if metrics.decisions > known.decisions {
        passes.push(Duration::from_micros(metrics.last_decision_us));
    }
    *known = metrics;
}

fn runs(cycle: &Cycle) -> Vec<JobId> {
    let view = cycle.view();
    view.cluster.jobs.values().filter(|job| job.state == JobState::Running).map(|job| job.id).collect()
}

/// Looks only at new states: to go through ten thousand jobs again and again would be most of what is measured.
async fn wait_until(cycle: &Cycle, what: &str, mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
    let (began, mut seen) = (Instant::now(), None);
    loop {
        let version = cycle.view().cluster.version;
        if seen != Some(version) && done() {
            return Ok(());
        }
        seen = Some(version);
        anyhow::ensure!(began.elapsed() < PATIENCE, "waited {} s until {what}, in vain", PATIENCE.as_secs());
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn cpu_us() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(spent.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(spent.tv_nsec).unwrap_or(0) / 1_000
}
