//! A small cluster to decide for: nodes obey at once, time moves only when a test says so.
#![allow(dead_code, reason = "each test file uses its own part")]
use ganger_core::check;
use ganger_core::lifecycle::input::NodeSpec;
use ganger_core::lifecycle::{self, Effects, Input, Refusal};
use ganger_core::model::cluster::NodePlacement;
use ganger_core::model::job::{AttemptPhase, Exit, Job, JobSpec, JobState, Level, Owner, Priority, Shape, WorkerPhase};
use ganger_core::model::machine::Machine;
use ganger_core::model::node::Node;
use ganger_core::model::report::Report;
use ganger_core::model::window::Window;
use ganger_core::model::{Cluster, JobId, NodeId, Rank, Span, Time};
use ganger_core::scheduler;
use std::sync::Arc;

pub struct Lab {
    pub cluster: Cluster,
    pub now: Time,
    pub finished: Vec<Arc<Job>>,
}

impl Lab {
    /// `count` nodes of one machine, `per_leaf` under each leaf, all leaves under one spine.
    pub fn new(count: u32, machine: &Arc<Machine>, per_leaf: u32) -> Lab {
        let mut lab = Lab { cluster: Cluster::new(), now: Time(1_000_000_000_000), finished: Vec::new() };
        for index in 0..count {
            let leaf = format!("leaf{}", index / per_leaf);
            lab.apply(registration(&format!("n{index}"), machine, &leaf));
        }
        lab
    }

    pub fn try_apply(&mut self, input: Input) -> Result<Effects, Refusal> {
        let effects = lifecycle::apply(&mut self.cluster, input, self.now)?;
        self.finished.extend(effects.finished.iter().cloned());
        Ok(effects)
    }

    pub fn apply(&mut self, input: Input) -> Effects {
        self.try_apply(input).expect("the input is accepted")
    }

    pub fn submit(&mut self, spec: JobSpec) -> JobId {
        self.apply(Input::Submit { spec: Arc::new(spec), owner: Owner::default() }).submitted.expect("an id")
    }

    pub fn decide(&mut self) -> usize {
        let decision = scheduler::decide(&self.cluster, self.now);
        let steps = decision.steps.len();
        self.apply(Input::Decided(Box::new(decision)));
        steps
    }

    /// Decides and lets nodes obey until nothing changes; every state on the way keeps the rules.
    pub fn settle(&mut self) {
        for _ in 0..1_000 {
            let steps = self.decide();
            let moved = self.obey();
            self.assert_rules();
            if steps == 0 && !moved {
                return;
            }
        }
        panic!("the cluster does not come to rest");
    }

    /// One round of what agents do at once: prepare, run, stop.
    pub fn obey(&mut self) -> bool {
        let reports = self.due_reports();
        let moved = !reports.is_empty();
        for (node, report) in reports {
            self.apply(Input::Report { node, report });
            self.assert_rules();
        }
        moved
    }

    /// What obedient agents would report next.
    pub fn due_reports(&self) -> Vec<(NodeId, Report)> {
        let mut reports = Vec::new();
        for job in self.cluster.jobs.values() {
            let Some(attempt) = &job.attempt else { continue };
            for worker in attempt.live() {
                let (job, attempt_no, rank) = (job.id, attempt.number, worker.rank);
                let report = match (&attempt.phase, &worker.phase) {
                    (AttemptPhase::Preparing { .. }, WorkerPhase::Assigned) => {
                        Report::Prepared { job, attempt: attempt_no, rank, port: 29_500 }
                    }
                    (AttemptPhase::Going { .. }, WorkerPhase::Prepared { .. }) => {
                        Report::Running { job, attempt: attempt_no, rank }
                    }
                    (AttemptPhase::Stopping(_), _) | (_, WorkerPhase::Leaving { .. }) => {
                        Report::Ended { job, attempt: attempt_no, rank, exit: Exit::Signal(15) }
                    }
                    _ => continue,
                };
                reports.push((worker.place.node, report));
            }
        }
        reports
    }

