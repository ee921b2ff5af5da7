//! Pools that are kept for their own jobs and lent to others: to whom and when, who is a guest there, and until when.
//!
//! A pool of which the cluster file says nothing more is open to everybody. One that says how it is lent is *kept*: it is
//! for jobs that name it. Others are its guests: they come only in lending times, gone by their end, and leave for any of
//! the pool's own jobs. So on its nodes the own jobs go before all others, whatever the classes, and no guest stops them.
use super::cluster::Cluster;
use super::job::{Job, JobSpec, Place, Priority};
use super::node::Node;
use super::policy::Policy;
use super::queue::ancestry;
use super::time::{Span, Time};
use super::window::{self, Window};
use serde::{Deserialize, Serialize};

/// Openings and ends of lending times are looked for so far ahead.
const AHEAD: usize = 16;
/// What is open for longer has no end that anybody would plan for.
const ENDLESS: Span = Span::hours(8 * 24);

/// How a kept pool is lent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lending {
    pub when: LendTime,
    /// Only to jobs of these queues and of those below them; none: to all.
    pub to: Vec<String>,
    /// Only to jobs of these classes; none: to all.
    pub classes: Vec<Priority>,
    /// When this was last said.
    pub since: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LendTime {
    Never,
    Always,
    Windows {
        windows: Vec<Window>,
        /// The longest time for which they are open.
        longest: Span,
    },
}

impl LendTime {
    pub fn in_windows(windows: Vec<Window>) -> LendTime {
        let longest = window::longest(&windows);
        let longest = if longest >= ENDLESS { Span(u64::MAX) } else { longest };
        LendTime::Windows { windows, longest }
    }

    /// Until when it is lent; `None`: it is not lent at `at`.
    pub fn open_until(&self, at: Time) -> Option<Time> {
        match self {
            LendTime::Never => None,
            LendTime::Always => Some(Time::NEVER),
            LendTime::Windows { windows, .. } => window::open_until(windows, at),
        }
    }

    /// When it is lent next, after `at`.
    pub fn next_opening(&self, at: Time) -> Time {
        match self {
            LendTime::Windows { windows, .. } => window::next_opening(windows, at),
            _ => Time::NEVER,
        }
    }

    /// The lending times from `at` on, as far as they are looked at: when they begin and end.
    pub fn times_from(&self, at: Time) -> impl Iterator<Item = (Time, Time)> {
        let first = if self.open_until(at).is_some() { at } else { self.next_opening(at) };
        let next = |from: &Time| Some(self.next_opening(*from)).filter(|next| *next < Time::NEVER);
        let starts = std::iter::successors(Some(first).filter(|at| *at < Time::NEVER), next).take(AHEAD);
        starts.filter_map(|from| Some((from, self.open_until(from)?)))
    }

    fn longest(&self) -> Span {
        match self {
            LendTime::Never => Span::ZERO,
            LendTime::Always => Span(u64::MAX),
            LendTime::Windows { longest, .. } => *longest,
        }
    }
}

impl Lending {
    /// Whether such a job may ever be a guest: it is one of those to whom is lent, it did not say that it never yields, and
    /// some lending time is long enough for it.
    pub fn welcomes(&self, policy: &Policy, spec: &JobSpec) -> bool {
        let queue = self.to.is_empty() || ancestry(&spec.queue).any(|path| self.to.iter().any(|to| to == path));
        let class = self.classes.is_empty() || self.classes.contains(&spec.priority);
        queue && class && !spec.firm && policy.fits_before(spec, Time(0), Time(self.when.longest().0))
    }
}

impl Cluster {
    /// The kept pool whose own the job is.
    pub fn own_pool<'s>(&self, spec: &'s JobSpec) -> Option<&'s str> {
        spec.pool.as_deref().filter(|pool| self.pools.contains_key(*pool))
    }

    /// By what rules the node is lent to the job; `None`: it is no guest there.
    pub fn lending(&self, node: &Node, spec: &JobSpec) -> Option<(&str, &Lending)> {
        if self.pools.is_empty() || spec.pool == node.pool {
            return None;
        }
        let (name, lending) = self.pools.get_key_value(node.pool.as_deref()?)?;
        Some((name, lending))
    }

    /// Whether the node is lent to a job that starts at `at`, for as long as it stays; also where it need not be lent.
    pub fn lends(&self, node: &Node, spec: &JobSpec, at: Time) -> bool {
        self.lending(node, spec).is_none_or(|(pool, _)| self.is_lent(pool, spec, at))
    }

    /// Whether a kept pool is lent to a job that starts at `at`, for as long as it stays.
    pub fn is_lent(&self, pool: &str, spec: &JobSpec, at: Time) -> bool {
        self.pools.get(pool).filter(|lending| lending.welcomes(&self.policy, spec)).is_some_and(|lending| {
            lending.when.open_until(at).is_some_and(|until| self.policy.fits_before(spec, at, until))
        })
    }

    /// The kept pools that such a job could ever be a guest of, in order.
    pub fn lenders(&self, spec: &JobSpec) -> Vec<&str> {
        let strange = self.pools.iter().filter(|(name, _)| spec.pool.as_ref() != Some(*name));
        strange.filter(|(_, lending)| lending.welcomes(&self.policy, spec)).map(|(name, _)| name.as_str()).collect()
    }

    /// Whether the claimant is an own job of a kept pool and the holder of `places` is a guest there: whatever their
    /// classes, it may be told to leave.
    pub fn takes_back<'p>(
        &self,
        claimant: &JobSpec,
        holder: &JobSpec,
        places: impl IntoIterator<Item = &'p Place>,
    ) -> bool {
        let own = self.own_pool(claimant).filter(|_| self.may_host(claimant, holder));
        own.is_some_and(|own| places.into_iter().any(|place| self.node(place.node).pool.as_deref() == Some(own)))
    }

    /// Whether the one is an own job of a kept pool, where the other would be a guest.
    pub fn may_host(&self, one: &JobSpec, other: &JobSpec) -> bool {
        self.own_pool(one).is_some_and(|own| other.pool.as_deref() != Some(own))
    }

    /// Whether the job is an own one of a kept pool and the claimant is not: then no class gives the right to stop it.
    pub fn shelters(&self, claimant: &JobSpec, job: &JobSpec) -> bool {
        self.may_host(job, claimant)
    }

    /// The pools whose guest the job is where it runs, each with when it has to be gone.
    pub fn guest_in(&self, job: &Job) -> Vec<(&str, Time)> {
        let Some(attempt) = &job.attempt else { return Vec::new() };
        let nodes = attempt.staying().map(|worker| self.node(worker.place.node));
        let lent = nodes.filter_map(|node| self.lending(node, &job.spec));
        let until = |lending: &Lending| lending.when.open_until(attempt.placed_at).unwrap_or(attempt.placed_at);
        let mut pools: Vec<(&str, Time)> = lent.map(|(name, lending)| (name, until(lending))).collect();
        pools.sort_unstable();
        pools.dedup();
        pools
    }
}
