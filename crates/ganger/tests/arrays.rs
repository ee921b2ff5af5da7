//! A script with `#SBATCH --array` at the real binary: each task once, with Slurm's names in its environment, never more than
//! two at once, a task named by its index in every command, and a server that is killed in the midst.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
mod support;

use serde_json::Value;
use std::fs;
use support::{Cluster, until};

const SCRIPT: &str = r#"#!/bin/bash
#SBATCH --job-name=sweep
#SBATCH --array=0-10:2%2
#SBATCH --output=out-%A_%a.log
mkdir running/$SLURM_ARRAY_TASK_ID
ls running | wc -l >> at-once
echo "$SLURM_ARRAY_JOB_ID $SLURM_JOB_ID $SLURM_ARRAY_TASK_COUNT $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX $SLURM_ARRAY_TASK_STEP" >> env-$SLURM_ARRAY_TASK_ID
echo task $SLURM_ARRAY_TASK_ID of $SLURM_JOB_NAME
while [ ! -e go ]; do sleep 0.05; done
rmdir running/$SLURM_ARRAY_TASK_ID
"#;

#[test]
fn each_task_of_an_array_runs_once_through_a_restart() {
    let mut cluster = Cluster::server("60s");
    cluster.start_agent("n0");
    cluster.await_ready(1);
    fs::create_dir(cluster.dir.join("running")).unwrap();
    let script = cluster.file("sweep.sh", SCRIPT);
    assert_eq!(cluster.ok(&["submit", &script]), "1\n");
    for task in ["1_0", "sweep_2"] {
        cluster.await_run(task, 1);
    }
    let table = cluster.ok(&["jobs"]);
    assert!(
        table.lines().any(|line| line.starts_with("1_[4,6,8,10%2]") || line.starts_with("1_[4-10:2%2]")),
        "{table}"
    );
    assert!(table.lines().any(|line| line.starts_with("1_0 ")), "{table}");
    assert_eq!(cluster.json(&["jobs", "--array"]).as_array().unwrap().len(), 6);
    assert!(cluster.ok(&["why", "1_8"]).contains("ArrayLimit"), "{}", cluster.ok(&["why", "1_8"]));
    until("the log of a task", || cluster.ok(&["logs", "1_2"]).contains("task 2 of sweep").then_some(()));
    assert!(cluster.ok(&["exec", "1_0", "--", "sh", "-c", "echo $SLURM_ARRAY_TASK_ID"]).starts_with('0'));
    assert!(cluster.ganger(&["show", "1_3"]).error.contains("its tasks are 0-10:2%2"));

    cluster.ok(&["cancel", "1_6"]);
    cluster.end("server", rustix::process::Signal::KILL);
    cluster.restart_server("60s");
    assert_eq!(cluster.job("1_6")["state"], "cancelled");
    cluster.file("go", "");
    let waited = cluster.ganger(&["wait", "sweep", "--timeout", "2m"]);
    assert!(waited.code == 1 && waited.error.contains("job 1 cancelled"), "{waited:?}");

    for (place, index) in [(1, 0), (2, 2), (3, 4), (5, 8), (6, 10)] {
        let env = fs::read_to_string(cluster.dir.join(format!("env-{index}"))).unwrap();
        assert_eq!(env, format!("1 {} 6 0 10 2\n", place + 1), "task {index}");
        let log = fs::read_to_string(cluster.dir.join(format!("out-1_{index}.log"))).unwrap();
        assert!(log.contains(&format!("task {index} of sweep")), "{log}");
        let task = cluster.job(&format!("sweep_{index}"));
        assert_eq!((task["state"].as_str(), task["attempt"].as_u64()), (Some("done"), Some(1)), "{task}");
    }
    assert!(!cluster.dir.join("env-6").exists(), "it was cancelled before it started");
    let at_once = fs::read_to_string(cluster.dir.join("at-once")).unwrap();
    assert!(at_once.lines().all(|line| ["1", "2"].contains(&line.trim())), "{at_once}");
    let array: Value = cluster.job("1");
    assert_eq!(array["note"], "6 tasks: 5 done, 0 failed, 1 cancelled");
}

#[test]
fn arrays_that_cannot_be_are_refused_with_the_place() {
    let cluster = Cluster::up("1xdgx-h100");
    let file = cluster.file("sweep.yaml", "name: sweep\narray: 0-9,4\ncommand: ['true']\n");
    cluster.refused(&["submit", &file], &["array", "from character 5 on: index 4 is named twice"]);
    cluster.refused(&["submit", &file, "--array", "5-3"], &["\"5-3\" is empty: 3 comes before 5"]);
    let script = cluster.file("sweep.sh", "#!/bin/bash\n#SBATCH -a 0-9%x\ntrue\n");
    cluster.refused(&["submit", &script], &["sweep.sh:2: --array", "from character 5 on", "run at once"]);
    cluster.refused(&["submit", &file, "--array", "1-100001"], &["takes 100000 of one array (array.max)"]);
    let id = cluster.ok(&["submit", &file, "--array", "3,1"]);
    cluster.ok(&["wait", id.trim()]);
    assert_eq!(cluster.job("sweep_1")["task"], serde_json::json!({"array": 1, "index": 1}));
    assert_eq!(cluster.job("sweep_3")["id"], 2, "the first that was written has the first number");
}
