//! A whole cluster in virtual time: the real core, virtual agents, and what their processes do.
//!
//! The world moves the clock from one moment at which something can change to the next. At each it lets processes and
//! agents act first, then time (`Tick`), then the scheduler, until nothing changes; then every rule is checked, by the
//! core's own checker and against what the processes really hold. It never writes the cluster but through `apply`.
pub mod agent;
mod faults;
mod gangs;
mod quiet;
pub mod training;
mod truth;

use crate::clock::Agenda;
use agent::{Agent, Key};
use ganger_core::check;
use ganger_core::lifecycle::input::{NodePlacement, NodeSpec, QueueSpec};
use ganger_core::lifecycle::{self, Effects, Input, Refusal};
use ganger_core::model::cluster::Cluster;
use ganger_core::model::decision::{Decision, Step};
use ganger_core::model::ids::{JobId, NodeId};
use ganger_core::model::job::{Job, JobSpec, JobState, Owner, Place};
use ganger_core::model::pool::Lending;
use ganger_core::model::report::Report;
use ganger_core::model::time::{Span, Time};
use ganger_core::scheduler;
use gangs::{Due, Gang, SimulatedJob};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use training::WorkPlan;

/// Agents renew their leases at each multiple of this part of it: every 10 s with the usual lease of 60 s.
const BEATS_PER_LEASE: u64 = 6;
/// After so many rounds at one moment something goes in circles.
const MOST_ROUNDS: usize = 1_000;
/// After a change a careful world looks at so many quiet moments, to see that nobody finds more by the clock alone; then it
/// waits until something changes, or weeks of waiting for a budget would cost a decision at every beat.
const QUIET_LOOKS: u32 = 4;
/// So many reports are kept for replays.
const REPORTS_KEPT: usize = 64;
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

/// Setting up and asking.
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

    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        let (name, value, by) = (name.to_string(), value.to_string(), OPERATOR.to_string());
        self.apply(Input::Setting { name, value, by }).map(|_| ())
    }

    pub fn set_uplink(&mut self, leaf: &str, bps: u64) -> Result<(), Refusal> {
        let (placements, pools, by) = (BTreeMap::new(), BTreeMap::new(), OPERATOR.to_string());
        let uplinks = [(leaf.to_string(), bps)].into();
        self.apply(Input::Fabric { placements, uplinks, pools, by }).map(|_| ())
    }

    pub fn put_in_pool(&mut self, node: &str, pool: &str) -> Result<(), Refusal> {
        let (uplinks, pools, by) = (BTreeMap::new(), BTreeMap::new(), OPERATOR.to_string());
        let placement = NodePlacement { pool: Some(pool.to_string()), ..NodePlacement::default() };
        let placements = [(node.to_string(), placement)].into();
        self.apply(Input::Fabric { placements, uplinks, pools, by }).map(|_| ())
    }

    /// Keeps a pool for its own jobs, lent as `lending` says; `None`: it is open to all.
    pub fn set_pool(&mut self, pool: &str, lending: Option<Lending>) -> Result<(), Refusal> {
        let (placements, uplinks, by) = (BTreeMap::new(), BTreeMap::new(), OPERATOR.to_string());
        let pools = [(pool.to_string(), lending)].into();
        self.apply(Input::Fabric { placements, uplinks, pools, by }).map(|_| ())
    }

    pub fn set_queues(&mut self, queues: Vec<QueueSpec>) -> Result<(), Refusal> {
        self.apply(Input::Queues { queues, by: OPERATOR.to_string() }).map(|_| ())
    }

    pub fn add_node(&mut self, spec: NodeSpec) -> Result<NodeId, Refusal> {
        let effects = self.apply(Input::Register(Box::new(spec.clone())))?;
        let id = effects.registered.unwrap_or(NodeId(self.specs.len() as u32));
        self.specs.push(spec);
        self.agents.push(Agent::new(id, self.now));
        Ok(id)
    }

    /// A world of this care, else as any other.
    pub fn with_care(care: Care) -> World {
        World { care, ..World::default() }
    }

    /// As [`World::submit`], but nobody acts on it before the world settles.
    pub fn enter(&mut self, spec: Arc<JobSpec>, plan: WorkPlan) -> Result<JobId, Refusal> {
        let owner = Owner { user: OPERATOR.to_string(), uid: 1_000, gid: 1_000 };
        let effects = self.apply(Input::Submit { spec: spec.clone(), owner })?;
        let id = effects.submitted.unwrap_or_default();
        self.names.insert(spec.name.clone(), id);
        let tasks = self.cluster.array(id).map(|array| array.task_ids());
        let each = tasks.map_or(id.0..id.0 + 1, |tasks| tasks.start.0..tasks.end.0);
        for job in each.map(JobId) {
            self.jobs.insert(job, SimulatedJob::new(plan, spec.gang.workers, spec.total().all_gpus_milli()));
        }
        Ok(id)
    }

    pub fn submit(&mut self, spec: Arc<JobSpec>, plan: WorkPlan) -> Result<JobId, Refusal> {
        let id = self.enter(spec, plan)?;
        self.settle();
        Ok(id)
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

    /// Cancel, hold, release: anything that a person may ask of a job.
    pub fn ask(&mut self, input: Input) -> Result<(), Refusal> {
        let result = self.apply(input).map(|_| ());
        self.settle();
        result
    }

    /// Puts a line of the caller's into the trace.
    pub fn note(&mut self, kind: &str, text: impl Into<String>) {
        self.trace.push(TraceLine { at_ms: self.now.0, kind: kind.to_string(), text: text.into() });
    }
}

