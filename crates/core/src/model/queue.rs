//! Queues: the tenant tree. A queue's place in the tree is its path, such as `research/nlp` under `research`.
use super::amounts::{Limit, Resources};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    pub path: String,
    pub weight: u32,
    pub guarantee: Limit,
    pub limit: Limit,
    #[serde(default)]
    pub policy: QueuePolicy,
    /// Held by live attempts of jobs in this queue and below it.
    pub used: Resources,
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
            policy: QueuePolicy::default(),
            used: Resources::ZERO,
        }
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
