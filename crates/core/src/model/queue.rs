//! Queues: the tenant tree. A queue's place in the tree is its path, such as `research/nlp` under `research`.
use super::amounts::{Limit, Resources};
use super::budget::{Account, Budget, Spending};
use super::past::Past;
use super::time::{Span, Time};
use super::whole::WholeNodes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Always there: the queue of jobs that name none.
pub const DEFAULT_QUEUE: &str = "default";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    pub path: String,
    pub weight: u32,
    pub guarantee: Limit,
    pub limit: Limit,
    /// What of it comes as whole nodes; see [`super::whole`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_nodes: Option<WholeNodes>,
    #[serde(default)]
    pub policy: QueuePolicy,
    /// Held by live attempts of jobs in this queue and below it.
    pub used: Resources,
    /// What was used before.
    #[serde(default)]
    pub past: Past,
    #[serde(default)]
    pub budget: Option<Budget>,
    #[serde(default)]
    pub spending: Spending,
    /// By user, where the budget names a part for each.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accounts: BTreeMap<String, Account>,
}

/// What is to change in a queue, or a new one; what is not named stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueSpec {
    pub path: String,
    pub weight: Option<u32>,
    pub guarantee: Option<Limit>,
    pub limit: Option<Limit>,
    #[serde(default)]
    pub policy: Option<QueuePolicy>,
    #[serde(default)]
    pub budget: Option<Budget>,
    /// Of no nodes: nothing is promised any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_nodes: Option<WholeNodes>,
}

/// In which order a queue serves its own jobs of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub enum QueuePolicy {
    /// Who came first.
    #[default]
    #[serde(rename = "seniority")]
    Seniority,
    /// Who had least GPU time; see [`super::attained`].
    #[serde(rename = "las")]
    LeastAttained,
}

impl QueuePolicy {
    pub fn parse(text: &str) -> Option<QueuePolicy> {
        match text {
            "seniority" => Some(QueuePolicy::Seniority),
            "las" => Some(QueuePolicy::LeastAttained),
            _ => None,
        }
    }
}

impl Queue {
    pub fn new(path: &str) -> Queue {
        Queue {
            path: path.to_string(),
            weight: 1,
            guarantee: Limit::default(),
            limit: Limit::default(),
            whole_nodes: None,
            policy: QueuePolicy::default(),
            used: Resources::ZERO,
            past: Past::default(),
            budget: None,
            spending: Spending::default(),
            accounts: BTreeMap::new(),
        }
    }

    /// Takes the time since the last change into account; to be called before each change of what is used.
    pub fn settle(&mut self, now: Time, half_life: Span) {
        self.past = self.past.after(self.used, now, half_life);
        if let Some(budget) = self.budget {
            self.spending = self.spending.after(self.used.all_gpus_milli(), now, budget.per);
        }
    }

    /// Faded use as of `now`.
    pub fn history_at(&self, now: Time, half_life: Span) -> u64 {
        self.past.after(self.used, now, half_life).cpu_ms
    }
}

/// The queue itself and all above it, from the leaf to the top: `a/b/c`, `a/b`, `a`.
pub fn ancestry(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |p| p.rsplit_once('/').map(|(parent, _)| parent))
}

#[cfg(test)]
mod tests {
    #[test]
    fn ancestry_climbs_to_the_top() {
        assert_eq!(super::ancestry("a/b/c").collect::<Vec<_>>(), ["a/b/c", "a/b", "a"]);
    }
}
