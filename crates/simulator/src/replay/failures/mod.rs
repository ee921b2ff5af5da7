//! What faults cost a training cluster: servers fail by chance while a trace runs through the whole lifecycle, with and
//! without health checks.
//!
//! The effective training time is the work that was done, as a part of the time from each job's first step to its end,
//! weighted by its GPUs: starts, checkpoints, work done twice, silence and waiting for a place are all in the rest.
mod chance;
mod outcome;

pub use outcome::Outcome;

use super::lifecycle::{QUEUE, cluster_of};
use super::trace::{Trace, TraceJob};
use crate::clock::Agenda;
use crate::world::World;
use crate::world::agent::Key;
use crate::world::training::WorkPlan;
use chance::Faults;
use ganger_core::model::ids::{AttemptNo, JobId, NodeId};
use ganger_core::model::job::{CheckpointPolicy, Exit, Gang, JobSpec, Shape};
use ganger_core::model::queue::QueuePolicy;
use ganger_core::model::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Container, checkpoint, communicator: what every start takes.
const START: Span = Span::seconds(65);
/// What a restart after a fault takes besides, when health checks tell: detection, decision, drain, margin.
const DETECTED: Span = Span::seconds(25);
/// How long a checkpoint keeps training waiting.
const WRITE: Span = Span::seconds(5);
/// The interval of those who do not choose theirs by the rate of faults.
const USUAL_INTERVAL: Span = Span::minutes(30);
/// Without health checks a fault is a rank that hangs until the communicator gives up.
const WATCHDOG: Span = Span::minutes(30);
/// How long a server is away; without health checks also how long nobody notices that it is broken.
const REPAIR: Span = Span::hours(4);
/// What hangs is tried again until the server is mended.
const RETRIES: u32 = 100_000;
const DAY_MS: f64 = 86_400_000.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    pub nodes: usize,
    pub gpus_each: u32,
    /// Of one server.
    pub faults_per_day: f64,
    /// So many servers fail together, proportionally less often.
    pub together: usize,
    pub seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Health checks; a checkpoint every half hour.
    Ours,
    /// Health checks; checkpoints at the first-order optimal interval of each job.
    OptimalInterval,
    /// A fault is found when a rank has hung for long, and the server takes new work until somebody mends it.
    NoChecks,
}

impl Policy {
    pub const ALL: [Policy; 3] = [Policy::Ours, Policy::OptimalInterval, Policy::NoChecks];

    pub fn name(self) -> &'static str {
        match self {
            Policy::Ours => "ours",
            Policy::OptimalInterval => "optimal-interval",
            Policy::NoChecks => "no-checks",
        }
    }
}

/// What is to happen.
#[derive(Debug)]
enum Due {
    Arrival(usize),
    Fault,
    Mended(NodeId),
    GivesUp(NodeId, Vec<Key>),
}

/// Replays a trace whose jobs all fit the cluster.
pub fn run(trace: &Trace, policy: Policy, setup: Setup) -> Result<Outcome, String> {
    let world = cluster_of(setup.nodes, setup.gpus_each, QueuePolicy::Seniority, |_| None)?;
    let faults = Faults::new(setup);
    let mut replay = Replay {
        world,
        setup,
        policy,
        faults,
        agenda: Agenda::default(),
        broken: BTreeSet::new(),
        struck: BTreeMap::new(),
        work: BTreeMap::new(),
        arriving: trace.jobs.len(),
        found: Outcome::default(),
    };
    replay.play(trace)?;
    Ok(replay.found.finished())
}

struct Replay {
    world: World,
    setup: Setup,
    policy: Policy,
    faults: Faults,
    agenda: Agenda<Due>,
    broken: BTreeSet<NodeId>,
    /// Jobs that a fault hit and that did not get on yet: when, and in which attempt.
    struck: BTreeMap<JobId, (Time, AttemptNo)>,
    work: BTreeMap<JobId, Span>,
    /// Those not submitted yet.
    arriving: usize,
    found: Outcome,
}

