//! A day of a user at the real binary: `ganger up` with virtual nodes, and every command by its address alone. Each table
//! form ends with 0, each JSON form has the fields that are promised, and what is wrong is refused with 2 and leaves
//! nothing behind.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
mod support;

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use support::{Cluster, until};

const HELLO: &str = "
name: hello
gang: {workers: 2}
resources: {gpus: 8, memory: 1GiB}
command: [sh, -c, 'echo hello from $RANK of $WORLD_SIZE on $CUDA_VISIBLE_DEVICES']
";

/// Both forms of a command; answers the JSON.
fn both(cluster: &Cluster, words: &[&str]) -> Value {
    assert!(!cluster.ok(words).is_empty(), "{words:?} prints nothing");
    cluster.json(words)
}

/// That an object has these fields.
fn has(object: &Value, fields: &[&str]) {
    for field in fields {
        assert!(object.get(field).is_some(), "{field} is missing: {object}");
    }
}

const JOB_FIELDS: [&str; 14] = [
    "id",
    "name",
    "user",
    "queue",
    "priority",
    "state",
    "state_since",
    "workers",
    "gpus",
    "nodes",
    "attempt",
    "evictions",
    "submitted_at",
    "started_at",
];

/// A job that runs until it is told otherwise.
fn sleeper(name: &str, gpus: u32, workers: u32) -> String {
    format!(
        "name: {name}\ngang: {{workers: {workers}}}\nresources: {{gpus: {gpus}}}\ncheckpoint: {{grace: 2s}}\n\
         command: [sh, -c, 'echo up $RANK; exec sleep 600']\n"
    )
}

#[test]
fn jobs_are_submitted_watched_and_changed() {
    let cluster = Cluster::up("2xdgx-h100");
    cluster.ok(&["doctor"]);
    let tried = cluster.json(&["doctor", cluster.dir.to_str().unwrap()]);
    let checks: Vec<&str> = tried.as_array().unwrap().iter().filter_map(|found| found["check"].as_str()).collect();
    for check in ["cgroups", "files", "memlock", "shared", "server", "nodes"] {
        assert!(checks.contains(&check), "{check}: {tried}");
    }
    submitted_in_every_form(&cluster);
    watched_while_it_runs(&cluster);
    held_and_requeued(&cluster);
    names_that_are_taken(&cluster);
}

/// Scripts are submitted again while they run; who names a job in a job file means that one.
fn names_that_are_taken(cluster: &Cluster) {
    let script = cluster.file("again.sh", "#!/bin/sh\n#SBATCH --job-name=again\nsleep 600\n");
    let ids: Vec<String> = (0..3).map(|_| cluster.ok(&["submit", &script]).trim().to_string()).collect();
    let names: Vec<Value> = ids.iter().map(|id| cluster.job(id)["name"].clone()).collect();
    assert_eq!(names, ["again", "again-2", "again-3"]);
    cluster.ok(&["cancel", "again-2"]);
    cluster.await_state(&ids[1], "cancelled");
    let fourth = cluster.ok(&["submit", &script]);
    assert_eq!(cluster.job(fourth.trim())["name"], "again-2", "a name is free again with its job");
    cluster.refused_with(&["submit", "-"], b"name: again\ncommand: [x]\n", &["job", "of that name"]);
    for id in [&ids[0], &ids[2], &fourth.trim().to_string()] {
        cluster.ok(&["cancel", id]);
    }
}

