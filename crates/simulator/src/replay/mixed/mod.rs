//! Inference and training on the same machines: the urgent pods of one trace and the training jobs of another, on a cluster
//! too small for both, through the whole lifecycle.
mod outcome;

pub use outcome::Outcome;

use super::lifecycle::{QUEUE, cluster_of};
use super::trace::{Trace, TraceJob};
use crate::world::World;
use crate::world::training::WorkPlan;
use ganger_core::model::ids::JobId;
use ganger_core::model::job::{CheckpointPolicy, Gang, JobSpec, Priority, Shape};
use ganger_core::model::queue::QueuePolicy;
use ganger_core::model::time::{Span, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods that serve users, and those that train.
const URGENT: &str = "LS";
const TRAINING: &str = "BE";
/// Training jobs start, write a checkpoint when asked, and restart in so much.
const START: Span = Span::seconds(30);
const WRITE: Span = Span::seconds(20);
const RESTART: Span = Span::seconds(60);
const GRACE: Span = Span::minutes(2);
/// A static split gives inference so many times its mean demand.
const SPLIT_TENTHS: u64 = 15;
const MS_PER_HOUR: f64 = 3_600_000.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    pub nodes: usize,
    pub gpus_each: u32,
    /// Of the training jobs every so manieth is taken, so that both together are a little too much.
    pub every: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The urgent go first, and training yields with a checkpoint.
    Ours,
    /// The urgent go first, but nobody yields.
    PriorityOnly,
    /// One class; nobody yields.
    Fifo,
    /// Each has nodes of its own.
    StaticSplit,
}

impl Policy {
    pub const ALL: [Policy; 4] = [Policy::Ours, Policy::PriorityOnly, Policy::Fifo, Policy::StaticSplit];

    pub fn name(self) -> &'static str {
        match self {
            Policy::Ours => "ours",
            Policy::PriorityOnly => "priority-only",
            Policy::Fifo => "fifo",
            Policy::StaticSplit => "static-split",
        }
    }
}

/// A job of either kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    at: Time,
    gpus: u32,
    work: Span,
    urgent: bool,
}

/// Replays both traces until the last urgent pod has come.
pub fn run(pods: &Trace, jobs: &Trace, policy: Policy, setup: Setup) -> Result<Outcome, String> {
    let (entries, end) = entries(pods, jobs, setup)?;
    let split = split(&entries, end, setup);
    let pool = |index: usize| (policy == Policy::StaticSplit).then_some(if index < split { URGENT } else { TRAINING });
    let world = cluster_of(setup.nodes, setup.gpus_each, QueuePolicy::Seniority, pool)?;
    let mut replay = Replay { world, policy, setup, live: BTreeMap::new(), found: Outcome::default() };
    for (index, entry) in entries.iter().enumerate() {
        replay.go_on_to(entry.at);
        replay.submit(index, *entry)?;
        replay.look();
    }
    replay.go_on_to(end);
    Ok(replay.outcome())
}

/// Urgent pods from the first moment at which training pods come too; training from then on, until the last urgent one.
fn entries(pods: &Trace, jobs: &Trace, setup: Setup) -> Result<(Vec<Entry>, Time), String> {
    let with_gpus = |label: &'static str| pods.jobs.iter().filter(move |pod| pod.label == label && pod.worker.gpus > 0);
    let begin = with_gpus(TRAINING).map(|pod| pod.submit_ms).min();
    let begin_ms = begin.ok_or(format!("cannot replay: no pod is of the class {TRAINING}"))?;
    let entry = |job: &TraceJob, from_ms: u64, urgent: bool| {
        let gpus = job.worker.gpus * job.gang_workers;
        let work = Span(job.duration_us?.div_ceil(1_000));
        Some(Entry { at: Time(job.submit_ms.checked_sub(from_ms)?), gpus, work, urgent })
    };
    let mut all: Vec<Entry> = with_gpus(URGENT).filter_map(|pod| entry(pod, begin_ms, true)).collect();
    let end =
        all.iter().map(|entry| entry.at).max().ok_or(format!("cannot replay: no pod is of the class {URGENT}"))?;
    all.extend(with_gpus(TRAINING).filter_map(|pod| entry(pod, begin_ms, false)));
    all.extend(jobs.jobs.iter().step_by(setup.every.max(1)).filter_map(|job| entry(job, 0, false)));
    let room = setup.nodes as u64 * u64::from(setup.gpus_each);
    all.retain(|entry| entry.at <= end && u64::from(entry.gpus) <= room);
    all.sort_by_key(|entry| entry.at);
    Ok((all, end))
}

