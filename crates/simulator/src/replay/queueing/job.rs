//! A job while it is replayed. Times are whole microseconds of virtual time.
use super::cost;
use super::outcome::Fate;
use crate::replay::trace::TraceJob;

/// When a running job pays for its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// Once at each real start or resume, before its work goes on.
    OnStart,
    /// The rule of the published simulator: at every event out of the time since the last one, though a job that ends
    /// ends as if its last stretch were free.
    EveryEvent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub submit_us: u64,
    pub gpus: u32,
    pub work_us: u64,
    pub start_cost_us: u64,
    pub remaining_us: u64,
    /// Of the start that it is in the middle of.
    pub owed_us: u64,
    pub running: bool,
    /// Until when its times are counted.
    pub counted_us: u64,
    /// Time on its GPUs, starts included.
    pub attained_us: u64,
    pub waited_us: u64,
    pub lost_us: u64,
    pub preemptions: u64,
    pub ended_us: Option<u64>,
}

impl Job {
    pub fn of(job: &TraceJob) -> Job {
        let gpus = job.worker.gpus * job.gang_workers;
        let work_us = job.duration_us.unwrap_or(0);
        let submit_us = job.submit_ms * 1_000;
        Job {
            submit_us,
            gpus,
            work_us,
            start_cost_us: cost::start_ms(&job.label, gpus) * 1_000,
            remaining_us: work_us,
            owed_us: 0,
            running: false,
            counted_us: submit_us,
            attained_us: 0,
            waited_us: 0,
            lost_us: 0,
            preemptions: 0,
            ended_us: None,
        }
    }

    /// When it ends if it goes on.
    pub fn end_us(&self) -> u64 {
        self.counted_us + self.owed_us + self.remaining_us
    }

    /// Counts the time up to `now_us` as run or waited.
    pub fn advance(&mut self, now_us: u64, charge: Charge) {
        let passed_us = now_us - self.counted_us;
        self.counted_us = now_us;
        if !self.running {
            self.waited_us += passed_us;
            return;
        }
        let owed_us = if charge == Charge::EveryEvent { self.start_cost_us } else { self.owed_us };
        let paid_us = owed_us.min(passed_us);
        self.owed_us = self.owed_us.saturating_sub(paid_us);
        self.lost_us += paid_us;
        self.remaining_us -= passed_us - paid_us;
        self.attained_us += passed_us;
    }

    pub fn start(&mut self, charge: Charge) {
        self.running = true;
        self.owed_us = if charge == Charge::OnStart { self.start_cost_us } else { 0 };
    }

    /// Its progress is kept; the next start is paid in full.
    pub fn stop(&mut self) {
        self.running = false;
        self.owed_us = 0;
        self.preemptions += 1;
    }

    pub fn end(&mut self, now_us: u64) {
        let passed_us = now_us - self.counted_us;
        self.attained_us += passed_us;
        self.lost_us += self.owed_us;
        (self.remaining_us, self.owed_us, self.counted_us, self.running) = (0, 0, now_us, false);
        self.ended_us = Some(now_us);
    }

    /// None while it lives.
    pub fn fate(&self) -> Option<Fate> {
        let (submit_us, ended_us) = (self.submit_us, self.ended_us?);
        let lost_gpu_us = self.lost_us * u64::from(self.gpus);
        Some(Fate { submit_us, ended_us, waited_us: self.waited_us, lost_gpu_us, preemptions: self.preemptions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::trace::WorkerShape;

    fn job() -> Job {
        let worker = WorkerShape::whole(2);
        let label = "resnet18".to_string();
        let trace =
            TraceJob { id: "a".into(), submit_ms: 0, duration_us: Some(100_000_000), gang_workers: 1, worker, label };
        Job::of(&trace)
    }

    #[test]
    fn a_start_is_paid_once_or_at_every_event() {
        let (mut once, mut every) = (job(), job());
        once.start(Charge::OnStart);
        every.start(Charge::EveryEvent);
        assert_eq!((once.end_us(), every.end_us()), (105_000_000, 100_000_000));
        for now_us in [10_000_000, 20_000_000] {
            once.advance(now_us, Charge::OnStart);
            every.advance(now_us, Charge::EveryEvent);
        }
        assert_eq!((once.remaining_us, once.lost_us, once.attained_us), (85_000_000, 5_000_000, 20_000_000));
        assert_eq!((every.remaining_us, every.lost_us), (90_000_000, 10_000_000));
        once.stop();
        once.advance(30_000_000, Charge::OnStart);
        once.start(Charge::OnStart);
        assert_eq!((once.waited_us, once.end_us(), once.preemptions), (10_000_000, 120_000_000, 1));
    }
}