fn submitted_in_every_form(cluster: &Cluster) {
    let file = cluster.file("hello.yaml", HELLO);
    let dry = both(cluster, &["submit", "--dry-run", &file]);
    has(&dry, &["summary", "gates", "nodes", "nodes_total", "would_start_now", "satisfiable"]);
    assert_eq!(cluster.json(&["jobs", "--all"]), Value::Array(Vec::new()), "a dry run stores nothing");
    let id = cluster.ok(&["submit", &file]).trim().to_string();
    assert!(id.parse::<u64>().is_ok(), "{id:?} is no id");
    cluster.ok(&["wait", "hello"]);
    let detail = both(cluster, &["show", "hello"]);
    has(&detail, &JOB_FIELDS);
    has(
        &detail,
        &[
            "ended_at",
            "exit_code",
            "resources_per_worker",
            "preemptible",
            "command",
            "ranks",
            "failures",
            "gpu_seconds",
            "events",
        ],
    );
    has(&detail["ranks"][0], &["rank", "node", "gpus", "cpus", "nics", "phase"]);
    assert_eq!((detail["state"].as_str(), detail["exit_code"].as_i64()), (Some("done"), Some(0)));
    let log = cluster.ok(&["logs", "hello"]);
    let lines: Vec<&str> = log.lines().collect();
    assert!(
        lines[0].starts_with("[0] hello from 0 of 2 on GPU-") && lines[1].starts_with("[1] hello from 1 of 2 on GPU-"),
        "{log}"
    );
    assert_eq!(cluster.ok(&["logs", &id, "--rank", "1"]).lines().count(), 1);
    let listed = both(cluster, &["jobs", "--all"]);
    has(&listed[0], &JOB_FIELDS);
    assert_eq!(listed[0]["name"], "hello");
    assert_eq!(cluster.json(&["jobs", "--state", "done"])[0]["name"], "hello");
    let events = both(cluster, &["events", "--job", "hello"]);
    has(&events[0], &["number", "at", "kind", "job", "text"]);
    both(cluster, &["why", "hello"]);

    let script = "#!/bin/bash\n#SBATCH --job-name=scripted\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n\
                  srun sh -c 'echo \"node $SLURM_NODEID of $SLURM_JOB_NUM_NODES\"'\n";
    let file = cluster.file("scripted.sh", script);
    cluster.ok(&["submit", &file]);
    cluster.ok(&["wait", "scripted", "--timeout", "90s"]);
    let log = cluster.ok(&["logs", "scripted"]);
    assert!(log.contains("node 0 of 2") && log.contains("node 1 of 2"), "{log}");
    let answer = cluster.ganger_with(&["-o", "json", "submit", "-"], b"name: piped\ncommand: exit 4\nretries: 0\n");
    has(&serde_json::from_str(&answer.out).unwrap(), &["id", "name", "state", "ranks"]);
    assert_eq!(cluster.ganger(&["wait", "piped", "hello"]).code, 1, "one of them failed");
    assert_eq!(cluster.job("piped")["exit_code"], 4);
    let piped = cluster.ganger_with(&["submit", "-"], script.replace("scripted", "again").as_bytes());
    assert_eq!(piped.code, 0, "{piped:?}");
    cluster.ok(&["wait", piped.out.trim()]);
}

fn watched_while_it_runs(cluster: &Cluster) {
    cluster.submit(&sleeper("sleepy", 4, 2));
    cluster.await_run("sleepy", 1);
    let mut follower = cluster.command(&["logs", "-f", "sleepy"]);
    let follower = follower.stdout(Stdio::piped()).stdin(Stdio::null()).spawn().unwrap();
    let inside = cluster.ganger(&["exec", "sleepy", "--rank", "1", "--", "sh", "-c", "echo inside $RANK; exit 5"]);
    assert_eq!((inside.code, inside.out.as_str()), (5, "inside 1\n"), "{inside:?}");
    let echoed = cluster.ganger_with(&["exec", "sleepy", "--", "cat"], b"there and back");
    assert_eq!((echoed.code, echoed.out.as_str()), (0, "there and back"), "{echoed:?}");
    let nodes = both(cluster, &["nodes"]);
    has(
        &nodes[0],
        &["name", "profile", "gpu_model", "leaf", "health", "state", "capacity", "used", "devices", "owners", "jobs"],
    );
    let used: u64 = nodes.as_array().unwrap().iter().map(|node| node["used"]["gpus"].as_u64().unwrap()).sum();
    assert_eq!(used, 8);
    both(cluster, &["nodes", "n0"]);
    both(cluster, &["topo"]);
    both(cluster, &["topo", "n0"]);
    assert_eq!(cluster.ganger(&["wait", "sleepy", "--timeout", "1s"]).code, 1, "it is still running");
    let cancelled = cluster.json(&["cancel", "sleepy"]);
    has(&cancelled[0], &JOB_FIELDS);
    assert_eq!(cluster.ganger(&["wait", "sleepy"]).code, 1, "a cancelled job did not end well");
    assert_eq!(cluster.job("sleepy")["state"], "cancelled");
    let followed = follower.wait_with_output().unwrap();
    let text = String::from_utf8(followed.stdout).unwrap();
    assert!(text.contains("[0] up 0\n") && text.contains("[1] up 1\n"), "{text}");
    cluster.refused(&["cancel", "nobody"], &["nobody"]);
}

