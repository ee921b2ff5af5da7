//! Settings of the scheduler, by the names that `set` and the cluster file use.
use super::budget::BudgetPolicy;
use super::job::{MAX_TASKS, Priority};
use super::time::Span;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What a stored policy does not name has its default: settings are added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// Waiting this long raises a job's order by one class.
    pub aging_step: Span,
    /// No waiting raises a job above this class.
    pub aging_ceiling: Priority,
    /// This class and those above it may evict.
    pub preempt_from: Priority,
    /// An agent's right to run job workers after it was last heard.
    pub lease: Span,
    /// So many refusals in `cooldown_window` cool a node down; twice as many quarantine it.
    pub cooldown_refusals: u32,
    pub cooldown: Span,
    pub cooldown_window: Span,
    /// So many returns after silence within `flap_window` quarantine a node.
    pub flap_limit: u32,
    pub flap_window: Span,
    pub quarantine: Span,
    pub probation: Span,
    /// A node that has not prepared by then is charged with a refusal.
    pub prepare_deadline: Span,
    pub go_deadline: Span,
    /// A stop that is not confirmed so long after its grace fences the node.
    pub stop_margin: Span,
    /// First pause after a failed run; doubles with each.
    pub backoff: Span,
    /// What a job without a time limit is taken to run, for planning only.
    pub assumed_time: Span,
    /// How many blocked jobs below P1 get a reservation in one decision.
    pub reservations: u32,
    /// And how many of P0, of P1, and of those with a deadline that can be met or that waited beyond the bound.
    #[serde(default = "reservations_urgent")]
    pub reservations_urgent: u32,
    /// Who waited so long goes before everybody below P0 and gets a reservation beyond the number; zero: never.
    #[serde(default = "promote_after")]
    pub promote_after: Span,
    /// So many evictions earn protected run time; zero: never.
    #[serde(default = "protect_after")]
    pub protect_after: u32,
    /// The first protected run time; it doubles with each further eviction.
    #[serde(default = "protect_time")]
    pub protect_time: Span,
    /// Whoever has to leave at a moment that is known starts only if it can work at least so long before.
    #[serde(default = "stay_least")]
    pub stay_least: Span,
    /// Use in the past lowers the weight of a queue; after so long half of it counts. 0: the past does not count.
    #[serde(default)]
    pub usage_half_life: Span,
    /// What becomes of running jobs when a budget is spent.
    #[serde(default)]
    pub budget_policy: BudgetPolicy,
    /// A claim whose victims are not gone by then ends.
    pub claim_margin: Span,
    /// Whether running jobs may be moved for one that only the shape of what is free keeps from starting.
    pub consolidate: bool,
    /// No move costs more work than this, and nobody is moved for a job that starts by itself within it.
    pub consolidate_patience: Span,
    /// How long a GPU takes to be split anew, or to be whole again.
    pub repartition_time: Span,
    /// So long an elastic gang works at its size before it grows.
    pub grow_after: Span,
    /// Bound on the placement trials of one decision.
    pub budget: u64,
    /// For queues that order by attained service.
    #[serde(default)]
    pub las: LeastAttained,
    /// So many tasks of one array wait as jobs; the others cost nothing until it is their turn.
    pub array_window: u32,
    /// Most tasks of one array.
    pub array_max: u32,
}

/// See [`super::attained`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeastAttained {
    /// GPU time in which the first level ends; each further one is twice as long.
    pub quantum: Span,
    /// So many levels go strictly before those above them.
    pub levels: u32,
    /// By so many percent the age of a job counts less with each level beyond.
    pub discount: u32,
    /// Nobody is rotated out who ran for less.
    pub run: Span,
}

impl Default for LeastAttained {
    fn default() -> Self {
        LeastAttained { quantum: Span::hours(11), levels: 4, discount: 5, run: Span::minutes(30) }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            aging_step: Span::hours(6),
            aging_ceiling: Priority::P1,
            preempt_from: Priority::P1,
            lease: Span::seconds(60),
            cooldown_refusals: 2,
            cooldown: Span::minutes(5),
            cooldown_window: Span::minutes(10),
            flap_limit: 3,
            flap_window: Span::hours(1),
            quarantine: Span::hours(1),
            probation: Span::minutes(10),
            prepare_deadline: Span::seconds(60),
            go_deadline: Span::seconds(60),
            stop_margin: Span::seconds(60),
            backoff: Span::seconds(5),
            assumed_time: Span::hours(24),
            reservations: 8,
            reservations_urgent: reservations_urgent(),
            promote_after: promote_after(),
            protect_after: protect_after(),
            protect_time: protect_time(),
            stay_least: stay_least(),
            usage_half_life: Span::ZERO,
            budget_policy: BudgetPolicy::Drain,
            claim_margin: Span::minutes(5),
            consolidate: true,
            consolidate_patience: Span::minutes(10),
            repartition_time: Span::seconds(10),
            grow_after: Span::minutes(10),
            budget: 1_000_000,
            las: LeastAttained::default(),
            array_window: 64,
            array_max: 100_000,
        }
    }
}

