//! The queueing policies. Each keeps its own line of live jobs and says who runs now.
use super::job::Job;
use super::nodes::Nodes;
use super::place::Places;

/// A policy at work. Jobs are named by their index.
pub trait Order {
    fn arrived(&mut self, job: usize);
    fn ended(&mut self, job: usize);
    /// Who runs from now on.
    fn choose(&mut self, jobs: &[Job], now_us: u64) -> Vec<usize>;
    /// When the policy itself wants to be asked again, if nothing else happens.
    fn next_change_us(&self, _jobs: &[Job], _now_us: u64) -> Option<u64> {
        None
    }
}

/// The least of a key first, and everyone is placed anew at each event: moving costs nothing. What does not fit is passed.
pub struct Preemptive {
    pub line: Vec<usize>,
    pub nodes: Nodes,
    pub key: fn(&Job) -> u64,
}

impl Order for Preemptive {
    fn arrived(&mut self, job: usize) {
        self.line.push(job);
    }

    fn ended(&mut self, job: usize) {
        self.line.retain(|&other| other != job);
    }

    fn choose(&mut self, jobs: &[Job], _now_us: u64) -> Vec<usize> {
        // Stable: equals stay in the order of the last time.
        self.line.sort_by_key(|&job| (self.key)(&jobs[job]));
        let mut nodes = self.nodes.clone();
        let mut chosen = Vec::new();
        for &job in &self.line {
            if nodes.free_gpus() == 0 {
                break;
            }
            if nodes.take(jobs[job].gpus) {
                chosen.push(job);
            }
        }
        chosen
    }
}

/// Whoever runs goes on; the line is served by a key and stops at the first that does not fit.
pub struct Blocking {
    pub line: Vec<usize>,
    pub places: Places,
    pub key: fn(&Job) -> u64,
}

impl Order for Blocking {
    fn arrived(&mut self, job: usize) {
        self.line.push(job);
    }

    fn ended(&mut self, job: usize) {
        self.places.leave(job);
    }

    fn choose(&mut self, jobs: &[Job], _now_us: u64) -> Vec<usize> {
        self.line.sort_by_key(|&job| (self.key)(&jobs[job]));
        let started = self.line.iter().take_while(|&&job| self.places.enter(job, jobs)).count();
        self.line.drain(..started);
        self.places.running.clone()
    }
}

/// First come, first served, but a later job may pass the first blocked one if that one's earliest start stays: ends are
/// known exactly, which flatters this baseline.
pub struct Backfill {
    pub line: Vec<usize>,
    pub places: Places,
}

impl Order for Backfill {
    fn arrived(&mut self, job: usize) {
        self.line.push(job);
    }

    fn ended(&mut self, job: usize) {
        self.places.leave(job);
    }

    fn choose(&mut self, jobs: &[Job], now_us: u64) -> Vec<usize> {
        let started = self.line.iter().take_while(|&&job| self.places.enter(job, jobs)).count();
        self.line.drain(..started);
        if let Some((&head, rest)) = self.line.split_first() {
            let start_us = self.places.earliest_us(jobs, head, now_us);
            let mut line = vec![head];
            for &job in rest {
                let passes = !self.places.is_full(jobs) && self.places.enter_beside(job, jobs, head, start_us, now_us);
                line.extend((!passes).then_some(job));
            }
            self.line = line;
        }
        self.places.running.clone()
    }
}
