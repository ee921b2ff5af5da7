//! The cluster, drawn: spines, leaves and nodes with one letter per GPU, so that one look tells who is where.
use super::Look;
use super::text::{bold, columns, count, state};
use ganger_core::model::amounts::GpuMilli;
use ganger_core::model::wire::api::{JobView, NodeView};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Jobs get letters in the order of their ids; more jobs than letters share `#`.
const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWYZ";

/// `jobs` gives names to the letters; a job that is not in it is named by its number alone.
pub fn cluster(nodes: &[NodeView], jobs: &[JobView], look: &Look) -> String {
    if nodes.is_empty() {
        return "no node has registered yet: start one with `ganger agent --join ADDRESS`\n".to_string();
    }
    let letters = letters(nodes);
    let mut spines: BTreeMap<&str, BTreeMap<&str, Vec<&NodeView>>> = BTreeMap::new();
    for node in nodes {
        spines.entry(&node.spine).or_default().entry(&node.leaf).or_default().push(node);
    }
    let widest = nodes.iter().map(|node| columns(&node.name)).max().unwrap_or(0);
    let most = nodes.iter().map(|node| columns(&node.devices)).max().unwrap_or(0);
    let mut out = String::new();
    for (spine, leaves) in &spines {
        let _ = writeln!(out, "{}", bold(spine, look.colour));
        for (i, (leaf, nodes)) in leaves.iter().enumerate() {
            let (branch, rail) = if i + 1 == leaves.len() { ("└─", "  ") } else { ("├─", "│ ") };
            let (used, all) = nodes.iter().fold((0, 0), |(u, a), n| (u + n.used.all_gpus_milli(), a + n.capacity.gpus));
            let _ = writeln!(out, "{branch} {leaf}  {}/{}", GpuMilli(used), count(all, "GPU"));
            for (j, node) in nodes.iter().enumerate() {
                let twig = if j + 1 == nodes.len() { "└─" } else { "├─" };
                let gpus = gpus(node, &letters);
                let word = state(&node.state, look.colour);
                let _ =
                    writeln!(out, "{rail} {twig} {:<widest$}  {gpus:<most$}  {word}  {}", node.name, node.gpu_model);
            }
        }
    }
    out.push_str(&legend(&letters, jobs));
    out.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn letters(nodes: &[NodeView]) -> BTreeMap<u64, char> {
    let mut jobs: Vec<u64> = nodes.iter().flat_map(|node| node.owners.values().copied()).collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs.into_iter().zip(LETTERS.chars().chain(std::iter::repeat('#'))).collect()
}

/// A capital: used; small: its owner is leaving; `.` free, `+` promised, `%` in parts, `x` sick.
fn gpus(node: &NodeView, letters: &BTreeMap<u64, char>) -> String {
    let owner = |index: usize| u8::try_from(index).ok().and_then(|i| letters.get(node.owners.get(&i)?)).copied();
    node.devices
        .chars()
        .enumerate()
        .map(|(index, device)| match (device, owner(index)) {
            ('U', Some(letter)) => letter,
            ('D', Some(letter)) => letter.to_ascii_lowercase(),
            ('C', _) => '+',
            ('P', _) => '%',
            ('X', _) => 'x',
            (other, _) => other,
        })
        .collect()
}

fn legend(letters: &BTreeMap<u64, char>, jobs: &[JobView]) -> String {
    let mut out = String::from("\n");
    for (id, letter) in letters {
        let job = jobs.iter().find(|job| job.id == *id);
        let name = job.map(|job| format!(" {} ({}, {})", job.name, job.priority, job.state)).unwrap_or_default();
        let _ = writeln!(out, "{letter}  job {id}{name}");
    }
    out.push_str(".  free   +  promised   small letter  leaving   %  in parts   x  sick\n");
    out
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_cluster_as_a_tree() {
        insta::assert_snapshot!("topo-cluster", cluster(&samples::nodes(), &samples::jobs(), &samples::look()));
        assert!(cluster(&[], &[], &samples::look()).contains("ganger agent --join"));
    }

    #[test]
    fn more_jobs_than_letters_share_a_sign() {
        let mut node = samples::nodes().remove(0);
        node.owners = (0..30).map(|i| (i, u64::from(i))).collect();
        node.devices = "U".repeat(30);
        let letters = letters(&[node.clone()]);
        assert_eq!(gpus(&node, &letters), format!("{LETTERS}#####"));
    }
}
