//! GPU-hour budgets: what a queue may spend in a calendar period (UTC), and what it has spent.
//!
//! Charged is what really ran: every GPU from its placement until it is free again, also below the queue. What is spent
//! follows from what is held, so it is written only when that changes.
use super::job::Job;
use super::queue::Queue;
use super::time::{Span, Time, civil_from_days};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A budget begins anew with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    Day,
    /// From Monday on.
    Week,
    #[default]
    Month,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub gpu_ms: u64,
    pub per: Period,
    /// What each user may spend of it.
    #[serde(default)]
    pub user_gpu_ms: Option<u64>,
}

/// What one user holds and has spent in a queue whose budget names a part for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Account {
    pub gpu_milli: u64,
    pub spending: Spending,
}

/// A budget with what draws on it: that of a whole queue, or one user's part.
#[derive(Debug, Clone, Copy)]
pub struct Purse<'q> {
    pub queue: &'q str,
    pub user: Option<&'q str>,
    pub gpu_ms: u64,
    pub per: Period,
    /// In thousandths, parts of GPUs counted.
    pub gpu_milli: u64,
    pub spending: Spending,
}

/// What becomes of running jobs when a budget is spent. Nothing new starts in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetPolicy {
    /// Asked to save and leave so early that they are gone by then.
    #[default]
    Drain,
    /// They run to the very end and are stopped without grace.
    Stop,
    /// They go on; the budget is overdrawn.
    None,
}

/// What was spent in the period of `as_of`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spending {
    pub gpu_ms: u64,
    pub as_of: Time,
    /// The beginning of the last period in which somebody was warned.
    pub warned_in: Option<Time>,
    /// The beginning of the last period in which all was spent.
    pub over_in: Option<Time>,
}

const DAY_MS: u64 = 86_400_000;
/// 1970-01-01 was a Thursday.
const DAYS_SINCE_MONDAY: u64 = 3;
/// A job that saves its work may start when so long a run, and its grace, can still be paid.
const LEAST_RUN: Span = Span::minutes(1);

impl Period {
    /// The beginning of the period that `now` is in.
    pub fn start(self, now: Time) -> Time {
        let days = now.0 / DAY_MS;
        let back = match self {
            Period::Day => 0,
            Period::Week => (days + DAYS_SINCE_MONDAY) % 7,
            Period::Month => civil_from_days(days).2 - 1,
        };
        Time(days.saturating_sub(back).saturating_mul(DAY_MS))
    }

    /// The beginning of the next one.
    pub fn end(self, now: Time) -> Time {
        let start = self.start(now);
        match self {
            Period::Day => start + Span(DAY_MS),
            Period::Week => start + Span(7 * DAY_MS),
            // The 32nd day of a month is in the next one.
            Period::Month => self.start(start + Span(31 * DAY_MS)),
        }
    }

    pub fn parse(text: &str) -> Option<Period> {
        [Period::Day, Period::Week, Period::Month].into_iter().find(|period| period.to_string() == text)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Period::Day => "day",
            Period::Week => "week",
            Period::Month => "month",
        })
    }
}

impl BudgetPolicy {
    pub fn word(self) -> &'static str {
        match self {
            BudgetPolicy::Drain => "drain",
            BudgetPolicy::Stop => "stop",
            BudgetPolicy::None => "none",
        }
    }

    pub fn parse(text: &str) -> Option<BudgetPolicy> {
        match text {
            "drain" => Some(BudgetPolicy::Drain),
            "stop" => Some(BudgetPolicy::Stop),
            "none" => Some(BudgetPolicy::None),
            _ => None,
        }
    }
}

impl Spending {
    /// As of `now`, when so many GPUs were held since then. A new period begins with nothing.
    pub fn after(self, gpu_milli: u64, now: Time, per: Period) -> Spending {
        let (start, now) = (per.start(now.max(self.as_of)), now.max(self.as_of));
        let before = if self.as_of < start { 0 } else { self.gpu_ms };
        let passed = now.since(self.as_of.max(start)).0;
        let spent = u64::try_from(u128::from(gpu_milli) * u128::from(passed) / 1_000).unwrap_or(u64::MAX);
        Spending { gpu_ms: before.saturating_add(spent), as_of: now, ..self }
    }
}

