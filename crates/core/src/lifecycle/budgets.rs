//! Budgets while jobs run: a warning at four fifths, and an end in time. Who is asked to save and leave is asked so early
//! that it is gone when the budget is spent.
use super::change::Change;
use crate::model::budget::{BudgetPolicy, GpuHours, Purse, Spending};
use crate::model::cluster::Cluster;
use crate::model::ids::JobId;
use crate::model::job::{Job, StopWhy};
use crate::model::queue::{Queue, ancestry};
use crate::model::time::{Span, Time, rfc3339};

/// What a budget came to, found by a tick.
struct Finding {
    queue: String,
    user: Option<String>,
    start: Time,
    over: bool,
    text: String,
}

impl Change<'_> {
    pub fn tick_budgets(&mut self) {
        let now = self.now;
        let purses = || self.cluster.queues.values().flat_map(Queue::purses);
        let found: Vec<Finding> = purses().flat_map(|purse| findings(&purse, now)).collect();
        let due: Vec<(JobId, StopWhy)> = purses().flat_map(|purse| cannot_be_paid(self.cluster, &purse, now)).collect();
        found.into_iter().for_each(|finding| self.tell(finding));
        due.into_iter().for_each(|(job, why)| self.stop(job, why));
    }

    fn tell(&mut self, found: Finding) {
        let Some(queue) = self.cluster.queues.get_mut(&found.queue) else { return };
        let Some(spending) = spending_of(queue, found.user.as_deref()) else { return };
        match found.over {
            true => spending.over_in = Some(found.start),
            false => spending.warned_in = Some(found.start),
        }
        self.effects.dirty.queues.insert(found.queue);
        self.mark_changed();
        self.event("budget", None, None, found.text);
    }
}

fn spending_of<'q>(queue: &'q mut Queue, user: Option<&str>) -> Option<&'q mut Spending> {
    match user {
        Some(user) => queue.accounts.get_mut(user).map(|account| &mut account.spending),
        None => Some(&mut queue.spending),
    }
}

/// What nobody was told yet in this period.
fn findings(purse: &Purse<'_>, now: Time) -> Vec<Finding> {
    let (start, spent) = (purse.per.start(now), purse.spent_gpu_ms(now));
    let of = format!("{} of {} of this {}", GpuHours(spent), GpuHours(purse.gpu_ms), purse.per);
    let (name, renews) = (purse.name(), rfc3339(purse.per.end(now)));
    let (queue, user) = (purse.queue.to_string(), purse.user.map(str::to_string));
    let finding = |over: bool, text: String| Finding { queue: queue.clone(), user: user.clone(), start, over, text };
    let warns = spent >= warn_from(purse) && purse.spending.warned_in != Some(start);
    let is_over = spent >= purse.gpu_ms && purse.spending.over_in != Some(start);
    let warning = warns.then(|| finding(false, format!("{name} has spent {of}; it renews at {renews}")));
    let end = is_over.then(|| finding(true, format!("{name} has spent all: {of}; nothing starts before {renews}")));
    warning.into_iter().chain(end).collect()
}

/// Who has to be told now so that it is gone when the budget is spent.
fn cannot_be_paid(cluster: &Cluster, purse: &Purse<'_>, now: Time) -> Vec<(JobId, StopWhy)> {
    let policy = cluster.policy.budget_policy;
    let Some(spent_at) = purse.spent_at(now).filter(|_| policy != BudgetPolicy::None) else { return Vec::new() };
    let (renews_at, queue) = (purse.per.end(now), purse.queue.to_string());
    let abrupt = policy == BudgetPolicy::Stop || spent_at <= now;
    let why = || StopWhy::Budget { queue: queue.clone(), renews_at, abrupt };
    let due = staying(cluster, purse).filter(|job| !ends_by(job, spent_at) && spent_at - notice(policy, job) <= now);
    due.map(|job| (job.id, why())).collect()
}

/// From here on somebody is told.
fn warn_from(purse: &Purse<'_>) -> u64 {
    purse.gpu_ms - purse.gpu_ms / 5
}

/// How long before the end of the budget the job has to be told.
fn notice(policy: BudgetPolicy, job: &Job) -> Span {
    if policy == BudgetPolicy::Drain { job.spec.checkpoint.grace } else { Span::ZERO }
}

/// The jobs that draw on it and were not told to leave.
fn staying<'c>(cluster: &'c Cluster, purse: &Purse<'c>) -> impl Iterator<Item = &'c Job> {
    let purse = *purse;
    cluster.jobs.values().map(AsRef::as_ref).filter(move |job| {
        job.spec.total().all_gpus_milli() > 0
            && job.attempt.as_ref().is_some_and(|attempt| attempt.stopping().is_none())
            && ancestry(&job.spec.queue).any(|above| above == purse.queue)
            && purse.pays_for(job)
    })
}

/// Whether its time limit ends it by then: it needs not be told.
fn ends_by(job: &Job, at: Time) -> bool {
    let from = job.attempt.as_ref().map(|attempt| attempt.ran_from.unwrap_or(attempt.placed_at));
    from.zip(job.spec.time_limit).is_some_and(|(from, limit)| from + limit <= at)
}

/// When a tick next has something to do for the budgets.
pub fn next_budget_deadline(cluster: &Cluster) -> Option<Time> {
    let purses = cluster.queues.values().flat_map(Queue::purses);
    purses.filter_map(|purse| deadline(cluster, &purse)).min()
}

fn deadline(cluster: &Cluster, purse: &Purse<'_>) -> Option<Time> {
    let (now, policy) = (cluster.now, cluster.policy.budget_policy);
    let start = purse.per.start(now);
    let reaches = |amount: u64| {
        let left = amount.saturating_sub(purse.spent_gpu_ms(now));
        let left = left.saturating_mul(1_000);
        let whole = left.checked_div(purse.gpu_milli)?;
        let at = now + Span(whole.saturating_add(u64::from(!left.is_multiple_of(purse.gpu_milli))));
        (at < purse.per.end(now)).then_some(at)
    };
    let warning = (purse.spending.warned_in != Some(start)).then(|| reaches(warn_from(purse))).flatten();
    let end = (purse.spending.over_in != Some(start)).then(|| reaches(purse.gpu_ms)).flatten();
    let spent_at = purse.spent_at(now).filter(|_| policy != BudgetPolicy::None);
    let told = spent_at.and_then(|spent_at| {
        let goes_on = staying(cluster, purse).filter(|job| !ends_by(job, spent_at));
        Some(spent_at - goes_on.map(|job| notice(policy, job)).max()?)
    });
    warning.into_iter().chain(end).chain(told).min()
}