/// The clock.
impl World {
    /// Moves on to `target`; all that is due until then, and at it, has happened afterwards.
    pub fn advance_to(&mut self, target: Time) {
        while self.step(target) {}
        self.beat_by(target);
        self.now = self.now.max(target);
    }

    /// Moves on to the next moment at which something can change, if it comes by `until`.
    pub fn step(&mut self, until: Time) -> bool {
        let stop = self.next_stop().filter(|stop| *stop <= until);
        stop.is_some_and(|stop| {
            self.move_to(stop);
            true
        })
    }

    fn beat_every(&self) -> Span {
        Span((self.cluster.policy.lease.0 / BEATS_PER_LEASE).max(1))
    }

    /// The next moment at which something can change by itself. A deadline that a tick cannot clear now (too few agents
    /// are heard to fence anybody) is looked at again with each beat.
    fn next_stop(&mut self) -> Option<Time> {
        let again = self.now + self.beat_every();
        let deadline = self.next_deadline().map(|at| if at > self.now { at } else { again });
        deadline.into_iter().chain(self.agenda.next()).min()
    }

    /// Asked anew when the cluster changed or the moment came. Whoever is heard renews its lease at every beat in time, so
    /// nobody has to look.
    fn next_deadline(&mut self) -> Option<Time> {
        match self.deadline {
            Some(deadline) if deadline.is_none_or(|deadline| deadline > self.now) => deadline,
            _ => {
                let cut_off = |node: NodeId| !self.agents[node.index()].is_heard();
                let deadline = lifecycle::next_deadline_where(&self.cluster, cut_off);
                self.deadline = Some(deadline);
                deadline
            }
        }
    }

    /// Goes to `stop`, or only to the last beat before it, which may move the stop. A beat at `stop` itself comes after
    /// what is due there, so that it cannot carry the clock past a deadline that nobody looked at.
    fn move_to(&mut self, stop: Time) {
        if !self.beat_by(stop - Span(1)) {
            self.now = self.now.max(stop);
            self.settle();
        }
    }

    /// The agents that can be heard renew their leases at the last beat that is due by `at`. One beat stands for all that
    /// were skipped: nothing looked at the leases in between.
    fn beat_by(&mut self, at: Time) -> bool {
        let every = self.beat_every();
        let beat = Time(at.0 / every.0 * every.0);
        if beat <= self.last_beat {
            return false;
        }
        self.last_beat = beat;
        self.now = self.now.max(beat);
        for index in 0..self.agents.len() {
            if self.agents[index].is_heard() {
                self.contact(NodeId(index as u32));
            }
        }
        true
    }
}

/// One moment.
impl World {
    /// Lets processes, agents, time and scheduler act at this moment until nothing changes, then checks the rules.
    pub(crate) fn settle(&mut self) {
        let calm = (0..MOST_ROUNDS).any(|_| !(self.agents_act() || self.time_acts() || self.scheduler_acts()));
        if !calm {
            self.breaks(9, "the cluster does not come to rest: agents and decisions go in circles".to_string());
        }
        self.check();
        self.quiet = self.quiet.saturating_add(1);
    }

