//! Time passes: leases, deadlines and limits. Every transient state has one and a named exit.
use super::budgets::next_budget_deadline;
use super::change::Change;
use super::maintenance::next_change;
use crate::model::attained;
use crate::model::cluster::Cluster;
use crate::model::decision::Blocker;
use crate::model::ids::{JobId, NodeId};
use crate::model::job::{Attempt, AttemptPhase, Job, StopWhy, WorkerPhase};
use crate::model::node::{HealthState, Node};
use crate::model::time::{Span, Time};
use crate::model::window::next_opening;

/// Silence for this part of the lease makes a node suspect: agents renew at a sixth of it.
const SUSPECT_PART: u64 = 3;
/// Whoever was heard for the last time longer ago than this part of the lease is no witness for a majority.
const WITNESS_PART: u64 = 2;

impl Change<'_> {
    pub fn tick(&mut self) {
        for index in 0..self.cluster.nodes.len() {
            self.tick_node(NodeId(index as u32));
        }
        let jobs: Vec<JobId> = self
            .cluster
            .jobs
            .values()
            .filter(|job| job_deadline(self.cluster, job) <= self.now)
            .map(|job| job.id)
            .collect();
        for job in jobs {
            self.tick_job(job);
        }
        self.tick_budgets();
        self.tick_arrays();
        let late: Vec<JobId> = self
            .cluster
            .claims
            .values()
            .filter(|claim| claim.deadline <= self.now)
            .map(|claim| claim.claimant)
            .collect();
        late.into_iter().for_each(|claimant| self.unclaim(claimant, "its victims did not leave in time"));
    }

    fn tick_node(&mut self, id: NodeId) {
        if node_deadline(self.cluster, self.cluster.node(id)).is_none_or(|at| at > self.now) {
            return;
        }
        self.tick_maintenance(id);
        let (now, lease) = (self.now, self.cluster.policy.lease);
        let node = self.cluster.node(id);
        let silent = now.since(node.last_heard);
        match node.health.state {
            HealthState::Quarantined if node.health.until.is_some_and(|until| until <= now) => {
                self.end_quarantine(id, silent);
            }
            HealthState::Probation if node.health.until.is_some_and(|until| until <= now) => {
                self.set_health(id, HealthState::Ready, "probation passed".to_string(), None);
            }
            HealthState::Ready | HealthState::Probation if silent >= suspect_after(lease) => {
                self.set_health(id, HealthState::Suspect, format!("not heard for {silent}"), None);
            }
            _ => {}
        }
        self.fence_if_lease_is_over(id);
    }

    /// Whoever is silent, or has not confirmed a stop yet, is not trusted before it is fenced. Else its lease is renewed
    /// again: all that it ran is over.
    fn end_quarantine(&mut self, id: NodeId, silent: Span) {
        let (now, policy) = (self.now, &self.cluster.policy);
        let (lease, until) = (policy.lease, now + policy.probation);
        let node = self.cluster.node(id);
        let but = if silent >= lease {
            format!("not heard for {silent}")
        } else if node.revoked_at.is_some() && !node.tenants.is_empty() {
            "it did not confirm a stop".to_string()
        } else {
            self.node_mut(id).revoked_at = None;
            return self.set_health(id, HealthState::Probation, "quarantine is over".to_string(), Some(until));
        };
        self.set_health(id, HealthState::Suspect, format!("quarantine is over, but {but}"), None);
    }

    fn fence_if_lease_is_over(&mut self, id: NodeId) {
        let lease = self.cluster.policy.lease;
        let node = self.cluster.node(id);
        let over_since = lease_end(self.cluster, node);
        let can_fence = matches!(node.health.state, HealthState::Suspect | HealthState::Quarantined);
        if !can_fence
            || over_since > self.now
            || (node.tenants.is_empty() && node.health.state == HealthState::Quarantined)
        {
            return;
        }
        // Also a node whose lease was taken may have been cut off meanwhile, and then asks its peers.
        if self.now.since(node.last_heard) >= lease && !majority_heard(self.cluster, self.now) {
            return;
        }
        let cause = match node.revoked_at {
            Some(_) => format!("it did not confirm a stop, and its lease of {lease} is over"),
            None => format!("silent for {}, longer than its lease of {lease}", self.now.since(node.last_heard)),
        };
        self.fence(id, cause);
    }

    fn tick_job(&mut self, id: JobId) {
        let Some(attempt) = self.cluster.job(id).and_then(|job| job.attempt.clone()) else { return };
        if let Some(why) = self.must_leave(id, &attempt) {
            return self.stop(id, why);
        }
        match &attempt.phase {
            AttemptPhase::Preparing { deadline } if *deadline > self.now => {
                self.go_if_all_prepared(id, attempt.number);
            }
            AttemptPhase::Preparing { .. } | AttemptPhase::Going { .. } => {
                let going = matches!(attempt.phase, AttemptPhase::Going { .. });
                let late = attempt.workers.iter().find(|worker| match worker.phase {
                    WorkerPhase::Assigned => true,
                    WorkerPhase::Prepared { .. } => going,
                    _ => false,
                });
                let Some(node) = late.or(attempt.live().next()).map(|worker| worker.place.node) else { return };
                let why = if going { "its ranks did not run in time" } else { "it was not prepared in time" };
                self.start_failed(id, node, why.to_string());
            }
            AttemptPhase::Running { since } if self.over_limit(id, *since) => self.stop(id, StopWhy::TimeLimit),
            AttemptPhase::Running { .. } | AttemptPhase::Stopping(_) => {
                let mut nodes: Vec<NodeId> = attempt.leaving().map(|worker| worker.place.node).collect();
                nodes.dedup();
                nodes.into_iter().for_each(|node| self.revoke(node));
            }
        }
    }

    /// Why the attempt has to be told now that it must leave.
    fn must_leave(&self, id: JobId, attempt: &Attempt) -> Option<StopWhy> {
        let job = self.cluster.job(id).filter(|_| attempt.stopping().is_none())?;
        self.cluster.leaves_at(job, attempt).filter(|(at, _)| *at <= self.now).map(|(_, why)| why)
    }

    fn over_limit(&self, id: JobId, since: Time) -> bool {
        let limit = self.cluster.job(id).and_then(|job| job.spec.time_limit);
        limit.is_some_and(|limit| since + limit <= self.now)
    }

    /// A stop that nobody confirms: the node's lease is renewed no more, and when it is over the node is fenced.
    fn revoke(&mut self, id: NodeId) {
        if self.cluster.node(id).revoked_at.is_some() {
            return;
        }
        let now = self.now;
        let node = self.node_mut(id);
        node.revoked_at = Some(now);
        node.generation += 1;
        if node.health.state == HealthState::Quarantined {
            return;
        }
        self.set_health(id, HealthState::Suspect, "it did not confirm a stop in time".to_string(), None);
    }
}

