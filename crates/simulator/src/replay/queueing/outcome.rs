//! What a replay amounts to.
use serde::Serialize;

/// What became of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    pub submit_us: u64,
    pub ended_us: u64,
    /// Before its first start and between its runs.
    pub waited_us: u64,
    /// GPU time spent on starts and resumes.
    pub lost_gpu_us: u64,
    pub preemptions: u64,
}

/// Completion times count from the submission.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    pub mean_jct_s: f64,
    /// The completion time at place 0.99 n of the sorted ones, rounded down.
    pub p99_jct_s: f64,
    pub makespan_s: f64,
    pub preemptions: u64,
    pub preemptions_per_job: f64,
    /// GPU time spent on starts and resumes.
    pub lost_gpu_hours: f64,
    /// The longest time that a job had to wait in all, before its first start and between its runs.
    pub max_wait_s: f64,
}

impl Outcome {
    pub fn of(fates: &[Fate]) -> Outcome {
        let mut jct_us: Vec<u64> = fates.iter().map(|fate| fate.ended_us - fate.submit_us).collect();
        jct_us.sort_unstable();
        let jobs = jct_us.len().max(1) as f64;
        let preemptions: u64 = fates.iter().map(|fate| fate.preemptions).sum();
        Outcome {
            mean_jct_s: seconds(jct_us.iter().sum()) / jobs,
            p99_jct_s: seconds(jct_us.get(jct_us.len() * 99 / 100).copied().unwrap_or(0)),
            makespan_s: seconds(fates.iter().map(|fate| fate.ended_us).max().unwrap_or(0)),
            preemptions,
            preemptions_per_job: preemptions as f64 / jobs,
            lost_gpu_hours: seconds(fates.iter().map(|fate| fate.lost_gpu_us).sum()) / 3_600.0,
            max_wait_s: seconds(fates.iter().map(|fate| fate.waited_us).max().unwrap_or(0)),
        }
    }
}

/// How many jobs wait and how many GPUs are held, whenever that changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Curve {
    pub points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub at_us: u64,
    pub waiting: usize,
    pub gpus_held: u64,
}

impl Curve {
    /// Of several at one moment the last counts.
    pub fn note(&mut self, at_us: u64, waiting: usize, gpus_held: u64) {
        let point = Point { at_us, waiting, gpus_held };
        match self.points.last_mut() {
            Some(last) if last.at_us == at_us => *last = point,
            _ => self.points.push(point),
        }
    }
}

/// A replay with all that its report shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Replayed {
    pub outcome: Outcome,
    /// Of each job, ascending.
    pub waits_us: Vec<u64>,
    pub curve: Curve,
}

impl Replayed {
    pub fn of(fates: &[Fate], curve: Curve) -> Replayed {
        let mut waits_us: Vec<u64> = fates.iter().map(|fate| fate.waited_us).collect();
        waits_us.sort_unstable();
        Replayed { outcome: Outcome::of(fates), waits_us, curve }
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}
