//! What the benchmarks share: a store on a real disk, virtual nodes of 8 GPUs, and their agents in this process.
//!
//! An agent does at once what it is told, is heard as often as a real one, and starts no process.
#![allow(dead_code, reason = "each benchmark uses a part")]
use ganger_core::lifecycle::input::{Input, NodePlacement, NodeSpec};
use ganger_core::lifecycle::orders;
use ganger_core::model::ids::{AttemptNo, JobId, NodeId, Rank};
use ganger_core::model::job::{Exit, JobSpec, Owner, RunSpec, Shape};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::report::Report;
use ganger_core::model::wire::agent::{Action, NumberedReport, Order};
use ganger_server::cycle::Cycle;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The part of a lease after which a real agent's long poll comes back.
const POLLS_PER_LEASE: u64 = 16;

/// When the work of a job is over.
#[derive(Debug, Clone)]
pub enum Work {
    AtOnce,
    /// As soon as the job is in this set.
    WhenTold(watch::Receiver<BTreeSet<JobId>>),
}

/// Beside the build, on a real disk: a memory file system would make every commit free.
pub fn scratch(name: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.to_path_buf()));
    beside.unwrap_or_else(std::env::temp_dir).join(format!("bench-{name}-{}", std::process::id()))
}

pub async fn register(cycle: &Cycle, nodes: u32) -> anyhow::Result<()> {
    for index in 0..nodes {
        cycle.apply(Input::Register(Box::new(node(index)?))).await?;
    }
    Ok(())
}

pub fn agents(cycle: &Cycle, nodes: u32, work: &Work) -> Vec<JoinHandle<anyhow::Result<()>>> {
    (0..nodes).map(|index| tokio::spawn(Agent::new(cycle.clone(), NodeId(index), work.clone()).run())).collect()
}

/// Submits from `submitters` tasks until `jobs` are stored; answers how long each submission took, sorted.
pub async fn submit(
    cycle: &Cycle,
    submitters: u64,
    jobs: u64,
    spec: fn(u64) -> JobSpec,
) -> anyhow::Result<Vec<Duration>> {
    let next = Arc::new(AtomicU64::new(0));
    let submitter = || {
        let (cycle, next) = (cycle.clone(), next.clone());
        tokio::spawn(async move {
            let mut latencies = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= jobs {
                    return anyhow::Ok(latencies);
                }
                let began = Instant::now();
                let owner = Owner { user: "bench".to_string(), uid: 1000, gid: 1000 };
                cycle.apply(Input::Submit { spec: Arc::new(spec(number)), owner }).await?;
                latencies.push(began.elapsed());
            }
        })
    };
    let tasks: Vec<_> = (0..submitters).map(|_| submitter()).collect();
    let mut latencies = Vec::new();
    for task in tasks {
        latencies.extend(task.await??);
    }
    latencies.sort_unstable();
    Ok(latencies)
}

pub fn job(name: String, workers: u32, shape: Shape) -> JobSpec {
    let run = RunSpec { command: vec!["train".to_string()], ..RunSpec::default() };
    JobSpec { run, ..JobSpec::new(&name, workers, shape) }
}

pub fn at(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get(sorted.len() * percent / 100).or(sorted.last()).copied().unwrap_or_default()
}

pub fn node(index: u32) -> anyhow::Result<NodeSpec> {
    Ok(NodeSpec {
        name: format!("n{index}"),
        machine: profile("dgx-h100")?,
        placement: NodePlacement::default(),
        address: "127.0.0.1".to_string(),
        boot_id: "boot".to_string(),
        agent: String::new(),
    })
}

struct Agent {
    cycle: Cycle,
    node: NodeId,
    work: Work,
    number: u64,
    prepared: BTreeSet<(JobId, Rank)>,
    running: BTreeMap<(JobId, Rank), AttemptNo>,
    reports: Vec<Report>,
}

impl Agent {
    fn new(cycle: Cycle, node: NodeId, work: Work) -> Agent {
        let (prepared, running) = (BTreeSet::new(), BTreeMap::new());
        Agent { cycle, node, work, number: 0, prepared, running, reports: Vec::new() }
    }

    async fn run(mut self) -> anyhow::Result<()> {
        let mut seen = 0;
        loop {
            let bell = self.cycle.board().node_bell(self.node);
            let rung = bell.rung();
            tokio::pin!(rung);
            rung.as_mut().enable();
            let cluster = self.cycle.view().cluster.clone();
            let generation = cluster.node(self.node).generation;
            if generation != seen {
                orders(&cluster, self.node).iter().for_each(|order| self.obey(order));
            }
            self.end_what_is_over();
            if generation != seen || !self.reports.is_empty() {
                seen = generation;
                self.report().await?;
                continue;
            }
            let poll = Duration::from_millis(cluster.policy.lease.0 / POLLS_PER_LEASE);
            drop(cluster);
            let over = told(&mut self.work);
            tokio::select! {
                () = rung => {}
                () = over => {}
                () = tokio::time::sleep(poll) => self.report().await?,
            }
        }
    }

    fn obey(&mut self, order: &Order) {
        let (job, attempt, rank) = (order.job, order.attempt, order.rank);
        match order.action {
            Action::Prepare if self.prepared.insert((job, rank)) => {
                self.reports.push(Report::Prepared { job, attempt, rank, port: 20_000 });
            }
            Action::Go { .. } if !self.running.contains_key(&(job, rank)) => {
                self.running.insert((job, rank), attempt);
                self.reports.push(Report::Running { job, attempt, rank });
            }
            _ => {}
        }
    }

    fn end_what_is_over(&mut self) {
        let is_over = |job: &JobId| match &self.work {
            Work::AtOnce => true,
            Work::WhenTold(told) => told.borrow().contains(job),
        };
        let over: Vec<_> = self.running.keys().filter(|(job, _)| is_over(job)).copied().collect();
        for (job, rank) in over {
            let attempt = self.running.remove(&(job, rank)).unwrap_or_default();
            self.reports.push(Report::Ended { job, attempt, rank, exit: Exit::Code(0) });
        }
    }

    /// Also with nothing to report: then the agent is only heard.
    async fn report(&mut self) -> anyhow::Result<()> {
        let numbered = std::mem::take(&mut self.reports).into_iter().map(|report| {
            self.number += 1;
            NumberedReport { number: self.number, report }
        });
        let numbered: Vec<NumberedReport> = numbered.collect();
        self.cycle.sync(self.node, numbered.into()).await?;
        Ok(())
    }
}

async fn told(work: &mut Work) {
    match work {
        Work::AtOnce => std::future::pending().await,
        // Whoever tells is gone only at the end.
        Work::WhenTold(told) => drop(told.changed().await),
    }
}
