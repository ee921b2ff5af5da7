//! Agents and keepers at the real binary: an agent that is killed, replaced or gone for good, trees that try to escape,
//! and starts that a node must refuse. Ranks stamp when they lived, so that no rank can have run twice unseen.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
mod support;

use ganger_agent::keeper::state::{Phase, State};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use support::{Cluster, assert_never_twice, processes_with, stamps, until};

/// A job of the built-in trainer that leaves stamps, losses and checkpoints in the cluster's directory.
struct Training {
    name: &'static str,
    dir: PathBuf,
}

impl Training {
    fn submit(cluster: &Cluster, name: &'static str, workers: u32, flags: &str) -> Training {
        let dir = cluster.dir.join(name);
        fs::create_dir(&dir).unwrap();
        let (binary, at) = (env!("CARGO_BIN_EXE_ganger"), dir.display());
        cluster.submit(&format!(
            "name: {name}\ngang: {{workers: {workers}}}\nresources: {{gpus: 1, cpus: 1}}\ntopology: {{require: node}}\n\
             checkpoint: {{dir: {at}/checkpoints, signal: SIGUSR1, grace: 10s}}\n\
             command: [{binary}, example, train, --stamp-dir, {at}, --loss-log, {at}/losses, {flags}]\n"
        ));
        Training { name, dir }
    }

    fn stamps(&self, rank: u32) -> Vec<support::Stamp> {
        stamps(&self.dir, rank)
    }

    /// Steps and loss bits in the order of writing.
    fn losses(&self) -> Vec<(u64, String)> {
        let text = fs::read_to_string(self.dir.join("losses")).unwrap_or_default();
        let line = |line: &str| {
            let mut words = line.split(' ');
            Some((words.next()?.parse().ok()?, words.next()?.to_string()))
        };
        text.split_inclusive('\n').filter(|l| l.ends_with('\n')).filter_map(line).collect()
    }

    fn step(&self) -> u64 {
        self.losses().last().map_or(0, |(step, _)| *step)
    }

    fn await_step(&self, step: u64) {
        until(&format!("{} is at step {step}", self.name), || (self.step() >= step).then_some(()));
    }

    /// That all steps were made, each time with the same loss, and no rank ran twice at once.
    fn assert_sound(&self, steps: u64, workers: u32) {
        let losses = self.losses();
        for step in 1..=steps {
            let mut bits: Vec<&String> =
                losses.iter().filter(|(made, _)| *made == step).map(|(_, bits)| bits).collect();
            bits.dedup();
            assert_eq!(bits.len(), 1, "step {step} of {}: {bits:?}", self.name);
        }
        (0..workers).for_each(|rank| assert_never_twice(&self.stamps(rank)));
    }
}

fn one_node(lease: &str) -> Cluster {
    let mut cluster = Cluster::server(lease);
    cluster.start_agent("n0");
    cluster.await_ready(1);
    cluster
}

#[test]
fn ranks_go_on_without_their_agent_and_the_next_one_adopts_them() {
    let mut cluster = one_node("60s");
    let training = Training::submit(&cluster, "train", 2, "--steps, '150', --step-time, 50ms, --log-every, '10'");
    // Ends with a code of its own while nobody watches.
    let bell = cluster.dir.join("bell");
    let script =
        format!("echo first words; until [ -e {} ]; do sleep 0.05; done; echo last words; exit 7", bell.display());
    cluster.submit(&format!("name: lonely\ncommand: [sh, -c, '{script}']\n"));
    cluster.await_run("lonely", 1);
    cluster.await_run("train", 1);
    cluster.end("n0", Signal::KILL);
    let step = training.step();
    training.await_step(step + 10);
    fs::write(&bell, "").unwrap();
    let state = cluster.node_dir("n0").join("workers");
    until("the keeper records the end", || {
        let dir = worker_dir(&state, cluster.job("lonely")["id"].as_u64()?)?;
        (State::read(&dir).ok()?.phase == Phase::Ended).then_some(())
    });
    cluster.start_agent("n0");
    let lonely = cluster.await_state("lonely", "failed");
    assert_eq!((lonely["exit_code"].as_i64(), lonely["attempt"].as_u64()), (Some(7), Some(1)), "{lonely}");
    assert_eq!(cluster.ok(&["logs", "lonely"]), "first words\nlast words\n");
    // An upgrade: asked to end, the agent ends well, and its ranks go on.
    assert!(cluster.end("n0", Signal::TERM), "an agent that is asked to end ends well");
    let step = training.step();
    training.await_step((step + 10).min(150));
    cluster.start_agent("n0");
    let done = cluster.await_state("train", "done");
    assert_eq!((done["attempt"].as_u64(), done["exit_code"].as_i64()), (Some(1), Some(0)), "{done}");
    training.assert_sound(150, 2);
    let log = cluster.ok(&["logs", "train", "--rank", "0"]);
    assert!(log.contains("start step 0") && log.contains("step 150 loss") && log.contains("final loss"), "{log}");
    assert_eq!(log.lines().filter(|line| line.contains("step 70 loss")).count(), 1, "{log}");
    assert!(cluster.events("train", "requeued").is_empty());
    until("the node is empty", || (cluster.json(&["nodes", "n0"])[0]["used"]["gpus"] == 0).then_some(()));
}