fn suspect_after(lease: Span) -> Span {
    Span((lease.0 / SUSPECT_PART).max(1))
}

/// When the node's right to run job workers is over. A peer's word for it holds as long as the peer said.
fn lease_end(cluster: &Cluster, node: &Node) -> Time {
    let own = node.revoked_at.unwrap_or(node.last_heard) + cluster.policy.lease;
    cluster.vouched.get(&node.id).map_or(own, |until| own.max(*until))
}

/// Server and agents heard from are more than half of (agents + 1): nobody else can be a majority.
///
/// An agent counts for half a lease only. It says for a quarter of a lease after its last answer that it is a witness, and
/// vouches for peers after three quarters: so it is never counted here while it vouches there, also when what it said
/// last arrived and the answer did not.
pub fn majority_heard(cluster: &Cluster, now: Time) -> bool {
    let fresh = Span(cluster.policy.lease.0 / WITNESS_PART);
    let (mut agents, mut heard) = (0u64, 0u64);
    for node in cluster.listed_nodes() {
        agents += 1;
        let witness = now.since(node.last_heard) < fresh && !cluster.doubtful.contains(&node.id);
        heard += u64::from(witness);
    }
    2 * (1 + heard) > agents + 1
}

/// The first moment after `since` at which `decide` may find more than it did at `since`, by the clock alone: a begin
/// time, an opening window, a pool that is lent, the end of a backoff, of a node's cooldown or of a protected run, a rotation, or a wait that
/// became too long. The time of the cluster plays no part: whoever asks with the time of
/// the last decision misses no such moment, whatever was applied meanwhile. `None`: there is no such moment.
pub fn next_wake_up(cluster: &Cluster, since: Time) -> Option<Time> {
    let pending = cluster.jobs.values().filter(|job| job.attempt.is_none());
    let opens = |job: &Job| match job.spec.windows.is_empty() {
        true => Time::NEVER,
        false => next_opening(&job.spec.windows, since),
    };
    let jobs = pending.flat_map(|job| job.spec.begin.into_iter().chain([job.not_before, opens(job)]));
    let promoted = cluster.jobs.values().filter(|job| job.attempt.is_none()).filter_map(|job| cluster.promoted_at(job));
    let protected = cluster.jobs.values().filter(|job| job.attempt.is_some());
    let protected = protected.map(|job| cluster.protected_until(job, since));
    let cooldowns = cluster.nodes.iter().map(|node| node.cooldown_until);
    let patience = cluster.policy.consolidate_patience;
    let moved = cluster.jobs.values().filter_map(|job| job.rests_until(patience));
    let rotations = attained::next_change(cluster, since);
    let grows = cluster.jobs.values().filter_map(|job| cluster.grows_from(job));
    let budgets = cluster.blocked.values().filter_map(|blocker| match blocker {
        Blocker::Budget { renews_at, .. } => Some(*renews_at),
        _ => None,
    });
    let waits = cluster.jobs.values().any(|job| job.attempt.is_none());
    let lent = cluster.pools.values().filter(|_| waits).map(|lending| lending.when.next_opening(since));
    let times = jobs
        .chain(lent)
        .chain(promoted)
        .chain(protected)
        .chain(cooldowns)
        .chain(moved)
        .chain(rotations)
        .chain(grows)
        .chain(budgets);
    times.filter(|at| *at > since && *at < Time::NEVER).min()
}

