//! The life of one run of a gang: placed → preparing → going → running → (stopping) → its last device is free.
use super::change::Change;
use super::splits;
use crate::model::amounts::count;
use crate::model::ids::{AttemptNo, JobId, NodeId, Rank};
use crate::model::job::{
    Attempt, AttemptPhase, EXIT_REQUEUE, Exit, Job, JobState, Place, Shrink, Stop, StopWhy, Worker, WorkerPhase,
};
use crate::model::node::Device;
use crate::model::time::{Span, Time};
use crate::scheduler::uplinks;

/// What else is known of a run when it is placed.
pub struct Beginning {
    /// Its GPUs are split as it needs them then.
    pub ready_at: Time,
    /// Whose reserved devices it uses until they are needed.
    pub guest_of: Vec<JobId>,
}

impl Change<'_> {
    /// Places a new attempt. The caller has checked that all of it is free.
    pub fn start(&mut self, id: JobId, number: AttemptNo, places: Vec<Place>, from: Beginning) {
        let claimed_at = self.cluster.claims.get(&id).map(|claim| claim.made_at);
        self.unclaim(id, "");
        for (rank, place) in places.iter().enumerate() {
            self.occupy(id, Rank(rank as u32), place);
        }
        let now = self.now;
        let deadline = from.ready_at.max(now) + self.cluster.policy.prepare_deadline;
        let on = self.node_list(&places);
        let Some(job) = self.job_mut(id) else { return };
        let workers = places.into_iter().enumerate().map(|(rank, place)| Worker {
            rank: Rank(rank as u32),
            place,
            phase: WorkerPhase::Assigned,
        });
        // Places that were claimed before a person asked for another size do not answer that wish: it still holds.
        if job.resized_at.zip(claimed_at).is_some_and(|(asked, claimed)| asked >= claimed) {
            job.resized_at = Some(now);
        }
        job.attempts = number;
        job.attempt = Some(Attempt {
            number,
            placed_at: now,
            ready_at: from.ready_at,
            ran_from: None,
            phase: AttemptPhase::Preparing { deadline },
            workers: workers.collect(),
            rendezvous_port: None,
            resume_from: job.checkpoint.clone(),
            guest_of: from.guest_of,
            given_up: 0,
            resized_at: None,
        });
        job.note = None;
        job.exit_code = None;
        let from = job.checkpoint.as_ref().map_or(String::new(), |c| format!(", resumes from step {}", c.step));
        let workers = size_words(job);
        let text = format!("{} attempt {number}: {workers} on {on}{from}", job.title());
        self.set_state(id, JobState::Starting);
        let shared = self.cluster.job(id).and_then(|job| uplinks::report(self.cluster, job));
        self.event("placed", Some(id), None, shared.map_or(text.clone(), |shared| format!("{text}; it {shared}")));
    }

    pub fn node_list(&self, places: &[Place]) -> String {
        let mut names: Vec<&str> = Vec::new();
        for place in places {
            let name = self.cluster.node(place.node).name.as_str();
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
        let more = names.len().saturating_sub(8);
        names.truncate(8);
        let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{tail}", names.join(", "))
    }

    pub fn live_attempt(&mut self, id: JobId, number: AttemptNo) -> Option<&mut Attempt> {
        let job = self.cluster.jobs.get(&id)?;
        job.attempt.as_ref().filter(|attempt| attempt.number == number)?;
        self.job_mut(id)?.attempt.as_mut()
    }

    /// All are prepared, and their GPUs are split as they need them: every node is told to go.
    pub fn go_if_all_prepared(&mut self, id: JobId, number: AttemptNo) {
        let (now, deadline) = (self.now, self.now + self.cluster.policy.go_deadline);
        let Some(attempt) = self.live_attempt(id, number) else { return };
        let prepared = |worker: &Worker| matches!(worker.phase, WorkerPhase::Prepared { .. });
        let preparing = matches!(attempt.phase, AttemptPhase::Preparing { .. });
        if !preparing || attempt.ready_at > now || !attempt.workers.iter().all(prepared) {
            return;
        }
        if let Some(WorkerPhase::Prepared { port }) = attempt.workers.first().map(|worker| &worker.phase) {
            attempt.rendezvous_port = Some(*port);
        }
        attempt.phase = AttemptPhase::Going { deadline };
        self.renew_orders(id);
    }

    pub fn run_if_all_run(&mut self, id: JobId, number: AttemptNo) {
        let now = self.now;
        let Some(attempt) = self.live_attempt(id, number) else { return };
        let going = matches!(attempt.phase, AttemptPhase::Going { .. });
        let started = |worker: &Worker| matches!(worker.phase, WorkerPhase::Running | WorkerPhase::Ended(_));
        if !going || !attempt.workers.iter().all(started) {
            return;
        }
        attempt.phase = AttemptPhase::Running { since: now };
        attempt.ran_from = Some(now);
        let Some(job) = self.job_mut(id) else { return };
        job.started_at.get_or_insert(now);
        job.refused = 0;
        let text = format!("{} attempt {number} runs", job.title());
        self.set_state(id, JobState::Running);
        self.event("running", Some(id), None, text);
    }

    /// Asks the live attempt to end. Does nothing if it is already leaving.
    pub fn stop(&mut self, id: JobId, why: StopWhy) {
        let Some(job) = self.cluster.job(id) else { return };
        let Some(attempt) = job.attempt.as_ref().filter(|attempt| attempt.stopping().is_none()) else { return };
        let grace = if why.has_grace() { job.spec.checkpoint.grace } else { Span::ZERO };
        // A decision names all jobs of a group itself; who is taken out or at its limit does not come back for the others.
        use StopWhy::*;
        let runs_again =
            !matches!(why, Preempted { .. } | Moved { .. } | Resized { .. } | Cancelled { .. } | TimeLimit);
        let number = attempt.number;
        let places: Vec<(Rank, Place)> = attempt.live().map(|worker| (worker.rank, worker.place.clone())).collect();
        let text = format!("{} attempt {number} stops: {}", job.title(), self.name_nodes(&why));
        let stop = Stop { why, asked_at: self.now, deadline: self.now + grace };
        for (rank, place) in &places {
            self.start_draining(id, *rank, place);
        }
        if let Some(attempt) = self.live_attempt(id, number) {
            attempt.phase = AttemptPhase::Stopping(stop);
        }
        self.set_state(id, JobState::Stopping);
        self.event("stopping", Some(id), None, text);
        if runs_again {
            self.stop_members(id);
        }
        self.conclude_if_over(id, number);
    }

    /// Some workers are asked to leave; the gang goes on without them, at once or with its next attempt.
    pub fn shrink(&mut self, id: JobId, number: AttemptNo, ranks: &[Rank], claimant: JobId) {
        let Some(job) = self.cluster.job(id) else { return };
        let (now, deadline) = (self.now, self.now + job.spec.checkpoint.grace);
        let restarts = job.spec.gang.shrink == Shrink::Restart;
        let gives_up = format!("{} gives up {}", job.title(), count(ranks.len() as u64, "worker"));
        let text = if claimant == id { gives_up } else { format!("{gives_up} for job {claimant}") };
        let Some(attempt) = self.live_attempt(id, number) else { return };
        (attempt.given_up, attempt.resized_at) = (attempt.given_up + ranks.len() as u32, Some(now));
        let mut places = Vec::new();
        for worker in attempt.workers.iter_mut().filter(|worker| ranks.contains(&worker.rank)) {
            worker.phase = WorkerPhase::Leaving { deadline };
            places.push((worker.rank, worker.place.clone()));
        }
        let workers = attempt.staying().count() as u32;
        if restarts {
            self.event("shrinking", Some(id), None, text);
            return self.stop(id, StopWhy::Resized { workers });
        }
        for (rank, place) in &places {
            self.start_draining(id, *rank, place);
        }
        self.event("shrinking", Some(id), None, text);
    }

    /// What the place holds is on its way to being free.
    fn start_draining(&mut self, id: JobId, rank: Rank, place: &Place) {
        let node = self.node_mut(place.node);
        for (index, device) in node.devices.iter_mut().enumerate() {
            if place.gpus >> index & 1 == 1 && *device == Device::Used(id) {
                *device = Device::Draining { owner: id, claimant: None };
            }
        }
        if let Some(slice) = place.slice {
            splits::start_leaving(node, id, rank, slice);
        }
        node.generation += 1;
    }

    /// A group runs whole or not at all: when one of its jobs has to run again, so have the others.
    fn stop_members(&mut self, id: JobId) {
        for member in self.members(id) {
            self.stop(member, StopWhy::Requeued { by: format!("its group, of which job {id} stops") });
        }
    }

    /// The reason with node names instead of numbers, for people.
    fn name_nodes(&self, why: &StopWhy) -> String {
        match why {
            StopWhy::NodeLost { node } => format!("node {} was lost", self.cluster.node(*node).name),
            StopWhy::Drained { node } => format!("node {} is being drained", self.cluster.node(*node).name),
            StopWhy::StartFailed { node, why } => {
                format!("{} could not start it: {why}", self.cluster.node(*node).name)
            }
            other => other.to_string(),
        }
    }

    /// One worker is over and its devices are free. Ignored if it was over before.
    pub fn end_worker(&mut self, id: JobId, number: AttemptNo, rank: Rank, exit: Exit) {
        let now = self.now;
        let Some(attempt) = self.live_attempt(id, number) else { return };
        let Some(worker) = attempt.workers.get_mut(rank.0 as usize).filter(|w| !w.phase.ended()) else { return };
        let place = worker.place.clone();
        let given_up = matches!(worker.phase, WorkerPhase::Leaving { .. });
        worker.phase = WorkerPhase::Ended(exit.clone());
        let held_us = now.since(attempt.placed_at).0.saturating_mul(1_000);
        let by_itself = attempt.stopping().is_none() && !given_up;
        if let Some(job) = self.job_mut(id) {
            let gpu_us = u128::from(held_us) * u128::from(place.resources().all_gpus_milli()) / 1_000;
            job.gpu_us = job.gpu_us.saturating_add(u64::try_from(gpu_us).unwrap_or(u64::MAX));
            if let (true, Exit::Code(code)) = (by_itself, &exit) {
                job.exit_code = Some(job.exit_code.map_or(*code, |old| old.max(*code)));
            }
        }
        self.vacate(id, rank, &place);
        if !given_up {
            self.react_to_exit(id, rank, place.node, exit);
        }
        self.conclude_if_over(id, number);
    }

    /// What the end of one rank means for the others.
    fn react_to_exit(&mut self, id: JobId, rank: Rank, node: NodeId, exit: Exit) {
        let phase = self.cluster.job(id).and_then(|job| job.attempt.as_ref()).map(|attempt| &attempt.phase);
        let preparing = matches!(phase, Some(AttemptPhase::Preparing { .. }));
        let why = match exit {
            Exit::Code(0) if preparing => {
                StopWhy::StartFailed { node, why: "it ended before it was told to go".to_string() }
            }
            Exit::Code(0) => return,
            Exit::Code(EXIT_REQUEUE) => StopWhy::AskedRequeue { rank },
            Exit::Refused(why) => StopWhy::StartFailed { node, why },
            Exit::Lost | Exit::LeaseExpired => StopWhy::NodeLost { node },
            exit => StopWhy::RankFailed { rank, exit },
        };
        match why {
            StopWhy::StartFailed { node, why } => self.start_failed(id, node, why),
            why => self.stop(id, why),
        }
    }

    /// The node that spoils a start pays for it: once an attempt, and not for a job that others refuse as well. Else one
    /// job that can start nowhere would take the whole cluster out.
    pub fn start_failed(&mut self, id: JobId, node: NodeId, why: String) {
        let limit = self.cluster.policy.cooldown_refusals.max(1);
        let Some(job) = self.job_mut(id) else { return };
        if job.attempt.as_ref().is_none_or(|attempt| attempt.stopping().is_some()) {
            return;
        }
        job.refused = job.refused.saturating_add(1);
        if job.refused <= limit {
            self.charge_refusal(node, &why);
        }
        self.stop(id, StopWhy::StartFailed { node, why });
    }

    /// When the last worker is over, the job is done, failed, cancelled, or pending again.
    fn conclude_if_over(&mut self, id: JobId, number: AttemptNo) {
        let Some(job) = self.cluster.job(id) else { return };
        let Some(attempt) = job.attempt.as_ref().filter(|attempt| attempt.number == number) else { return };
        if attempt.live().next().is_some() {
            return;
        }
        match attempt.stopping().map(|stop| stop.why.clone()) {
            None => self.retire(id, JobState::Done, None),
            Some(StopWhy::Cancelled { by }) => {
                self.retire(id, JobState::Cancelled, Some(format!("cancelled by {by}")));
            }
            Some(why @ StopWhy::TimeLimit) => self.retire(id, JobState::Failed, Some(why.to_string())),
            Some(why @ StopWhy::RankFailed { .. }) => self.after_failure(id, why),
            Some(why) => self.back_to_pending(id, why),
        }
    }

    fn after_failure(&mut self, id: JobId, why: StopWhy) {
        let (now, backoff) = (self.now, self.cluster.policy.backoff);
        let Some(job) = self.job_mut(id) else { return };
        job.failures += 1;
        if job.failures > job.spec.retries {
            let runs = job.failures;
            let note = if runs > 1 { format!("{why}; it failed {runs} times") } else { why.to_string() };
            return self.retire(id, JobState::Failed, Some(note));
        }
        job.not_before = now + backoff.times(1 << (job.failures - 1).min(10));
        self.back_to_pending(id, why);
    }

    /// Keeps its seniority; only the attempt is over.
    fn back_to_pending(&mut self, id: JobId, why: StopWhy) {
        let note = self.name_nodes(&why);
        let (now, backoff, limit) =
            (self.now, self.cluster.policy.backoff, self.cluster.policy.cooldown_refusals.max(1));
        let Some(job) = self.job_mut(id) else { return };
        job.evictions += u32::from(matches!(why, StopWhy::Preempted { .. } | StopWhy::Moved { .. }));
        job.moves += u32::from(matches!(why, StopWhy::Moved { .. }));
        if matches!(why, StopWhy::StartFailed { .. }) && job.refused > limit {
            job.not_before = now + backoff.times(1 << (job.refused - limit - 1).min(10));
        }
        job.attempt = None;
        job.eligible_at = now;
        job.note = Some(note.clone());
        let text = format!("{} is pending again: {note}{}", job.title(), resume_words(job));
        self.set_state(id, JobState::Pending);
        self.event("requeued", Some(id), None, text);
    }

    /// Tells the nodes of a job that their orders changed.
    pub fn renew_orders(&mut self, id: JobId) {
        let Some(attempt) = self.cluster.job(id).and_then(|job| job.attempt.as_ref()) else { return };
        for node in attempt.nodes() {
            self.node_mut(node).generation += 1;
        }
    }
}

/// Of an elastic gang that starts small also what it wants.
fn size_words(job: &Job) -> String {
    let (size, wanted) = (job.size(), job.spec.gang.workers);
    let workers = count(size.into(), "worker");
    if size < wanted { format!("{workers} of {wanted}") } else { workers }
}

fn resume_words(job: &Job) -> String {
    match &job.checkpoint {
        Some(checkpoint) => format!(", will resume from step {}", checkpoint.step),
        None => String::new(),
    }
}
