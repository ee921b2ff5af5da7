//! The order of service, and the gates that close a job off whatever is free.
use super::Unit;
use crate::model::cluster::Cluster;
use crate::model::decision::Blocker;
use crate::model::ids::JobId;
use crate::model::job::{Job, JobState, Priority};
use crate::model::time::Time;
use std::collections::BTreeMap;

/// Effective class, genuine class (a genuine one goes before an aged one), seniority, number. Never equal for two jobs.
type Turn = (Priority, Priority, Time, JobId);

pub fn turn(cluster: &Cluster, job: &Job, now: Time) -> Turn {
    (cluster.effective_class(job, now), job.spec.priority, job.submitted_at, job.id)
}

/// Pending jobs in the order of service; the jobs of a group stand together at the place of the most senior.
pub fn units(cluster: &Cluster, now: Time) -> Vec<Unit<'_>> {
    let mut pending: Vec<&Job> =
        cluster.jobs.values().map(AsRef::as_ref).filter(|job| job.state == JobState::Pending).collect();
    pending.sort_by_cached_key(|job| turn(cluster, job, now));
    let mut units: Vec<Unit<'_>> = Vec::with_capacity(pending.len());
    let mut group_at: BTreeMap<&str, usize> = BTreeMap::new();
    for job in pending {
        let group = job.spec.group.as_ref().map(|group| group.name.as_str());
        match group.and_then(|name| group_at.get(name)) {
            Some(unit) => units[*unit].push(job),
            None => {
                group.map(|name| group_at.insert(name, units.len()));
                units.push(vec![job]);
            }
        }
    }
    units
}

/// The first gate that is closed for this job and has nothing to do with devices.
pub fn closed_gate(cluster: &Cluster, job: &Job, now: Time) -> Option<Blocker> {
    if let Some(by) = &job.held_by {
        return Some(Blocker::Held { by: by.clone() });
    }
    if let Some(waits) = job.spec.after.iter().find(|dependency| !dependency.met) {
        return Some(Blocker::Dependency { on: waits.job });
    }
    if let Some(at) = job.spec.begin.filter(|at| *at > now) {
        return Some(Blocker::BeginTime { at });
    }
    if job.not_before > now {
        return Some(Blocker::Backoff { until: job.not_before });
    }
    incomplete_group(cluster, job)
}

/// A group starts only when all of its jobs are there; once it has run, what is left of it restarts as it is.
fn incomplete_group(cluster: &Cluster, job: &Job) -> Option<Blocker> {
    let group = job.spec.group.as_ref()?;
    let members = cluster.jobs.values().filter(|other| other.spec.group.as_ref().is_some_and(|g| g.name == group.name));
    let (mut present, mut ran) = (0, false);
    for member in members {
        present += 1;
        ran |= member.attempts.0 > 0;
    }
    let missing = present < group.size && !ran;
    missing.then(|| Blocker::Group { name: group.name.clone(), present, size: group.size })
}
