//! The gates of `why`: every one with its numbers, passed or failed, in the order in which a decision asks.
use super::budget::Standing;
use super::place::Miss;
use super::{Session, Unit, order};
use crate::model::amounts::{DIMENSIONS, amount_words, count};
use crate::model::budget::GpuHours;
use crate::model::decision::Blocker;
use crate::model::job::{Job, JobSpec, Level};
use crate::model::queue::ancestry;
use crate::model::time::rfc3339;
use crate::model::wire::api::Gate;

pub fn gates<'a>(session: &mut Session<'a>, unit: &Unit<'a>, job: &'a Job, never: Option<&str>) -> Vec<Gate> {
    let gate = |gate: &str, passed: bool, text: String| Gate { gate: gate.to_string(), passed, text };
    let mut gates = Vec::new();
    let closed = order::closed_gate(session, job);
    gates.push(match &closed {
        Some(blocker) => gate("conditions", false, blocker.to_string()),
        None => gate("conditions", true, "not held, nothing to wait for, time to begin reached".to_string()),
    });
    gates.extend(queue_gates(session, unit, job));
    gates.extend(budget_gates(session, unit));
    gates.push(match never {
        Some(text) => gate("satisfiable", false, text.to_string()),
        None => gate("satisfiable", true, "the empty healthy cluster holds it".to_string()),
    });
    let mark = session.draft.mark();
    let alone = session.place_unit(unit);
    session.draft.undo_to(mark);
    let beside = session.place_beside_reservations(unit).is_ok();
    let promised = session.promised_away(unit).filter(|_| alone.is_err());
    gates.extend(promised.map(|blocker| gate("promises", false, blocker.to_string())));
    gates.push(match &alone {
        Ok(_) => gate("resources", true, "all workers fit on what is free".to_string()),
        Err(miss) if miss.level.is_some() => gate("topology", false, topology_text(&unit[miss.member].spec, miss)),
        Err(miss) => gate("resources", false, session.short_of(&unit[miss.member].spec, miss).to_string()),
    });
    if alone.is_ok() && !session.reserved.is_empty() {
        let text = match session.reserved.first() {
            Some(first) if !beside => {
                let start = rfc3339(first.reservation.start);
                format!("it would move the reserved start of job {} at {start}", first.reservation.job)
            }
            _ => "no reserved start is moved".to_string(),
        };
        gates.push(gate("reservations", beside, text));
    }
    gates
}

fn queue_gates<'a>(session: &Session<'a>, unit: &Unit<'a>, job: &'a Job) -> Vec<Gate> {
    let claimed = session.cluster.claims.contains_key(&job.id);
    let over = session.over_limit(unit);
    ancestry(&job.spec.queue)
        .filter_map(|path| {
            let limit = session.cluster.queues.get(path)?.limit;
            let used = session.queue_used.get(path).copied().unwrap_or_default();
            let asks = job.spec.total();
            // A claim is charged already.
            let used = if claimed { used.minus(asks).unwrap_or_default() } else { used };
            let words: Vec<String> = DIMENSIONS
                .into_iter()
                .zip(limit.bounds())
                .filter_map(|(name, limit)| Some((name, limit?)))
                .map(|(name, limit)| {
                    let [used, asks] = [used, asks].map(|amount| amount_words(name, amount.named(name)));
                    format!("{used} used + {asks} asked, of {}", amount_words(name, limit))
                })
                .collect();
            let text = if words.is_empty() { "no limit".to_string() } else { words.join(", ") };
            let passed = !matches!(&over, Some(Blocker::QueueLimit { queue, .. }) if queue == path);
            Some(Gate { gate: format!("queue {path}"), passed, text })
        })
        .collect()
}

/// Each budget that it draws on, with the sum that has to be paid.
fn budget_gates<'a>(session: &Session<'a>, unit: &Unit<'a>) -> Vec<Gate> {
    let gate = |standing: Standing<'_>| {
        let Standing { purse, spent_gpu_ms, others_gpu_ms, asks_gpu_ms } = standing;
        let [spent, runs, asks, all] = [spent_gpu_ms, others_gpu_ms, asks_gpu_ms, purse.gpu_ms].map(GpuHours);
        let renews = rfc3339(purse.per.end(session.now));
        let text = format!(
            "{spent} spent + {runs} for what runs + {asks} for it, of {all} a {}; renews at {renews}",
            purse.per
        );
        let user = purse.user.map_or(String::new(), |user| format!(" of {user}"));
        Gate { gate: format!("budget {}{user}", purse.queue), passed: !standing.is_over(), text }
    };
    session.budget_standings(unit).into_iter().map(gate).collect()
}

fn topology_text(spec: &JobSpec, miss: &Miss) -> String {
    let level = miss.level.unwrap_or(Level::Cluster);
    let workers = spec.gang.workers;
    if level < Level::Node && spec.shape.gpus > 0 {
        let needs = spec.total().gpus;
        let needs = count(needs, "GPU");
        return format!("needs {needs} on one {level}, best is {} ({})", miss.best_gpus, miss.best_domain);
    }
    let workers = count(workers.into(), "worker");
    format!("no {level} holds {workers}, best holds {} ({})", miss.best, miss.best_domain)
}