fn held_and_requeued(cluster: &Cluster) {
    ["n0", "n1"].iter().for_each(|node| drop(cluster.ok(&["cordon", node])));
    let id = cluster.submit(&sleeper("again-and-again", 1, 1));
    both(cluster, &["hold", "again-and-again"]);
    ["n0", "n1"].iter().for_each(|node| drop(cluster.ok(&["uncordon", node])));
    // Behind it in order: when this one has run, the held one was passed over.
    assert_eq!(cluster.ganger(&["run", "--", "true"]).code, 0);
    let held = cluster.job(&id);
    assert_eq!((held["state"].as_str(), held["reason"].as_str()), (Some("pending"), Some("Held")), "{held}");
    assert!(cluster.ok(&["why", &id]).contains("held"));
    cluster.ok(&["release", &id]);
    cluster.await_run(&id, 1);
    cluster.refused(&["hold", &id], &["only a pending job can be held"]);
    cluster.ok(&["requeue", &id]);
    cluster.await_run(&id, 2);
    cluster.ok(&["cancel", &id]);
}

#[test]
fn administrators_change_nodes_queues_settings_and_tokens() {
    let cluster = Cluster::up("2xdgx-h100");
    let node_state = |node: &str| cluster.json(&["nodes", node])[0]["state"].clone();
    for (verb, state) in [("drain", "draining"), ("uncordon", "ready"), ("cordon", "cordoned"), ("uncordon", "ready")] {
        cluster.ok(&[verb, "n0"]);
        assert_eq!(node_state("n0"), state, "after {verb}");
    }
    has(&cluster.json(&["drain", "n0"]), &["name", "state"]);
    cluster.ok(&["uncordon", "n0"]);
    cluster.refused(&["drain", "n7"], &["n7"]);
    cluster.refused(&["forget", "n0"], &["n0", "its agent was heard", "stop the agent"]);
    let queues = cluster
        .file("queues.yaml", "queues:\n- {name: research, weight: 2}\n- {name: research/nlp, limit: {gpus: 4}}\n");
    let applied = both(&cluster, &["queues", "apply", &queues]);
    has(&applied[0], &["name", "weight", "guarantee", "limit", "used", "pending_jobs", "running_jobs"]);
    let names: Vec<Value> = both(&cluster, &["queues"]).as_array().unwrap().iter().map(|q| q["name"].clone()).collect();
    assert!(names.contains(&"research/nlp".into()), "{names:?}");
    let shape = "leaves: {leaf1: [n0], leaf2: [n1]}\nspines: {s1: [leaf1, leaf2]}\nsettings: {aging.step: 24h}\n";
    cluster.ok(&["cluster", "apply", &cluster.file("cluster.yaml", shape)]);
    assert_eq!(cluster.json(&["nodes", "n1"])[0]["leaf"], "leaf2");
    let wrong = cluster.file("wrong.yaml", "settings: {aging.stop: 24h}\n");
    cluster.refused(&["cluster", "apply", &wrong], &["aging.stop"]);
    both(&cluster, &["events"]);
    a_token_opens_what_its_role_may(&cluster);
}

fn a_token_opens_what_its_role_may(cluster: &Cluster) {
    let secret = cluster.ok(&["token", "create", "guest", "--user", "nobody"]).trim().to_string();
    let as_guest = |words: &[&str]| {
        let mut command = cluster.command(words);
        command.env("GANGER_TOKEN", &secret).env("HOME", "/nonexistent").stdin(Stdio::null()).output().unwrap()
    };
    let created = cluster.json(&["token", "create", "other", "--role", "agent", "--user", "nobody"]);
    has(&created, &["name", "role", "user", "created_at", "secret"]);
    let owner =
        cluster.json(&["token", "list"]).as_array().unwrap().iter().find(|t| t["name"] == "owner").unwrap().clone();
    assert_eq!(cluster.json(&["token", "create", "mine"])["user"], owner["user"], "without --user it is the caller's");
    let listed = both(cluster, &["token", "list"]);
    assert!(listed.as_array().unwrap().iter().all(|token| token.get("secret").is_none()), "{listed}");
    assert_eq!(as_guest(&["jobs"]).status.code(), Some(0));
    assert_eq!(as_guest(&["cordon", "n0"]).status.code(), Some(2), "members change no nodes");
    cluster.ok(&["token", "revoke", "guest"]);
    assert_eq!(as_guest(&["jobs"]).status.code(), Some(2), "revoked at once");
}

