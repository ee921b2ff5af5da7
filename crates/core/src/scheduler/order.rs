//! The order of service, and the gates that close a job off whatever is free.
use super::elastic::Asking;
use super::{Session, Unit, attained};
use crate::model::cluster::Cluster;
use crate::model::decision::{Blocker, Step};
use crate::model::ids::JobId;
use crate::model::job::{Job, JobState};
use crate::model::time::Time;
use crate::model::window::first_open;
use std::collections::{BTreeMap, BTreeSet};

/// Pending jobs, and gangs that want to grow, in the order of service; the jobs of a group stand together at the place of
/// the most senior. Without those that are `started`: in queues that go by attained service others have their places.
pub fn units<'a>(cluster: &'a Cluster, asking: &'a Asking, now: Time, started: &BTreeSet<JobId>) -> Vec<Unit<'a>> {
    let mut pending: Vec<&Job> = asking.units(cluster).filter(|job| !started.contains(&job.id)).collect();
    pending.sort_by_cached_key(|job| cluster.turn(job, now));
    attained::reorder(cluster, &mut pending, now);
    let mut units: Vec<Unit<'a>> = Vec::with_capacity(pending.len());
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

/// Whose standing a step changes.
pub fn job_of(step: &Step) -> Option<JobId> {
    match step {
        Step::Stop { job, .. } | Step::Shrink { job, .. } | Step::Start { job, .. } => Some(*job),
        Step::Claim(claim) => Some(claim.claimant),
        Step::Unclaim { claimant, .. } => Some(*claimant),
        Step::Repartition { .. } => None,
    }
}

/// The first gate that is closed for this job and has nothing to do with devices.
pub fn closed_gate(session: &Session<'_>, job: &Job) -> Option<Blocker> {
    let now = session.now;
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
        return Some(Blocker::Backoff { until: job.not_before, last: job.note.clone() });
    }
    closed_windows(session, job).or_else(|| incomplete_group(&session.groups, job))
}

/// A window that ends too soon for the job, or before it could do anything useful, is closed to it.
fn closed_windows(session: &Session<'_>, job: &Job) -> Option<Blocker> {
    let enough = |from: Time, until: Time| session.cluster.policy.fits_before(&job.spec, from, until);
    let opens = first_open(&job.spec.windows, session.now, enough);
    (opens != Some(session.now)).then(|| Blocker::Window { opens: opens.unwrap_or(Time::NEVER) })
}

/// A group starts only when all of its jobs are there and none is still leaving; once it has run, what is left of it
/// restarts as it is.
fn incomplete_group(groups: &Groups<'_>, job: &Job) -> Option<Blocker> {
    let group = job.spec.group.as_ref()?;
    let members = groups.get(group.name.as_str())?;
    let missing = (members.live < group.size && !members.ran) || members.leaving > 0;
    let present = members.live - members.leaving;
    missing.then(|| Blocker::Group { name: group.name.clone(), present, size: group.size.max(members.live) })
}

/// The jobs of a group, counted once for the whole decision.
#[derive(Debug, Clone, Copy, Default)]
pub struct Members {
    pub live: u32,
    leaving: u32,
    /// One of them had an attempt.
    ran: bool,
}

pub type Groups<'a> = BTreeMap<&'a str, Members>;

pub fn groups(cluster: &Cluster) -> Groups<'_> {
    let mut groups = Groups::new();
    for job in cluster.jobs.values() {
        let Some(group) = &job.spec.group else { continue };
        let members = groups.entry(&group.name).or_default();
        members.live += 1;
        members.leaving += u32::from(job.state == JobState::Stopping);
        members.ran |= job.attempts.0 > 0;
    }
    groups
}
