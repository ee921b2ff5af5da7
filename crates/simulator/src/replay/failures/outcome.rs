//! What the faults cost.
use ganger_core::model::job::Job;
use ganger_core::model::time::Span;
use serde::Serialize;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Work done as a part of the time from each job's first step to its end, weighted by GPUs.
    pub effective_ratio: f64,
    /// The rest, in GPU hours.
    pub lost_gpu_hours: f64,
    /// Servers that failed.
    pub faults: u64,
    /// Runs that had to begin again.
    pub restarts: u64,
    /// From a fault to the first new training step of a job that it hit.
    pub step_p50_s: f64,
    pub step_max_s: f64,
    #[serde(skip)]
    work_gpu_ms: u128,
    #[serde(skip)]
    held_gpu_ms: u128,
    #[serde(skip)]
    steps_ms: Vec<u64>,
}

impl Outcome {
    /// A job is over.
    pub fn note(&mut self, job: &Job, work: Span) {
        let (Some(from), Some(to)) = (job.started_at, job.ended_at) else { return };
        let gpus = u128::from(job.spec.total().gpus);
        self.work_gpu_ms += u128::from(work.0) * gpus;
        self.held_gpu_ms += u128::from(to.since(from).0) * gpus;
        self.restarts += u64::from(job.attempts.0.saturating_sub(1));
    }

    /// A job that a fault hit trains again.
    pub fn restarted(&mut self, after: Span) {
        self.steps_ms.push(after.0);
    }

    pub fn finished(mut self) -> Outcome {
        self.steps_ms.sort_unstable();
        let seconds = |ms: Option<&u64>| ms.map_or(0.0, |ms| *ms as f64 / 1_000.0);
        self.step_p50_s = seconds(self.steps_ms.get(self.steps_ms.len() / 2));
        self.step_max_s = seconds(self.steps_ms.last());
        self.effective_ratio = self.work_gpu_ms as f64 / (self.held_gpu_ms.max(1)) as f64;
        self.lost_gpu_hours = self.held_gpu_ms.saturating_sub(self.work_gpu_ms) as f64 / 3_600_000.0;
        self
    }
}