/// The directory of a job's first worker.
fn worker_dir(workers: &Path, job: u64) -> Option<PathBuf> {
    let begins = format!("{job}.");
    fs::read_dir(workers)
        .ok()?
        .flatten()
        .find(|e| e.file_name().to_string_lossy().starts_with(&begins))
        .map(|e| e.path())
}

#[test]
fn an_agent_that_stays_away_loses_its_ranks_to_another_node_after_the_lease() {
    let mut cluster = Cluster::server("6s");
    cluster.start_agent("n0");
    cluster.start_agent("n1");
    cluster.await_ready(2);
    let training =
        Training::submit(&cluster, "train", 2, "--steps, '400', --step-time, 50ms, --checkpoint-every, '20'");
    let first = cluster.await_run("train", 1)["nodes"][0].as_str().unwrap().to_string();
    until("a checkpoint counts", || cluster.job("train").get("checkpoint").map(drop));
    cluster.end(&first, Signal::KILL);
    let second = cluster.await_run("train", 2);
    assert_ne!(second["nodes"][0], first.as_str(), "{second}");
    // The keepers of the dead agent, which are still there to tell of it, ended its ranks by themselves.
    let alive = processes_with(&format!("{}/logs/", cluster.node_dir(&first).display()));
    assert_eq!(alive, Vec::<i32>::new(), "ranks of {first} outlived the lease");
    let done = cluster.await_state("train", "done");
    assert_eq!(done["attempt"], 2, "{done}");
    training.assert_sound(400, 2);
    let resumed = cluster.ok(&["logs", "train", "--rank", "0"]);
    assert!(resumed.contains("resume step "), "{resumed}");
    for rank in 0..2 {
        let stamps = training.stamps(rank);
        assert!(stamps.iter().all(|stamp| (stamp.attempt == 1) == (stamp.node == first)), "{stamps:#?}");
    }
    let fenced = cluster.json(&["nodes", &first])[0].clone();
    assert_eq!(fenced["health"], "fenced", "{fenced}");
}

#[test]
fn a_cancelled_tree_leaves_nothing_behind() {
    let cluster = Cluster::up("1xdgx-h100");
    let marker = format!("escapee-{}", std::process::id());
    // Each escapes in another way: a new session, a double fork, an empty environment, deafness.
    let script = format!(
        "setsid sh -c \"exec -a {marker} sleep 600\" & (setsid bash -c \"exec -a {marker} sleep 600\" &) ; \
         (env -i bash -c \"exec -a {marker} setsid sleep 600\" &); \
         bash -c \"trap : TERM HUP; while :; do sleep 1; done\" {marker} & trap : TERM; while :; do sleep 1; done"
    );
    cluster.submit(&format!(
        "name: wild\ncheckpoint: {{grace: 1s}}\nenv: {{MARK: {marker}}}\ncommand: [bash, -c, '{script}']\n"
    ));
    cluster.await_run("wild", 1);
    until("all have escaped", || (processes_with(&marker).len() >= 5).then_some(()));
    cluster.ok(&["cancel", "wild"]);
    cluster.await_state("wild", "cancelled");
    let left = processes_with(&marker);
    let names = |pid: &i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    assert!(left.is_empty(), "left behind: {:?}", left.iter().map(names).collect::<Vec<_>>());
}

#[test]
fn a_node_refuses_what_it_cannot_start_and_says_why() {
    // The bad job makes one node cool down, which leaves one.
    let cluster = Cluster::up("2xdgx-h100");
    // Nobody may write there, root included.
    cluster.submit("name: unwritable\ncheckpoint: {dir: /proc/checkpoints}\ncommand: [sleep, '600']\n");
    until("the directory is refused", || {
        let note = cluster.job("unwritable")["note"].as_str()?.to_string();
        note.contains("/proc/checkpoints").then_some(())
    });
    let detail = cluster.job("unwritable");
    assert!(detail["exit_code"].is_null(), "what never ran has no exit code: {detail}");
    assert_eq!(detail["failures"], 0, "the node pays, not the job");
    until("the cooldown is told with its end", || {
        let nodes = cluster.json(&["nodes"]);
        let told = |node: &Value| node["health_cause"].as_str().is_some_and(|cause| cause.contains("open again at"));
        nodes.as_array()?.iter().any(|node| node["state"] == "cooling down" && told(node)).then_some(())
    });
    cluster.ok(&["cancel", "unwritable"]);
    let fine = cluster.ganger(&["run", "--", "echo", "still here"]);
    assert_eq!((fine.code, fine.out.as_str()), (0, "still here\n"), "{fine:?}");
}