impl Replay {
    fn play(&mut self, trace: &Trace) -> Result<(), String> {
        for (index, job) in trace.jobs.iter().enumerate() {
            self.agenda.add(Time(job.submit_ms), Due::Arrival(index));
        }
        self.plan_fault(Time(0));
        while !self.is_over() {
            let next = self.agenda.next().unwrap_or(Time::NEVER);
            while !self.is_over() && self.world.step(next) {
                self.look();
            }
            if self.is_over() {
                break;
            }
            self.world.advance_to(next);
            let Some(due) = self.agenda.take_due(next) else { break };
            self.happen(due, trace)?;
            self.look();
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.arriving == 0 && self.world.cluster().jobs.is_empty()
    }

    fn plan_fault(&mut self, now: Time) {
        let at = self.faults.next_after(now);
        self.agenda.add(at, Due::Fault);
    }

    fn happen(&mut self, due: Due, trace: &Trace) -> Result<(), String> {
        match due {
            Due::Arrival(index) => self.submit(index, &trace.jobs[index])?,
            Due::Fault => {
                self.plan_fault(self.world.now());
                self.faults.struck_servers().into_iter().for_each(|node| self.strike(node));
            }
            Due::Mended(node) => {
                self.broken.remove(&node);
                if self.policy != Policy::NoChecks {
                    self.world.recover(node);
                }
            }
            Due::GivesUp(node, keys) => {
                keys.into_iter().for_each(|key| self.world.crash(node, key, Exit::Code(1)));
            }
        }
        Ok(())
    }

    fn submit(&mut self, index: usize, job: &TraceJob) -> Result<(), String> {
        self.arriving -= 1;
        let gpus = job.worker.gpus * job.gang_workers;
        let work = Span(job.duration_us.unwrap_or(0).div_ceil(1_000));
        let plan = self.plan(work, gpus);
        let spec = spec(index, gpus, self.setup.gpus_each, plan);
        let id = self.world.submit(Arc::new(spec), plan);
        let id = id.map_err(|why| format!("cannot replay job {}: {why}", job.id))?;
        self.work.insert(id, work);
        Ok(())
    }

    fn plan(&self, work: Span, gpus: u32) -> WorkPlan {
        let interval = match self.policy {
            Policy::OptimalInterval => self.optimal_interval(gpus),
            Policy::Ours | Policy::NoChecks => USUAL_INTERVAL,
        };
        let detected = if self.policy == Policy::NoChecks { Span::ZERO } else { DETECTED };
        WorkPlan {
            work,
            ckpt_every: Some(interval),
            ckpt_time: WRITE,
            start_time: START,
            restart_time: START + detected,
            on_demand_ckpt: false,
        }
    }

    /// The root of twice the cost of a checkpoint times the mean time between faults of the job's servers.
    fn optimal_interval(&self, gpus: u32) -> Span {
        let servers = f64::from(gpus.div_ceil(self.setup.gpus_each));
        let between_ms = DAY_MS / (self.setup.faults_per_day * servers).max(f64::MIN_POSITIVE);
        Span((2.0 * WRITE.0 as f64 * between_ms).sqrt() as u64)
    }

    fn strike(&mut self, node: NodeId) {
        if !self.broken.insert(node) {
            return;
        }
        let now = self.world.now();
        self.found.faults += 1;
        let hit: BTreeSet<JobId> = self.world.processes(node).keys().map(|key| key.0).collect();
        for job in hit.iter().filter_map(|id| self.world.cluster().job(*id)) {
            self.struck.entry(job.id).or_insert((now, job.attempts));
        }
        self.agenda.add(now + REPAIR, Due::Mended(node));
        if self.policy != Policy::NoChecks {
            self.world.fail(node);
        }
    }

    /// Who hangs on a broken server, who got on again, who is over.
    fn look(&mut self) {
        if self.policy == Policy::NoChecks {
            for node in self.broken.clone() {
                let keys = self.world.hang(node);
                if !keys.is_empty() {
                    self.agenda.add(self.world.now() + WATCHDOG, Due::GivesUp(node, keys));
                }
            }
        }
        self.note_steps();
        for job in self.world.take_finished() {
            self.struck.remove(&job.id);
            let work = self.work.remove(&job.id).unwrap_or_default();
            self.found.note(&job, work);
        }
    }

    /// A struck job is back when a later attempt trains; its first step comes after its restart.
    fn note_steps(&mut self) {
        let back = |(id, (at, attempt)): (&JobId, &(Time, AttemptNo))| {
            let job = self.world.cluster().job(*id).filter(|job| job.attempts > *attempt)?;
            let from = job.attempt.as_ref()?.ran_from?;
            self.world.trains(*id).then(|| (*id, from.since(*at) + job.spec.checkpoint.restart_time))
        };
        let back: Vec<(JobId, Span)> = self.struck.iter().filter_map(back).collect();
        for (id, after) in back {
            self.struck.remove(&id);
            self.found.restarted(after);
        }
    }
}

fn spec(index: usize, gpus: u32, gpus_each: u32, plan: WorkPlan) -> JobSpec {
    let (workers, each) = if gpus <= gpus_each { (1, gpus) } else { (gpus.div_ceil(gpus_each), gpus_each) };
    let name = index.to_string();
    JobSpec {
        queue: QUEUE.to_string(),
        gang: Gang::rigid(workers),
        checkpoint: CheckpointPolicy {
            dir: Some(format!("/checkpoints/{name}")),
            every: plan.ckpt_every,
            write_time: plan.ckpt_time,
            restart_time: plan.restart_time,
            ..CheckpointPolicy::default()
        },
        retries: RETRIES,
        ..JobSpec::new(&name, workers, Shape { gpus: each, cpus: each, ..Shape::default() })
    }
}
