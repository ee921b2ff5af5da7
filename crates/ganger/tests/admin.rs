//! What somebody meets in the first days: logs of launchers, output files, the cluster read back, and names that are wrong.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
mod support;

use support::{Cluster, until};

#[test]
fn logs_and_outputs_are_where_they_are_asked_for_and_once() {
    let cluster = Cluster::up("2xdgx-h100");
    // A launcher for each node, which stands for two ranks.
    let twice =
        ["run", "--gpus", "8", "-N", "2", "--launcher", "torchrun", "--", "sh", "-c", "echo once on $SLURM_NODEID"];
    let said = cluster.ganger(&twice);
    let mut lines: Vec<&str> = said.out.lines().collect();
    lines.sort_unstable();
    assert_eq!((said.code, lines), (0, vec!["[0] once on 0", "[1] once on 1"]), "{}", said.error);
    let shared = [
        "run",
        "--gpus",
        "1",
        "-N",
        "2",
        "-n",
        "8",
        "--launcher",
        "torchrun",
        "-J",
        "shared",
        "--",
        "sh",
        "-c",
        "echo once",
    ];
    let said = cluster.ganger(&shared);
    let mut lines: Vec<&str> = said.out.lines().collect();
    lines.sort_unstable();
    assert_eq!((said.code, lines), (0, vec!["[0-3] once", "[4-7] once"]), "{}", said.error);
    assert_eq!(cluster.ok(&["logs", "shared"]).lines().count(), 2);
    assert_eq!(cluster.ok(&["logs", "shared", "--rank", "5"]), "once\n");

    let dir = cluster.dir.display();
    let job = |name: &str, output: &str| {
        format!("name: {name}\nworkdir: {dir}\noutput: {output}\nresources: {{gpus: 1}}\ncommand: [echo, hello]\n")
    };
    let id = cluster.submit(&job("made", "runs/%x/%j.log"));
    cluster.await_state("made", "done");
    let log = cluster.dir.join(format!("runs/made/{}.log", id.trim()));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "hello\n", "{}", log.display());
    std::fs::write(cluster.dir.join("file"), "").unwrap();
    cluster.submit(&job("unmade", "file/out.log"));
    cluster.await_state("unmade", "done");
    let said = cluster.ok(&["logs", "unmade"]);
    let (first, rest) = said.split_once('\n').unwrap();
    assert!(first.starts_with("ganger: no link ") && first.contains("cannot make the folder"), "{said}");
    assert_eq!(rest, "hello\n");
}

#[test]
fn the_cluster_is_read_back_taken_apart_and_doubted() {
    let cluster = Cluster::up("2xdgx-h100");
    let file = cluster.file("c.yaml", "pools: [{name: night, nodes: [n1, n5], lend: {windows: '20:00-08:00', to: lab}}]\nsettings: {grow.after: 1m}\n");
    let warned = cluster.ganger(&["cluster", "apply", &file]);
    assert!(warned.error.contains("warning: 1 node not registered yet: n5"), "{}", warned.error);
    assert!(
        warned.error.contains("warning: pool night is lent to queue lab, which does not exist"),
        "{}",
        warned.error
    );
    let page = cluster.ok(&["cluster"]);
    assert!(page.contains("kept, lent 20:00-08:00 to lab") && page.contains("(10m unless set)"), "{page}");
    let shown = cluster.ok(&["cluster", "show", "-o", "json"]);
    let again = cluster.file("again.json", &shown);
    cluster.ok(&["cluster", "apply", &again]);
    assert_eq!(cluster.ok(&["cluster", "show", "-o", "json"]), shown);

    let queues = cluster.file(
        "q.yaml",
        "queues: [{name: lab, whole_nodes: {nodes: 1, gpus: 8, gpu_model: H1000}}, {name: old, limit: {gpus: 8}}]\n",
    );
    let warned = cluster.ganger(&["queues", "apply", &queues]);
    assert!(warned.error.contains("warning: queue lab: it is promised 1 node of 8 H1000, but"), "{}", warned.error);
    cluster.refused(&["queues", "remove", "lab"], &["pool night is lent to it"]);
    let large = cluster.file(
        "large.yaml",
        "name: large\nqueue: old\ngang: {workers: 2}\nresources: {gpus: 8}\ncommand: [sleep, '600']\n",
    );
    let told = cluster.ganger(&["submit", &large]);
    assert!(
        told.error.contains("can never run") && told.error.contains("queue old may hold 8 GPUs at most"),
        "{}",
        told.error
    );
    until("its reason", || cluster.ok(&["why", "large"]).contains("Unsatisfiable").then_some(()));
    cluster.ok(&["cancel", "large"]);
    cluster.ok(&["queues", "remove", "old"]);
    cluster.refused(&["usage", "-q", "old"], &["there is no queue \"old\""]);
    let tiny = cluster.file("tiny.yaml", "settings: {lease: 5ms}\n");
    cluster.refused(&["cluster", "apply", &tiny], &["settings.lease", "shorter than 1s"]);
    let half = cluster.file("half.yaml", "queues: [{name: lab, budget: {gpu_hours: 0, per_user: 1}}]\n");
    cluster.refused(&["queues", "apply", &half], &["queues[0].budget.gpu_hours"]);
}
