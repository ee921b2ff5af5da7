//! What is known of the times to come: when nodes take work again, after which moments they take a unit no more, and where
//! its windows are open.
use super::Unit;
use crate::model::cluster::Cluster;
use crate::model::pool::LendTime;
use crate::model::time::Time;
use crate::model::window::first_open;

/// How often a moment is moved from the window of one job of a unit to that of another.
const MOVES: usize = 8;

/// Whether some node does not take work now, or will not, or takes other work, at a time that is known.
pub fn may_change(cluster: &Cluster, now: Time) -> bool {
    let lent = || cluster.pools.values().any(|lending| matches!(lending.when, LendTime::Windows { .. }));
    lent() || cluster.nodes.iter().any(|node| !node.maintenance.is_empty() || !node.accepts(false, now))
}

/// The moments after `now` at which nodes take new work again.
pub fn openings(cluster: &Cluster, now: Time) -> impl Iterator<Item = Time> {
    let probation = cluster.policy.probation;
    let lent = cluster.pools.values().flat_map(move |lending| lending.when.times_from(now)).map(|(from, _)| from);
    let lent = lent.filter(move |from| *from > now);
    let healthy = cluster.nodes.iter().flat_map(move |node| {
        let trusted = [true, false].map(|yields| node.opens_at(yields, now, probation));
        let maintained = node.maintenance.iter().map(|one| one.until);
        let times = trusted.into_iter().flatten().chain(maintained);
        times.filter(|at| *at > now && *at < Time::NEVER).collect::<Vec<_>>()
    });
    healthy.chain(lent)
}

/// The last moments at which nodes still take a job of the unit before their maintenance, or before the end of the time for
/// which they are lent; in order.
pub fn closings(cluster: &Cluster, unit: &Unit<'_>, now: Time) -> Vec<Time> {
    let planned = cluster.nodes.iter().flat_map(|node| &node.maintenance).map(|one| one.from);
    let lent = cluster.pools.values().flat_map(|lending| lending.when.times_from(now)).map(|(_, until)| until);
    let mut found: Vec<Time> = planned
        .chain(lent.filter(|until| *until < Time::NEVER))
        .flat_map(|from| {
            unit.iter().filter_map(move |job| {
                let ends = job.spec.time_limit.map(|limit| from - limit);
                let leaves = job.spec.can_save().then(|| from - cluster.policy.least_stay(&job.spec));
                ends.max(leaves)
            })
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The first moment from `at` on at which the windows of all jobs of the unit are open for long enough.
pub fn first_open_for(cluster: &Cluster, unit: &Unit<'_>, at: Time) -> Option<Time> {
    let mut from = at;
    for _ in 0..MOVES {
        let before = from;
        for job in unit {
            let enough = |start: Time, until: Time| cluster.policy.fits_before(&job.spec, start, until);
            from = first_open(&job.spec.windows, from, enough)?;
        }
        if from == before {
            return Some(from);
        }
    }
    None
}