impl Purse<'_> {
    /// In the period of `now`.
    pub fn spent_gpu_ms(&self, now: Time) -> u64 {
        self.spending.after(self.gpu_milli, now, self.per).gpu_ms
    }

    pub fn is_spent(&self, now: Time) -> bool {
        self.spent_gpu_ms(now) >= self.gpu_ms
    }

    /// When all of this period is spent if everything goes on as it does; `None`: not in this period.
    pub fn spent_at(&self, now: Time) -> Option<Time> {
        let left = self.gpu_ms.saturating_sub(self.spent_gpu_ms(now));
        let at = match (left, self.gpu_milli) {
            (0, _) => now,
            (_, 0) => return None,
            (left, held) => now + Span(left.saturating_mul(1_000) / held),
        };
        (at < self.per.end(now)).then_some(at)
    }

    pub fn pays_for(&self, job: &Job) -> bool {
        self.user.is_none_or(|user| user == job.owner.user)
    }

    /// `queue lab`, `user ada in queue lab`
    pub fn name(&self) -> String {
        match self.user {
            Some(user) => format!("user {user} in queue {}", self.queue),
            None => format!("queue {}", self.queue),
        }
    }
}

impl Queue {
    /// What was spent of its budget in the period of `now`; 0 without a budget.
    pub fn spent_gpu_ms(&self, now: Time) -> u64 {
        self.purse().map_or(0, |purse| purse.spent_gpu_ms(now))
    }

    pub fn purse(&self) -> Option<Purse<'_>> {
        let Budget { gpu_ms, per, .. } = self.budget?;
        let (gpu_milli, spending) = (self.used.all_gpus_milli(), self.spending);
        Some(Purse { queue: &self.path, user: None, gpu_ms, per, gpu_milli, spending })
    }

    /// One user's part of the budget, where each has one.
    pub fn purse_of<'q>(&'q self, user: &'q str) -> Option<Purse<'q>> {
        let Budget { user_gpu_ms, per, .. } = self.budget?;
        let Account { gpu_milli, spending } = self.accounts.get(user).copied().unwrap_or_default();
        Some(Purse { queue: &self.path, user: Some(user), gpu_ms: user_gpu_ms?, per, gpu_milli, spending })
    }

    /// Its own and that of each user who was seen.
    pub fn purses(&self) -> impl Iterator<Item = Purse<'_>> {
        self.purse().into_iter().chain(self.accounts.keys().filter_map(|user| self.purse_of(user)))
    }

    /// To be called when one user's GPUs change.
    pub fn charge_user(&mut self, user: &str, gpu_milli: u64, add: bool, now: Time) {
        let Some(budget) = self.budget.filter(|budget| budget.user_gpu_ms.is_some()) else { return };
        let account = self.accounts.entry(user.to_string()).or_default();
        account.spending = account.spending.after(account.gpu_milli, now, budget.per);
        account.gpu_milli = match add {
            true => account.gpu_milli.saturating_add(gpu_milli),
            false => account.gpu_milli.saturating_sub(gpu_milli),
        };
    }

    /// A first budget counts from now on; another one keeps what was spent. `held` are the thousandths of GPUs of each user.
    pub fn set_budget(&mut self, budget: Budget, held: &BTreeMap<String, u64>, now: Time, half_life: Span) {
        self.settle(now, half_life);
        let first = self.budget.is_none();
        let anew =
            |old: Spending| Spending { gpu_ms: if first { 0 } else { old.gpu_ms }, as_of: now, ..Spending::default() };
        self.spending = anew(self.spending);
        let before = std::mem::take(&mut self.accounts);
        if budget.user_gpu_ms.is_some() {
            let per = self.budget.map_or(budget.per, |old| old.per);
            let kept = before.into_iter().map(|(user, old)| (user, anew(old.spending.after(old.gpu_milli, now, per))));
            self.accounts = kept.map(|(user, spending)| (user, Account { gpu_milli: 0, spending })).collect();
            for (user, gpu_milli) in held {
                let account = self.accounts.entry(user.clone()).or_default();
                (account.gpu_milli, account.spending.as_of) = (*gpu_milli, now);
            }
        }
        self.budget = Some(budget);
    }
}

