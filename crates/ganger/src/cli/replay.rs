//! Words of `ganger sim replay`.
use clap::{Args, Subcommand};
use ganger_simulator::replay::{failures, kueue, mixed, placement, queueing};
use std::ops::Range;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum Reader {
    /// Place the pods of an openb trace on its nodes, until all of the cluster has been asked for.
    Openb(Openb),
    /// Queue the jobs of a Muri trace, traceN.csv: completion times by policy.
    Muri(Queue),
    /// Queue the jobs of one or all virtual clusters of the Philly list, philly_jobs.csv.
    Philly(Queue),
    /// Queue the jobs of an ITP cluster, clusterNN.csv.
    Itp(Queue),
    /// Queue the gangs of the Acme list, kalos_completed_gpu_jobs.csv.
    Acme(Queue),
    /// Serve the urgent pods of an openb trace beside the training jobs of an ITP cluster, on too few GPUs for both.
    Mixed(Mixed),
    /// Train the jobs of an ITP cluster on servers that fail: effective training time, with and without health checks.
    Failures(Failures),
    /// Run Kueue's performance mixes: how long they take against what nobody can beat, and what deciding costs.
    Kueue(Kueue),
}

#[derive(Debug, Args)]
pub struct Openb {
    /// The pods: openb_pod_list_*.csv.
    #[arg(long, value_name = "FILE")]
    pub pods: PathBuf,
    /// The nodes: openb_node_list_*.csv; those without a GPU are left out.
    #[arg(long, value_name = "FILE")]
    pub nodes: PathBuf,
    /// Policies, separated by commas, or `all`.
    #[arg(long, value_name = "POLICY,…", default_value = "ours", value_parser = placement_policies)]
    pub policy: Policies<placement::Policy>,
    /// The order of arrivals.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Seeds from A up to but without B: their mean and standard deviation.
    #[arg(long, value_name = "A..B", value_parser = seeds, conflicts_with = "seed")]
    pub seeds: Option<Range<u64>>,
    /// Write a report with plots to this file: one HTML page that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Queue {
    /// The jobs.
    #[arg(long, value_name = "FILE")]
    pub jobs: PathBuf,
    /// Policies, separated by commas, or `all`. Oracles know how long each job runs.
    #[arg(long, value_name = "POLICY,…", default_value = "all", value_parser = queueing_policies)]
    pub policy: Policies<queueing::Policy>,
    /// Charge the start cost as the published Muri simulator does: at every event, not at each real start.
    #[arg(long)]
    pub compat: bool,
    /// How many nodes; 8 of 8 GPUs are the cluster of the published Muri comparison.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub nodes: u32,
    /// The GPUs of each node.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub gpus_per_node: u32,
    /// Only jobs with this label: the virtual cluster in the Philly list, else the model.
    #[arg(long)]
    pub label: Option<String>,
    /// Write a report with plots to this file: one HTML page that needs nothing else.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Mixed {
    /// The pods: openb_pod_list_default.csv; those of class LS are urgent, those of class BE train.
    #[arg(long, value_name = "FILE")]
    pub pods: PathBuf,
    /// More training: clusterNN.csv.
    #[arg(long, value_name = "FILE")]
    pub jobs: PathBuf,
    /// Policies, separated by commas, or `all`.
    #[arg(long, value_name = "POLICY,…", default_value = "all", value_parser = mixed_policies)]
    pub policy: Policies<mixed::Policy>,
    /// How many nodes.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub nodes: u32,
    /// The GPUs of each node.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub gpus_per_node: u32,
    /// Take one of so many training jobs, so that the cluster is a little too small and not hopeless.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub every: u32,
}

#[derive(Debug, Args)]
pub struct Failures {
    /// The jobs: clusterNN.csv.
    #[arg(long, value_name = "FILE")]
    pub jobs: PathBuf,
    /// Policies, separated by commas, or `all`.
    #[arg(long, value_name = "POLICY,…", default_value = "all", value_parser = failure_policies)]
    pub policy: Policies<failures::Policy>,
    /// Faults of one server a day, as `3.8e-3`; several separated by commas.
    #[arg(long, value_name = "RATE,…", default_value = "3.8e-3", value_parser = rate, value_delimiter = ',')]
    pub rate: Vec<f64>,
    /// So many neighbours fail together, as much less often.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub together: u32,
    /// How many nodes.
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub nodes: u32,
    /// The GPUs of each node.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub gpus_per_node: u32,
    /// When which servers fail.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
}

#[derive(Debug, Args)]
pub struct Kueue {
    /// Mixes, separated by commas, or `all`.
    #[arg(long, value_name = "MIX,…", default_value = "all", value_parser = mixes)]
    pub mix: Policies<kueue::Mix>,
}

fn mixes(text: &str) -> Result<Policies<kueue::Mix>, String> {
    policies(text, &kueue::Mix::ALL, kueue::Mix::name)
}

fn mixed_policies(text: &str) -> Result<Policies<mixed::Policy>, String> {
    policies(text, &mixed::Policy::ALL, mixed::Policy::name)
}

fn failure_policies(text: &str) -> Result<Policies<failures::Policy>, String> {
    policies(text, &failures::Policy::ALL, failures::Policy::name)
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| (0.0..=100.0).contains(rate));
    rate.ok_or_else(|| format!("`{text}` is no rate; write faults of one server a day, such as 3.8e-3"))
}

/// Policies in the order in which they were named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policies<P>(pub Vec<P>);

fn placement_policies(text: &str) -> Result<Policies<placement::Policy>, String> {
    policies(text, &placement::Policy::ALL, placement::Policy::name)
}

fn queueing_policies(text: &str) -> Result<Policies<queueing::Policy>, String> {
    policies(text, &queueing::Policy::ALL, queueing::Policy::name)
}

fn policies<P: Copy>(text: &str, all: &[P], name: fn(P) -> &'static str) -> Result<Policies<P>, String> {
    if text == "all" {
        return Ok(Policies(all.to_vec()));
    }
    let known = || all.iter().map(|&policy| name(policy)).collect::<Vec<_>>().join(", ");
    let one = |word: &str| {
        let found = all.iter().copied().find(|&policy| name(policy) == word);
        found.ok_or_else(|| format!("no policy `{word}`; there are {}, and all", known()))
    };
    text.split(',').map(|word| one(word.trim())).collect::<Result<_, _>>().map(Policies)
}

/// At most so many seeds, so that a slip of the finger does not run for days.
const SEEDS_MAX: u64 = 10_000;

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let parsed = text.split_once("..").and_then(|(first, end)| Some(first.parse().ok()?..end.parse().ok()?));
    let wrong =
        || format!("`{text}` is no range of seeds; write A..B with A below B, at most {SEEDS_MAX}, as in 42..52");
    parsed.filter(|range: &Range<u64>| !range.is_empty() && range.end - range.start <= SEEDS_MAX).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_and_seeds_are_read_or_refused_with_what_there_is() {
        use placement::Policy;
        assert_eq!(placement_policies("random,ours").unwrap().0, [Policy::Random, Policy::Ours]);
        assert_eq!(placement_policies("all").unwrap().0.len(), Policy::ALL.len());
        assert!(placement_policies("best").unwrap_err().contains("no policy `best`; there are random, dot-product"));
        assert_eq!(seeds("42..52").unwrap(), 42..52);
        assert!(["52..42", "42", "a..b", "0..1000000"].iter().all(|text| seeds(text).is_err()));
    }
}