/// When a tick may next change something, or `decide` find more than at the time of the cluster; `None`: never without an
/// input.
pub fn next_deadline(cluster: &Cluster) -> Option<Time> {
    next_deadline_where(cluster, |_| true)
}

/// As [`next_deadline`], for somebody who knows which healthy nodes may fall silent: the others renew their leases in time.
pub fn next_deadline_where(cluster: &Cluster, may_fall_silent: impl Fn(NodeId) -> bool) -> Option<Time> {
    // Without a majority silent nodes wait for somebody to be heard, not for the clock.
    let waits = !majority_heard(cluster, cluster.now);
    let silent = |node: &Node| cluster.now.since(node.last_heard) >= cluster.policy.lease;
    let stuck = |node: &Node| waits && silent(node) && node.health.state == HealthState::Suspect;
    let nodes = cluster.nodes.iter().filter_map(|node| match node.health.state {
        _ if stuck(node) => next_change(node),
        HealthState::Ready | HealthState::Probation if !may_fall_silent(node.id) => calendar_of(node),
        _ => node_deadline(cluster, node),
    });
    let jobs = cluster.jobs.values().map(|job| job_deadline(cluster, job));
    let claims = cluster.claims.values().map(|claim| claim.deadline);
    let wake_up = next_wake_up(cluster, cluster.now);
    let budgets = next_budget_deadline(cluster);
    let arrays = cluster.makes_tasks().then_some(cluster.now);
    nodes.chain(jobs).chain(claims).chain(wake_up).chain(budgets).chain(arrays).min().filter(|at| *at < Time::NEVER)
}

/// Whether all of it waits for its GPUs only.
fn is_prepared(attempt: &Attempt) -> bool {
    attempt.workers.iter().all(|worker| matches!(worker.phase, WorkerPhase::Prepared { .. }))
}

fn job_deadline(cluster: &Cluster, job: &Job) -> Time {
    let Some(attempt) = &job.attempt else { return Time::NEVER };
    let leaves = cluster.leaves_at(job, attempt).filter(|_| attempt.stopping().is_none());
    let leaves = leaves.map_or(Time::NEVER, |(at, _)| at);
    phase_deadline(cluster, job, attempt).min(leaves)
}

fn phase_deadline(cluster: &Cluster, job: &Job, attempt: &Attempt) -> Time {
    match &attempt.phase {
        AttemptPhase::Preparing { deadline } if is_prepared(attempt) => attempt.ready_at.min(*deadline),
        AttemptPhase::Preparing { deadline } | AttemptPhase::Going { deadline } => *deadline,
        AttemptPhase::Running { since } => {
            let limit = job.spec.time_limit.map_or(Time::NEVER, |limit| *since + limit);
            let leaving = attempt.leaving().filter_map(|worker| match worker.phase {
                WorkerPhase::Leaving { deadline } => Some((deadline, worker.place.node)),
                _ => None,
            });
            leaving.map(|(deadline, node)| unconfirmed_at(cluster, deadline, [node])).min().unwrap_or(limit).min(limit)
        }
        AttemptPhase::Stopping(stop) => {
            unconfirmed_at(cluster, stop.deadline, attempt.live().map(|worker| worker.place.node))
        }
    }
}

/// When a stop that is not confirmed takes the leases of its nodes; never, if all are taken already.
fn unconfirmed_at(cluster: &Cluster, deadline: Time, nodes: impl IntoIterator<Item = NodeId>) -> Time {
    let revoked = nodes.into_iter().all(|node| cluster.node(node).revoked_at.is_some());
    if revoked { Time::NEVER } else { deadline + cluster.policy.stop_margin }
}

/// What comes whether or not the node is heard.
fn calendar_of(node: &Node) -> Option<Time> {
    node.health.until.into_iter().chain(next_change(node)).min()
}

fn node_deadline(cluster: &Cluster, node: &Node) -> Option<Time> {
    let lease = cluster.policy.lease;
    let silence = match node.health.state {
        HealthState::Ready | HealthState::Probation => Some(node.last_heard + suspect_after(lease)),
        HealthState::Suspect => Some(lease_end(cluster, node)),
        HealthState::Quarantined if !node.tenants.is_empty() => Some(lease_end(cluster, node)),
        _ => None,
    };
    calendar_of(node).into_iter().chain(silence).min()
}
