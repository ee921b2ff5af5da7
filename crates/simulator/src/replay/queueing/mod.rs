//! Who goes first: jobs with known work on a small cluster of equal nodes, under the policies of the published
//! comparison and the plain ones that it lacks. One event loop, one start cost, for all.
pub(super) mod cost;
mod job;
mod nodes;
mod order;
mod outcome;
mod place;
pub mod policy;
mod tiresias;

pub use job::Charge;
pub use outcome::{Curve, Fate, Outcome, Point, Replayed};
pub use policy::Policy;

use super::lifecycle;
use super::trace::Trace;
use job::Job;
use nodes::Nodes;
use order::Order;
use std::collections::VecDeque;

/// Equal nodes, and how starts are charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    pub nodes: usize,
    pub gpus_each: u32,
    pub charge: Charge,
}

/// Replays a trace. Fails where a job could never start. `watch` hears how many jobs are over, where that takes its time.
pub fn run(trace: &Trace, policy: Policy, setup: Setup, watch: &mut dyn FnMut(usize)) -> Result<Replayed, String> {
    let jobs: Vec<Job> = trace.jobs.iter().map(Job::of).collect();
    let empty = Nodes::new(setup.nodes, setup.gpus_each);
    if let Some(index) = jobs.iter().position(|job| !empty.clone().take(job.gpus)) {
        let (id, gpus, Setup { nodes, gpus_each, .. }) = (&trace.jobs[index].id, jobs[index].gpus, setup);
        return Err(format!(
            "cannot replay: job {id} asks for {gpus} GPUs, which {nodes} nodes of {gpus_each} never hold; give more nodes"
        ));
    }
    let Some(order) = policy.order(empty) else {
        if setup.charge == Charge::EveryEvent {
            return Err("cannot replay ours in compat mode: its starts cost what starts cost".to_string());
        }
        return lifecycle::run(trace, setup, watch);
    };
    let mut replay = Replay::new(jobs, order, setup.charge);
    while let Some(next_us) = replay.next_event_us() {
        replay.go_to(next_us);
    }
    let fates: Vec<Fate> = replay.jobs.iter().filter_map(Job::fate).collect();
    Ok(Replayed::of(&fates, replay.curve))
}

struct Replay {
    jobs: Vec<Job>,
    charge: Charge,
    order: Box<dyn Order>,
    arrivals: VecDeque<usize>,
    running: Vec<usize>,
    waiting: usize,
    curve: Curve,
    now_us: u64,
}

impl Replay {
    fn new(jobs: Vec<Job>, order: Box<dyn Order>, charge: Charge) -> Replay {
        let mut arrivals: Vec<usize> = (0..jobs.len()).collect();
        // Stable: equals stay in the order of the file.
        arrivals.sort_by_key(|&job| jobs[job].submit_us);
        Replay {
            jobs,
            charge,
            order,
            arrivals: arrivals.into(),
            running: Vec::new(),
            waiting: 0,
            curve: Curve::default(),
            now_us: 0,
        }
    }

    /// The next arrival, end, or change that the policy wants; none when all is done.
    fn next_event_us(&self) -> Option<u64> {
        let arrival = self.arrivals.front().map(|&job| self.jobs[job].submit_us);
        let end = self.running.iter().map(|&job| self.jobs[job].end_us()).min();
        let event = arrival.into_iter().chain(end).min()?;
        Some(self.order.next_change_us(&self.jobs, self.now_us).map_or(event, |change| change.min(event)))
    }

    /// Ends first, then arrivals, then who has run is counted, then the policy chooses.
    fn go_to(&mut self, now_us: u64) {
        self.now_us = now_us;
        self.end();
        while let Some(job) = self.arrivals.pop_front_if(|job| self.jobs[*job].submit_us <= now_us) {
            self.order.arrived(job);
            self.waiting += 1;
        }
        self.running.iter().for_each(|&job| self.jobs[job].advance(now_us, self.charge));
        let chosen = self.order.choose(&self.jobs, now_us);
        self.switch_to(chosen);
        let held = self.running.iter().map(|&job| u64::from(self.jobs[job].gpus)).sum();
        self.curve.note(now_us, self.waiting, held);
    }

    fn end(&mut self) {
        for &job in &self.running {
            if self.jobs[job].end_us() <= self.now_us {
                self.jobs[job].end(self.now_us);
                self.order.ended(job);
            }
        }
        self.running.retain(|&job| self.jobs[job].running);
    }

    /// Stops whoever is not chosen and starts the others. Who waits is counted only when it starts.
    fn switch_to(&mut self, chosen: Vec<usize>) {
        let mut sorted = chosen.clone();
        sorted.sort_unstable();
        for &job in self.running.iter().filter(|job| sorted.binary_search(job).is_err()) {
            self.jobs[job].stop();
            self.waiting += 1;
        }
        for &job in &chosen {
            if !self.jobs[job].running {
                self.jobs[job].advance(self.now_us, self.charge);
                self.jobs[job].start(self.charge);
                self.waiting -= 1;
            }
        }
        self.running = chosen;
    }
}
