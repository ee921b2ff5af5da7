//! What the processes of each gang do together: train while all run, save, finish, fall with the first that falls.
use super::World;
use super::agent::{Key, Process};
use super::training::{Milestone, Training, WorkPlan};
use ganger_core::model::ids::{AttemptNo, JobId, NodeId, Rank};
use ganger_core::model::job::{AttemptPhase, Exit, WorkerPhase};
use ganger_core::model::report::Report;
use ganger_core::model::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// What the world knows of a job and the cluster does not.
#[derive(Debug, Clone)]
pub(super) struct SimulatedJob {
    plan: WorkPlan,
    /// The size for which the plan is stated, and its GPUs in thousandths.
    full: u32,
    gpu_milli: u64,
    ran_before: bool,
    pub resumed_from: Option<Span>,
    /// Work done when its last attempt ended.
    done: Span,
}

impl SimulatedJob {
    pub fn new(plan: WorkPlan, full: u32, gpu_milli: u64) -> SimulatedJob {
        SimulatedJob { plan, full, gpu_milli, ran_before: false, resumed_from: None, done: Span::ZERO }
    }
}

/// The processes of the newest attempt that started any.
#[derive(Debug, Clone)]
pub(super) struct Gang {
    attempt: AttemptNo,
    ranks: BTreeMap<Rank, NodeId>,
    /// Those of them that the gang goes on without.
    given_up: BTreeSet<Rank>,
    /// Those that are over and that the gang counted on.
    fallen: BTreeSet<Rank>,
    /// From the moment when all run.
    training: Option<Training>,
    /// Milestones that were entered for an earlier course of things are void.
    course: u64,
}

/// What the agenda holds.
#[derive(Debug, Clone)]
pub(super) enum Due {
    Milestone {
        job: JobId,
        attempt: AttemptNo,
        course: u64,
        milestone: Milestone,
    },
    /// A rank that was asked to leave is gone.
    Gone {
        node: NodeId,
        key: Key,
    },
    /// The lease that counts from `leased_from` is over.
    LeaseOver {
        node: NodeId,
        leased_from: Time,
    },
}

impl World {
    pub(super) fn happen(&mut self, due: Due) {
        match due {
            Due::Milestone { job, attempt, course, milestone } => {
                let current = |gang: &Gang| gang.attempt == attempt && gang.course == course;
                if self.gangs.get(&job).is_some_and(current) {
                    self.milestone(job, milestone);
                }
            }
            Due::Gone { node, key } => {
                let held = self.agents[node.index()].ranks.get(&key);
                if held.is_some_and(|h| matches!(h.process, Process::Leaving { ends_at } if ends_at <= self.now)) {
                    self.agents[node.index()].end(key, Exit::Signal(9));
                }
            }
            Due::LeaseOver { node, leased_from } => self.lease_over(node, leased_from),
        }
    }

    /// Enters the end of the node's lease as it counts now.
    pub(super) fn watch_lease(&mut self, node: NodeId) {
        let leased_from = self.agents[node.index()].leased_from;
        self.agenda.add(leased_from + self.cluster.policy.lease, Due::LeaseOver { node, leased_from });
    }

    fn lease_over(&mut self, node: NodeId, leased_from: Time) {
        let agent = &mut self.agents[node.index()];
        let revoked = self.cluster.node(node).revoked_at.is_some();
        if agent.leased_from != leased_from || (agent.is_heard() && !revoked) {
            return;
        }
        let ended = agent.end_all();
        ended.into_iter().for_each(|key| self.rank_over(key));
    }

    pub(super) fn rank_runs(&mut self, node: NodeId, key: Key) {
        let (job, attempt, rank) = key;
        let gang = self.gangs.entry(job).or_insert_with(|| Gang::new(attempt));
        if gang.attempt < attempt {
            *gang = Gang { course: gang.course + 1, ..Gang::new(attempt) };
        }
        gang.ranks.insert(rank, node);
        let placed = self.cluster.job(job).and_then(|job| job.attempt.as_ref()).filter(|a| a.number == attempt);
        let Some(placed) = placed.filter(|placed| placed.workers.len() == gang.ranks.len()) else { return };
        let size = placed.workers.len() as u32;
        let resumed = Span(placed.resume_from.as_ref().map_or(0, |checkpoint| checkpoint.step));
        let Some(simulated) = self.jobs.get_mut(&job) else { return };
        gang.training =
            Some(Training::begin(simulated.plan, (size, simulated.full), resumed, simulated.ran_before, self.now));
        if simulated.ran_before {
            let lost_ms = simulated.done.0.saturating_sub(resumed.0);
            let lost = u128::from(lost_ms) * u128::from(simulated.gpu_milli) / 1_000;
            self.lost_gpu_ms = self.lost_gpu_ms.saturating_add(u64::try_from(lost).unwrap_or(u64::MAX));
        }
        simulated.ran_before = true;
        simulated.resumed_from = Some(resumed);
        self.enter_next_milestone(job);
    }

