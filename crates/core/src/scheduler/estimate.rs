//! When a job is expected to start, and on what that rests.
use super::Session;
use crate::model::decision::Reservation;
use crate::model::ids::JobId;
use crate::model::job::Job;
use crate::model::time::{Time, rfc3339};
use crate::model::wire::api::Estimate;
use std::collections::BTreeSet;

/// The reserved start with its conditions; `None` if none is reserved for it.
pub fn of(session: &Session<'_>, job: &Job) -> Option<Estimate> {
    let reservation = session.reserved.iter().map(|one| &one.reservation).find(|one| one.job == job.id)?;
    let mut conditional_on = vec!["no job of a higher class comes first".to_string()];
    // A gang that restarts holds what it leaves and claims where it goes on: it is named once.
    let mut named = BTreeSet::new();
    let awaits = reservation.awaits.iter().filter(|id| named.insert(**id));
    conditional_on.extend(awaits.filter_map(|id| ends(session, *id)));
    if reservation.conditional && reservation.awaits.is_empty() {
        conditional_on.push("jobs without a time limit end within the assumed time".to_string());
    }
    conditional_on.extend(returns(session, reservation));
    conditional_on.extend(deadline(job, reservation.start));
    Some(Estimate { start: rfc3339(reservation.start), conditional_on })
}

/// How somebody who is in the way comes to leave.
fn ends(session: &Session<'_>, id: JobId) -> Option<String> {
    let job = session.cluster.job(id)?;
    let name = format!("job {} {}", job.number(), job.title());
    let held = session.ends.iter().filter(|held| held.job == id).max_by_key(|held| held.end)?;
    Some(match (&held.guest, held.told, held.assumed) {
        (Some(_), ..) => format!("{name}, a guest on its devices, is told in time"),
        (None, true, _) => format!("{name}, which is leaving, is gone by {}", rfc3339(held.end)),
        (None, false, true) => {
            format!("{name}, which states no time limit, ends by {} as is assumed", rfc3339(held.end))
        }
        (None, false, false) => format!("{name} ends or leaves by {}", rfc3339(held.end)),
    })
}

/// The nodes of the reservation that take no work yet.
fn returns(session: &Session<'_>, reservation: &Reservation) -> Option<String> {
    let nodes: BTreeSet<_> = reservation.places.iter().map(|place| place.node).collect();
    let nodes = nodes.into_iter().map(|node| session.cluster.node(node));
    let closed: Vec<&str> =
        nodes.filter(|node| !node.accepts(true, session.now)).map(|node| node.name.as_str()).collect();
    (!closed.is_empty()).then(|| format!("{} take new work again by then", closed.join(", ")))
}

fn deadline(job: &Job, start: Time) -> Option<String> {
    let (deadline, latest) = (job.spec.deadline?, job.spec.latest_start()?);
    Some(match start <= latest {
        true => format!("its deadline {} is met by a start until {}", rfc3339(deadline), rfc3339(latest)),
        false => format!("its deadline {} is missed: it had to start by {}", rfc3339(deadline), rfc3339(latest)),
    })
}