fn reservations_urgent() -> u32 {
    16
}

fn promote_after() -> Span {
    Span::hours(24)
}

fn protect_after() -> u32 {
    3
}

fn protect_time() -> Span {
    Span::minutes(30)
}

fn stay_least() -> Span {
    Span::minutes(5)
}

/// A setting that does not exist or a value that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PolicyError {
    #[error("there is no setting {name:?}; known settings: {known}")]
    Unknown { name: String, known: String },
    #[error("cannot set {name} to {value:?}: {why}")]
    Value { name: String, value: String, why: String },
}

/// Longest length of time that a setting takes.
const LONGEST: Span = Span::hours(366 * 24);

type Setter = fn(&mut Policy, &str) -> Result<(), String>;
type Getter = fn(&Policy) -> String;

const SETTINGS: &[(&str, Setter, Getter)] = &[
    ("aging.step", |p, v| set_span(&mut p.aging_step, v), |p| exact(p.aging_step)),
    ("aging.ceiling", |p, v| set_class(&mut p.aging_ceiling, v), |p| p.aging_ceiling.to_string()),
    ("preempt.from", |p, v| set_class(&mut p.preempt_from, v), |p| p.preempt_from.to_string()),
    ("lease", |p, v| set_lease(&mut p.lease, v), |p| exact(p.lease)),
    ("cooldown.refusals", |p, v| set_count(&mut p.cooldown_refusals, v), |p| p.cooldown_refusals.to_string()),
    ("cooldown", |p, v| set_span(&mut p.cooldown, v), |p| exact(p.cooldown)),
    ("cooldown.window", |p, v| set_span(&mut p.cooldown_window, v), |p| exact(p.cooldown_window)),
    ("flap.limit", |p, v| set_count(&mut p.flap_limit, v), |p| p.flap_limit.to_string()),
    ("flap.window", |p, v| set_span(&mut p.flap_window, v), |p| exact(p.flap_window)),
    ("quarantine", |p, v| set_span(&mut p.quarantine, v), |p| exact(p.quarantine)),
    ("probation", |p, v| set_span(&mut p.probation, v), |p| exact(p.probation)),
    ("prepare.deadline", |p, v| set_span(&mut p.prepare_deadline, v), |p| exact(p.prepare_deadline)),
    ("go.deadline", |p, v| set_span(&mut p.go_deadline, v), |p| exact(p.go_deadline)),
    ("stop.margin", |p, v| set_span(&mut p.stop_margin, v), |p| exact(p.stop_margin)),
    ("backoff", |p, v| set_span(&mut p.backoff, v), |p| exact(p.backoff)),
    ("assumed.time", |p, v| set_span(&mut p.assumed_time, v), |p| exact(p.assumed_time)),
    ("consolidate", |p, v| set_switch(&mut p.consolidate, v), |p| switch(p.consolidate)),
    ("consolidate.patience", |p, v| set_span(&mut p.consolidate_patience, v), |p| exact(p.consolidate_patience)),
    ("repartition.time", |p, v| set_span(&mut p.repartition_time, v), |p| exact(p.repartition_time)),
    ("grow.after", |p, v| set_span(&mut p.grow_after, v), |p| exact(p.grow_after)),
    ("reservations", |p, v| set_count(&mut p.reservations, v), |p| p.reservations.to_string()),
    ("reservations.urgent", |p, v| set_positive(&mut p.reservations_urgent, v), |p| p.reservations_urgent.to_string()),
    ("promote.after", |p, v| set_span(&mut p.promote_after, v), |p| exact(p.promote_after)),
    ("protect.after", |p, v| set_count(&mut p.protect_after, v), |p| p.protect_after.to_string()),
    ("protect.time", |p, v| set_span(&mut p.protect_time, v), |p| exact(p.protect_time)),
    ("stay.least", |p, v| set_span(&mut p.stay_least, v), |p| exact(p.stay_least)),
    ("las.quantum", |p, v| set_span(&mut p.las.quantum, v), |p| exact(p.las.quantum)),
    ("las.levels", |p, v| set_bounded(&mut p.las.levels, v, 60), |p| p.las.levels.to_string()),
    ("las.discount", |p, v| set_bounded(&mut p.las.discount, v, 99), |p| p.las.discount.to_string()),
    ("las.run", |p, v| set_span(&mut p.las.run, v), |p| exact(p.las.run)),
    ("array.window", |p, v| set_bounded(&mut p.array_window, v, MAX_TASKS), |p| p.array_window.to_string()),
    ("array.max", |p, v| set_bounded(&mut p.array_max, v, MAX_TASKS), |p| p.array_max.to_string()),
    ("usage.half_life", |p, v| set_span(&mut p.usage_half_life, v), |p| exact(p.usage_half_life)),
    ("budget.policy", |p, v| set_budget_policy(&mut p.budget_policy, v), |p| p.budget_policy.word().to_string()),
];

