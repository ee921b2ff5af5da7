//! A whole cluster in virtual time: the real core, virtual agents, and what their processes do.
//!
//! The world moves the clock from one moment at which something can change to the next. At each it lets processes and
//! agents act first, then time (`Tick`), then the scheduler, until nothing changes; then every rule is checked, by the
//! core's own checker and against what the processes really hold. It never writes the cluster but through `apply`.
pub mod agent;
mod decisions;
mod faults;
mod gangs;
mod moment;
mod passing;
mod people;
mod quiet;
mod rules;
pub mod training;
mod truth;

use crate::clock::Agenda;
use agent::{Agent, Key};
use ganger_core::lifecycle::input::NodeSpec;
use ganger_core::model::cluster::Cluster;
use ganger_core::model::ids::{JobId, NodeId};
use ganger_core::model::job::{Job, Place};
use ganger_core::model::report::Report;
use ganger_core::model::time::{Span, Time};
use gangs::{Due, Gang, SimulatedJob};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// By whom the world's statements are made.
pub const OPERATOR: &str = "scenario";

/// A line of the trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TraceLine {
    pub at_ms: u64,
    /// `statement`, or the kind of the core's event.
    pub kind: String,
    pub text: String,
}

/// A rule that was broken, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Broken {
    pub at_ms: u64,
    /// Number of the rule; see the list of rules that always hold.
    pub rule: u8,
    pub text: String,
}

/// The cluster, its agents and its clock.
#[derive(Debug, Clone)]
pub struct World {
    cluster: Cluster,
    now: Time,
    last_beat: Time,
    specs: Vec<NodeSpec>,
    agents: Vec<Agent>,
    jobs: BTreeMap<JobId, SimulatedJob>,
    gangs: BTreeMap<JobId, Gang>,
    agenda: Agenda<Due>,
    finished: BTreeMap<JobId, Arc<Job>>,
    names: BTreeMap<String, JobId>,
    lost_gpu_ms: u64,
    trace: Vec<TraceLine>,
    /// The newest reports that were sent, for replays.
    recent_reports: Vec<(NodeId, Report)>,
    broken: Vec<Broken>,
    /// What the last check found: told once, not at every moment that it lasts.
    found_before: BTreeSet<(u8, String)>,
    care: Care,
    /// Claims of decisions that are not settled yet, and what came of the others.
    claimed: BTreeMap<JobId, Vec<Place>>,
    claims: Claims,
    /// Something happened since the last decision that may call for another.
    stale: bool,
    /// Moments since anything happened.
    quiet: u32,
    /// Nodes that changed since their agents looked at their orders.
    touched: BTreeSet<NodeId>,
    /// Gangs that stood still for a rank at some time.
    halted: BTreeSet<JobId>,
    /// The next deadline, where it is known.
    deadline: Option<Option<Time>>,
    /// Tells the time of the processor; the world itself has no clock.
    stopwatch: Option<fn() -> u64>,
    /// Decisions so far, and the nanoseconds that they took by the stopwatch.
    deciding: (u64, u64),
}

/// Claims that decisions made: those whose claimant started on what was claimed, and those whose claimant found another
/// place sooner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Claims {
    pub made: u64,
    pub kept: u64,
    pub sooner: u64,
}

/// How closely the world looks at what happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Care {
    /// Every rule is checked at every moment, every decision is asked for twice, and every event is kept.
    #[default]
    Full,
    /// The scheduler is asked where something may have changed for it, and no more: for long replays of what storms and
    /// scenarios have checked.
    Quick,
}

impl Default for World {
    fn default() -> Self {
        World {
            cluster: Cluster::new(),
            now: Time(0),
            last_beat: Time(0),
            specs: Vec::new(),
            agents: Vec::new(),
            jobs: BTreeMap::new(),
            gangs: BTreeMap::new(),
            agenda: Agenda::default(),
            finished: BTreeMap::new(),
            names: BTreeMap::new(),
            lost_gpu_ms: 0,
            trace: Vec::new(),
            recent_reports: Vec::new(),
            broken: Vec::new(),
            found_before: BTreeSet::new(),
            care: Care::Full,
            claimed: BTreeMap::new(),
            claims: Claims::default(),
            stale: true,
            quiet: 0,
            touched: BTreeSet::new(),
            halted: BTreeSet::new(),
            deadline: None,
            stopwatch: None,
            deciding: (0, 0),
        }
    }
}

/// Asking.
impl World {
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn now(&self) -> Time {
        self.now
    }

    pub fn trace(&self) -> &[TraceLine] {
        &self.trace
    }

    pub fn broken(&self) -> &[Broken] {
        &self.broken
    }

    /// What each rank on the node holds, as its processes know it: by job, attempt and rank.
    pub fn processes(&self, node: NodeId) -> &BTreeMap<Key, agent::Held> {
        &self.agents[node.index()].ranks
    }

    /// The newest reports that agents sent, oldest first, each with its node.
    pub fn recent_reports(&self) -> &[(NodeId, Report)] {
        &self.recent_reports
    }

    /// What came of the claims that decisions made.
    pub fn claims(&self) -> Claims {
        self.claims
    }

    /// Decisions so far, and the nanoseconds that they took if a stopwatch was given.
    pub fn deciding(&self) -> (u64, u64) {
        self.deciding
    }

    pub fn time_decisions(&mut self, stopwatch: fn() -> u64) {
        self.stopwatch = Some(stopwatch);
    }

    /// Work that was done and had to be done again, in GPU-milliseconds.
    pub fn lost_gpu_ms(&self) -> u64 {
        self.lost_gpu_ms
    }

    /// Of a job, an array, or a task of one such as `A_3`.
    pub fn job_id(&self, name: &str) -> Option<JobId> {
        let task = || {
            let (array, index) = name.rsplit_once('_')?;
            let array = self.job(*self.names.get(array)?)?;
            array.task_id(index.parse().ok()?)
        };
        self.names.get(name).copied().or_else(task)
    }

    /// The job or array, also when it has ended.
    pub fn job(&self, id: JobId) -> Option<Arc<Job>> {
        self.finished.get(&id).cloned().or_else(|| self.cluster.record(id))
    }

    /// Every job that was ever submitted; of arrays those tasks that became jobs, and not the record.
    pub fn all_jobs(&self) -> impl Iterator<Item = &Job> {
        let finished = self.finished.values().filter(|job| job.array.is_none());
        finished.chain(self.cluster.jobs.values()).map(Arc::as_ref)
    }

    /// The work that the newest attempt began with; `None` before there was one.
    pub fn resumed_from(&self, id: JobId) -> Option<Span> {
        self.jobs.get(&id).and_then(|job| job.resumed_from)
    }

    /// A world of this care, else as any other.
    pub fn with_care(care: Care) -> World {
        World { care, ..World::default() }
    }

    /// Forgets what is over and hands it out: a long replay would keep everything.
    pub fn take_finished(&mut self) -> Vec<Arc<Job>> {
        let finished: Vec<Arc<Job>> = std::mem::take(&mut self.finished).into_values().collect();
        for job in &finished {
            self.jobs.remove(&job.id);
            self.gangs.remove(&job.id);
            self.names.remove(&job.spec.name);
        }
        finished
    }

    /// Puts a line of the caller's into the trace.
    pub fn note(&mut self, kind: &str, text: impl Into<String>) {
        self.trace.push(TraceLine { at_ms: self.now.0, kind: kind.to_string(), text: text.into() });
    }
}
