//! `why` of a job that holds devices: for whom it has to leave, until when it may stay, which other size it is to have, and
//! what is promised to it or to others on its devices.
use super::why::named;
use super::{pools, uplinks};
use crate::model::amounts::count;
use crate::model::budget::BudgetPolicy;
use crate::model::cluster::Cluster;
use crate::model::future::meets;
use crate::model::ids::{JobId, NodeId};
use crate::model::job::{Attempt, Job, Place, Stop, StopWhy, WorkerPhase};
use crate::model::payable;
use crate::model::time::{Time, rfc3339};
use crate::model::wire::api::{Fact, Why};
use std::collections::BTreeSet;

/// So many nodes, bounds and jobs are named.
const NAMED: usize = 4;

pub fn why(cluster: &Cluster, job: &Job, now: Time) -> Why {
    let why = not_waiting(job);
    let unpaid = payable::report(cluster, &job.spec, &job.owner.user);
    let stops = job.attempt.as_ref().and_then(Attempt::stopping).map(|stop| stopping(cluster, stop));
    let reports = [stops, uplinks::report(cluster, job), pools::report(cluster, job), unpaid];
    let parts = std::iter::once(why.summary.clone()).chain(reports.into_iter().flatten());
    let facts = job.attempt.as_ref().map_or(Vec::new(), |attempt| facts(cluster, job, attempt, now));
    Why { summary: parts.collect::<Vec<_>>().join("; "), facts, ..why }
}

pub fn not_waiting(job: &Job) -> Why {
    let summary = match (&job.attempt, &job.note) {
        (_, Some(note)) => format!("{}: {note}", job.state),
        (Some(attempt), None) => {
            let workers = count(attempt.workers.len() as u64, "worker");
            format!("{} as attempt {} with {workers}", job.state, attempt.number)
        }
        (None, None) => job.state.to_string(),
    };
    Why {
        id: job.id.0,
        name: job.title(),
        state: job.state,
        since: rfc3339(job.state_since),
        reason: None,
        slurm_reason: None,
        summary,
        facts: Vec::new(),
        position: None,
        ahead: Vec::new(),
        gates: Vec::new(),
        nodes: Vec::new(),
        nodes_total: 0,
        estimate: None,
        preemption: None,
        would_start_now: Vec::new(),
        satisfiable: true,
    }
}

/// `preempted by job 12 urgent (P0): told at … to be gone by …`
fn stopping(cluster: &Cluster, stop: &Stop) -> String {
    let (told, gone) = (rfc3339(stop.asked_at), rfc3339(stop.deadline));
    format!("{}: told at {told}, to be gone by {gone}", reason(cluster, &stop.why))
}

/// Why it has to leave, with names instead of numbers.
fn reason(cluster: &Cluster, why: &StopWhy) -> String {
    let job = |id: &JobId| cluster.job(*id).map_or_else(|| format!("job {id}"), named);
    let node = |id: &NodeId| cluster.node(*id).name.as_str();
    match why {
        StopWhy::Preempted { claimant } => format!("preempted by {}", job(claimant)),
        StopWhy::Moved { claimant } => format!("moves to make room for {}", job(claimant)),
        StopWhy::GuestLeaves { owner } => {
            format!("its devices are reserved for {}, whose start comes near", job(owner))
        }
        StopWhy::Drained { node: id } => format!("node {} is being drained", node(id)),
        StopWhy::NodeLost { node: id } => format!("node {} was lost", node(id)),
        StopWhy::StartFailed { node: id, why } => format!("{} could not start it: {why}", node(id)),
        other => other.to_string(),
    }
}

fn facts(cluster: &Cluster, job: &Job, attempt: &Attempt, now: Time) -> Vec<Fact> {
    let fact = |about: &str, text: Option<String>| text.map(|text| Fact { about: about.to_string(), text });
    let facts = [
        fact("gives up", gives_up(cluster, job, attempt)),
        fact("until", (attempt.stopping().is_none()).then(|| until(cluster, job, attempt, now))),
        fact("size", size(cluster, job, attempt, now)),
        fact("goes on", goes_on(cluster, job)),
        fact("promised", promised(cluster, attempt)),
        fact("protected", protected(cluster, job, now)),
    ];
    facts.into_iter().flatten().collect()
}

/// Workers that leave while the others go on, and for whom.
fn gives_up(cluster: &Cluster, job: &Job, attempt: &Attempt) -> Option<String> {
    let leaving = attempt.live().filter_map(|worker| match worker.phase {
        WorkerPhase::Leaving { deadline } => Some(deadline),
        _ => None,
    });
    let leaving: Vec<Time> = leaving.collect();
    let by = leaving.iter().max()?;
    let here = (job.id, attempt.number);
    let claims = cluster.claims.values().filter(|claim| claim.claimant != job.id && claim.victims.contains(&here));
    let whom: Vec<String> = claims.filter_map(|claim| cluster.job(claim.claimant)).map(named).collect();
    let whom = if whom.is_empty() { String::new() } else { format!(" for {}", listed(&whom)) };
    Some(format!("{}{whom}, by {}", count(leaving.len() as u64, "worker"), rfc3339(*by)))
}

