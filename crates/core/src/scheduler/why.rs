//! Why a job does not run: every gate with its numbers, nodes counted by what speaks against them, the promised start,
//! and changes that were tried out and would start it now.
//!
//! It walks the same order of service with the same code as `decide` up to the job's turn, so what it says is what the
//! decision saw.
use super::elastic::Asking;
use super::filter::{self, Against, Pick};
use super::fit::{self, Cell};
use super::place::place_gang;
use super::turns::Turns;
use super::why_gates::gates;
use super::why_running::{self, not_waiting};
use super::{Session, Unit, estimate, order, victims};
use crate::model::amounts::count;
use crate::model::cluster::Cluster;
use crate::model::decision::{Blocker, Claim, Step};
use crate::model::ids::JobId;
use crate::model::job::{Job, JobSpec, JobState, Owner};
use crate::model::node::{HealthState, Node};
use crate::model::payable;
use crate::model::queue::ancestry;
use crate::model::time::{Time, rfc3339};
use crate::model::wire::api::{NodeCount, Why};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names at most so many of the jobs ahead.
const AHEAD_NAMED: usize = 5;
/// And so many of those who have to leave.
const VICTIMS_NAMED: usize = 8;

/// Explains a live job, array, or task of one; `None` if there is no such job in memory.
pub fn why(cluster: &Cluster, id: JobId, now: Time) -> Option<Why> {
    let Some(job) = cluster.job(id) else { return super::why_arrays::why(cluster, id, now) };
    if job.state != JobState::Pending {
        return Some(why_running::why(cluster, job, now));
    }
    let asking = Asking::of(cluster, now);
    let mut session = Session::new(cluster, &asking, now);
    let units = order::units(cluster, &asking, now, &BTreeSet::new());
    let mut turns = Turns::new(&session, &units);
    let mut ahead: Vec<&Unit<'_>> = Vec::new();
    loop {
        let unit = &units[turns.next(&session)?];
        if let Some(asked) = unit.iter().find(|member| member.id == id) {
            return Some(explain(session, &ahead, unit, asked));
        }
        session.consider(unit);
        if unit[0].attempt.is_none() {
            ahead.push(unit);
        }
    }
}

/// Why a pending job could not even run on this cluster were it empty and healthy; `None` if it could. Costs one placement,
/// where [`why`] walks past all who go before.
pub fn never(cluster: &Cluster, id: JobId, now: Time) -> Option<String> {
    let record = cluster.record(id).filter(|job| job.state == JobState::Pending)?;
    // Of an array the first task stands for all.
    let first = record.task_at(0);
    let job = first.as_ref().unwrap_or(&record);
    let waiting = || cluster.jobs.values().map(Arc::as_ref).filter(|mate| mate.state == JobState::Pending);
    let mates = |group| waiting().filter(move |mate| mate.spec.group.as_ref() == Some(group));
    let asking = Asking::of(cluster, now);
    let alone = || vec![asking.as_asked(job)];
    let unit = job.spec.group.as_ref().map_or_else(alone, |group| mates(group).collect());
    let mut session = Session::new(cluster, &asking, now);
    session.never_allowed(&unit).or_else(|| session.unsatisfiable(&unit))
}

/// What would be said about a job that is not submitted: as if it came last of its class.
pub fn dry_run(cluster: &Cluster, spec: &Arc<JobSpec>, owner: Owner, now: Time) -> Why {
    let unpaid = payable::never_gets_on(cluster, spec, &owner.user);
    if let Some((field, why)) = spec.check().err().or(unpaid) {
        let summary = format!("cannot be accepted: {field}: {why}");
        let job = Job::new(JobId(cluster.next_job.max(1)), spec.clone(), owner, now);
        return Why { summary, satisfiable: false, ..not_waiting(&job) };
    }
    let mut with = cluster.clone();
    let job = Job::submitted(JobId(cluster.next_job.max(1)), spec.clone(), owner, now);
    // Of an array the first task is asked about.
    let asked = job.task_at(0).unwrap_or(job);
    with.insert_job(asked.clone());
    why(&with, asked.id, now).unwrap_or_else(|| not_waiting(&asked))
}

