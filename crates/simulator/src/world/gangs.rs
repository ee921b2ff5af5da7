//! What the processes of each gang do together: train while all run, save, finish, fall with the first that falls.
use super::World;
use super::agent::{Key, Process};
use super::training::{Milestone, Training, WorkPlan};
use ganger_core::model::ids::{AttemptNo, JobId, NodeId, Rank};
use ganger_core::model::job::Exit;
use ganger_core::model::report::Report;
use ganger_core::model::time::{Span, Time};
use std::collections::BTreeMap;

/// What the world knows of a job and the cluster does not.
#[derive(Debug, Clone)]
pub(super) struct SimulatedJob {
    plan: WorkPlan,
    /// Of the whole gang.
    gpus: u64,
    ran_before: bool,
    pub resumed_from: Option<Span>,
    /// Work done when its last attempt ended.
    done: Span,
}

impl SimulatedJob {
    pub fn new(plan: WorkPlan, gpus: u64) -> SimulatedJob {
        SimulatedJob { plan, gpus, ran_before: false, resumed_from: None, done: Span::ZERO }
    }
}

/// The processes of the newest attempt that started any.
#[derive(Debug, Clone)]
pub(super) struct Gang {
    attempt: AttemptNo,
    ranks: BTreeMap<Rank, NodeId>,
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
        let resumed = Span(placed.resume_from.as_ref().map_or(0, |checkpoint| checkpoint.step));
        let Some(simulated) = self.jobs.get_mut(&job) else { return };
        gang.training = Some(Training::begin(simulated.plan, resumed, simulated.ran_before, self.now));
        if simulated.ran_before {
            let lost_ms = simulated.done.0.saturating_sub(resumed.0);
            self.lost_gpu_ms = self.lost_gpu_ms.saturating_add(lost_ms.saturating_mul(simulated.gpus));
        }
        simulated.ran_before = true;
        simulated.resumed_from = Some(resumed);
        self.enter_next_milestone(job);
    }

    /// A rank is gone: the others have nobody to talk to, and training stands still for good.
    pub(super) fn rank_over(&mut self, key: Key) {
        if self.gangs.get(&key.0).is_some_and(|gang| gang.attempt == key.1) {
            self.change_course(key.0, |training, now| training.halt(now));
        }
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

    /// Ranks of one gang were asked at the same moment to save and leave. They can save only together.
    pub(super) fn gang_leaves(&mut self, job: JobId, asked: &[(NodeId, Key, Time)]) {
        let Some(simulated) = self.jobs.get(&job) else { return };
        let (plan, now) = (simulated.plan, self.now);
        let trains = self.gangs.get(&job).and_then(|gang| gang.training.as_ref()).is_some_and(|t| !t.is_halted());
        let deadline = asked.iter().map(|(_, _, deadline)| *deadline).min().unwrap_or(now);
        let saved_at = now + plan.ckpt_time;
        let all = self.alive_ranks(job) == asked.len();
        if plan.on_demand_ckpt && trains && all && saved_at <= deadline {
            self.change_course(job, Training::save_for_stop);
        } else {
            self.change_course(job, Training::halt);
        }
        for (node, key, _) in asked {
            if plan.on_demand_ckpt && trains {
                let ends_at = saved_at.min(deadline);
                self.agents[node.index()].set(*key, Process::Leaving { ends_at });
                self.agenda.add(ends_at, Due::Gone { node: *node, key: *key });
            } else {
                self.agents[node.index()].end(*key, Exit::Signal(15));
            }
        }
    }

    fn alive_ranks(&self, job: JobId) -> usize {
        let ranks = self.agents.iter().flat_map(|agent| agent.ranks.iter());
        ranks.filter(|(key, held)| key.0 == job && held.is_alive()).count()
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
        Gang { attempt, ranks: BTreeMap::new(), training: None, course: 0 }
    }
}