impl Job {
    /// GPU-milliseconds that a run with so many GPUs since `since` has to be able to pay from `now` on. Who would lose its work has to be able
    /// to pay for its time limit; who saves may start for less and goes on later. At most until the end of the period.
    pub fn budget_need_ms(&self, gpu_milli: u64, since: Time, now: Time, per: Period) -> u64 {
        let run = match self.spec.time_limit {
            Some(limit) if !self.spec.can_save() => limit,
            _ => self.short_run(),
        };
        let left = (since + run).since(now).0.min(per.end(now).since(now).0);
        u64::try_from((u128::from(gpu_milli) * u128::from(left)).div_ceil(1_000)).unwrap_or(u64::MAX)
    }

    /// What a start has to be good for: a little work, and its grace.
    pub fn short_run(&self) -> Span {
        let short = LEAST_RUN + self.spec.checkpoint.grace;
        self.spec.time_limit.map_or(short, |limit| limit.min(short))
    }
}

/// GPU-milliseconds as people write them: `12.5 GPU-hours`.
#[derive(Debug, Clone, Copy)]
pub struct GpuHours(pub u64);

impl fmt::Display for GpuHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = self.0 / 36_000;
        if hundredths == 100 {
            return f.write_str("1 GPU-hour");
        }
        match (hundredths / 100, hundredths % 100) {
            (whole, 0) => write!(f, "{whole} GPU-hours"),
            (whole, part) => write!(f, "{whole}.{part:02} GPU-hours"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::time::rfc3339;

    fn at(text: &str) -> Time {
        crate::model::wire::job::parse_rfc3339(text).unwrap()
    }

    #[test]
    fn periods_begin_and_end_with_the_calendar() {
        let now = at("2028-02-29T12:30:00Z");
        for (per, start, end) in [
            (Period::Day, "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z"),
            (Period::Week, "2028-02-28T00:00:00Z", "2028-03-06T00:00:00Z"),
            (Period::Month, "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
        ] {
            assert_eq!((rfc3339(per.start(now)), rfc3339(per.end(now))), (start.to_string(), end.to_string()), "{per}");
        }
        assert_eq!(rfc3339(Period::Month.end(at("2026-12-31T23:59:59Z"))), "2027-01-01T00:00:00Z");
        assert_eq!(Period::Week.start(Time(0)), Time(0), "there is no time before");
    }

    #[test]
    fn spending_adds_up_and_begins_anew_with_each_period() {
        let eve = at("2026-11-30T23:00:00Z");
        let before = Spending { gpu_ms: 5, as_of: eve, ..Spending::default() };
        assert_eq!(before.after(2_000, eve + Span::minutes(30), Period::Month).gpu_ms, 5 + 2 * Span::minutes(30).0);
        assert_eq!(before.after(2_000, eve + Span::hours(3), Period::Month).gpu_ms, 2 * Span::hours(2).0);
        assert_eq!(before.after(2, Time(0), Period::Month), before, "never backwards");
        assert_eq!(before.after(u64::MAX, Time::NEVER, Period::Month).gpu_ms, u64::MAX);
    }

    #[test]
    fn hours_print_with_two_decimals_at_most() {
        assert_eq!(GpuHours(3_600_000).to_string(), "1 GPU-hour");
        assert_eq!(GpuHours(45_036_000).to_string(), "12.51 GPU-hours");
    }
}