impl Policy {
    /// Changes one setting by its name.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), PolicyError> {
        let Some((_, setter, _)) = SETTINGS.iter().find(|(known, ..)| *known == name) else {
            let known = SETTINGS.iter().map(|(known, ..)| *known).collect::<Vec<_>>().join(", ");
            return Err(PolicyError::Unknown { name: name.to_string(), known });
        };
        setter(self, value).map_err(|why| PolicyError::Value { name: name.to_string(), value: value.to_string(), why })
    }

    /// Every setting by its name, as it would be set.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, String)> {
        SETTINGS.iter().map(|(name, _, get)| (*name, get(self)))
    }
}

fn set_budget_policy(field: &mut BudgetPolicy, value: &str) -> Result<(), String> {
    *field = BudgetPolicy::parse(value).ok_or("it is one of drain, stop, none")?;
    Ok(())
}

/// Agents are heard a few times in each lease: below this every hiccup of the network would end what runs.
const SHORTEST_LEASE: Span = Span::seconds(1);

fn set_lease(field: &mut Span, value: &str) -> Result<(), String> {
    let before = *field;
    set_span(field, value)?;
    if *field < SHORTEST_LEASE {
        *field = before;
        return Err(format!(
            "it is shorter than {SHORTEST_LEASE}: nodes would lose their work at every delay; 60s is usual"
        ));
    }
    Ok(())
}

/// As it can be set again: nothing is rounded.
fn exact(span: Span) -> String {
    let shown = span.to_string();
    if Span::parse(&shown) == Ok(span) { shown } else { format!("{}ms", span.0) }
}

fn switch(on: bool) -> String {
    if on { "on" } else { "off" }.to_string()
}

fn set_span(field: &mut Span, value: &str) -> Result<(), String> {
    let span = Span::parse(value).map_err(|e| e.to_string())?;
    // A deadline that never comes would leave states without an exit.
    if span > LONGEST {
        return Err(format!("it is longer than {LONGEST}"));
    }
    *field = span;
    Ok(())
}

fn set_class(field: &mut Priority, value: &str) -> Result<(), String> {
    *field = Priority::parse(value).ok_or("a class is one of P0, P1, P2, P3")?;
    Ok(())
}

fn set_switch(field: &mut bool, value: &str) -> Result<(), String> {
    *field = match value {
        "on" => true,
        "off" => false,
        _ => return Err("on or off is expected".to_string()),
    };
    Ok(())
}

fn set_count(field: &mut u32, value: &str) -> Result<(), String> {
    *field = value.parse().map_err(|_| "a whole number is expected")?;
    Ok(())
}

/// With none of these nobody could be sure to start.
fn set_positive(field: &mut u32, value: &str) -> Result<(), String> {
    let count = value.parse().ok().filter(|count| *count > 0);
    *field = count.ok_or("a whole number above zero is expected")?;
    Ok(())
}

fn set_bounded(field: &mut u32, value: &str, most: u32) -> Result<(), String> {
    let count = value.parse().ok().filter(|count| *count <= most);
    *field = count.ok_or_else(|| format!("a whole number up to {most} is expected"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_reads_back_as_it_was_set() {
        let mut odd =
            Policy { lease: Span(1_500), aging_step: Span(90_061_001), consolidate: false, ..Policy::default() };
        odd.budget_policy = BudgetPolicy::Stop;
        let mut copy = Policy { usage_half_life: odd.usage_half_life, ..Policy::default() };
        for (name, value) in odd.settings() {
            copy.set(name, &value).unwrap();
        }
        assert_eq!(copy, odd);
        assert_eq!(odd.settings().count(), SETTINGS.len());
    }

    #[test]
    fn a_lease_that_no_network_keeps_is_refused() {
        let mut policy = Policy::default();
        assert!(policy.set("lease", "5ms").unwrap_err().to_string().contains("shorter than 1s"));
        assert_eq!(policy, Policy::default());
    }

    #[test]
    fn settings_are_found_by_name_and_refused_with_the_reason() {
        let mut policy = Policy::default();
        policy.set("aging.step", "24h").unwrap();
        assert_eq!(policy.aging_step, Span::hours(24));
        assert!(policy.set("aging", "1h").unwrap_err().to_string().contains("known settings: aging.step"));
        assert!(policy.set("preempt.from", "P9").unwrap_err().to_string().contains("P0, P1, P2, P3"));
    }
}
