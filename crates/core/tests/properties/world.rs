//! A small random cluster, and what must be true after every input: the rules hold, counters only rise, a refusal
//! changes nothing, what changed is named as dirty, what ended owns nothing.
use crate::common::Lab;
use crate::events::{self, Event};
use crate::evictions;
use crate::potential;
use ganger_core::check;
use ganger_core::lifecycle::input::NodeSpec;
use ganger_core::lifecycle::{Effects, Input, Refusal, next_deadline};
use ganger_core::model::cluster::NodePlacement;
use ganger_core::model::decision::{Blocker, Decision, Step};
use ganger_core::model::job::{Exit, Job, Owner};
use ganger_core::model::machine::Machine;
use ganger_core::model::machine::profiles::{Custom, profile};
use ganger_core::model::report::Report;
use ganger_core::model::{Cluster, JobId, NodeId, Rank, Span};
use ganger_core::scheduler::decide;
use std::sync::{Arc, OnceLock};

const GIB: u64 = 1 << 30;

/// Machines of all kinds: captured ones, and small ones on which CPUs and memory run out before GPUs do.
fn machines() -> &'static [Arc<Machine>] {
    static MACHINES: OnceLock<Vec<Arc<Machine>>> = OnceLock::new();
    MACHINES.get_or_init(|| {
        let custom = |custom: Custom| Arc::new(custom.build().expect("a machine"));
        let islands = |text: &str| Some(text.to_string());
        vec![
            profile("dgx-h100").expect("shipped"),
            profile("pcie-4").expect("shipped"),
            profile("gb200-nvl72").expect("shipped"),
            custom(Custom { gpus: 4, sockets: 2, cpus: 6, memory_bytes: 16 * GIB, ..Custom::default() }),
            custom(Custom { gpus: 4, cpus: 16, islands: islands("0-1|2-3"), nics: Some(2), ..Custom::default() }),
            custom(Custom { gpus: 0, sockets: 2, cpus: 8, memory_bytes: 8 * GIB, ..Custom::default() }),
            custom(Custom { gpus: 8, sockets: 2, cpus: 32, islands: islands("0-3|4-7"), ..Custom::default() }),
            custom(Custom { gpus: 2, cpus: 3, memory_bytes: 4 * GIB, ..Custom::default() }),
        ]
    })
}

pub struct World {
    pub lab: Lab,
    /// Decisions that were made and not applied yet.
    late: Vec<Decision>,
    submitted: u32,
    boots: u32,
}

impl World {
    /// One to four nodes under one to three leaves and one or two spines.
    pub fn new(shape: u16) -> World {
        let lab = Lab::new(0, &machines()[0], 1);
        let mut world = World { lab, late: Vec::new(), submitted: 0, boots: 0 };
        for path in &events::QUEUES[1..] {
            let queue = ganger_core::lifecycle::input::QueueSpec { path: path.to_string(), ..Default::default() };
            world.input(Input::Queues { queues: vec![queue], by: "ops".to_string() });
        }
        let mixed = shape & 0x8000 != 0;
        for index in 0..1 + (shape & 3) {
            let kind = if mixed { (shape >> 2).wrapping_add(index * 3) } else { shape >> 2 };
            world.register(index, usize::from(kind) % machines().len(), shape >> (5 + index));
        }
        world
    }

    fn register(&mut self, index: u16, machine: usize, bits: u16) {
        let leaf = bits % 3;
        let placement = NodePlacement {
            leaf: Some(format!("leaf{leaf}")),
            spine: Some(format!("spine{}", leaf / 2)),
            pool: (index == 0).then(|| "blue".to_string()),
            ..NodePlacement::default()
        };
        let spec = NodeSpec {
            name: format!("n{index}"),
            machine: machines()[machine].clone(),
            placement,
            address: "127.0.0.1".to_string(),
            boot_id: format!("boot{}", self.boots),
            agent: String::new(),
        };
        self.input(Input::Register(Box::new(spec)));
    }

