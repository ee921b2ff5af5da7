//! How long it took against what nobody can beat, and what deciding cost.
use super::mix::{Plan, Stream};
use ganger_core::model::job::Job;
use serde::Serialize;
use std::collections::BTreeMap;

/// Until the first start.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Waits {
    pub count: u64,
    pub mean_s: f64,
    pub max_s: f64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    pub workloads: u64,
    pub queues: u64,
    pub makespan_s: f64,
    /// The generator's last workload, or the work on all that may be used: whichever is later.
    pub bound_s: f64,
    pub over_bound: f64,
    pub preemptions: u64,
    pub decisions: u64,
    /// Time of the processor inside `decide`.
    pub deciding_cpu_s: f64,
    pub waits: BTreeMap<&'static str, Waits>,
    #[serde(skip)]
    pub over: u64,
    #[serde(skip)]
    ended_ms: u64,
}

impl Outcome {
    pub fn new(plan: &Plan) -> Outcome {
        let bound_s = plan.bound_ms() as f64 / 1_000.0;
        Outcome { workloads: plan.workloads(), queues: plan.queues(), bound_s, ..Outcome::default() }
    }

    pub fn note(&mut self, stream: &Stream, job: &Job) {
        self.over += 1;
        self.preemptions += u64::from(job.evictions);
        self.ended_ms = self.ended_ms.max(job.ended_at.map_or(0, |at| at.0));
        let waited_s = job.started_at.map_or(0, |at| at.since(job.submitted_at).0) as f64 / 1_000.0;
        let waits = self.waits.entry(stream.name).or_default();
        waits.count += 1;
        waits.mean_s += (waited_s - waits.mean_s) / waits.count as f64;
        waits.max_s = waits.max_s.max(waited_s);
    }

    pub fn finished(mut self, (decisions, deciding_ns): (u64, u64)) -> Outcome {
        self.makespan_s = self.ended_ms as f64 / 1_000.0;
        self.over_bound = self.makespan_s / self.bound_s;
        (self.decisions, self.deciding_cpu_s) = (decisions, deciding_ns as f64 / 1e9);
        self
    }
}