fn explain<'a>(mut session: Session<'a>, before: &[&Unit<'a>], unit: &Unit<'a>, job: &'a Job) -> Why {
    // What is tried out here is not work of the decision.
    let work = session.draft.work;
    let empty = session.unsatisfiable(unit).map(|text| format!("not even on the empty cluster: {text}"));
    let never = session.never_allowed(unit).or(empty);
    let gates = gates(&mut session, unit, job, never.as_deref());
    let nodes = count_nodes(&session, &job.spec);
    let would_start_now = try_changes(&mut session, unit, job, never.is_some());
    let steps_before = session.steps.len();
    session.draft.work = work;
    session.consider(unit);
    let blocker = session.blocked.get(&job.id).cloned();
    let reason = blocker.as_ref().map(Blocker::reason);
    let starts = blocker.is_none() && session.steps.len() > steps_before;
    let standing = match &blocker {
        Some(blocker) => blocker.to_string(),
        None if starts => "starts with the next decision".to_string(),
        None => "nothing speaks against it".to_string(),
    };
    let unpaid = payable::report(session.cluster, &job.spec, &job.owner.user);
    let summary = unpaid.map_or(standing.clone(), |unpaid| format!("{standing}; {unpaid}"));
    let ahead: Vec<String> = before
        .iter()
        .copied()
        .flatten()
        .filter(|job| competes(&session, job))
        .map(|j| format!("{} ({}, job {})", j.title(), j.spec.priority, j.number()))
        .collect();
    let preemption = preemption(&mut session, unit, job, blocker.as_ref());
    Why {
        summary,
        preemption: Some(preemption),
        reason,
        slurm_reason: reason.map(|reason| reason.slurm().to_string()),
        position: Some(ahead.len() as u32 + 1),
        ahead: ahead.into_iter().take(AHEAD_NAMED).collect(),
        gates,
        nodes_total: session.cluster.listed_nodes().count() as u32,
        nodes,
        estimate: estimate::of(&session, job),
        would_start_now: if starts { Vec::new() } else { would_start_now },
        satisfiable: never.is_none(),
        ..not_waiting(job)
    }
}

/// Whether a job ahead could be served before: not one that can never run, or waits for something else than its turn.
fn competes(session: &Session<'_>, job: &Job) -> bool {
    use Blocker::*;
    let waits_for_itself = |blocker: &Blocker| {
        matches!(
            blocker,
            Unsatisfiable { .. } | Held { .. } | Dependency { .. } | BeginTime { .. } | Backoff { .. } | Window { .. }
        )
    };
    !session.blocked.get(&job.id).is_some_and(waits_for_itself)
}

/// Nodes by what speaks against them; every node is counted once.
fn count_nodes(session: &Session<'_>, spec: &JobSpec) -> Vec<NodeCount> {
    let mut counts: BTreeMap<(u8, String), u32> = BTreeMap::new();
    for node in session.cluster.listed_nodes() {
        *counts.entry(verdict(session, spec, node)).or_default() += 1;
    }
    counts.into_iter().map(|((_, because), nodes)| NodeCount { nodes, because }).collect()
}

fn verdict(session: &Session<'_>, spec: &JobSpec, node: &Node) -> (u8, String) {
    match filter::accepts(session.cluster, node, spec, session.now, session.now) {
        Err(Against::Pool) => (1, format!("not in pool {}", spec.pool.as_deref().unwrap_or("?"))),
        Err(Against::Kept) => (1, format!("in pool {}, which lends nothing to it", pool_of(node))),
        Err(Against::Lending) => (7, format!("in pool {}, which is not lent to it now", pool_of(node))),
        Err(Against::GpuModel) => (2, format!("other GPU model ({})", model_of(node))),
        Err(Against::Vram) => (3, "GPUs with too little memory".to_string()),
        Err(Against::Bandwidth) => (4, "too little PCIe or network bandwidth".to_string()),
        Err(Against::Part) => (4, format!("GPUs that cannot give {}", spec.shape.gpu_words())),
        Err(Against::Labels) => (5, "labels do not match".to_string()),
        Err(Against::Health) => (6, out_because(node, session.now)),
        Err(Against::Maintenance) => (6, "maintenance is planned before it could be through or have left".to_string()),
        Ok(()) => session.promise_verdict(spec, node).unwrap_or_else(|| room_verdict(session, spec, node)),
    }
}

fn pool_of(node: &Node) -> &str {
    node.pool.as_deref().unwrap_or("?")
}

fn model_of(node: &Node) -> &str {
    if node.machine.gpu_model.is_empty() { "none" } else { &node.machine.gpu_model }
}