    pub fn take(&mut self, event: Event) {
        let Event { kind, a, b, c } = event;
        let by = || "someone".to_string();
        match kind {
            0..=9 => self.submit(event),
            10..=16 => drop(self.decide()),
            17..=19 => drop(self.obey()),
            20..=22 => self.report_of(a, Exit::Code(0)),
            23 => self.finish(a),
            24..=25 => self.pass(event, u16::MAX),
            26..=27 => self.on_job(a, |job| Input::Cancel { job, by: by() }),
            28 => self.on_job(a, |job| Input::Hold { job, by: by() }),
            29..=30 => self.on_job(a, |job| Input::Release { job, by: by() }),
            31..=32 => self.on_job(a, |job| Input::Requeue { job, by: by() }),
            33..=34 => {
                // A limit that falls in the very millisecond of a start would look as if the start had broken it.
                self.lab.now = self.lab.now + Span(1);
                self.input(Input::Queues { queues: vec![events::queue(event)], by: by() });
            }
            35 => {
                self.lab.now = self.lab.now + Span(1);
                let (name, value) = events::setting(event);
                self.input(Input::Setting { name: name.to_string(), value: value.to_string(), by: by() });
            }
            36..=39 => self.report_of(a, events::exit(b)),
            40..=44 => {
                let report = events::strange_report(event, &self.lab.cluster, &self.jobs());
                self.input(Input::Report { node: self.node(c >> 9), report });
            }
            45 => self.input(Input::NodeLost { node: self.node(a), cause: "power".to_string() }),
            46..=47 => self.input(Input::Recover { node: self.node(a), by: by() }),
            48 if b % 2 == 0 => self.input(events::maintenance(event, self.node(a), self.lab.now)),
            48 => self.input(Input::Drain { node: self.node(a), by: by() }),
            49 => self.input(Input::Cordon { node: self.node(a), by: by() }),
            50..=51 => self.input(Input::Uncordon { node: self.node(a), by: by() }),
            52 => self.input(Input::Quarantine { node: self.node(a), cause: "XID 79".to_string(), fenced: b % 2 == 0 }),
            53 => self.reboot(a, b),
            54 => self.input(Input::Heard { node: self.node(a) }),
            55..=57 => self.pass(event, c),
            58..=59 => self.late.push(decide(&self.lab.cluster, self.lab.now)),
            60 => self.apply_late(),
            61 => self.on_job(a, |job| Input::Resize { job, workers: 1 + u32::from(b % 6), by: by() }),
            _ => self.input(Input::NewTerm),
        }
    }

    pub fn jobs(&self) -> Vec<JobId> {
        self.lab.cluster.jobs.keys().copied().collect()
    }

    fn node(&self, by: u16) -> NodeId {
        NodeId(u32::from(by) % self.lab.cluster.nodes.len() as u32)
    }

    fn job_of(&self, by: u16) -> Option<JobId> {
        let jobs = self.jobs();
        (!jobs.is_empty()).then(|| jobs[usize::from(by) % jobs.len()])
    }

    fn on_job(&mut self, by: u16, input: impl Fn(JobId) -> Input) {
        // One in sixteen is about a job that does not exist.
        let job = if by >> 12 == 0 { Some(JobId(999)) } else { self.job_of(by) };
        if let Some(job) = job {
            self.input(input(job));
        }
    }

    fn submit(&mut self, event: Event) {
        self.submitted += 1;
        let spec = events::spec(event, self.submitted, self.lab.now, &self.jobs());
        self.input(Input::Submit { spec: Arc::new(spec), owner: Owner::default() });
    }

    /// One round of obedient agents, one report at a time.
    fn obey(&mut self) -> bool {
        let reports = self.lab.due_reports();
        let moved = !reports.is_empty();
        for (node, report) in reports {
            self.input(Input::Report { node, report });
        }
        moved
    }

    /// One live worker does its next step, or ends as `exit` says if it runs.
    fn report_of(&mut self, by: u16, exit: Exit) {
        let due = self.lab.due_reports();
        if exit == Exit::Code(0) && !due.is_empty() {
            let (node, report) = due[usize::from(by) % due.len()].clone();
            self.input(Input::Report { node, report: report.clone() });
            return self.input(Input::Report { node, report });
        }
        let Some(id) = self.job_of(by) else { return };
        let Some(attempt) = self.lab.cluster.job(id).and_then(|job| job.attempt.clone()) else { return };
        let worker = &attempt.workers[usize::from(by >> 8) % attempt.workers.len()];
        let (rank, node): (Rank, NodeId) = (worker.rank, worker.place.node);
        self.input(Input::Report { node, report: Report::Ended { job: id, attempt: attempt.number, rank, exit } });
    }

    fn finish(&mut self, by: u16) {
        let running: Vec<JobId> =
            self.lab.cluster.jobs.values().filter(|job| job.is_running()).map(|job| job.id).collect();
        if running.is_empty() {
            return;
        }
        let id = running[usize::from(by) % running.len()];
        let attempt = self.lab.cluster.job(id).and_then(|job| job.attempt.clone()).expect("it runs");
        for worker in attempt.live() {
            let exit = Exit::Code(0);
            let report = Report::Ended { job: id, attempt: attempt.number, rank: worker.rank, exit };
            self.input(Input::Report { node: worker.place.node, report });
        }
    }

