//! The JAX example through the whole of Ganger: four processes over two nodes, undisturbed, and then preempted twice so
//! that they resume on other devices. Every loss must be equal to the last bit. Needs a Python with JAX, which
//! `GANGER_JAX_PYTHON` names; `test.sh` sees to it.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
mod support;

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
    let cluster = Cluster::up("2xdgx-h100");
    let pools = "pools: [{name: pool-n0, nodes: [n0]}, {name: pool-n1, nodes: [n1]}]\n";
    cluster.ok(&["cluster", "apply", &cluster.file("cluster.yaml", pools)]);
    halves(&cluster, "filler", "P1");
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
    for (before, after) in places.iter().zip(&places[1..]) {
        let same: Vec<&String> = before.iter().filter(|device| after.contains(device)).collect();
        assert!(same.is_empty(), "each run has other devices than the one before: {same:?} {places:#?}");
    }
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

/// Four ranks of two GPUs: half a node holds two of them.
fn submit(cluster: &Cluster, python: &str, name: &str, step_seconds: &str) {
    let train = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/jax-dp/train.py").canonicalize().unwrap();
    let (dir, train) = (cluster.dir.display(), train.display());
    cluster.submit(&format!(
        "name: {name}\npriority: P3\ngang: {{workers: 4}}\nresources: {{gpus: 2, cpus: 1, memory: 2GiB}}\n\
         checkpoint: {{dir: {dir}/{name}, signal: SIGUSR1, grace: 60s}}\n\
         command: [bash, -c, 'echo rank $RANK has $CUDA_VISIBLE_DEVICES on $GANGER_NODE; exec {python} {train} --steps {STEPS} \
         --step-time {step_seconds} --log-every 1 --loss-log {dir}/{name}.losses']\n"
    ));
}

/// One half of each node is taken when it starts on the other. Urgent jobs take its halves, twice, and the halves that
/// were taken before come free. Answers what the ranks of each run said of their devices.
fn preempted_twice(cluster: &Cluster, python: &str) -> Vec<Vec<String>> {
    submit(cluster, python, "moved", "0.1");
    let mut taken = "filler";
    for (run, urgent) in [(1, "urgent-1"), (2, "urgent-2")] {
        let detail = cluster.await_run("moved", run);
        assert_eq!(detail["nodes"].as_array().unwrap().len(), 2, "{detail}");
        await_steps(cluster, steps(cluster) + 20);
        halves(cluster, urgent, "P0");
        cluster.ok(&["cancel", &format!("{taken}-n0"), &format!("{taken}-n1")]);
        taken = urgent;
    }
    cluster.ok(&["wait", "moved", "--timeout", "3m"]);
    (1..=3).map(|attempt| devices(cluster, attempt)).collect()
}

/// A job on each node that needs half of its GPUs.
fn halves(cluster: &Cluster, name: &str, class: &str) {
    for node in ["n0", "n1"] {
        cluster.submit(&format!(
            "name: {name}-{node}\npriority: {class}\npool: pool-{node}\nresources: {{gpus: 4}}\ncommand: [sleep, '600']\n"
        ));
    }
    for node in ["n0", "n1"] {
        cluster.await_run(&format!("{name}-{node}"), 1);
    }
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