fn out_because(node: &Node, now: Time) -> String {
    match node.health.state {
        HealthState::Ready if node.draining.is_some() => "draining".to_string(),
        HealthState::Ready if node.cordoned => "cordoned".to_string(),
        HealthState::Ready if node.cooldown_until > now => "cooling down after refused starts".to_string(),
        HealthState::Probation => "on probation: P3 work only".to_string(),
        state => state.to_string(),
    }
}

fn room_verdict(session: &Session<'_>, spec: &JobSpec, node: &Node) -> (u8, String) {
    let room = session.draft.room(node.id);
    let cell = Cell::whole(&node.machine);
    let mut by = fit::capacity_by(&node.machine, room, &spec.shape, cell);
    if spec.shape.part.is_some() {
        by[0] = session.draft.site(node.id).parts_for(&spec.shape, cell);
    }
    let workers = by.into_iter().min().unwrap_or(0);
    if workers > 0 {
        return (9, format!("room for {}", count(workers.min(spec.gang.workers).into(), "worker")));
    }
    let short = (0..by.len()).filter(|i| by[*i] == 0 && !fit::follows_from(*i, &by, 1));
    let short: Vec<&str> = short.map(|i| fit::DIMENSIONS[i]).collect();
    (8, format!("no room for one worker: short of free {}", short.join(" and ")))
}

/// Changes to the request, each tried on the draft beside the reservations of those who go first.
fn try_changes<'a>(session: &mut Session<'a>, unit: &Unit<'a>, job: &'a Job, never: bool) -> Vec<String> {
    if unit.len() > 1 || order::closed_gate(session, job).is_some() {
        return Vec::new();
    }
    let spec = &*job.spec;
    let mut found = Vec::new();
    if let Some(workers) = most_workers(session, job) {
        found.push(format!("workers: {workers} instead of {}", spec.gang.workers));
    }
    if let Some(gpus) = most_gpus(session, job) {
        found.push(format!("gpus: {gpus} instead of {} a worker", spec.shape.gpus));
    }
    let mut soft = spec.clone();
    if let Some(level) = soft.topology.require.take()
        && fits(session, job, &soft)
    {
        found.push(format!("topology.prefer: {level} instead of require: {level}"));
    }
    let mut any_model = spec.clone();
    if let Some(model) = any_model.shape.gpu_model.take()
        && fits(session, job, &any_model)
    {
        found.push(format!("any gpu_model instead of {model}"));
    }
    if !never {
        found.extend(shorter(session, unit, spec));
    }
    found
}

/// The largest smaller gang that would start now, found by halving: fewer workers never fit worse.
fn most_workers<'a>(session: &mut Session<'a>, job: &'a Job) -> Option<u32> {
    let slice = job.spec.topology.together();
    let (mut low, mut high) = (0, (job.spec.gang.workers - 1) / slice);
    while low < high {
        let middle = (low + high).div_ceil(2);
        let mut smaller = (*job.spec).clone();
        smaller.gang.workers = middle * slice;
        if fits(session, job, &smaller) { low = middle } else { high = middle - 1 }
    }
    (low > 0).then_some(low * slice)
}

/// The most GPUs a worker, of fewer than asked for, with which it would start now.
fn most_gpus<'a>(session: &mut Session<'a>, job: &'a Job) -> Option<u32> {
    let (mut low, mut high) = (0, job.spec.shape.gpus.saturating_sub(1));
    while low < high {
        let middle = (low + high).div_ceil(2);
        let mut fewer = (*job.spec).clone();
        fewer.shape.gpus = middle;
        if fits(session, job, &fewer) { low = middle } else { high = middle - 1 }
    }
    (low > 0).then_some(low)
}

fn fits<'a>(session: &mut Session<'a>, job: &'a Job, changed: &JobSpec) -> bool {
    let asks = changed.total();
    let within = ancestry(&job.spec.queue).all(|path| {
        let used = session.queue_used.get(path).copied().unwrap_or_default();
        session.cluster.queues.get(path).is_none_or(|queue| queue.limit.exceeded_by(used.plus(asks), asks).is_none())
    });
    let mark = session.draft.mark();
    session.hold_back_reservations(&vec![job]);
    session.fence_off(&vec![job], session.now);
    let pick = Pick::Accepting(session.now);
    let placed = place_gang(&mut session.draft, &session.tree, changed, changed.gang.workers, pick).is_ok();
    session.draft.undo_to(mark);
    within && placed
}

