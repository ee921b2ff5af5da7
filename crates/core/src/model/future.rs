//! What is known of the future of a job: until when it may stay where it is, when it has to be told, and when waiting or
//! being sent away too often earns it something.
use super::cluster::Cluster;
use super::ids::{JobId, NodeId};
use super::job::{Attempt, Job, JobSpec, Place, Priority, StopWhy};
use super::node::Node;
use super::policy::Policy;
use super::time::{Span, Time};
use super::window::open_until;

/// The place of a job in the order of service. Never equal for two jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    /// An own job of a kept pool goes before all others: on its nodes it would stop them anyway.
    pub elsewhere: bool,
    /// Raised by waiting.
    pub effective: Priority,
    /// A genuine one goes before an aged one.
    pub genuine: Priority,
    /// The moment by which it has to start.
    pub by: Time,
    pub submitted_at: Time,
    pub id: JobId,
}

/// Protection doubles with each eviction, so often at most.
const MOST_DOUBLINGS: u32 = 10;

impl JobSpec {
    /// Whether it may be stopped without losing all it did: it saves when asked, and in time, or now and then.
    pub fn can_save(&self) -> bool {
        let checkpoint = &self.checkpoint;
        (checkpoint.on_demand && checkpoint.write_time <= checkpoint.grace) || checkpoint.every.is_some()
    }

    /// The last moment for a start that meets its deadline.
    pub fn latest_start(&self) -> Option<Time> {
        Some(self.deadline? - self.time_limit?)
    }

    /// Whether it may use devices that are reserved for others until they need them.
    pub fn may_be_guest(&self) -> bool {
        self.preemptible && self.can_save()
    }
}

impl Policy {
    /// How long before it has to be gone a job is told: a checkpoint that it is just writing, its grace, and what a stop may
    /// take longer.
    pub fn notice(&self, spec: &JobSpec) -> Span {
        spec.checkpoint.write_time + spec.checkpoint.grace + self.stop_margin
    }

    /// The shortest stay that is worth a start: the work goes on, is saved at least once, and there is time to leave.
    pub fn least_stay(&self, spec: &JobSpec) -> Span {
        let checkpoint = &spec.checkpoint;
        let to_save = match checkpoint.every {
            Some(every) if !checkpoint.on_demand => every + checkpoint.write_time,
            _ => Span::ZERO,
        };
        checkpoint.restart_time + to_save.max(self.stay_least) + self.notice(spec)
    }

    /// Whether a job that starts at `at` may start although it has to be gone at `bound`.
    pub fn fits_before(&self, spec: &JobSpec, at: Time, bound: Time) -> bool {
        let ends = spec.time_limit.is_some_and(|limit| at + limit <= bound);
        bound == Time::NEVER || ends || (spec.can_save() && at + self.least_stay(spec) <= bound)
    }

    /// Run time in which nobody below P0 evicts a job that was evicted so often.
    fn protected_time(&self, evictions: u32) -> Span {
        match evictions.checked_sub(self.protect_after) {
            Some(more) if self.protect_after > 0 => self.protect_time.times(1 << more.min(MOST_DOUBLINGS)),
            _ => Span::ZERO,
        }
    }
}

impl Cluster {
    /// Its place in the order of service. Within a class those with a deadline that can still be met go first, the one with
    /// least slack before all. Who waited beyond the bound goes as if it were of the class that waiting can raise to and had
    /// to start when the bound was reached: whatever is submitted there later comes after it, so its turn comes.
    pub fn turn(&self, job: &Job, now: Time) -> Turn {
        let by = job.spec.latest_start().filter(|latest| *latest >= now).unwrap_or(Time::NEVER);
        let (effective, genuine) = (self.effective_class(job, now), job.spec.priority);
        let elsewhere = self.own_pool(&job.spec).is_none();
        let own = Turn { elsewhere, effective, genuine, by, submitted_at: job.submitted_at, id: job.id };
        let ceiling = self.policy.aging_ceiling;
        match self.promoted_at(job) {
            Some(by) if by <= now => own.min(Turn { effective: ceiling, genuine: ceiling, by, ..own }),
            _ => own,
        }
    }

    /// When waiting makes it one of those who go first; `None`: never.
    pub fn promoted_at(&self, job: &Job) -> Option<Time> {
        let from = job.eligible_at.max(job.submitted_at).max(job.not_before).max(job.spec.begin.unwrap_or_default());
        (self.policy.promote_after > Span::ZERO).then(|| from + self.policy.promote_after)
    }

    pub fn is_promoted(&self, job: &Job, now: Time) -> bool {
        self.promoted_at(job).is_some_and(|at| at <= now)
    }

    /// Until when nobody below P0 may evict what starts now, or runs. Never a shield for a guest: it knew.
    pub fn protected_until(&self, job: &Job, now: Time) -> Time {
        let started = job.attempt.as_ref().map_or(now, |attempt| attempt.placed_at);
        let earned = self.policy.protected_time(job.evictions);
        let waited = if self.is_promoted(job, started) { self.policy.protect_time } else { Span::ZERO };
        started + earned.max(waited)
    }

    pub fn is_protected(&self, job: &Job, now: Time) -> bool {
        self.protected_until(job, now) > now
    }

