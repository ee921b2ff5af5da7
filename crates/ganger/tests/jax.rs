//! The JAX example through the whole of Ganger: four processes over two nodes, undisturbed, and then preempted twice so
//! that they resume on other devices. Every loss must be equal to the last bit. Needs a Python with JAX, which
//! `GANGER_JAX_PYTHON` names; `test.sh` sees to it.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;
use support::{Cluster, until};

const STEPS: u64 = 160;

#[test]
fn a_preempted_training_ends_with_the_same_loss_to_the_last_bit() {
    let Some(python) = std::env::var("GANGER_JAX_PYTHON").ok().filter(|python| Path::new(python).exists()) else {
        return eprintln!("skipped: GANGER_JAX_PYTHON names no Python with JAX (test.sh makes one)");
    };
    let cluster = Cluster::up("3xdgx-h100");
    let pools = "pools: [{name: pool-n0, nodes: [n0]}, {name: pool-n1, nodes: [n1]}, {name: pool-n2, nodes: [n2]}]\n";
    cluster.ok(&["cluster", "apply", &cluster.file("cluster.yaml", pools)]);
    let began = Instant::now();
    submit(&cluster, &python, "whole", "0");
    cluster.ok(&["wait", "whole", "--timeout", "3m"]);
    eprintln!("undisturbed: {:.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let places = preempted_twice(&cluster, &python);
    eprintln!("preempted twice: {:.1} s; {places:#?}", began.elapsed().as_secs_f64());
    let detail = cluster.job("moved");
    assert_eq!((detail["attempt"].as_u64(), detail["evictions"].as_u64()), (Some(3), Some(2)), "{detail}");
    assert_eq!(cluster.job("whole")["attempt"], 1);
    let distinct: BTreeSet<&Vec<String>> = places.iter().collect();
    assert_eq!(distinct.len(), 3, "each run has other devices than the others: {places:#?}");
    let losses = |name: &str| fs::read_to_string(cluster.dir.join(format!("{name}.losses"))).unwrap();
    let (whole, moved) = (losses("whole"), losses("moved"));
    assert_eq!(whole.lines().count() as u64, STEPS);
    assert_eq!(whole, moved, "the losses differ");
    let last = |name: &str| {
        let log = cluster.ok(&["logs", name, "--rank", "0"]);
        log.lines().find(|line| line.starts_with("final loss")).unwrap().to_string()
    };
    assert_eq!(last("whole"), last("moved"));
}

/// Four ranks of four GPUs: a node holds two of them.
fn submit(cluster: &Cluster, python: &str, name: &str, step_seconds: &str) {
    let train = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jax-dp/train.py").canonicalize().unwrap();
    let (dir, train) = (cluster.dir.display(), train.display());
    cluster.submit(&format!(
        "name: {name}\npriority: P3\ngang: {{workers: 4}}\nresources: {{gpus: 4, cpus: 1, memory: 2GiB}}\n\
         checkpoint: {{dir: {dir}/{name}, signal: SIGUSR1, grace: 60s}}\n\
         command: [bash, -c, 'echo rank $RANK has $CUDA_VISIBLE_DEVICES on $GANGER_NODE; exec {python} {train} --steps {STEPS} \
         --step-time {step_seconds} --log-every 1 --loss-log {dir}/{name}.losses']\n"
    ));
}

/// An urgent job takes one of the training's nodes, so that it goes on beside it; then another one takes the node that
/// was kept. Answers what the ranks of each run said of their devices.
fn preempted_twice(cluster: &Cluster, python: &str) -> Vec<Vec<String>> {
    submit(cluster, python, "moved", "0.1");
    let nodes = |detail: &Value| -> Vec<String> {
        detail["nodes"].as_array().unwrap().iter().map(|node| node.as_str().unwrap().to_string()).collect()
    };
    let first = nodes(&cluster.await_run("moved", 1));
    await_steps(cluster, 20);
    urgent(cluster, "urgent-1", &first[0]);
    let second = nodes(&cluster.await_run("moved", 2));
    await_steps(cluster, steps(cluster) + 20);
    cluster.ok(&["cancel", "urgent-1"]);
    cluster.await_state("urgent-1", "cancelled");
    let kept = second.iter().find(|node| first.contains(node)).unwrap();
    urgent(cluster, "urgent-2", kept);
    cluster.ok(&["wait", "moved", "--timeout", "3m"]);
    (1..=3).map(|attempt| devices(cluster, attempt)).collect()
}

/// A job of the highest class that needs the whole of one node.
fn urgent(cluster: &Cluster, name: &str, node: &str) {
    let job =
        format!("name: {name}\npriority: P0\npool: pool-{node}\nresources: {{gpus: 8}}\ncommand: [sleep, '600']\n");
    cluster.submit(&job);
    let runs = cluster.await_run(name, 1);
    assert_eq!(runs["nodes"][0], node, "{runs}");
}

fn steps(cluster: &Cluster) -> usize {
    fs::read_to_string(cluster.dir.join("moved.losses")).unwrap_or_default().lines().count()
}

fn await_steps(cluster: &Cluster, count: usize) {
    until(&format!("{count} steps are made"), || (steps(cluster) >= count).then_some(()));
}

fn devices(cluster: &Cluster, attempt: u32) -> Vec<String> {
    let log = cluster.ok(&["logs", "moved", "--attempt", &attempt.to_string()]);
    let lines: Vec<String> = log.lines().filter(|line| line.contains(" has GPU-")).map(str::to_string).collect();
    assert_eq!(lines.len(), 4, "attempt {attempt}: {log}");
    lines
}