/// Ranks ignored what their agent ignored: started with `nohup` or by a script, it had jobs that heard no signal.
#[test]
fn ranks_hear_signals_that_their_agent_ignores() {
    let mut cluster = Cluster::server("60s");
    cluster.start_deaf_agent("n0");
    cluster.await_ready(1);
    let ran = cluster.ganger(&["run", "--", "grep", "SigIgn", "/proc/self/status"]);
    let ignored = ran.out.split_whitespace().nth(1).and_then(|mask| u64::from_str_radix(mask, 16).ok());
    assert_eq!((ran.code, ignored.map(|mask| mask & 0x7fff_ffff)), (0, Some(0)), "{ran:?}");
}

/// Both took the orders of the one name, and each rank ran twice.
#[test]
fn two_agents_are_never_one_node() {
    let mut cluster = one_node("4s");
    let (server, other) = (cluster.server.clone(), cluster.dir.join("data/nodes/other"));
    let words = ["agent", "--join", &server, "--node", "n0", "--profile", "dgx-h100", "--data-dir"];
    cluster.start("other", &[&words[..], &[other.to_str().unwrap()]].concat());
    let log = cluster.dir.join("other.log");
    let says = |what: &str| fs::read_to_string(&log).is_ok_and(|text| text.contains(what));
    until("the second agent is refused", || says("another agent answers for it").then_some(()));
    let ran = cluster.ganger(&["run", "-n", "3", "--", "sh", "-c", "echo rank $RANK"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!other.join("logs").exists() || fs::read_dir(other.join("logs")).unwrap().next().is_none());
    // When the first one is gone for good, the second may take its place.
    cluster.end("n0", Signal::KILL);
    until("the second agent answers for the node", || says("registered").then_some(()));
    until("the node takes work again", || (cluster.ganger(&["run", "--", "true"]).code == 0).then_some(()));
}

/// `wait` failed as if the job had, `logs -f` ended as if it were over.
#[test]
fn what_follows_a_job_outlives_a_restart_of_the_server() {
    let mut cluster = one_node("60s");
    let bell = cluster.dir.join("bell");
    let script = format!("echo first; until [ -e {} ]; do sleep 0.05; done; echo last", bell.display());
    cluster.submit(&format!("name: long\ncommand: [sh, -c, '{script}']\n"));
    cluster.await_run("long", 1);
    let mut followers = [&["wait", "long"][..], &["logs", "long", "-f"]].map(|words| Follower::start(&cluster, words));
    until("the log is followed", || followers[1].said("out").contains("first").then_some(()));
    cluster.end("server", Signal::KILL);
    for follower in &followers {
        until("the outage is told", || follower.said("err").contains("asking again").then_some(()));
    }
    cluster.restart_server("60s");
    fs::write(bell, "").unwrap();
    let codes: Vec<Option<i32>> = followers.iter_mut().map(|f| f.child.wait().unwrap().code()).collect();
    assert_eq!(codes, [Some(0), Some(0)], "{} {}", followers[0].said("err"), followers[1].said("err"));
    assert_eq!(followers[1].said("out"), "first\nlast\n");
}

/// A command that runs beside the test; what it says is in files.
struct Follower {
    child: std::process::Child,
    files: PathBuf,
}

impl Follower {
    fn start(cluster: &Cluster, words: &[&str]) -> Follower {
        let files = cluster.dir.join(format!("follower-{}", words[0]));
        let file = |kind| fs::File::create(files.with_extension(kind)).unwrap();
        let mut command = cluster.command(words);
        let child = command.stdout(file("out")).stderr(file("err")).spawn().unwrap();
        Follower { child, files }
    }

    fn said(&self, kind: &str) -> String {
        fs::read_to_string(self.files.with_extension(kind)).unwrap()
    }
}

#[test]
fn a_torn_checkpoint_is_skipped_with_the_reason_for_the_one_before() {
    let cluster = Cluster::up("1xdgx-h100");
    let training =
        Training::submit(&cluster, "train", 2, "--steps, '200', --step-time, 50ms, --checkpoint-every, '20'");
    let saved = |detail: &Value| detail["checkpoint"]["step"].as_u64().unwrap_or(0);
    until("two checkpoints count", || (saved(&cluster.job("train")) >= 40).then_some(()));
    cluster.ok(&["cordon", "n0"]);
    cluster.ok(&["requeue", "train"]);
    let waiting = cluster.await_state("train", "pending");
    let (newest, step) = (waiting["checkpoint"]["path"].as_str().unwrap().to_string(), saved(&waiting));
    // As a power cut does that a file system did not survive: the name is there, the bytes are not.
    let file = Path::new(&newest).join("parameters.f64");
    let bytes = fs::read(&file).unwrap();
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    cluster.ok(&["uncordon", "n0"]);
    let done = cluster.await_state("train", "done");
    let rejected = cluster.events("train", "checkpoint_rejected");
    assert!(rejected.iter().any(|text| text.contains(&newest) && text.contains("parameters.f64")), "{rejected:?}");
    let log = cluster.ok(&["logs", "train", "--rank", "0"]);
    let before = (step - 1) / 20 * 20;
    assert!(log.contains(&format!("resume step {before} from")), "torn was step {step}: {log}");
    assert_eq!(done["failures"], 0, "{done}");
    assert_eq!(cluster.json(&["nodes", "n0"])[0]["state"], "ready", "a torn file is no fault of the node");
    training.assert_sound(200, 2);
}