    /// When the attempt has to be told that it must leave, and why: the first of its bounds.
    pub fn leaves_at(&self, job: &Job, attempt: &Attempt) -> Option<(Time, StopWhy)> {
        let guest = self.guest_leaves_at(job, attempt).map(|(at, owner)| (at, StopWhy::GuestLeaves { owner }));
        let from = attempt.ran_from.unwrap_or(attempt.placed_at);
        let nodes = attempt.staying().map(|worker| worker.place.node);
        let bounds = self.bounds(job, attempt.placed_at, nodes);
        let bounds = bounds.map(|(bound, why)| (self.told_at(&job.spec, from, bound), why));
        guest.into_iter().chain(bounds).min_by_key(|(at, _)| *at)
    }

    /// All that makes it leave, by kind the first: when it is told, by when it has to be gone, and why.
    pub fn told_to_leave(&self, job: &Job, attempt: &Attempt) -> Vec<(Time, Time, StopWhy)> {
        let from = attempt.ran_from.unwrap_or(attempt.placed_at);
        let nodes = attempt.staying().map(|worker| worker.place.node);
        let bounds = self.bounds(job, attempt.placed_at, nodes);
        let bounds = bounds.map(|(bound, why)| (self.told_at(&job.spec, from, bound), bound, why));
        let guest = self.guest_leaves_at(job, attempt);
        let guest = guest.map(|(told, owner)| {
            let start = self.reservations.get(&owner).map_or(told, |reservation| reservation.start);
            (told, start, StopWhy::GuestLeaves { owner })
        });
        let mut all: Vec<(Time, Time, StopWhy)> = guest.into_iter().chain(bounds).collect();
        all.sort_by_key(|(_, bound, _)| *bound);
        let mut kinds = Vec::new();
        all.retain(|(_, _, why)| {
            let kind = std::mem::discriminant(why);
            let first = !kinds.contains(&kind);
            kinds.push(kind);
            first
        });
        all
    }

    /// By when a job that was placed on `nodes` and runs from `from` on is gone because it has to be; `None`: it may stay as
    /// long as it likes.
    pub fn gone_by(
        &self,
        job: &Job,
        (placed, from): (Time, Time),
        nodes: impl Iterator<Item = NodeId>,
    ) -> Option<Time> {
        let gone = |bound: Time| bound.max(self.told_at(&job.spec, from, bound) + job.spec.checkpoint.grace);
        self.bounds(job, placed, nodes).map(|(bound, _)| gone(bound)).min()
    }

    /// The moments at which it may no longer be where it is: the end of its window, of the time for which its nodes are
    /// lent to it, maintenance of its nodes.
    fn bounds(
        &self,
        job: &Job,
        placed: Time,
        nodes: impl Iterator<Item = NodeId>,
    ) -> impl Iterator<Item = (Time, StopWhy)> {
        let windows = &job.spec.windows;
        let window = (!windows.is_empty()).then(|| open_until(windows, placed).unwrap_or(placed));
        let of_nodes = nodes.flat_map(move |node| {
            let maintained = self.node(node).next_maintenance().map(|one| (one.from, StopWhy::Drained { node }));
            let lent = self.lending(self.node(node), &job.spec);
            let lent = lent.map(|(pool, lending)| {
                let until = lending.when.open_until(placed).unwrap_or(placed);
                (until, StopWhy::LendingEnds { pool: pool.to_string() })
            });
            maintained.into_iter().chain(lent.filter(|(until, _)| *until < Time::NEVER))
        });
        window.map(|end| (end, StopWhy::WindowEnds)).into_iter().chain(of_nodes)
    }

    /// Who gains by it is told before the bound, so that it has saved and is gone by then. Not who is over by then anyway,
    /// nor who would only lose more.
    fn told_at(&self, spec: &JobSpec, from: Time, bound: Time) -> Time {
        let over = spec.time_limit.is_some_and(|limit| from + limit <= bound);
        let gains = spec.preemptible || spec.can_save();
        if gains && !over { bound - self.policy.notice(spec) } else { bound }
    }

    /// Whether a job that starts at `at` may stay, or can leave in time, when maintenance of the node comes.
    pub fn fits_maintenance(&self, node: &Node, spec: &JobSpec, at: Time) -> bool {
        node.maintenance.iter().filter(|one| one.until > at).all(|one| self.policy.fits_before(spec, at, one.from))
    }

    /// As [`Cluster::fits_maintenance`], also when the node is lent to it no longer.
    pub fn stays_open(&self, node: &Node, spec: &JobSpec, at: Time) -> bool {
        self.fits_maintenance(node, spec, at) && self.lends(node, spec, at)
    }

    /// When a guest has to be told to leave for a start that is reserved on its devices, and for whom.
    pub fn guest_leaves_at(&self, job: &Job, attempt: &Attempt) -> Option<(Time, JobId)> {
        let starts = attempt.guest_of.iter().filter_map(|owner| self.reservations.get(owner));
        let on_its_places = starts.filter(|one| attempt.staying().any(|worker| meets(&one.places, &worker.place)));
        on_its_places.map(|one| (one.start - self.policy.notice(&job.spec), one.job)).min()
    }
}

/// Whether one of the places needs the same GPUs or CPUs. Memory is left to others to see to: guests take none of what is
/// reserved.
pub fn meets(places: &[Place], place: &Place) -> bool {
    places
        .iter()
        .any(|other| other.node == place.node && (other.excludes(place) || !other.cpus.is_disjoint(&place.cpus)))
}