/// Nodes of their own for the urgent, by their mean demand; at least one for each kind.
fn split(entries: &[Entry], end: Time, setup: Setup) -> usize {
    let demand = entries.iter().filter(|entry| entry.urgent);
    let gpu_ms: u64 = demand.map(|entry| entry.work.0.min(end.since(entry.at).0) * u64::from(entry.gpus)).sum();
    let of_node = end.0.max(1) * u64::from(setup.gpus_each) * 10;
    let nodes = (gpu_ms * SPLIT_TENTHS).div_ceil(of_node) as usize;
    nodes.clamp(1, setup.nodes.saturating_sub(1).max(1))
}

struct Replay {
    world: World,
    policy: Policy,
    setup: Setup,
    live: BTreeMap<JobId, Entry>,
    found: Outcome,
}

impl Replay {
    fn go_on_to(&mut self, target: Time) {
        while self.world.step(target) {
            self.look();
        }
        self.world.advance_to(target);
    }

    fn submit(&mut self, index: usize, entry: Entry) -> Result<(), String> {
        let plan = plan(entry);
        let id = self.world.submit(Arc::new(self.spec(index, entry, plan)), plan);
        let id = id.map_err(|why| format!("cannot replay job {index}: {why}"))?;
        self.live.insert(id, entry);
        Ok(())
    }

    fn spec(&self, index: usize, entry: Entry, plan: WorkPlan) -> JobSpec {
        let (gpus, gpus_each) = (entry.gpus, self.setup.gpus_each);
        let (workers, each) = if gpus <= gpus_each { (1, gpus) } else { (gpus.div_ceil(gpus_each), gpus_each) };
        let (name, kind) = (index.to_string(), if entry.urgent { URGENT } else { TRAINING });
        let priority = match (self.policy, entry.urgent) {
            (Policy::Fifo, _) => Priority::P2,
            (_, true) => Priority::P0,
            (_, false) => Priority::P3,
        };
        JobSpec {
            queue: QUEUE.to_string(),
            priority,
            preemptible: self.policy == Policy::Ours && !entry.urgent,
            pool: (self.policy == Policy::StaticSplit).then(|| kind.to_string()),
            gang: Gang::rigid(workers),
            checkpoint: CheckpointPolicy {
                dir: Some(format!("/checkpoints/{name}")),
                on_demand: plan.on_demand_ckpt,
                grace: GRACE,
                write_time: plan.ckpt_time,
                restart_time: plan.restart_time,
                ..CheckpointPolicy::default()
            },
            ..JobSpec::new(&name, workers, Shape { gpus: each, cpus: each, ..Shape::default() })
        }
    }

    fn look(&mut self) {
        for job in self.world.take_finished() {
            let Some(entry) = self.live.remove(&job.id) else { continue };
            let waited = job.started_at.map(|at| at.since(job.submitted_at));
            self.found.note(entry.urgent, waited, entry.work, &job);
        }
    }

    /// Who is not over yet counts with what was done, and with how long it waited by now.
    fn outcome(mut self) -> Outcome {
        let now = self.world.now();
        for (id, entry) in std::mem::take(&mut self.live) {
            let Some(job) = self.world.cluster().job(id) else { continue };
            let waited = job.started_at.unwrap_or(now).since(job.submitted_at);
            let done = self.world.work_done(id);
            self.found.note(entry.urgent, Some(waited), done, job);
        }
        self.found.finished(self.world.claims())
    }
}

fn plan(entry: Entry) -> WorkPlan {
    let training = |span: Span| if entry.urgent { Span::ZERO } else { span };
    WorkPlan {
        work: entry.work,
        ckpt_every: None,
        ckpt_time: training(WRITE),
        start_time: training(START),
        restart_time: training(RESTART),
        on_demand_ckpt: !entry.urgent,
    }
}