    /// A rank is gone: the others have nobody to talk to, and training stands still for good. It goes on where the gang
    /// was told before that it has to do without the rank, also if the rank itself never heard of that.
    pub(super) fn rank_over(&mut self, key: Key) {
        let told_to_leave = self.is_to_be_given_up(key);
        let Some(gang) = self.gangs.get_mut(&key.0).filter(|gang| gang.attempt == key.1) else { return };
        if told_to_leave {
            self.give_up(key.0, &[key.2]);
        } else if !gang.given_up.contains(&key.2) {
            gang.fallen.insert(key.2);
            self.halted.insert(key.0);
            self.change_course(key.0, |training, now| training.halt(now));
        }
    }

    /// Whether its newest attempt goes on, be it in a start or a checkpoint.
    pub fn trains(&self, job: JobId) -> bool {
        self.gangs.get(&job).and_then(|gang| gang.training.as_ref()).is_some_and(|training| !training.is_halted())
    }

    pub(super) fn halt(&mut self, job: JobId) {
        self.change_course(job, |training, now| training.halt(now));
    }

    /// Work that counts if nothing more is lost: of a job that trains what it did, else what its checkpoint holds.
    pub fn work_done(&self, job: JobId) -> Span {
        let training = self.gangs.get(&job).and_then(|gang| gang.training.as_ref()).filter(|one| !one.is_halted());
        let saved = || self.cluster.job(job).and_then(|job| job.checkpoint.as_ref()).map_or(0, |saved| saved.step);
        training.map_or_else(|| Span(saved()), |training| training.done_at(self.now))
    }

    /// Gangs that stand still for a rank hear that they are to go on without it.
    pub(super) fn spare_the_fallen(&mut self) {
        self.halted.retain(|job| self.gangs.get(job).is_some_and(|gang| !gang.fallen.is_empty()));
        let halted = self.halted.iter().filter_map(|job| self.gangs.get_key_value(job));
        let waiting = halted
            .flat_map(|(job, gang)| gang.fallen.difference(&gang.given_up).map(|rank| (*job, gang.attempt, *rank)));
        let spared: Vec<Key> = waiting.filter(|key| self.is_to_be_given_up(*key)).collect();
        spared.into_iter().for_each(|(job, _, rank)| self.give_up(job, &[rank]));
    }

    /// Whether the attempt runs on and the rank is told to leave it.
    fn is_to_be_given_up(&self, (job, attempt, rank): Key) -> bool {
        let attempt = self.cluster.job(job).and_then(|job| job.attempt.as_ref()).filter(|a| a.number == attempt);
        attempt.is_some_and(|attempt| {
            let leaves = |phase: &WorkerPhase| matches!(phase, WorkerPhase::Leaving { .. });
            let worker = attempt.workers.get(rank.0 as usize);
            matches!(attempt.phase, AttemptPhase::Running { .. }) && worker.is_some_and(|w| leaves(&w.phase))
        })
    }

    /// The gang goes on without these ranks: also if it stood still for one of them, but not if it does for another.
    fn give_up(&mut self, job: JobId, ranks: &[Rank]) {
        let Some(gang) = self.gangs.get_mut(&job) else { return };
        let before = gang.given_up.len();
        gang.given_up.extend(ranks);
        if gang.given_up.len() == before {
            return;
        }
        let size = gang.ranks.len().saturating_sub(gang.given_up.len()) as u32;
        let waited_for_them = !gang.fallen.is_empty() && gang.fallen.is_subset(&gang.given_up);
        self.change_course(job, |training, now| {
            if !training.is_halted() || waited_for_them {
                training.resize(size, now);
            }
        });
    }

    /// Something other than the entered milestone happens to the training of a gang.
    fn change_course(&mut self, job: JobId, change: impl Fn(&mut Training, Time)) {
        let now = self.now;
        let Some(gang) = self.gangs.get_mut(&job) else { return };
        gang.course += 1;
        let Some(training) = gang.training.as_mut() else { return };
        change(training, now);
        if let Some(simulated) = self.jobs.get_mut(&job) {
            simulated.done = training.done_at(now);
        }
        self.enter_next_milestone(job);
    }

    fn enter_next_milestone(&mut self, job: JobId) {
        let Some(gang) = self.gangs.get(&job) else { return };
        if let Some((at, milestone)) = gang.training.as_ref().and_then(Training::next) {
            let (attempt, course) = (gang.attempt, gang.course);
            self.agenda.add(at, Due::Milestone { job, attempt, course, milestone });
        }
    }

