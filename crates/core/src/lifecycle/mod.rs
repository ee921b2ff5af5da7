//! The only writer: `apply(input, now)` turns what happened into a new state and its effects.
//!
//! Attempts, leases, claims, quarantine and queues change here and nowhere else. An input is checked before anything is
//! touched, so a refusal changes nothing. Observations are never refused for being unpleasant: a stale one is ignored,
//! one that breaks a rule takes the node out.
#![deny(clippy::float_arithmetic)]

mod arrays;
mod attempts;
mod budgets;
mod change;
mod decided;
mod fabric;
pub mod input;
mod maintenance;
mod nodes;
mod orders;
mod people;
mod queues;
mod reports;
mod resize;
mod splits;
mod tick;

pub use input::{Effects, Event, Input, Refusal};
pub use orders::orders;
pub use tick::{next_deadline, next_deadline_where, next_wake_up};

use crate::model::cluster::Cluster;
use crate::model::time::Time;
use change::Change;

/// Applies one input. `now` never goes backwards: an earlier one counts as the last.
pub fn apply(cluster: &mut Cluster, input: Input, now: Time) -> Result<Effects, Refusal> {
    let before = cluster.now;
    let result = take(cluster, input, now);
    if result.is_err() {
        cluster.now = before;
    }
    result
}

fn take(cluster: &mut Cluster, input: Input, now: Time) -> Result<Effects, Refusal> {
    if let Some(node) = input.node().filter(|node| node.index() >= cluster.nodes.len()) {
        return Err(Refusal::NoSuchNode { node });
    }
    let mut change = Change::new(cluster, now);
    match input {
        Input::Submit { spec, owner } => change.submit(spec, owner)?,
        Input::Cancel { job, by } => change.cancel(job, by)?,
        Input::Hold { job, by } => change.hold(job, by)?,
        Input::Release { job, by } => change.release_hold(job, by)?,
        Input::Requeue { job, by } => change.requeue(job, by)?,
        Input::Resize { job, workers, by } => change.resize(job, workers, by)?,
        Input::Queues { queues, by } => change.set_queues(queues, by)?,
        Input::RemoveQueue { queue, by } => change.remove_queue(&queue, &by)?,
        Input::Fabric { placements, uplinks, pools, by } => change.set_fabric((placements, uplinks, pools), by)?,
        Input::Setting { name, value, by } => change.set_policy(name, value, by)?,
        Input::Register(spec) => change.register(*spec)?,
        Input::Heard { node } => change.heard(node),
        Input::Doubtful { node } => change.doubtful(node),
        Input::Vouched { node, until } => change.vouched(node, until),
        Input::Drain { node, by } => change.drain(node, by),
        Input::Maintain { node, from, until, by } => change.maintain(node, from, until, by)?,
        Input::Cordon { node, by } => change.cordon(node, by),
        Input::Uncordon { node, by } => change.uncordon(node, by),
        Input::Quarantine { node, cause, fenced } => change.quarantine(node, cause, fenced),
        Input::NodeLost { node, cause } => change.fence(node, cause),
        Input::Forget { node, by } => change.forget(node, by)?,
        Input::Recover { node, by } => change.recover(node, by),
        Input::Report { node, report } => change.report(node, report),
        Input::Tick => change.tick(),
        Input::Decided(decision) => return decided::apply(change, *decision),
        Input::NewTerm => change.new_term(),
    }
    Ok(change.finish())
}
