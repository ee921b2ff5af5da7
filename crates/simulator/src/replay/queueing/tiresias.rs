//! Two-dimensional least attained service in three queues, as the published simulator plays it: GPUs are only counted,
//! a queue is served first come first, those who run before those who wait, and nobody is promoted.
use super::job::Job;
use super::order::Order;

/// GPU-seconds attained at which a job leaves the first and the second queue.
const LIMITS_GPU_S: [u64; 2] = [3_250, 7_200];

pub struct Tiresias {
    pub gpus: u32,
    queues: [Vec<usize>; 3],
    /// Live jobs in the order of arrival, and the queue of each.
    live: Vec<(usize, usize)>,
}

impl Tiresias {
    pub fn new(gpus: u32) -> Tiresias {
        Tiresias { gpus, queues: Default::default(), live: Vec::new() }
    }

    /// One queue down at a time for those who have attained its limit.
    fn demote(&mut self, jobs: &[Job]) {
        for (job, queue) in &mut self.live {
            let (index, state) = (*job, &jobs[*job]);
            let limit = LIMITS_GPU_S.get(*queue).filter(|_| state.running);
            if limit.is_some_and(|&limit| state.attained_us * u64::from(state.gpus) >= limit * 1_000_000) {
                self.queues[*queue].retain(|&other| other != index);
                *queue += 1;
                self.queues[*queue].push(index);
            }
        }
    }
}

impl Order for Tiresias {
    fn arrived(&mut self, job: usize) {
        self.queues[0].push(job);
        self.live.push((job, 0));
    }

    fn ended(&mut self, job: usize) {
        self.queues.iter_mut().for_each(|queue| queue.retain(|&other| other != job));
        self.live.retain(|&(other, _)| other != job);
    }

    fn choose(&mut self, jobs: &[Job], _now_us: u64) -> Vec<usize> {
        self.demote(jobs);
        let (mut free, mut chosen) = (self.gpus, Vec::new());
        for queue in &mut self.queues {
            let (mut run, mut wait) = (Vec::new(), Vec::new());
            for &job in queue.iter() {
                let fits = free >= jobs[job].gpus;
                free -= if fits { jobs[job].gpus } else { 0 };
                if fits { &mut run } else { &mut wait }.push(job);
            }
            chosen.extend(&run);
            run.append(&mut wait);
            *queue = run;
        }
        chosen
    }

    /// When the next running job attains the limit of its queue, in whole seconds of its own time as published.
    fn next_change_us(&self, jobs: &[Job], now_us: u64) -> Option<u64> {
        let change = |&(job, queue): &(usize, usize)| {
            let limit = LIMITS_GPU_S.get(queue).filter(|_| jobs[job].running)?;
            let at_us = limit.div_ceil(jobs[job].gpus.into()) * 1_000_000;
            // One that is past the limit of two queues at once goes down at the next event, never before now.
            Some((now_us + at_us).saturating_sub(jobs[job].attained_us).max(now_us + 1))
        };
        self.live.iter().filter_map(change).min()
    }
}