    fn milestone(&mut self, job: JobId, milestone: Milestone) {
        let now = self.now;
        match milestone {
            Milestone::Saved(done) => self.announce(job, done),
            Milestone::SavedForStop(done) => {
                self.announce(job, done);
                self.end_gang(job, Exit::Signal(15));
            }
            Milestone::Finished => self.end_gang(job, Exit::Code(0)),
            Milestone::WorkGoesOn | Milestone::WritingBegins => {}
        }
        self.change_course(job, |training, _| training.pass(milestone, now));
    }

    /// Rank 0 announces the checkpoint through its own agent.
    fn announce(&mut self, job: JobId, done: Span) {
        let Some(gang) = self.gangs.get(&job) else { return };
        let Some(node) = gang.ranks.get(&Rank(0)) else { return };
        let path = format!("/checkpoints/{job}/step-{}", done.0);
        let report = Report::Checkpoint { job, attempt: gang.attempt, step: done.0, path };
        self.agents[node.index()].reports.push(report);
    }

    fn end_gang(&mut self, job: JobId, exit: Exit) {
        let Some(gang) = self.gangs.get(&job) else { return };
        for (rank, node) in gang.ranks.clone() {
            let key = (job, gang.attempt, rank);
            let agent = &mut self.agents[node.index()];
            if agent.ranks.get(&key).is_some_and(|held| held.is_alive()) {
                agent.end(key, exit.clone());
            }
        }
    }

    /// Ranks of one gang were asked at the same moment to leave: all because the attempt ends, or some that the gang can
    /// do without.
    pub(super) fn ranks_leave(&mut self, job: JobId, asked: &[(NodeId, Key, Time)]) {
        if asked.iter().all(|(_, key, _)| self.is_to_be_given_up(*key)) {
            self.spare_ranks_leave(job, asked);
        } else {
            self.gang_leaves(job, asked);
        }
    }

    /// They take as long as a checkpoint on demand, if there is one, to hand over what they hold.
    fn spare_ranks_leave(&mut self, job: JobId, asked: &[(NodeId, Key, Time)]) {
        let Some(plan) = self.jobs.get(&job).map(|simulated| simulated.plan) else { return };
        let ranks: Vec<Rank> = asked.iter().map(|(_, key, _)| key.2).collect();
        self.give_up(job, &ranks);
        let handed_over_at = if plan.on_demand_ckpt { self.now + plan.ckpt_time } else { self.now };
        for (node, key, deadline) in asked {
            self.leave_at(*node, *key, handed_over_at.min(*deadline));
        }
    }

    fn leave_at(&mut self, node: NodeId, key: Key, ends_at: Time) {
        self.agents[node.index()].set(key, Process::Leaving { ends_at });
        self.agenda.add(ends_at, Due::Gone { node, key });
    }

    /// The ranks of a gang that ends can save only together.
    fn gang_leaves(&mut self, job: JobId, asked: &[(NodeId, Key, Time)]) {
        let Some(simulated) = self.jobs.get(&job) else { return };
        let (plan, now) = (simulated.plan, self.now);
        let trains = self.gangs.get(&job).and_then(|gang| gang.training.as_ref()).is_some_and(|t| !t.is_halted());
        let deadline = asked.iter().map(|(_, _, deadline)| *deadline).min().unwrap_or(now);
        let saved_at = now + plan.ckpt_time;
        let all = self.training_ranks(job) == asked.len();
        if plan.on_demand_ckpt && trains && all && saved_at <= deadline {
            self.change_course(job, Training::save_for_stop);
        } else {
            self.change_course(job, Training::halt);
        }
        for (node, key, _) in asked {
            if plan.on_demand_ckpt && trains {
                self.leave_at(*node, *key, saved_at.min(deadline));
            } else {
                self.agents[node.index()].end(*key, Exit::Signal(15));
            }
        }
    }

    /// How many ranks run that nobody asked to leave.
    fn training_ranks(&self, job: JobId) -> usize {
        let ranks = self.agents.iter().flat_map(|agent| agent.ranks.iter());
        ranks.filter(|(key, held)| key.0 == job && held.process == Process::Running).count()
    }

    /// Whether anything that is entered can still happen: void entries are dropped first.
    pub(super) fn has_work_entered(&mut self) -> bool {
        let (gangs, agents) = (&self.gangs, &self.agents);
        self.agenda.retain(|due| match due {
            Due::Milestone { job, attempt, course, .. } => {
                gangs.get(job).is_some_and(|gang| gang.attempt == *attempt && gang.course == *course)
            }
            Due::Gone { node, key } => agents[node.index()].ranks.contains_key(key),
            Due::LeaseOver { node, leased_from } => {
                let agent = &agents[node.index()];
                agent.leased_from == *leased_from && !agent.ranks.is_empty()
            }
        });
        self.agenda.next().is_some()
    }
}

impl Gang {
    fn new(attempt: AttemptNo) -> Gang {
        Gang {
            attempt,
            ranks: BTreeMap::new(),
            given_up: BTreeSet::new(),
            fallen: BTreeSet::new(),
            training: None,
            course: 0,
        }
    }
}
