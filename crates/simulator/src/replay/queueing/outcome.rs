//! What a replay amounts to.
use super::job::Job;
use serde::Serialize;

/// Completion times count from the submission.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    pub mean_jct_s: f64,
    /// The completion time at place 0.99 n of the sorted ones, rounded down.
    pub p99_jct_s: f64,
    pub makespan_s: f64,
    pub preemptions: u64,
    /// GPU time spent on starts and resumes.
    pub lost_gpu_hours: f64,
    /// The longest time that a job had to wait in all, before its first start and between its runs.
    pub max_wait_s: f64,
}

impl Outcome {
    pub fn of(jobs: &[Job]) -> Outcome {
        let mut jct_us: Vec<u64> =
            jobs.iter().filter_map(|job| job.ended_us.map(|ended_us| ended_us - job.submit_us)).collect();
        jct_us.sort_unstable();
        let lost: u64 = jobs.iter().map(|job| job.lost_us * u64::from(job.gpus)).sum();
        Outcome {
            mean_jct_s: seconds(jct_us.iter().sum()) / jct_us.len().max(1) as f64,
            p99_jct_s: seconds(jct_us.get(jct_us.len() * 99 / 100).copied().unwrap_or(0)),
            makespan_s: seconds(jobs.iter().filter_map(|job| job.ended_us).max().unwrap_or(0)),
            preemptions: jobs.iter().map(|job| job.preemptions).sum(),
            lost_gpu_hours: seconds(lost) / 3_600.0,
            max_wait_s: seconds(jobs.iter().map(|job| job.waited_us).max().unwrap_or(0)),
        }
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}
