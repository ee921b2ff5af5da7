//! Words of `ganger sim replay`.
use clap::{Args, Subcommand};
use ganger_simulator::replay::{placement, queueing};
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
