//! The trace through the whole lifecycle: the real scheduler decides, agents prepare, start and stop, checkpoints are
//! written and resumed from. The scheduler is told nothing of what a job will take.
mod cluster;

pub use cluster::{QUEUE, cluster_of};

use super::queueing::{Curve, Fate, Replayed, Setup, cost};
use super::trace::{Trace, TraceJob};
use crate::world::World;
use crate::world::training::WorkPlan;
use ganger_core::model::ids::JobId;
use ganger_core::model::job::{CheckpointPolicy, Gang, Job, JobSpec, Shape};
use ganger_core::model::queue::QueuePolicy;
use ganger_core::model::time::{Span, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long a job that is asked to leave may take; here it leaves at once.
const GRACE: Span = Span::minutes(1);

/// Replays a trace whose jobs all fit the cluster. `watch` hears how many jobs are over.
pub fn run(trace: &Trace, setup: Setup, watch: &mut dyn FnMut(usize)) -> Result<Replayed, String> {
    let mut replay = Replay::new(setup)?;
    let mut arrivals: Vec<(usize, &TraceJob)> = trace.jobs.iter().enumerate().collect();
    arrivals.sort_by_key(|(_, job)| job.submit_ms);
    for together in arrivals.chunk_by(|(_, one), (_, other)| one.submit_ms == other.submit_ms) {
        replay.go_on_to(Time(together[0].1.submit_ms), watch);
        for (index, job) in together {
            replay.enter(*index, job)?;
        }
        replay.world.settle();
        replay.look(watch);
    }
    replay.go_on_to(Time::NEVER, watch);
    match replay.world.cluster().jobs.len() {
        0 => Ok(replay.outcome()),
        left => Err(format!("cannot replay to its end: {left} jobs can never start on these nodes; give more nodes")),
    }
}

struct Replay {
    world: World,
    setup: Setup,
    /// GPUs asked for and the cost of a start, of jobs that are not over.
    live: BTreeMap<JobId, (u32, u64)>,
    fates: Vec<Fate>,
    curve: Curve,
}

impl Replay {
    fn new(setup: Setup) -> Result<Replay, String> {
        let world = cluster_of(setup.nodes, setup.gpus_each, QueuePolicy::LeastAttained, |_| None)?;
        Ok(Replay { world, setup, live: BTreeMap::new(), fates: Vec::new(), curve: Curve::default() })
    }

    fn go_on_to(&mut self, target: Time, watch: &mut dyn FnMut(usize)) {
        while !self.world.cluster().jobs.is_empty() && self.world.step(target) {
            self.look(watch);
        }
        if target < Time::NEVER {
            self.world.advance_to(target);
        }
    }

    fn enter(&mut self, index: usize, job: &TraceJob) -> Result<(), String> {
        let gpus = job.worker.gpus * job.gang_workers;
        let cost_ms = cost::start_ms(&job.label, gpus);
        let work = Span(job.duration_us.unwrap_or(0).div_ceil(1_000));
        let plan = plan(work, Span(cost_ms));
        let spec = spec(index, gpus, self.setup.gpus_each, Span(cost_ms));
        let id = self.world.enter(Arc::new(spec), plan);
        let id = id.map_err(|why| format!("cannot replay job {}: {why}", job.id))?;
        self.live.insert(id, (gpus, cost_ms));
        Ok(())
    }

    /// Notes who is over, and how many wait and run.
    fn look(&mut self, watch: &mut dyn FnMut(usize)) {
        for job in self.world.take_finished() {
            self.fates.extend(self.live.remove(&job.id).and_then(|(gpus, cost_ms)| fate(&job, gpus, cost_ms)));
            watch(self.fates.len());
        }
        let cluster = self.world.cluster();
        let waiting = cluster.blocked.len();
        let used = cluster.queues.get(QUEUE).map_or(0, |queue| queue.used.gpus);
        self.curve.note(self.world.now().0 * 1_000, waiting, used);
    }

    fn outcome(self) -> Replayed {
        Replayed::of(&self.fates, self.curve)
    }
}

fn plan(work: Span, start_time: Span) -> WorkPlan {
    WorkPlan {
        work,
        ckpt_every: None,
        ckpt_time: Span::ZERO,
        start_time,
        restart_time: start_time,
        on_demand_ckpt: true,
    }
}

/// A gang of at most one node is one worker; a larger one takes whole nodes.
fn spec(index: usize, gpus: u32, gpus_each: u32, restart_time: Span) -> JobSpec {
    let (workers, each) = if gpus <= gpus_each { (1, gpus) } else { (gpus.div_ceil(gpus_each), gpus_each) };
    let shape = Shape { gpus: each, cpus: each, ..Shape::default() };
    let name = index.to_string();
    JobSpec {
        queue: QUEUE.to_string(),
        preemptible: true,
        gang: Gang::rigid(workers),
        checkpoint: CheckpointPolicy {
            dir: Some(format!("/checkpoints/{name}")),
            on_demand: true,
            grace: GRACE,
            restart_time,
            ..CheckpointPolicy::default()
        },
        ..JobSpec::new(&name, workers, shape)
    }
}

/// Held time counts from the placement, so waiting is all the rest.
fn fate(job: &Job, gpus: u32, cost_ms: u64) -> Option<Fate> {
    let ended_us = job.ended_at?.0 * 1_000;
    let submit_us = job.submitted_at.0 * 1_000;
    let held_us = job.gpu_us / job.spec.total().gpus.max(1);
    Some(Fate {
        submit_us,
        ended_us,
        waited_us: (ended_us - submit_us).saturating_sub(held_us),
        lost_gpu_us: u64::from(job.attempts.0) * cost_ms * 1_000 * u64::from(gpus),
        preemptions: job.evictions.into(),
    })
}
