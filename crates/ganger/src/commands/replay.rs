//! `ganger sim replay`: public traces through the experiments of the simulator.
use crate::cli::{Failures, Kueue, Mixed, Openb, Queue, Reader};
use crate::failure::Failure;
use crate::files;
use crate::output::progress::Progress;
use crate::output::replay::{
    PlacementRuns, placement_json, placement_report, placement_table, queueing_json, queueing_report, queueing_table,
};
use crate::output::trials::{failures_json, failures_table, kueue_json, kueue_table, mixed_json, mixed_table};
use crate::output::{Look, emit, json::json};
use ganger_core::model::amounts::count;
use ganger_simulator::replay::placement::Placement;
use ganger_simulator::replay::queueing::{self, Charge, Setup};
use ganger_simulator::replay::readers::{acme, itp, muri, openb, philly};
use ganger_simulator::replay::report::Report;
use ganger_simulator::replay::trace::Trace;
use ganger_simulator::replay::{ReadError, failures, kueue, mixed, source};
use std::path::Path;

/// Traces are far larger than what users write.
const TRACE_BYTES_MAX: u64 = 1 << 30;

pub fn run(reader: Reader, look: &Look) -> Result<(), Failure> {
    match reader {
        Reader::Openb(args) => place(&args, look),
        Reader::Muri(args) => queue(&args, muri::jobs, look),
        Reader::Philly(args) => queue(&args, philly::jobs, look),
        Reader::Itp(args) => queue(&args, itp::jobs, look),
        Reader::Acme(args) => queue(&args, acme::jobs, look),
        Reader::Mixed(args) => mix(&args, look),
        Reader::Failures(args) => fail(&args, look),
        Reader::Kueue(args) => load(&args, look),
    }
}

/// A trace file's name and its text, unpacked.
fn trace(path: &Path) -> Result<files::Text, Failure> {
    let bytes = files::bytes_within(path, TRACE_BYTES_MAX)?;
    let name = files::name(path);
    let text = source::text(bytes, &name).map_err(refused)?;
    Ok(files::Text { name, text })
}

fn refused(error: ReadError) -> Failure {
    Failure::wrong(error.to_string())
}

fn place(args: &Openb, look: &Look) -> Result<(), Failure> {
    let (pods, nodes) = (trace(&args.pods)?, trace(&args.nodes)?);
    let pods = openb::pods(&pods.name, &pods.text).map_err(refused)?;
    let nodes = openb::nodes(&nodes.name, &nodes.text).map_err(refused)?;
    let placement = Placement::new(&pods, &nodes).map_err(Failure::wrong)?;
    let seeds = args.seeds.clone().unwrap_or(args.seed..args.seed.saturating_add(1));
    let policies = &args.policy.0;
    let mut progress = Progress::new("placing", policies.len() as u64 * (seeds.end - seeds.start));
    let runs: Vec<PlacementRuns> = policies
        .iter()
        .map(|&policy| {
            let one = |seed| progress.after(|| placement.run(policy, seed));
            PlacementRuns { policy, seeds: seeds.clone(), curves: seeds.clone().map(one).collect() }
        })
        .collect();
    drop(progress);
    if let Some(path) = &args.html {
        let about = format!("the pods of {} on the nodes of {}", files::name(&args.pods), files::name(&args.nodes));
        report(path, &placement_report(&runs, about))?;
    }
    emit(&if look.is_json() { json(&placement_json(&runs))? } else { placement_table(&runs, look) })
}

fn report(path: &Path, report: &Report) -> Result<(), Failure> {
    let wrong = |error| Failure::wrong(format!("cannot write the report to {}: {error}", path.display()));
    std::fs::write(path, report.html()).map_err(wrong)
}

type Read = fn(&str, &str) -> Result<Trace, ReadError>;

