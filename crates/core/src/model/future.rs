//! What is known of the future of a job: until when it may stay where it is, when it has to be told, and when waiting or
//! being sent away too often earns it something.
use super::cluster::Cluster;
use super::ids::JobId;
use super::job::{Attempt, Job, JobSpec, Place, Priority};
use super::policy::Policy;
use super::time::{Span, Time};

/// Effective class, genuine class (a genuine one goes before an aged one), seniority, number. Never equal for two jobs.
pub type Turn = (Priority, Priority, Time, JobId);

/// Protection doubles with each eviction, so often at most.
const MOST_DOUBLINGS: u32 = 10;

impl JobSpec {
    /// Whether it may be stopped without losing all it did: it saves when asked, and in time, or now and then.
    pub fn can_save(&self) -> bool {
        let checkpoint = &self.checkpoint;
        (checkpoint.on_demand && checkpoint.write_time <= checkpoint.grace) || checkpoint.every.is_some()
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
        ends || (spec.can_save() && at + self.least_stay(spec) <= bound)
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
    /// Its place in the order of service. Who waited beyond the bound goes as if it were of the class that waiting can raise
    /// to, submitted when the bound was reached: whatever is submitted there later comes after it, so its turn comes.
    pub fn turn(&self, job: &Job, now: Time) -> Turn {
        let own = (self.effective_class(job, now), job.spec.priority, job.submitted_at, job.id);
        match self.promoted_at(job) {
            Some(at) if at <= now => own.min((self.policy.aging_ceiling, self.policy.aging_ceiling, at, job.id)),
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