    fn agents_act(&mut self) -> bool {
        let mut acted = false;
        while let Some(due) = self.agenda.take_due(self.now) {
            self.happen(due);
            acted = true;
        }
        self.spare_the_fallen();
        acted | self.obey_orders() | self.send_reports()
    }

    fn time_acts(&mut self) -> bool {
        if self.next_deadline().is_none_or(|at| at > self.now) {
            return false;
        }
        let before = self.cluster.version;
        let told = self.apply(Input::Tick).is_ok_and(|effects| !effects.events.is_empty());
        told || self.cluster.version != before
    }

    fn scheduler_acts(&mut self) -> bool {
        if std::mem::take(&mut self.stale) {
            self.quiet = 0;
        } else if !self.looks_closely() {
            return false;
        }
        let decision = self.decide();
        let (steps, blocked) = (decision.steps.clone(), decision.blocked.clone());
        let idle = steps.is_empty();
        if idle && self.is_known(&decision) {
            return false;
        }
        if let Err(refusal) = self.apply(Input::Decided(Box::new(decision))) {
            self.breaks(9, format!("a fresh decision was refused: {refusal}: {steps:?}"));
            return false;
        }
        self.follow_claims(&steps);
        if !idle && self.care == Care::Full {
            let again = scheduler::decide(&self.cluster, self.now).steps;
            if !again.is_empty() {
                let before: Vec<_> = blocked.iter().filter(|(job, _)| names(&again, **job)).collect();
                self.breaks(
                    9,
                    format!(
                        "decide on its own result changes something: after {steps:?} it wants {again:?}, \
                         of which it had said {before:?}"
                    ),
                );
            }
        }
        true
    }

    /// Whether it looks also where nothing called for it.
    fn looks_closely(&self) -> bool {
        self.care == Care::Full && self.quiet < QUIET_LOOKS
    }

    fn decide(&mut self) -> Decision {
        let time = || self.stopwatch.map_or(0, |read| read());
        let before = time();
        let decision = scheduler::decide(&self.cluster, self.now);
        self.deciding = (self.deciding.0 + 1, self.deciding.1 + (time() - before));
        decision
    }