/// The longest time limit with which it would be over before the reserved starts that stand in its way.
fn shorter<'a>(session: &mut Session<'a>, unit: &Unit<'a>, spec: &JobSpec) -> Option<String> {
    let first = session.reserved.iter().map(|reserved| (reserved.reservation.start, reserved.reservation.job)).min()?;
    let fits_alone = session.place_unit_and_undo(unit);
    let fits_beside = session.place_beside_reservations(unit).is_ok();
    let room = first.0.since(session.now);
    let shorter = spec.time_limit.is_none_or(|limit| limit > room);
    let helps = fits_alone && !fits_beside && shorter && room.0 > 0;
    helps.then(|| format!("time: {room} or less fits before the reserved start of job {}", first.1))
}

fn preemption<'a>(session: &mut Session<'a>, unit: &Unit<'a>, job: &Job, blocker: Option<&Blocker>) -> String {
    let (from, spec) = (session.cluster.policy.preempt_from, &*job.spec);
    let (victims, gpus) = victims::legal_victims(session, unit);
    match blocker {
        Some(Blocker::Yielding { .. }) => leaving_for(session, unit),
        Some(Blocker::Unsatisfiable { .. }) => "no one is stopped for a job that can never run".to_string(),
        _ if victims == 0 && spec.priority > from => {
            format!("{} evicts nobody by class: only {from} and above may{}", spec.priority, owed(session, unit))
        }
        _ if victims == 0 => format!("no running job may be stopped for it{}", protected(session, spec)),
        _ => format!(
            "{} with {} may be stopped for it; stopping them would not make it fit",
            count(victims as u64, "running job"),
            count(gpus, "GPU")
        ),
    }
}

/// Who has to leave for the unit, by name: what was asked already, or is with the next decision.
fn leaving_for(session: &Session<'_>, unit: &Unit<'_>) -> String {
    let decided =
        session.steps.iter().filter_map(|step| if let Step::Claim(claim) = step { Some(claim) } else { None });
    let claims = unit.iter().filter_map(|job| session.claim_of(job.id)).chain(decided);
    let claims: Vec<&Claim> = claims.filter(|claim| unit.iter().any(|job| job.id == claim.claimant)).collect();
    let victims: BTreeSet<_> = claims.iter().flat_map(|claim| &claim.victims).collect();
    let live = victims.into_iter().filter_map(|(id, attempt)| {
        session.cluster.job(*id).filter(|job| job.attempt.as_ref().is_some_and(|live| live.number == *attempt))
    });
    let names: Vec<String> = live.map(named).collect();
    let by = claims
        .iter()
        .map(|claim| claim.deadline)
        .max()
        .map_or(String::new(), |by| format!(", at the latest by {}", rfc3339(by)));
    let more = match names.len().saturating_sub(VICTIMS_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match names.as_slice() {
        [] => "who had to leave for it is gone".to_string(),
        [one] => format!("{one} has to leave for it{by}"),
        all => format!("{}{more} have to leave for it{by}", all[..all.len().min(VICTIMS_NAMED)].join(", ")),
    }
}

/// `job 7 eval (P3)`
pub(super) fn named(job: &Job) -> String {
    format!("job {} {} ({})", job.number(), job.title(), job.spec.priority)
}

/// How it stands to what is guaranteed to its queue.
fn owed<'a>(session: &mut Session<'a>, unit: &Unit<'a>) -> &'static str {
    match session.claimant(unit) {
        Some(_) => "; it stays within what is guaranteed to its queue, but nobody holds more than is his",
        None => "; nothing more is guaranteed to its queue",
    }
}

/// Who runs in a lower class and may not be stopped all the same.
fn protected(session: &Session<'_>, spec: &JobSpec) -> String {
    let lower = session
        .cluster
        .jobs
        .values()
        .filter(|job| job.attempt.is_some() && job.spec.priority > spec.priority && !job.spec.preemptible);
    let names: Vec<String> = lower.map(|job| named(job)).collect();
    match names.as_slice() {
        [] => String::new(),
        [one] => format!(": {one} is not preemptible; `preemptible: true` in its file would allow it"),
        [first, others @ ..] => format!(
            ": {first} and {} more of lower classes are not preemptible; `preemptible: true` in their files would allow it",
            others.len()
        ),
    }
}
