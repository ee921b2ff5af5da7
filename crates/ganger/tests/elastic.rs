//! An elastic gang with real processes: it gives up workers for an urgent job and takes them back, each time by a checkpoint
//! and a new attempt of another size whose ranks are told that size, and it ends with every step done once.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
mod support;

use serde_json::Value;
use support::{Cluster, assert_never_twice, stamps, until};

const STEPS: u64 = 400;

#[test]
fn an_elastic_gang_shrinks_and_grows_through_its_checkpoint() {
    let cluster = Cluster::up("2xdgx-h100");
    let settings = cluster.file("settings.yaml", "settings: {grow.after: 0s}\n");
    cluster.ok(&["cluster", "apply", &settings]);
    cluster.submit(&training(&cluster));
    assert_eq!(size(&cluster.await_run("elastic", 1)), 8);
    until("its first steps", || said(&cluster, 1, "step 20 "));

    cluster.submit("name: urgent\npriority: P0\nresources: {gpus: 8}\ncommand: [sleep, '600']\n");
    cluster.await_run("urgent", 1);
    let smaller = newest_run(&cluster, 2);
    assert_eq!((size(&smaller), smaller["evictions"].as_u64()), (4, Some(0)));
    let number = smaller["attempt"].as_u64().unwrap();
    until("the smaller gang trains", || said(&cluster, number, "rank 0/4"));
    assert_eq!(cluster.events("elastic", "shrinking").len(), 1);

    cluster.ok(&["cancel", "urgent"]);
    let larger = newest_run(&cluster, number + 1);
    assert_eq!(size(&larger), 8);
    let last = larger["attempt"].as_u64().unwrap();
    until("the larger gang trains", || said(&cluster, last, "rank 0/8"));
    cluster.refused(&["resize", "elastic", "2"], &["allows 4 or 8 workers, not 2"]);
    cluster.ok(&["wait", "elastic", "--timeout", "3m"]);
    let done = cluster.job("elastic");
    assert_eq!((done["state"].as_str(), done["evictions"].as_u64()), (Some("done"), Some(0)), "{done}");
    said(&cluster, last, "final loss").unwrap();
    for rank in 0..8 {
        assert_never_twice(&stamps(&cluster.dir.join("stamps"), rank));
    }
}

/// Two GPUs a worker: all of it needs both nodes, half of it one.
fn training(cluster: &Cluster) -> String {
    let dir = cluster.dir.display();
    format!(
        "name: elastic\npriority: P3\ngang: {{workers: 8, min: 4, step: 4}}\nresources: {{gpus: 2, cpus: 1}}\n\
         checkpoint: {{dir: {dir}/checkpoints, signal: SIGUSR1, grace: 30s}}\n\
         command: [{}, example, train, --steps, '{STEPS}', --step-time, 50ms, --log-every, '10', --stamp-dir, {dir}/stamps]\n",
        env!("CARGO_BIN_EXE_ganger")
    )
}

fn size(detail: &Value) -> usize {
    detail["ranks"].as_array().map_or(0, Vec::len)
}

/// On a crowded machine a start may come too late and be made again, which loses nothing.
fn newest_run(cluster: &Cluster, from: u64) -> Value {
    let runs = |detail: &Value| detail["state"] == "running" && detail["attempt"].as_u64() >= Some(from);
    until(&format!("attempt {from} runs"), || Some(cluster.job("elastic")).filter(runs))
}

fn said(cluster: &Cluster, attempt: u64, words: &str) -> Option<()> {
    let log = cluster.ganger(&["logs", "elastic", "--attempt", &attempt.to_string()]).out;
    log.contains(words).then_some(())
}
