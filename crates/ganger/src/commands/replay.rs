//! `ganger sim replay`: public traces through the experiments of the simulator.
use crate::cli::{Openb, Queue, Reader};
use crate::failure::Failure;
use crate::files;
use crate::output::progress::Progress;
use crate::output::replay::{PlacementRuns, placement_json, placement_table, queueing_json, queueing_table};
use crate::output::{Look, emit, json::json};
use ganger_simulator::replay::placement::Placement;
use ganger_simulator::replay::queueing::{self, Charge, Setup};
use ganger_simulator::replay::readers::{acme, itp, muri, openb, philly};
use ganger_simulator::replay::trace::Trace;
use ganger_simulator::replay::{ReadError, source};
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
    emit(&if look.is_json() { json(&placement_json(&runs))? } else { placement_table(&runs, look) })
}

type Read = fn(&str, &str) -> Result<Trace, ReadError>;

fn queue(args: &Queue, read: Read, look: &Look) -> Result<(), Failure> {
    let jobs = labelled(args, read)?;
    let charge = if args.compat { Charge::EveryEvent } else { Charge::OnStart };
    let setup = Setup { nodes: args.nodes as usize, gpus_each: args.gpus_per_node, charge };
    let policies = &args.policy.0;
    let mut progress = Progress::new("queueing", policies.len() as u64);
    let one = |&policy| progress.after(|| queueing::run(&jobs, policy, setup).map(|outcome| (policy, outcome)));
    let outcomes: Result<Vec<_>, String> = policies.iter().map(one).collect();
    drop(progress);
    let outcomes = outcomes.map_err(Failure::wrong)?;
    emit(&if look.is_json() { json(&queueing_json(&outcomes))? } else { queueing_table(&outcomes, look) })
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