fn queue(args: &Queue, read: Read, look: &Look) -> Result<(), Failure> {
    let jobs = labelled(args, read)?;
    let charge = if args.compat { Charge::EveryEvent } else { Charge::OnStart };
    let setup = Setup { nodes: args.nodes as usize, gpus_each: args.gpus_per_node, charge };
    let policies: Vec<queueing::Policy> = args.policy.0.iter().copied().filter(|&policy| plays(args, policy)).collect();
    let (each, all) = (jobs.jobs.len() as u64, policies.len() as u64);
    let mut progress = Progress::new("queueing", each * all);
    let one = |(index, &policy): (usize, &queueing::Policy)| {
        let replayed = queueing::run(&jobs, policy, setup, &mut |over| progress.at(each * index as u64 + over as u64))?;
        progress.at(each * (index as u64 + 1));
        Ok((policy, replayed))
    };
    let replays: Result<Vec<_>, String> = policies.iter().enumerate().map(one).collect();
    drop(progress);
    let replays = replays.map_err(Failure::wrong)?;
    if let Some(path) = &args.html {
        let about = format!("{} on {} nodes of {} GPUs", count(each, "job"), args.nodes, args.gpus_per_node);
        let gpus = u64::from(args.nodes) * u64::from(args.gpus_per_node);
        report(path, &queueing_report(&replays, &files::name(&args.jobs), about, gpus))?;
    }
    let outcomes: Vec<_> = replays.into_iter().map(|(policy, replayed)| (policy, replayed.outcome)).collect();
    emit(&if look.is_json() { json(&queueing_json(&outcomes))? } else { queueing_table(&outcomes, look) })
}

/// Of all policies those that know the published rule of charging starts, where it is asked for.
fn plays(args: &Queue, policy: queueing::Policy) -> bool {
    !(args.compat && policy == queueing::Policy::Ours && args.policy.0.len() > 1)
}

fn mix(args: &Mixed, look: &Look) -> Result<(), Failure> {
    let (pods, jobs) = (trace(&args.pods)?, trace(&args.jobs)?);
    let pods = openb::pods(&pods.name, &pods.text).map_err(refused)?;
    let jobs = itp::jobs(&jobs.name, &jobs.text).map_err(refused)?;
    let (nodes, gpus_each) = (args.nodes as usize, args.gpus_per_node);
    let setup = mixed::Setup { nodes, gpus_each, every: args.every as usize };
    let mut progress = Progress::new("serving and training", args.policy.0.len() as u64);
    let one = |&policy| progress.after(|| mixed::run(&pods, &jobs, policy, setup).map(|outcome| (policy, outcome)));
    let outcomes: Result<Vec<_>, String> = args.policy.0.iter().map(one).collect();
    drop(progress);
    let outcomes = outcomes.map_err(Failure::wrong)?;
    emit(&if look.is_json() { json(&mixed_json(&outcomes))? } else { mixed_table(&outcomes, look) })
}

fn fail(args: &Failures, look: &Look) -> Result<(), Failure> {
    let file = trace(&args.jobs)?;
    let jobs = itp::jobs(&file.name, &file.text).map_err(refused)?;
    let (nodes, gpus_each, together, seed) =
        (args.nodes as usize, args.gpus_per_node, args.together as usize, args.seed);
    let mut progress = Progress::new("failing", (args.policy.0.len() * args.rate.len()) as u64);
    let mut outcomes = Vec::new();
    for &faults_per_day in &args.rate {
        let setup = failures::Setup { nodes, gpus_each, faults_per_day, together, seed };
        for &policy in &args.policy.0 {
            let outcome = progress.after(|| failures::run(&jobs, policy, setup)).map_err(Failure::wrong)?;
            outcomes.push((faults_per_day, policy, outcome));
        }
    }
    drop(progress);
    emit(&if look.is_json() { json(&failures_json(&outcomes))? } else { failures_table(&outcomes, look) })
}

fn load(args: &Kueue, look: &Look) -> Result<(), Failure> {
    let one = |&mix: &kueue::Mix| {
        let mut progress = Progress::new(mix.name(), mix.workloads());
        kueue::run(mix, ganger_runtime::clock::thread_cpu_ns, &mut |over| progress.at(over))
            .map(|outcome| (mix, outcome))
    };
    let outcomes: Result<Vec<_>, String> = args.mix.0.iter().map(one).collect();
    let outcomes = outcomes.map_err(Failure::wrong)?;
    emit(&if look.is_json() { json(&kueue_json(&outcomes))? } else { kueue_table(&outcomes, look) })
}

/// The jobs of the file, or those with the wanted label.
fn labelled(args: &Queue, read: Read) -> Result<Trace, Failure> {
    let file = trace(&args.jobs)?;
    let mut jobs = read(&file.name, &file.text).map_err(refused)?;
    if let Some(label) = &args.label {
        jobs.jobs.retain(|job| job.label == *label);
    }
    match (jobs.jobs.is_empty(), &args.label) {
        (false, _) => Ok(jobs),
        (true, Some(label)) => Err(Failure::wrong(format!("cannot replay {}: no job has label `{label}`", file.name))),
        (true, None) => Err(Failure::wrong(format!("cannot replay {}: it has no job", file.name))),
    }
}