#[test]
fn run_follows_and_ends_with_the_jobs_exit_code() {
    let mut cluster = Cluster::up("2xdgx-h100");
    let fine = cluster.ganger(&["run", "--gpus", "8", "--nodes", "2", "--", "sh", "-c", "echo rank $RANK"]);
    assert_eq!(fine.code, 0, "{fine:?}");
    assert!(fine.out.contains("[0] rank 0\n") && fine.out.contains("[1] rank 1\n"), "{fine:?}");
    let seven = cluster.ganger(&["run", "--gpus", "8", "--nodes", "2", "--", "sh", "-c", "exit 7"]);
    assert_eq!(seven.code, 7, "{seven:?}");
    let highest = cluster.ganger(&["run", "--gpus", "1", "-n", "3", "--", "sh", "-c", "exit $((RANK / 2 * 9))"]);
    assert_eq!(highest.code, 9, "{highest:?}");
    let typo = cluster.ganger(&["run", "--", "pyhton3", "train.py"]);
    assert_eq!(typo.code, 127, "{typo:?}");
    assert!(typo.out.contains("cannot execute `pyhton3`: No such file"), "{typo:?}");
    assert!(typo.error.contains("failed: rank 0 exited with code 127 (command not found"), "{typo:?}");
    let nodes = cluster.json(&["nodes"]);
    assert!(
        nodes.as_array().unwrap().iter().all(|node| node["cause"].is_null() || node["cause"] == "registered"),
        "{nodes}"
    );
    let terminal = cluster
        .ganger_with(&["run", "--pty", "--", "sh", "-c", "test -t 0 && read line && echo got $line"], b"words\n");
    assert_eq!(terminal.code, 0, "{terminal:?}");
    assert!(terminal.out.contains("words\r\n") && terminal.out.contains("got words\r\n"), "{terminal:?}");
    let wrong = cluster.ganger(&["run", "--gpus", "-1", "--", "true"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.error.contains("gpus"), "{wrong:?}");
    cluster.start("run", &["run", "-J", "long", "--", "sleep", "600"]);
    until("the job is there", || cluster.try_json(&["show", "long"]));
    cluster.await_run("long", 1);
    assert!(!cluster.end("run", rustix::process::Signal::TERM), "its job did not end well");
    assert_eq!(cluster.job("long")["state"], "cancelled", "who ends `run` means its job");
}

/// A YAML that would grow to gigabytes.
fn bomb() -> String {
    let mut text = String::from("name: bomb\ncommand: [x]\nenv:\n  a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let uses = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("  a{level}: &a{level} [{uses}]\n"));
    }
    text
}

#[test]
fn what_is_wrong_is_refused_whole_with_the_field_named() {
    let cluster = Cluster::up("2xdgx-h100");
    cluster.submit(&sleeper("taken", 1, 1));
    let before = cluster.json(&["jobs", "--all"]).as_array().unwrap().len();
    let with = |more: &str| format!("name: wrong\ncommand: [x]\n{more}\n");
    for (yaml, says) in [
        (with("gpu: 4"), "gpu"),
        (with("gang: {wokers: 2}"), "wokers"),
        (with("resources: {gpus: 65}"), "resources.gpus"),
        (with("resources: {gpus: -1}"), "resources.gpus"),
        (with("resources: {gpus: 4294967297}"), "resources.gpus"),
        (with("resources: {gpus: 18446744073709551617}"), "gpus"),
        (with("gang: {workers: 0}"), "gang.workers"),
        (with("gang: {workers: 100000}\nresources: {memory: 16EiB}"), "resources.memory"),
        (with("resources: {memory: -1GiB}"), "resources.memory"),
        (with("resources: {memory: 99999999999999999999TiB}"), "resources.memory"),
        (with("topology: {require: island}"), "topology.require"),
        (
            with("gang: {workers: 3}\nresources: {gpus: 1}\ntopology: {ranks_per_island: 2}"),
            "topology.ranks_per_island",
        ),
        (with("time: -5m"), "time"),
        (with("priority: P9"), "priority"),
        (with("queue: nowhere"), "queue"),
        (with("after: [wrong]"), "after[0]"),
        (with("after: [afterok:nobody]"), "after[0]"),
        (with("roles: []"), "roles"),
        (with("name: twice"), "name"),
        (with("resources: {gpus: 1, gpus: 2}"), "gpus"),
        ("name: taken\ncommand: [x]\n".to_string(), "name"),
        ("command: [x]\n".to_string(), "name"),
        ("name: wrong\n".to_string(), "command"),
        (String::new(), "standard input"),
        ("#!/bin/bash\n#SBATCH --gpus-per-node=lots\nx\n".to_string(), "--gpus-per-node"),
        (bomb(), "standard input"),
    ] {
        cluster.refused_with(&["submit", "-"], yaml.as_bytes(), &[says]);
    }
    cluster.refused_with(&["submit", "-"], b"name: caf\xe9\ncommand: [x]\n", &["standard input", "byte 9"]);
    cluster.refused(&["submit", &cluster.file("big.yaml", vec![b'#'; 50 << 20])], &["larger than 1 MiB"]);
    bodies_that_no_command_sends_are_refused(&cluster);
    cluster.refused(&["queues", "apply", &cluster.file("q.yaml", "queues: [{name: a}, {name: a}]")], &["a"]);
    let jobs = cluster.json(&["jobs", "--all"]);
    assert_eq!(jobs.as_array().unwrap().len(), before, "{jobs}");
}

fn bodies_that_no_command_sends_are_refused(cluster: &Cluster) {
    let token = std::fs::read_to_string(cluster.dir.join("data/server/owner.token")).unwrap();
    let post = |body: &[u8]| {
        let address = cluster.server.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "POST /v1/jobs HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            token.trim(),
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for (body, status, says) in [
        (vec![b' '; 50 << 20], "413", "the limit is"),
        (b"{\"name\": \"caf\xe9\"}".to_vec(), "400", "UTF-8"),
        (br#"{"name": "a", "name": "b", "command": ["x"]}"#.to_vec(), "400", "duplicate field `name`"),
        (br#"{"name": "a", "command": ["x"], "gpus": 1}"#.to_vec(), "400", "gpus"),
        (br#"{"name": "a", "command": ["x"], "resources": {"gpus": -1}}"#.to_vec(), "422", "resources.gpus"),
        (vec![b'['; 100_000], "400", "expected"),
    ] {
        let answer = post(&body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(says), "{says}: {answer}");
    }
}

/// All nodes that an answer counts.
fn counted(why: &Value) -> u64 {
    why["nodes"].as_array().unwrap().iter().map(|count| count["nodes"].as_u64().unwrap()).sum()
}

#[test]
fn a_pending_gang_is_told_why_with_numbers_that_add_up() {
    let cluster = Cluster::up("3xdgx-h100");
    cluster.submit(&sleeper("runs", 6, 1));
    cluster.await_run("runs", 1);
    let first = cluster.submit(&sleeper("waits", 8, 3));
    let second = cluster.submit(&sleeper("behind", 8, 3));
    cluster.await_state(&first, "pending");
    let why = both(&cluster, &["why", "waits"]);
    has(
        &why,
        &[
            "summary",
            "reason",
            "slurm_reason",
            "position",
            "ahead",
            "gates",
            "nodes",
            "nodes_total",
            "satisfiable",
            "preemption",
        ],
    );
    assert_eq!((why["reason"].as_str(), why["position"].as_u64()), (Some("Resources"), Some(1)), "{why}");
    assert_eq!((counted(&why), why["nodes_total"].as_u64()), (3, Some(3)), "{why}");
    let behind = until("the second is told that one is ahead", || {
        Some(cluster.json(&["why", &second])).filter(|why| why["position"] == 2)
    });
    assert!(behind["ahead"][0].as_str().unwrap().contains("waits"), "{behind}");
    // The change that it names does start it.
    let changes = why["would_start_now"].as_array().unwrap();
    assert!(changes.contains(&"workers: 2 instead of 3".into()), "{changes:?}");
    cluster.ok(&["cancel", &first, &second]);
    let smaller = cluster.submit(&sleeper("smaller", 8, 2));
    cluster.await_run(&smaller, 1);
    cluster.ok(&["cordon", "n0"]);
    let barred = cluster.submit(&sleeper("barred", 8, 1));
    let why = cluster.json(&["why", &barred]);
    assert_eq!(counted(&why), 3, "{why}");
    assert!(why["nodes"].as_array().unwrap().iter().any(|count| count["because"] == "cordoned"), "{why}");

    let giant = cluster.file("giant.yaml", sleeper("giant", 8, 4));
    assert_eq!(cluster.ganger(&["submit", "--dry-run", &giant]).code, 1, "it can never run");
    let accepted = cluster.ganger(&["submit", &giant]);
    assert!(accepted.code == 0 && accepted.error.contains("can never run on this cluster as it is"), "{accepted:?}");
    let why = until("the giant is told", || {
        Some(cluster.json(&["why", "giant"])).filter(|why| why["reason"] == "Unsatisfiable")
    });
    assert_eq!(why["satisfiable"], false, "{why}");
    assert!(
        cluster.ok(&["why", "giant"]).contains("Unsatisfiable") || why["summary"].as_str().unwrap().contains("32"),
        "{why}"
    );
}
