//! The rules that always hold (ARCHITECTURE.md lists them by number), over any state.
//!
//! `full` looks at everything: after every event of a scenario or a test. `delta` looks at the nodes and jobs that a
//! decision touched: before every live commit. Given a clean state before, both say the same. It refuses decisions,
//! never observations.
#![deny(clippy::float_arithmetic)]

mod arrays;
mod elastic;
mod jobs;
mod nodes;
mod promises;
mod slices;
mod whole;

use crate::model::cluster::Cluster;
use crate::model::ids::{JobId, NodeId};
use crate::model::time::Time;
use std::collections::BTreeSet;
use std::fmt;

/// A broken rule, with the objects and numbers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub rule: u8,
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}: {}", self.rule, self.text)
    }
}

/// Collects what is found.
pub(crate) struct Found(Vec<Violation>);

impl Found {
    pub fn unless(&mut self, holds: bool, rule: u8, text: impl FnOnce() -> String) {
        if !holds {
            self.0.push(Violation { rule, text: text() });
        }
    }
}

/// Every rule over the whole state.
pub fn full(cluster: &Cluster) -> Vec<Violation> {
    let nodes: Vec<NodeId> = cluster.nodes.iter().map(|node| node.id).collect();
    let jobs: BTreeSet<JobId> = cluster.jobs.keys().copied().collect();
    let mut found = Found(Vec::new());
    promises::orphans(cluster, &mut found);
    promises::overlaps(cluster, &mut found);
    nodes::identities(cluster, &mut found);
    cluster.arrays.values().for_each(|record| arrays::array(cluster, record, &mut found));
    look(cluster, &nodes, &jobs, cluster.now, found)
}

/// The rules over what was touched. Workers of jobs that are not named are trusted to be as they were.
pub fn delta(cluster: &Cluster, nodes: &[NodeId], jobs: &BTreeSet<JobId>) -> Vec<Violation> {
    touched(cluster, nodes, jobs, cluster.now, Found(Vec::new()))
}

/// As `delta`, for a decision that was made at `at` and applied later. What it starts is measured against what it
/// reserves from that same moment: else a start that ends exactly when a reserved one begins is refused, and refused
/// again whenever it is decided anew.
pub fn decided(cluster: &Cluster, nodes: &[NodeId], jobs: &BTreeSet<JobId>, at: Time) -> Vec<Violation> {
    let mut found = Found(Vec::new());
    promises::guests(cluster, at, &mut found);
    promises::homes(cluster, jobs, &mut found);
    elastic::grown(cluster, jobs, at, &mut found);
    touched(cluster, nodes, jobs, at, found)
}

fn touched(cluster: &Cluster, nodes: &[NodeId], jobs: &BTreeSet<JobId>, at: Time, found: Found) -> Vec<Violation> {
    let mut nodes = nodes.to_vec();
    for job in jobs.iter().filter_map(|id| cluster.job(*id)) {
        nodes.extend(job.attempt.iter().flat_map(|attempt| attempt.workers.iter().map(|worker| worker.place.node)));
    }
    nodes.sort_unstable();
    nodes.dedup();
    look(cluster, &nodes, jobs, at, found)
}

/// Rule 11, of what a decision made of the state before it.
pub fn kept(before: &Cluster, after: &Cluster) -> Vec<Violation> {
    let mut found = Found(Vec::new());
    whole::kept(before, after, &mut found);
    found.0
}

/// Rule 9 right after a decision was applied to the state that it was made for: every pending job has its reason.
/// At other moments a job may be new since the last decision.
pub fn unexplained(cluster: &Cluster) -> Vec<Violation> {
    let mut found = Found(Vec::new());
    promises::answers(cluster, &mut found);
    found.0
}

fn look(cluster: &Cluster, nodes: &[NodeId], jobs: &BTreeSet<JobId>, at: Time, mut found: Found) -> Vec<Violation> {
    for id in nodes {
        nodes::node(cluster, cluster.node(*id), &mut found);
        slices::node(cluster, cluster.node(*id), &mut found);
    }
    for job in jobs.iter().filter_map(|id| cluster.job(*id)) {
        jobs::job(cluster, job, &mut found);
    }
    promises::claims(cluster, jobs, &mut found);
    promises::starts(cluster, jobs, at, &mut found);
    promises::reasons(cluster, jobs, &mut found);
    jobs::groups(cluster, jobs, &mut found);
    arrays::tasks(cluster, jobs, &mut found);
    jobs::queues(cluster, jobs, &mut found);
    jobs::budgets(cluster, jobs, &mut found);
    found.0.sort();
    found.0
}
