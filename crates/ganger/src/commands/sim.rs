//! `ganger sim`: the real core without a cluster.
use super::replay;
use crate::cli::SimCommand;
use crate::failure::Failure;
use crate::files;
use crate::output::{Look, emit, json::json, text::count};
use ganger_core::model::cluster::Cluster;
use ganger_core::model::decision::{Decision, Step};
use ganger_core::model::wire::api::Snapshot;
use ganger_core::scheduler::decide;
use ganger_simulator::{Outcome, run_file};
use serde_json::json as object;
use std::path::{Path, PathBuf};

/// Snapshots of large clusters are large.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

pub fn run(command: SimCommand, look: &Look) -> Result<(), Failure> {
    match command {
        SimCommand::Decide { snapshot } => decide_again(&snapshot, look),
        SimCommand::Replay { reader } => replay::run(reader, look),
        SimCommand::Scenario { files, verbose } => scenario(&files, verbose, look),
    }
}

/// Makes the decision of a snapshot again; a difference to the recorded one is a failure.
fn decide_again(path: &Path, look: &Look) -> Result<(), Failure> {
    let text = files::read_within(path, SNAPSHOT_BYTES_MAX)?;
    let snapshot: Snapshot = serde_json::from_str(&text.text).map_err(|error| {
        Failure::wrong(format!("{}:{}:{}: not a snapshot: {error}", text.name, error.line(), error.column()))
    })?;
    let decision = decide(&snapshot.cluster, snapshot.now);
    let same = snapshot.decision.as_ref().map(|recorded| recorded == &decision);
    if look.is_json() {
        emit(&json(&object!({"decision": decision, "same_as_recorded": same}))?)?;
    } else {
        emit(&decided(&snapshot.cluster, &decision, same))?;
    }
    if same == Some(false) { Err(Failure::silent(1)) } else { Ok(()) }
}

fn decided(cluster: &Cluster, decision: &Decision, same: Option<bool>) -> String {
    let mut out = String::new();
    let name =
        |job| cluster.job(job).map_or_else(|| format!("job {job}"), |found| format!("{} (job {job})", found.spec.name));
    for step in &decision.steps {
        let line = match step {
            Step::Stop { job, attempt, why } => format!("stop {} attempt {attempt}: {why:?}", name(*job)),
            Step::Shrink { job, attempt, .. } => format!("shrink {} attempt {attempt}", name(*job)),
            Step::Claim(claim) => format!(
                "claim {} for {}, {}",
                count(claim.places.len() as u64, "worker"),
                name(claim.claimant),
                count(claim.victims.len() as u64, "victim")
            ),
            Step::Unclaim { claimant, why } => format!("give up the claim of {}: {why}", name(*claimant)),
            Step::Repartition { node, gpu, layout } => {
                format!("split GPU {gpu} of {}: {layout}", cluster.node(*node).name)
            }
            Step::Start { job, attempt, places, .. } => {
                let nodes: std::collections::BTreeSet<&str> =
                    places.iter().map(|place| cluster.node(place.node).name.as_str()).collect();
                format!("start {} attempt {attempt} on {}", name(*job), nodes.into_iter().collect::<Vec<_>>().join(","))
            }
        };
        out.push_str(&line);
        out.push('\n');
    }
    for reservation in &decision.reservations {
        out.push_str(&format!(
            "reserve a start of {} at {}\n",
            name(reservation.job),
            ganger_core::model::time::rfc3339(reservation.start)
        ));
    }
    for (job, blocker) in &decision.blocked {
        out.push_str(&format!("wait {}: {}: {blocker}\n", name(*job), blocker.reason()));
    }
    let verdict = match same {
        Some(true) => "the same as recorded",
        Some(false) => "NOT the same as recorded",
        None => "no decision was recorded with it",
    };
    out.push_str(&format!("{}; {verdict}\n", count(decision.work, "work unit")));
    out
}

/// The line that sums up several files.
fn total(outcomes: &[Outcome], malformed: usize) -> String {
    let files = count((outcomes.len() + malformed) as u64, "file");
    let passed = outcomes.iter().filter(|outcome| outcome.passed()).count();
    let all = outcomes.iter().map(|outcome| outcome.expectations.len()).sum::<usize>() as u64;
    let held = outcomes.iter().flat_map(|outcome| &outcome.expectations).filter(|result| result.ok).count();
    let unread = if malformed > 0 { format!(", {malformed} not run") } else { String::new() };
    let failed = outcomes.len() - passed;
    format!("{files}: {passed} passed, {failed} failed{unread}; {held} of {} held\n", count(all, "expectation"))
}

/// Runs all files, also after one that failed; the worst outcome counts.
fn scenario(paths: &[PathBuf], verbose: bool, look: &Look) -> Result<(), Failure> {
    let (mut outcomes, mut failed, mut malformed) = (Vec::new(), false, Vec::new());
    for path in paths {
        let read = files::read(path);
        let ran =
            read.and_then(|file| run_file(&file.text, &file.name).map_err(|error| Failure::wrong(error.to_string())));
        match ran {
            Ok(outcome) => {
                failed |= !outcome.passed();
                if !look.is_json() {
                    let trace = if verbose { outcome.trace_text() } else { String::new() };
                    emit(&(trace + &outcome.report()))?;
                }
                outcomes.push(outcome);
            }
            Err(failure) => malformed.push(failure.message),
        }
    }
    if look.is_json() {
        emit(&json(&outcomes)?)?;
    } else if paths.len() > 1 {
        emit(&total(&outcomes, malformed.len()))?;
    }
    match (malformed.is_empty(), failed) {
        (false, _) => Err(Failure::wrong(malformed.join("\n"))),
        (true, true) => Err(Failure::silent(1)),
        (true, false) => Ok(()),
    }
}
