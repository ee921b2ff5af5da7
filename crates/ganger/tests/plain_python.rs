//! The plain Python example as the guide of checkpoints tells it: runs, yields to an urgent job with its work saved and
//! sealed, and resumes from that very step. Without a python3 it says that it is skipped.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
mod support;

use ganger_agent::checkpoint;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use support::{Cluster, until};

const JOB: &str = include_str!("../../../examples/plain-python/train.yaml");
const STEPS: u64 = 120;

#[test]
fn a_preempted_plain_python_training_resumes_from_its_step() {
    let probe = Command::new("python3").args(["-c", "pass"]).stdin(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: there is no python3");
    }
    let cluster = Cluster::up("1xdgx-h100");
    cluster.submit(&job(&cluster));
    cluster.await_run("plain-python", 1);
    // Its own word that it has begun: before that, no program could hear a signal.
    until("the training begins", || begins(&cluster, 1));
    until("a checkpoint of itself", || {
        Some(cluster.job("plain-python")["checkpoint"]["step"].clone()).filter(Value::is_u64)
    });
    cluster.submit("name: urgent\npriority: P0\nresources: {gpus: 8}\ncommand: [sleep, '600']\n");
    cluster.await_run("urgent", 1);
    let saved = until("the save at the stop", || ends(&cluster, 1));
    assert!((50..STEPS).contains(&saved), "{saved}");
    cluster.ok(&["cancel", "urgent"]);
    cluster.ok(&["wait", "plain-python", "--timeout", "2m"]);
    // On a crowded machine a start may come too late and be made again, which loses nothing.
    let detail = cluster.job("plain-python");
    let newest = u32::try_from(detail["attempt"].as_u64().unwrap()).unwrap();
    assert!(newest >= 2 && detail["evictions"] == 1, "{detail}");
    assert_eq!(
        (begins(&cluster, newest), ends(&cluster, newest)),
        (Some(saved), Some(STEPS)),
        "it resumes where it ended"
    );
    let last = checkpoint::verify(Path::new(detail["checkpoint"]["path"].as_str().unwrap())).unwrap();
    assert_eq!((last.format, last.step), (checkpoint::Format::Manifest, Some(STEPS)));
}

/// The example's own file, with fewer steps, a directory of this test, and where this machine's Python is. `ganger` itself is found without being named.
fn job(cluster: &Cluster) -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plain-python").canonicalize().unwrap();
    let job = JOB.replace("\"600\"", &format!("\"{STEPS}\""));
    let job = job.replace("/tmp/ganger-checkpoints", &cluster.dir.display().to_string());
    assert!(job.contains(&format!("\"{STEPS}\"")) && !job.contains("/tmp/ganger-checkpoints"), "{job}");
    let path = std::env::var("PATH").unwrap();
    format!("{job}workdir: {}\nenv: {{PATH: '{path}'}}\n", example.display())
}

fn begins(cluster: &Cluster, attempt: u32) -> Option<u64> {
    said(cluster, &format!("attempt {attempt} begins at step "))
}

fn ends(cluster: &Cluster, attempt: u32) -> Option<u64> {
    said(cluster, &format!("attempt {attempt} ends at step "))
}

/// The number after these words in the log of the attempt that says them.
fn said(cluster: &Cluster, words: &str) -> Option<u64> {
    let attempt = words.split(' ').nth(1)?;
    let log = cluster.ganger(&["logs", "plain-python", "--attempt", attempt]).out;
    let line = log.lines().find_map(|line| line.strip_prefix(words))?;
    line.split(' ').next()?.parse().ok()
}