    /// Time passes; the nodes of the mask are heard.
    fn pass(&mut self, event: Event, heard: u16) {
        let seconds = [1, 10, 25, 61, 300, 1_800][usize::from(event.a) % 6];
        self.lab.now = self.lab.now + Span::seconds(seconds);
        for index in 0..self.lab.cluster.nodes.len() {
            if heard >> index & 1 == 1 {
                self.input(Input::Heard { node: NodeId(index as u32) });
            }
        }
        self.input(Input::Tick);
    }

    fn reboot(&mut self, a: u16, b: u16) {
        let node = self.node(a);
        self.boots += u32::from(!b.is_multiple_of(3));
        let machine = match b % 4 {
            0 => usize::from(b >> 4) % machines().len(),
            _ => machines()
                .iter()
                .position(|machine| *machine == self.lab.cluster.node(node).machine)
                .expect("one of ours"),
        };
        self.register(node.0 as u16, machine, b >> 8);
    }

    /// Decides, judges the decision and applies it; how many steps it had.
    fn decide(&mut self) -> usize {
        let decision = decide(&self.lab.cluster, self.lab.now);
        assert_eq!(decision, decide(&self.lab.cluster, self.lab.now), "decide is a function");
        evictions::assert_just(&self.lab, &decision);
        let before = self.lab.cluster.clone();
        let result = self.try_input(Input::Decided(Box::new(decision.clone())));
        assert!(result.is_ok(), "a fresh decision is refused: {result:?}\n{decision:#?}\n{before:#?}");
        potential::assert_falls(&before, &decision, &self.lab.cluster);
        let unexplained = check::unexplained(&self.lab.cluster);
        assert!(unexplained.is_empty(), "{unexplained:?}");
        let again = decide(&self.lab.cluster, self.lab.now);
        let settled = again.steps.iter().all(|step| self.is_of_a_group(step)) || lost_its_limit(&decision, &again);
        assert!(settled, "after {decision:#?}\nit decides {again:#?}");
        decision.steps.len()
    }

    /// How the gangs of a group interlock is not searched exhaustively, so a group may turn out to fit once somebody else
    /// has taken devices that it would have chosen badly. Only that may come late.
    fn is_of_a_group(&self, step: &Step) -> bool {
        let Step::Start { job, .. } = step else { return false };
        self.lab.cluster.job(*job).is_some_and(|job| job.spec.group.is_some())
    }

    fn apply_late(&mut self) {
        if let Some(decision) = self.late.pop() {
            self.input(Input::Decided(Box::new(decision)));
        }
    }

    fn input(&mut self, input: Input) {
        let _ = self.try_input(input);
    }

    fn try_input(&mut self, input: Input) -> Result<Effects, Refusal> {
        let before = self.lab.cluster.clone();
        let touched = match &input {
            Input::Decided(decision) => decision.touched_nodes(),
            _ => Vec::new(),
        };
        let what = input.clone();
        let result = self.lab.try_apply(input);
        let after = &self.lab.cluster;
        let violations = check::full(after);
        assert!(violations.is_empty(), "after {what:?}:\n{violations:#?}");
        assert_only_rises(&before, after);
        match &result {
            Err(_) => assert_eq!(before, *after, "a refused input changes nothing"),
            Ok(effects) => {
                assert_dirty(&before, after, effects, &what);
                effects.finished.iter().for_each(|job| assert_owns_nothing(after, job));
                let jobs = &effects.dirty.jobs;
                assert_eq!(check::delta(after, &touched, jobs), [], "delta says what full says");
            }
        }
        result
    }

    pub fn assert_round_trip(&self) {
        let text = serde_json::to_string(&self.lab.cluster).expect("it can be written");
        let back: Cluster = serde_json::from_str(&text).expect("it can be read");
        assert_eq!(back, self.lab.cluster);
    }

