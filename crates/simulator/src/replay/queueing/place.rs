//! Who runs, for policies that stop nobody. As for all policies here moving costs nothing: a set of jobs runs if there is
//! a way to sit together, the largest placed first.
use super::job::Job;
use super::nodes::Nodes;

pub struct Places {
    empty: Nodes,
    pub running: Vec<usize>,
}

impl Places {
    pub fn new(empty: Nodes) -> Places {
        Places { empty, running: Vec::new() }
    }

    pub fn is_full(&self, jobs: &[Job]) -> bool {
        self.running.iter().map(|&job| jobs[job].gpus).sum::<u32>() >= self.empty.free_gpus()
    }

    /// False where it does not fit beside those who run.
    pub fn enter(&mut self, job: usize, jobs: &[Job]) -> bool {
        let fits = self.sit_together(jobs, &self.running, job);
        self.running.extend(fits.then_some(job));
        fits
    }

    pub fn leave(&mut self, job: usize) {
        self.running.retain(|&other| other != job);
    }

    fn sit_together(&self, jobs: &[Job], running: &[usize], one_more: usize) -> bool {
        let mut sizes: Vec<u32> = running.iter().chain([&one_more]).map(|&job| jobs[job].gpus).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let mut nodes = self.empty.clone();
        sizes.iter().all(|&gpus| nodes.take(gpus))
    }

    /// When `head` would fit, if nobody else started.
    pub fn earliest_us(&self, jobs: &[Job], head: usize, now_us: u64) -> u64 {
        let mut ends: Vec<(u64, usize)> = self.running.iter().map(|&job| (end_us(&jobs[job], now_us), job)).collect();
        ends.sort_unstable();
        let mut left = self.running.clone();
        for (end_us, job) in ends {
            left.retain(|&other| other != job);
            if self.sit_together(jobs, &left, head) {
                return end_us;
            }
        }
        u64::MAX
    }

    /// Starts `job` if `head` can still start at `start_us`.
    pub fn enter_beside(&mut self, job: usize, jobs: &[Job], head: usize, start_us: u64, now_us: u64) -> bool {
        if !self.enter(job, jobs) {
            return false;
        }
        let in_time = end_us(&jobs[job], now_us) <= start_us || self.earliest_us(jobs, head, now_us) <= start_us;
        if !in_time {
            self.leave(job);
        }
        in_time
    }
}

/// One that only starts now ends after its start and its work.
fn end_us(job: &Job, now_us: u64) -> u64 {
    if job.running { job.end_us() } else { now_us + job.start_cost_us + job.remaining_us }
}
