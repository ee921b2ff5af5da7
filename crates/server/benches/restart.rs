//! A restart with many finished jobs on record: from opening the store to the first decision.
//!
//! `cargo bench -p ganger-server --bench restart [-- FINISHED]`. Prints figures; the bar is 5 s with 100,000 jobs on record.
mod fleet;

use ganger_core::lifecycle::input::Input;
use ganger_core::model::Cluster;
use ganger_core::model::job::{JobSpec, Owner, Shape};
use ganger_core::{lifecycle, model::Time};
use ganger_server::cycle::Cycle;
use ganger_server::store::{Batch, Store, StoreOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const NODES: u32 = 128;
const PENDING: u64 = 1_000;

fn main() -> anyhow::Result<()> {
    let finished = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(100_000);
    let directory = fleet::scratch("restart");
    fill(&directory, finished)?;
    let outcome = measure(&directory, finished);
    std::fs::remove_dir_all(&directory)?;
    outcome
}

fn measure(directory: &Path, finished: u64) -> anyhow::Result<()> {
    let began = Instant::now();
    let (store, cluster) = Store::open(directory, StoreOptions::default())?;
    let loaded = began.elapsed();
    let jobs = cluster.jobs.len();
    let (cycle, running) = Cycle::start(store, cluster, Vec::new())?;
    while cycle.view().metrics.decisions == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let decided = began.elapsed();
    let bytes = std::fs::metadata(directory.join("ganger.db"))?.len();
    println!("{finished} finished jobs on record ({} MiB), {jobs} alive, {NODES} nodes", bytes >> 20);
    println!("opened and loaded      {loaded:?}");
    println!("first decision         {decided:?}   (bar 5 s)");
    running.stop();
    Ok(())
}

/// Many jobs that were submitted and cancelled, a few that wait, through the same inputs as ever.
fn fill(directory: &Path, finished: u64) -> anyhow::Result<()> {
    let (mut store, mut cluster) =
        Store::open(directory, StoreOptions { snapshot_every: u64::MAX, ..StoreOptions::default() })?;
    let mut now = Time(1_700_000_000_000);
    let mut batch = Batch::default();
    batch.dirty.queues.extend(cluster.queues.keys().cloned());
    let mut apply = |cluster: &mut Cluster, batch: &mut Batch, input| -> anyhow::Result<_> {
        now.0 += 1;
        let effects = lifecycle::apply(cluster, input, now)?;
        let submitted = effects.submitted;
        batch.add(effects);
        Ok(submitted)
    };
    for index in 0..NODES {
        apply(&mut cluster, &mut batch, Input::Register(Box::new(fleet::node(index)?)))?;
    }
    let owner = Owner { user: "bench".to_string(), uid: 1000, gid: 1000 };
    for number in 0..finished + PENDING {
        let submit = Input::Submit { spec: Arc::new(spec(number)), owner: owner.clone() };
        let job = apply(&mut cluster, &mut batch, submit)?;
        if let Some(job) = job.filter(|_| number < finished) {
            apply(&mut cluster, &mut batch, Input::Cancel { job, by: "bench".to_string() })?;
        }
        if number % 5_000 == 4_999 {
            store.commit(&Cluster::new(), &mut cluster, &std::mem::take(&mut batch))?;
        }
    }
    store.commit(&Cluster::new(), &mut cluster, &batch)?;
    Ok(())
}

fn spec(number: u64) -> JobSpec {
    fleet::job(format!("job-{number}"), 2, Shape { gpus: 8, cpus: 64, memory_bytes: 64 << 30, ..Shape::default() })
}