/// Every end that is known, the first one first.
fn until(cluster: &Cluster, job: &Job, attempt: &Attempt, now: Time) -> String {
    let mut ends: Vec<(Time, String)> = Vec::new();
    if let Some(limit) = job.spec.time_limit {
        match attempt.ran_from {
            Some(from) => ends.push((from + limit, format!("time limit {limit}"))),
            None => ends.push((Time::NEVER, format!("for its time limit of {limit} from when it runs"))),
        }
    }
    ends.extend(cluster.told_to_leave(job, attempt).into_iter().map(|(told, bound, why)| {
        let told = if told < bound { format!(", told at {}", rfc3339(told)) } else { String::new() };
        (bound, format!("{}{told}", planned(cluster, &why)))
    }));
    if cluster.policy.budget_policy != BudgetPolicy::None {
        let purses = cluster.purses_of(&job.spec.queue, &job.owner.user);
        let spent = purses.filter_map(|purse| Some((purse.spent_at(now)?, purse)));
        ends.extend(spent.map(|(at, purse)| (at, format!("the budget of {} is spent, as things go", purse.name()))));
    }
    ends.sort();
    ends.dedup();
    let words = ends.iter().map(|(at, text)| match *at {
        Time::NEVER => text.clone(),
        at => format!("{} ({text})", rfc3339(at)),
    });
    match ends.is_empty() {
        true => "no end is known: it has no time limit, and nothing is planned for its nodes".to_string(),
        false => format!("at most {}", listed(&words.collect::<Vec<_>>())),
    }
}

/// What is to come, where [`reason`] says what has come.
fn planned(cluster: &Cluster, why: &StopWhy) -> String {
    match why {
        StopWhy::Drained { node } => format!("maintenance of {} begins", cluster.node(*node).name),
        StopWhy::LendingEnds { pool } => format!("pool {pool} is lent to it no longer"),
        StopWhy::GuestLeaves { owner } => {
            let owner = cluster.job(*owner).map_or_else(|| format!("job {owner}"), named);
            format!("it is a guest on devices that are reserved for {owner}")
        }
        other => other.to_string(),
    }
}

/// Of an elastic gang: what it has of what it wants, and what is known of growing.
fn size(cluster: &Cluster, job: &Job, attempt: &Attempt, now: Time) -> Option<String> {
    let (wanted, file) = (job.spec.gang.workers, job.filed.unwrap_or(job.spec.gang));
    if file.least() >= file.workers || job.spec.group.is_some() {
        return None;
    }
    let has = attempt.staying().count() as u32;
    let asked = match job.resized_at {
        Some(at) => format!("{wanted} asked for at {}", rfc3339(at)),
        None => format!("{wanted} wanted"),
    };
    let grows = match cluster.grows_from(job) {
        _ if has >= wanted || attempt.stopping().is_some() => String::new(),
        Some(from) if from > now => format!("; it may grow from {} on", rfc3339(from)),
        Some(_) => "; it grows when there is room, nobody waits who could take it, and it pays".to_string(),
        None if !job.spec.can_save() => "; it does not grow, for it saves no checkpoints".to_string(),
        None => String::new(),
    };
    Some(format!("{has} of {asked} (its file allows {}){grows}", file.sizes()))
}

/// Where it goes on after the stop that it is told of, or that a claim of it rests on.
fn goes_on(cluster: &Cluster, job: &Job) -> Option<String> {
    let claim = cluster.claims.get(&job.id)?;
    let workers = count(claim.places.len() as u64, "worker");
    Some(format!("with {workers} on {}, kept for it until {}", nodes(cluster, &claim.places), rfc3339(claim.deadline)))
}

/// Who has a reserved start on its devices.
fn promised(cluster: &Cluster, attempt: &Attempt) -> Option<String> {
    let here = |places: &[Place]| attempt.live().any(|worker| meets(places, &worker.place));
    let starts = cluster.reservations.values().filter(|reservation| here(&reservation.places));
    let mut starts: Vec<(Time, &Job)> = starts.filter_map(|one| Some((one.start, cluster.job(one.job)?))).collect();
    starts.sort_by_key(|(at, job)| (*at, job.id));
    let words: Vec<String> =
        starts.into_iter().map(|(at, job)| format!("its devices to {} from {} on", named(job), rfc3339(at))).collect();
    (!words.is_empty()).then(|| listed(&words))
}

fn protected(cluster: &Cluster, job: &Job, now: Time) -> Option<String> {
    let until = cluster.protected_until(job, now);
    (job.spec.preemptible && until > now).then(|| format!("only P0 may evict it before {}", rfc3339(until)))
}

fn nodes(cluster: &Cluster, places: &[Place]) -> String {
    let nodes: BTreeSet<NodeId> = places.iter().map(|place| place.node).collect();
    listed(&nodes.into_iter().map(|node| cluster.node(node).name.clone()).collect::<Vec<_>>())
}

/// The first few, and how many more.
fn listed(words: &[String]) -> String {
    match words.len().saturating_sub(NAMED) {
        0 => words.join(", "),
        more => format!("{} and {more} more", words[..NAMED].join(", ")),
    }
}
