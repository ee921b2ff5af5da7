//! Who goes first: jobs with known work on a small cluster of equal nodes, under the policies of the published
//! comparison and the plain ones that it lacks. One event loop, one start cost, for all.
mod cost;
mod job;
mod nodes;
mod order;
mod outcome;
mod place;
pub mod policy;
mod tiresias;

pub use job::Charge;
pub use outcome::Outcome;
pub use policy::Policy;

use super::trace::Trace;
use job::Job;
use nodes::Nodes;
use order::Order;
use std::collections::VecDeque;

/// The cluster of the published comparison.
pub const NODES: usize = 8;
pub const GPUS_EACH: u32 = 8;

/// Replays a trace. Fails where a job could never start.
pub fn run(trace: &Trace, policy: Policy, charge: Charge) -> Result<Outcome, String> {
    let mut jobs: Vec<Job> = trace.jobs.iter().map(Job::of).collect();
    let all_gpus = NODES as u32 * GPUS_EACH;
    if let Some(index) = jobs.iter().position(|job| job.gpus > all_gpus) {
        let (id, gpus) = (&trace.jobs[index].id, jobs[index].gpus);
        return Err(format!("cannot replay: job {id} asks for {gpus} GPUs, the cluster has {all_gpus}"));
    }
    let mut arrivals: Vec<usize> = (0..jobs.len()).collect();
    // Stable: equals stay in the order of the file.
    arrivals.sort_by_key(|&job| jobs[job].submit_us);
    let mut arrivals = VecDeque::from(arrivals);
    let mut order = policy.order(Nodes::new(NODES, GPUS_EACH));
    let mut running = Vec::new();
    let mut now_us = 0;
    while let Some(next_us) = next_event(&jobs, &arrivals, &running, order.as_ref(), now_us) {
        now_us = next_us;
        end(&mut jobs, &running, order.as_mut(), now_us);
        while let Some(&job) = arrivals.front().filter(|&&job| jobs[job].submit_us <= now_us) {
            arrivals.pop_front();
            order.arrived(job);
        }
        let live = jobs.iter_mut().filter(|job| job.ended_us.is_none() && job.submit_us <= now_us);
        live.for_each(|job| job.advance(now_us, charge));
        let chosen = order.choose(&jobs, now_us);
        switch(&mut jobs, &running, &chosen, charge);
        running = chosen;
    }
    Ok(Outcome::of(&jobs))
}

fn next_event(
    jobs: &[Job],
    arrivals: &VecDeque<usize>,
    running: &[usize],
    order: &dyn Order,
    now_us: u64,
) -> Option<u64> {
    let arrival = arrivals.front().map(|&job| jobs[job].submit_us);
    let end = running.iter().map(|&job| jobs[job].end_us()).min();
    let event = [arrival, end].into_iter().flatten().min()?;
    Some(order.next_change_us(jobs, now_us).map_or(event, |change| change.min(event)))
}

fn end(jobs: &mut [Job], running: &[usize], order: &mut dyn Order, now_us: u64) {
    for &job in running {
        if jobs[job].end_us() <= now_us {
            jobs[job].end(now_us);
            order.ended(job);
        }
    }
}

/// Starts and stops what the choice changes.
fn switch(jobs: &mut [Job], running: &[usize], chosen: &[usize], charge: Charge) {
    let mut keeps = vec![false; jobs.len()];
    chosen.iter().for_each(|&job| keeps[job] = true);
    let stopped = running.iter().filter(|&&job| !keeps[job] && jobs[job].ended_us.is_none());
    let stopped: Vec<usize> = stopped.copied().collect();
    stopped.into_iter().for_each(|job| jobs[job].stop());
    chosen.iter().filter(|&&job| !jobs[job].running).copied().collect::<Vec<_>>().into_iter().for_each(|job| {
        jobs[job].start(charge);
    });
}
