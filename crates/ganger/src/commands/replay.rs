//! `ganger sim replay`: public traces through the experiments of the simulator.
use crate::cli::{Muri, Openb, Reader};
use crate::failure::Failure;
use crate::files;
use crate::output::progress::Progress;
use crate::output::replay::{PlacementRuns, placement_json, placement_table, queueing_json, queueing_table};
use crate::output::{Look, emit, json::json};
use ganger_simulator::replay::placement::Placement;
use ganger_simulator::replay::queueing::{self, Charge};
use ganger_simulator::replay::readers::{muri, openb};
use ganger_simulator::replay::{ReadError, source};
use std::path::Path;

/// Traces are far larger than what users write.
const TRACE_BYTES_MAX: u64 = 1 << 30;

pub fn run(reader: Reader, look: &Look) -> Result<(), Failure> {
    match reader {
        Reader::Openb(args) => place(&args, look),
        Reader::Muri(args) => queue(&args, look),
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

fn queue(args: &Muri, look: &Look) -> Result<(), Failure> {
    let file = trace(&args.jobs)?;
    let jobs = muri::jobs(&file.name, &file.text).map_err(refused)?;
    let charge = if args.compat { Charge::EveryEvent } else { Charge::OnStart };
    let policies = &args.policy.0;
    let mut progress = Progress::new("queueing", policies.len() as u64);
    let one = |&policy| progress.after(|| queueing::run(&jobs, policy, charge).map(|outcome| (policy, outcome)));
    let outcomes: Result<Vec<_>, String> = policies.iter().map(one).collect();
    drop(progress);
    let outcomes = outcomes.map_err(Failure::wrong)?;
    emit(&if look.is_json() { json(&queueing_json(&outcomes))? } else { queueing_table(&outcomes, look) })
}
