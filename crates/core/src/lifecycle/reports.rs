//! What nodes report. Every report carries its attempt; stale, repeated or impossible ones change nothing.
use super::change::Change;
use crate::model::ids::{AttemptNo, JobId, NodeId, Rank};
use crate::model::job::{AttemptPhase, Checkpoint, Exit, StopWhy, WorkerPhase};
use crate::model::node::{Device, Stray};
use crate::model::report::Report;

impl Change<'_> {
    pub fn report(&mut self, node: NodeId, report: Report) {
        match report {
            Report::Prepared { job, attempt, rank, port } => self.prepared(node, job, attempt, rank, port),
            Report::Running { job, attempt, rank } => self.running(node, job, attempt, rank),
            Report::Ended { job, attempt, rank, exit } => self.ended(node, job, attempt, rank, exit),
            Report::Checkpoint { job, attempt, step, path } => self.checkpoint(job, attempt, step, path),
            Report::CheckpointRejected { job, attempt, path, why } => {
                self.checkpoint_rejected(node, job, attempt, &path, &why);
            }
            Report::Stray { job, attempt, rank, gpus, cpus } => {
                self.stray(node, Stray { job, attempt, rank, gpus, cpus });
            }
        }
    }

    /// Whether the report is about a worker that lives on the reporting node.
    fn is_about(&self, node: NodeId, job: JobId, attempt: AttemptNo, rank: Rank) -> bool {
        let attempt = self.cluster.job(job).and_then(|job| job.attempt.as_ref()).filter(|a| a.number == attempt);
        let worker = attempt.and_then(|attempt| attempt.workers.get(rank.0 as usize));
        worker.is_some_and(|worker| worker.place.node == node && !worker.phase.ended())
    }

    fn prepared(&mut self, node: NodeId, job: JobId, number: AttemptNo, rank: Rank, port: u16) {
        if !self.is_about(node, job, number, rank) {
            return;
        }
        let Some(attempt) = self.live_attempt(job, number) else { return };
        let worker = &mut attempt.workers[rank.0 as usize];
        if matches!(attempt.phase, AttemptPhase::Preparing { .. }) && worker.phase == WorkerPhase::Assigned {
            worker.phase = WorkerPhase::Prepared { port };
            self.go_if_all_prepared(job, number);
        }
    }

    fn running(&mut self, node: NodeId, job: JobId, number: AttemptNo, rank: Rank) {
        if !self.is_about(node, job, number, rank) {
            return;
        }
        let Some(attempt) = self.live_attempt(job, number) else { return };
        let worker = &mut attempt.workers[rank.0 as usize];
        if matches!(attempt.phase, AttemptPhase::Going { .. }) && matches!(worker.phase, WorkerPhase::Prepared { .. }) {
            worker.phase = WorkerPhase::Running;
            self.run_if_all_run(job, number);
        }
    }

    fn ended(&mut self, node: NodeId, job: JobId, attempt: AttemptNo, rank: Rank, exit: Exit) {
        if self.is_about(node, job, attempt, rank) {
            self.end_worker(job, attempt, rank, exit);
            // A rank that ended at once may have been the last that the others waited for.
            self.run_if_all_run(job, attempt);
        } else {
            self.stray_over(node, job, attempt, rank);
        }
    }

    /// Only a newer step counts, and only from the newest attempt or one before it that nobody overtook.
    fn checkpoint(&mut self, id: JobId, attempt: AttemptNo, step: u64, path: String) {
        let now = self.now;
        let Some(job) = self.cluster.job(id) else { return };
        let newer = job.checkpoint.as_ref().is_none_or(|old| (attempt, step) > (old.attempt, old.step));
        if attempt > job.attempts || !newer {
            return;
        }
        let overtaken = attempt < job.attempts && job.attempt.as_ref().is_some_and(|a| a.ran_from.is_some());
        if overtaken {
            let text = format!("checkpoint {path} of attempt {attempt} came too late: attempt {} runs", job.attempts);
            return self.event("checkpoint_rejected", Some(id), None, text);
        }
        let text = format!("{} has a valid checkpoint at step {step}", job.title());
        if let Some(job) = self.job_mut(id) {
            job.checkpoint = Some(Checkpoint { step, path, attempt, at: now });
        }
        self.event("checkpoint", Some(id), None, text);
    }

    /// Besides what a rank announced in vain: the one that an attempt was to resume from may have been torn since it
    /// counted. Then the attempt is given up and nobody is charged, for it could start from it nowhere; the node names
    /// the next best one with its next report.
    fn checkpoint_rejected(&mut self, node: NodeId, id: JobId, number: AttemptNo, path: &str, why: &str) {
        let Some(job) = self.cluster.job(id) else { return };
        let starting = job.attempt.as_ref().filter(|a| a.number == number && a.ran_from.is_none());
        let resumes_from_it = starting.and_then(|a| a.resume_from.as_ref()).is_some_and(|c| c.path == path);
        let counted = job.checkpoint.as_ref().filter(|c| resumes_from_it && c.path == path).map(|c| c.step);
        self.event("checkpoint_rejected", Some(id), Some(node), format!("checkpoint {path} does not count: {why}"));
        let Some(step) = counted else { return };
        if let Some(job) = self.job_mut(id) {
            job.checkpoint = None;
        }
        let by = format!("its node: the checkpoint of step {step} that it was to resume from counts no more");
        self.stop(id, StopWhy::Requeued { by });
    }

    /// Something of ours runs that no order names. It keeps its devices from others and is told to stop.
    fn stray(&mut self, id: NodeId, stray: Stray) {
        let same = |other: &Stray| (other.job, other.attempt, other.rank) == (stray.job, stray.attempt, stray.rank);
        let known = self.cluster.node(id).strays.iter().any(same);
        if known || self.is_about(id, stray.job, stray.attempt, stray.rank) {
            return;
        }
        let text =
            format!("job {} attempt {} rank {} runs unnamed: told to stop", stray.job, stray.attempt, stray.rank);
        let node = self.node_mut(id);
        for (index, device) in node.devices.iter_mut().enumerate() {
            if stray.gpus >> index & 1 == 1 && matches!(device, Device::Free | Device::Claimed(_)) {
                *device = Device::Sick { owner: None };
            }
        }
        node.strays.push(stray);
        node.generation += 1;
        self.event("stray", None, Some(id), text);
        self.drop_broken_claims(id);
    }

    fn stray_over(&mut self, id: NodeId, job: JobId, attempt: AttemptNo, rank: Rank) {
        let found =
            self.cluster.node(id).strays.iter().position(|s| (s.job, s.attempt, s.rank) == (job, attempt, rank));
        let Some(at) = found else { return };
        let node = self.node_mut(id);
        let stray = node.strays.remove(at);
        let still: u64 = node.strays.iter().fold(0, |mask, stray| mask | stray.gpus);
        for (index, device) in node.devices.iter_mut().enumerate() {
            let over = (stray.gpus & !still) >> index & 1 == 1;
            if over && *device == (Device::Sick { owner: None }) {
                *device = Device::Free;
            }
        }
        node.generation += 1;
    }
}