    /// Every rank of a running job ends with code 0.
    pub fn finish(&mut self, id: JobId) {
        let job = self.cluster.job(id).expect("a live job");
        let attempt = job.attempt.clone().expect("a live attempt");
        for worker in attempt.live() {
            let report = Report::Ended { job: id, attempt: attempt.number, rank: worker.rank, exit: Exit::Code(0) };
            self.apply(Input::Report { node: worker.place.node, report });
        }
    }

    pub fn exit(&mut self, id: JobId, rank: u32, exit: Exit) {
        let attempt = self.cluster.job(id).and_then(|job| job.attempt.clone()).expect("a live attempt");
        let node = attempt.workers[rank as usize].place.node;
        let report = Report::Ended { job: id, attempt: attempt.number, rank: Rank(rank), exit };
        self.apply(Input::Report { node, report });
    }

    pub fn pass(&mut self, span: Span) {
        self.now = self.now + span;
        for index in 0..self.cluster.nodes.len() {
            self.apply(Input::Heard { node: NodeId(index as u32) });
        }
        self.apply(Input::Tick);
    }

    pub fn state(&self, id: JobId) -> JobState {
        let finished = self.finished.iter().find(|job| job.id == id).map(|job| job.state);
        finished.unwrap_or_else(|| self.cluster.job(id).expect("a known job").state)
    }

    pub fn nodes_of(&self, id: JobId) -> Vec<String> {
        let attempt = self.cluster.job(id).and_then(|job| job.attempt.as_ref()).expect("a live attempt");
        attempt.nodes().into_iter().map(|node| self.cluster.node(node).name.clone()).collect()
    }

    pub fn why(&self, id: JobId) -> String {
        self.cluster.blocked.get(&id).map_or("nothing blocks it".to_string(), ToString::to_string)
    }

    pub fn assert_rules(&self) {
        let violations = check::full(&self.cluster);
        assert!(violations.is_empty(), "{violations:#?}");
    }
}

/// The rules that a state breaks, one for each violation.
pub fn broken(cluster: &Cluster) -> Vec<u8> {
    check::full(cluster).iter().map(|violation| violation.rule).collect()
}

/// A live job, to plant a fault in.
pub fn job_mut(cluster: &mut Cluster, id: JobId) -> &mut Job {
    Arc::make_mut(cluster.jobs.get_mut(&id).expect("a live job"))
}

pub fn spec_mut(cluster: &mut Cluster, id: JobId) -> &mut JobSpec {
    Arc::make_mut(&mut job_mut(cluster, id).spec)
}

pub fn node_mut(cluster: &mut Cluster, id: NodeId) -> &mut Node {
    Arc::make_mut(&mut cluster.nodes[id.index()])
}

/// Every day, from so many minutes before the cluster's moment until so many after it.
pub fn window(cluster: &Cluster, before_min: u64, after_min: u64) -> Window {
    let now_min = cluster.now.0 / 60_000 + 1_440;
    let at = |minutes: u64| (minutes % 1_440) as u16;
    let (from_min, until_min) = (at(now_min - before_min), at(now_min + after_min));
    Window { days: 0x7f, from_min, until_min, zone: Default::default() }
}

/// A node that joins, or comes back.
pub fn registration(name: &str, machine: &Arc<Machine>, leaf: &str) -> Input {
    Input::Register(Box::new(NodeSpec {
        name: name.to_string(),
        machine: machine.clone(),
        placement: NodePlacement { leaf: Some(leaf.to_string()), ..NodePlacement::default() },
        address: "127.0.0.1".to_string(),
        boot_id: "boot".to_string(),
        agent: String::new(),
    }))
}

/// A gang of `workers` with `gpus` each; one CPU a worker.
pub fn job(name: &str, workers: u32, gpus: u32, priority: Priority) -> JobSpec {
    JobSpec {
        priority,
        preemptible: priority == Priority::P3,
        ..JobSpec::new(name, workers, Shape { gpus, cpus: 1, ..Shape::default() })
    }
}

pub fn require(mut spec: JobSpec, level: Level) -> JobSpec {
    spec.topology.require = Some(level);
    spec
}

pub fn limit(mut spec: JobSpec, span: Span) -> JobSpec {
    spec.time_limit = Some(span);
    spec
}