    /// Follows each claim to the start that it was made for.
    fn follow_claims(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Claim(claim) => {
                    self.claims.made += 1;
                    self.claimed.insert(claim.claimant, claim.places.clone());
                }
                Step::Start { job, places, .. } => {
                    let claimed = self.claimed.remove(job);
                    self.claims.kept += u64::from(claimed.as_ref() == Some(places));
                    self.claims.sooner += u64::from(claimed.is_some_and(|claimed| claimed != *places));
                }
                Step::Stop { .. } | Step::Shrink { .. } | Step::Unclaim { .. } | Step::Repartition { .. } => {}
            }
        }
    }

    fn obey_orders(&mut self) -> bool {
        let mut acted = false;
        let mut leaving: BTreeMap<JobId, Vec<(NodeId, Key, Time)>> = BTreeMap::new();
        for id in std::mem::take(&mut self.touched) {
            let index = id.index();
            let node = self.cluster.node(id);
            let (generation, revoked) = (node.generation, node.revoked_at.is_some());
            let agent = &mut self.agents[index];
            if !agent.is_heard() || agent.generation_seen == generation {
                continue;
            }
            acted = true;
            agent.generation_seen = generation;
            if revoked {
                self.watch_lease(id);
            }
            let orders = lifecycle::orders(&self.cluster, id);
            for (key, change) in self.agents[index].obey(&orders) {
                match change {
                    agent::Change::Started => self.rank_runs(id, key),
                    agent::Change::Ended => self.rank_over(key),
                    agent::Change::AskedToLeave { deadline } => {
                        leaving.entry(key.0).or_default().push((id, key, deadline));
                    }
                }
            }
        }
        leaving.into_iter().for_each(|(job, ranks)| self.ranks_leave(job, &ranks));
        acted
    }

    fn send_reports(&mut self) -> bool {
        let mut sent = false;
        for index in 0..self.agents.len() {
            if !self.agents[index].is_heard() || self.agents[index].reports.is_empty() {
                continue;
            }
            let node = NodeId(index as u32);
            self.contact(node);
            for report in std::mem::take(&mut self.agents[index].reports) {
                if self.care == Care::Full {
                    self.recent_reports.push((node, report.clone()));
                }
                self.observe(Input::Report { node, report });
            }
            sent = true;
        }
        let old = self.recent_reports.len().saturating_sub(REPORTS_KEPT);
        self.recent_reports.drain(..old);
        sent
    }

    /// The agent sends and is answered: both sides count its lease from now.
    fn contact(&mut self, node: NodeId) {
        self.observe(Input::Heard { node });
        if self.cluster.node(node).revoked_at.is_none() {
            self.agents[node.index()].leased_from = self.now;
        }
    }

    /// Observations are never refused; one that is breaks the contract of `apply`.
    fn observe(&mut self, input: Input) {
        if let Err(refusal) = self.apply(input.clone()) {
            self.breaks(9, format!("the observation {input:?} was refused: {refusal}"));
        }
    }

    fn apply(&mut self, input: Input) -> Result<Effects, Refusal> {
        if !matches!(input, Input::Heard { .. }) {
            self.deadline = None;
        }
        let (calls, ends) = (may_call_for_a_decision(&self.cluster, &input), matches!(input, Input::Report { .. }));
        let effects = lifecycle::apply(&mut self.cluster, input, self.now)?;
        // What a job leaves behind that is over is of use only to those who wait.
        let of_use = !ends || effects.finished.is_empty() || !self.cluster.blocked.is_empty();
        self.stale |= calls && of_use;
        for event in effects.events.iter().filter(|_| self.care == Care::Full) {
            self.trace.push(TraceLine { at_ms: event.at.0, kind: event.kind.clone(), text: event.text.clone() });
        }
        if !effects.events.is_empty() {
            self.quiet = 0;
        }
        self.touched.extend(&effects.dirty.nodes);
        for job in &effects.finished {
            self.ends(job);
        }
        Ok(effects)
    }

    /// Nobody ends twice, and an array only when every task of it did that was ever to run.
    fn ends(&mut self, job: &Arc<Job>) {
        if self.finished.insert(job.id, job.clone()).is_some() {
            self.breaks(8, format!("job {} ended a second time", job.number()));
        }
        let Some(state) = &job.array else { return };
        let ended = |id: u64| self.finished.get(&JobId(id)).is_some_and(|task| task.state.is_terminal());
        let tasks = job.task_ids();
        let tasks = (tasks.start.0..tasks.end.0).filter(|id| ended(*id)).count() as u64;
        let said = u64::from(state.done) + u64::from(state.failed) + u64::from(state.cancelled);
        let never = state.waiting.count() + state.held.count();
        let all = job.spec.array.as_ref().map_or(0, |spec| u64::from(spec.count()));
        if tasks != said || said + never != all || (never > 0 && job.state != JobState::Cancelled) {
            let text = format!("array {} ended as {}: {tasks} tasks of {all} ended, it says {said}", job.id, job.state);
            self.breaks(8, text);
        }
    }

    fn check(&mut self) {
        if !self.looks_closely() {
            return;
        }
        let mut found: BTreeSet<(u8, String)> =
            check::full(&self.cluster).into_iter().map(|violation| (violation.rule, violation.text)).collect();
        found.extend(truth::check(&self.agents));
        found.extend(truth::arrays(&self.cluster, &self.agents));
        for (rule, text) in found.difference(&self.found_before.clone()) {
            self.breaks(*rule, text.clone());
        }
        self.found_before = found;
    }

    fn breaks(&mut self, rule: u8, text: String) {
        self.note("violation", format!("rule {rule}: {text}"));
        self.broken.push(Broken { at_ms: self.now.0, rule, text });
    }
}

/// Whether the scheduler may find more than before. What follows from a decision of its own calls for none, as the rule that
/// it changes nothing on its own result says.
fn may_call_for_a_decision(cluster: &Cluster, input: &Input) -> bool {
    match input {
        Input::Heard { .. } | Input::Decided(_) => false,
        // An elastic gang grows best right after a checkpoint.
        Input::Report { report: Report::Checkpoint { job, .. }, .. } => {
            cluster.job(*job).is_some_and(|job| job.spec.is_elastic())
        }
        Input::Report { report, .. } => matches!(report, Report::Ended { .. } | Report::Stray { .. }),
        _ => true,
    }
}

/// Whether one of the steps starts the job or claims for it.
fn names(steps: &[Step], job: JobId) -> bool {
    steps.iter().any(|step| match step {
        Step::Start { job: started, .. } => *started == job,
        Step::Claim(claim) => claim.claimant == job,
        Step::Stop { .. } | Step::Shrink { .. } | Step::Unclaim { .. } | Step::Repartition { .. } => false,
    })
}