    /// Healthy nodes, obedient agents, no new jobs: few rounds later nothing moves, and each timer after that leads to
    /// rest again.
    pub fn assert_comes_to_rest(mut self) {
        for index in 0..self.lab.cluster.nodes.len() {
            self.input(Input::Recover { node: NodeId(index as u32), by: "ops".to_string() });
            self.input(Input::Uncordon { node: NodeId(index as u32), by: "ops".to_string() });
        }
        let jobs = self.lab.cluster.jobs.len();
        let mut rounds = 0;
        for _ in 0..3 {
            while self.one_round() {
                rounds += 1;
                assert!(rounds < 40 + 20 * jobs, "{jobs} jobs do not come to rest");
            }
            let next = next_deadline(&self.lab.cluster).unwrap_or(self.lab.now).max(self.lab.now + Span(1));
            self.lab.now = next;
            for index in 0..self.lab.cluster.nodes.len() {
                self.input(Input::Heard { node: NodeId(index as u32) });
            }
            self.input(Input::Tick);
        }
    }

    fn one_round(&mut self) -> bool {
        let steps = self.decide();
        let moved = self.obey();
        steps > 0 || moved
    }
}

/// A start can use up the limit of a queue in which a reserved start was counted on; then the reservation goes, and
/// others start on what it kept. Limits in time are not planned.
fn lost_its_limit(decision: &Decision, again: &Decision) -> bool {
    let reserved = decision.reservations.iter().map(|reservation| again.blocked.get(&reservation.job));
    reserved.flatten().any(|blocker| matches!(blocker, Blocker::QueueLimit { .. }))
}

fn assert_only_rises(before: &Cluster, after: &Cluster) {
    assert!(after.now >= before.now && after.version >= before.version && after.term >= before.term);
    assert!(after.next_job >= before.next_job);
    for (old, new) in before.nodes.iter().zip(&after.nodes) {
        assert!(new.generation >= old.generation, "{} gets older orders", new.name);
    }
    for old in before.jobs.values() {
        assert!(after.job(old.id).is_none_or(|new| new.attempts >= old.attempts && new.evictions >= old.evictions));
    }
}

/// Rule 8: what differs from before is named, so that it is stored before anybody is told.
fn assert_dirty(before: &Cluster, after: &Cluster, effects: &Effects, what: &Input) {
    let dirty = &effects.dirty;
    for id in before.jobs.keys().chain(after.jobs.keys()) {
        let same = before.jobs.get(id) == after.jobs.get(id);
        assert!(same || dirty.jobs.contains(id), "job {id} changed unnoticed by {what:?}");
    }
    for node in &after.nodes {
        let unheard = before.nodes.get(node.id.index()).is_some_and(|old| {
            Arc::ptr_eq(old, node) || {
                let mut old = (**old).clone();
                old.last_heard = node.last_heard;
                old == **node
            }
        });
        assert!(unheard || dirty.nodes.contains(&node.id), "{} changed unnoticed by {what:?}", node.name);
    }
    for id in before.claims.keys().chain(after.claims.keys()) {
        let same = before.claims.get(id) == after.claims.get(id);
        assert!(same || dirty.claims.contains(id), "claim {id} changed unnoticed by {what:?}");
    }
    for path in before.queues.keys().chain(after.queues.keys()) {
        let same = before.queues.get(path) == after.queues.get(path);
        assert!(same || dirty.queues.contains(path), "queue {path} changed unnoticed by {what:?}");
    }
    assert!(
        before.reservations == after.reservations || dirty.reservations,
        "reservations changed unnoticed by {what:?}"
    );
    let globals = |c: &Cluster| (c.term, c.next_job, c.policy.clone(), c.fabric.clone(), c.placements.clone());
    assert!(globals(before) == globals(after) || dirty.globals, "globals changed unnoticed by {what:?}");
    assert!(before.demand == after.demand || dirty.demand, "the demand changed unnoticed by {what:?}");
    let records = before.jobs != after.jobs || before.claims != after.claims || before.queues != after.queues;
    assert!(!records || after.version > before.version, "a change without a new version by {what:?}");
}

/// Rule 8: a terminal state owns nothing.
fn assert_owns_nothing(after: &Cluster, job: &Job) {
    assert!(job.state.is_terminal() && job.attempt.is_none() && job.ended_at.is_some());
    assert!(!after.jobs.contains_key(&job.id) && !after.claims.contains_key(&job.id));
    assert!(!after.reservations.contains_key(&job.id) && !after.blocked.contains_key(&job.id));
    for node in &after.nodes {
        assert!(node.tenants.iter().all(|(tenant, _)| *tenant != job.id), "{} still lists job {}", node.name, job.id);
        let owns = |device: &ganger_core::model::node::Device| device.owner() == Some(job.id);
        let has_part = node.splits.values().flat_map(|split| &split.held).any(|held| held.job == job.id);
        assert!(!node.devices.iter().any(owns) && !has_part, "job {} still owns a device of {}", job.id, node.name);
    }
}
