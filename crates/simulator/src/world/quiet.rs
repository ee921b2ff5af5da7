//! When a scenario is over: no job, node or claim can change without a new statement.
use super::World;
use ganger_core::model::decision::Blocker;
use ganger_core::model::ids::NodeId;
use ganger_core::model::job::{Attempt, AttemptPhase, Job, WorkerPhase};
use ganger_core::model::node::HealthState;
use ganger_core::model::time::Time;
use ganger_core::scheduler::decide;
use std::collections::BTreeSet;

impl World {
    /// Runs until nothing can change any more, at latest until `until`.
    pub fn run_out(&mut self, until: Time) {
        while self.can_change() {
            if !self.step(until) {
                break;
            }
        }
    }

    /// Growing older and being looked at again do not count: only what has a moment at which it will be different.
    pub fn can_change(&mut self) -> bool {
        self.has_work_entered()
            || !self.cluster.claims.is_empty()
            || self.cluster.makes_tasks()
            || self.cluster.jobs.values().any(|job| self.job_can_change(job))
            || (0..self.cluster.nodes.len()).any(|index| self.node_can_change(NodeId(index as u32)))
            || self.windows_help()
    }

    /// Whether the next opening of a window, or a time for which a pool is lent, lets anybody start. Not what opens day after
    /// day for one that would be kept out by something else.
    fn windows_help(&self) -> bool {
        let opening = |blocker: &Blocker| match blocker {
            Blocker::Window { opens } if *opens < Time::NEVER => Some(*opens),
            _ => None,
        };
        let lent = self.cluster.pools.values().filter(|_| !self.cluster.blocked.is_empty());
        let lent = lent.flat_map(|lending| lending.when.times_from(self.now)).map(|(from, _)| from);
        let openings: BTreeSet<Time> = self.cluster.blocked.values().filter_map(opening).chain(lent).collect();
        openings.into_iter().any(|at| !decide(&self.cluster, at.max(self.now)).steps.is_empty())
    }

    fn job_can_change(&self, job: &Job) -> bool {
        let now = self.now;
        if job.attempt.as_ref().is_some_and(|attempt| self.shrinks(attempt)) {
            return true;
        }
        match job.attempt.as_ref().map(|attempt| &attempt.phase) {
            None => {
                let begins = job.spec.begin.is_some_and(|begin| begin > now);
                job.not_before > now || begins || self.is_paid_later(job)
            }
            Some(AttemptPhase::Preparing { deadline } | AttemptPhase::Going { deadline }) => *deadline > now,
            Some(AttemptPhase::Running { since }) => job.spec.time_limit.is_some_and(|limit| *since + limit > now),
            Some(AttemptPhase::Stopping(stop)) => stop.deadline + self.cluster.policy.stop_margin > now,
        }
    }

    /// Whether it waits for its budget to renew.
    fn is_paid_later(&self, job: &Job) -> bool {
        let blocker = self.cluster.blocked.get(&job.id);
        matches!(blocker, Some(Blocker::Budget { renews_at, .. }) if *renews_at > self.now)
    }

    /// Whether ranks that were given up are still to confirm that they are gone.
    fn shrinks(&self, attempt: &Attempt) -> bool {
        let margin = self.cluster.policy.stop_margin;
        let late =
            |phase: &WorkerPhase| matches!(phase, WorkerPhase::Leaving { deadline } if *deadline + margin > self.now);
        attempt.workers.iter().any(|worker| late(&worker.phase))
    }

    fn node_can_change(&self, id: NodeId) -> bool {
        let (node, now) = (self.cluster.node(id), self.now);
        let cools = node.cooldown_until > now && self.cluster.jobs.values().any(|job| job.attempt.is_none());
        let lease_runs = node.revoked_at.unwrap_or(node.last_heard) + self.cluster.policy.lease > now;
        let silent = !self.agents[id.index()].is_heard() || node.revoked_at.is_some();
        let trusted = !matches!(node.health.state, HealthState::Fenced | HealthState::Dead);
        let maintained = node.maintenance.iter().any(|one| !one.begun || one.until < Time::NEVER);
        node.health.until.is_some_and(|until| until > now) || maintained || cools || (silent && trusted && lease_runs)
    }
}
