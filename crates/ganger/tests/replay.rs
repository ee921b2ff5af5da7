//! `ganger sim replay` as a user meets it: traces worked out by hand, what it prints where, and its exit codes.
#[path = "support/offline.rs"]
mod offline;

use offline::Folder;
use serde_json::Value;

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,100,1,T4\nn1,8000,100,1,G2\n";
const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1,1,1000\nb,1000,1,1,1000\n";
const MURI: &str = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n0,64,0,2000,none,1000\n1,64,100000,200,none,1000\n";

fn replay(words: &[&str]) -> (i32, String, String) {
    offline::sim("replay", words)
}

fn json(words: &[&str]) -> Value {
    let (code, out, error) = replay(&[words, &["-o", "json"]].concat());
    assert_eq!((code, error.as_str()), (0, ""), "{words:?}");
    serde_json::from_str(&out).expect("JSON")
}

/// Two whole GPUs are asked and two are there: half arrived is half allocated, all is all, whoever chooses.
#[test]
fn openb_says_how_much_is_allocated_when_all_is_asked() {
    let folder = Folder::new("openb");
    let (pods, nodes) = (folder.file("pods.csv", PODS), folder.file("nodes.csv", NODES));
    let files = ["openb", "--pods", &pods, "--nodes", &nodes];
    for policy in ["ours", "random", "fgd-rounded"] {
        let one = json(&[&files[..], &["--policy", policy, "--seed", "7"]].concat());
        assert_eq!(one["allocated_pct"], 100.0, "{policy}: {one}");
        assert!(one["frag_ratio_at"]["60"].is_number() && one["frag_ratio_at"]["90"].is_number(), "{one}");
    }
    let many = json(&[&files[..], &["--policy", "all", "--seeds", "1..4"]].concat());
    let rows = many.as_array().expect("a list");
    assert!(rows.len() >= 9 && rows.iter().all(|row| row["seeds"] == 3 && row["allocated_pct_sd"] == 0.0), "{many}");
    let (code, table, error) = replay(&files);
    assert_eq!((code, error.as_str()), (0, ""), "no bar where standard error is no terminal");
    assert!(table.starts_with("POLICY") && table.contains("ours") && table.contains("100.00"), "{table}");
}

#[test]
fn muri_says_completion_times_waits_and_what_starts_cost() {
    let folder = Folder::new("muri");
    let jobs = folder.file("trace.csv", MURI);
    let one = json(&["muri", "--jobs", &jobs, "--policy", "srtf-oracle"]);
    let expected = serde_json::json!({
        "mean_jct_s": (2_263.0 + 213.0) / 2.0, "p99_jct_s": 2_263.0, "makespan_s": 2_263.0,
        "preemptions": 1, "preemptions_per_job": 0.5, "lost_gpu_hours": 64.0 * 30.0 / 3_600.0, "max_wait_s": 213.0,
    });
    assert_eq!(one, expected);
    let compat = json(&["muri", "--jobs", &jobs, "--policy", "srtf-oracle", "--compat"]);
    assert_eq!(compat["makespan_s"], 2_243.0);
    let (code, table, _) = replay(&["muri", "--jobs", &jobs]);
    assert_eq!(code, 0);
    assert!(["fifo", "fifo-backfill", "sjf-oracle", "tiresias"].iter().all(|name| table.contains(name)), "{table}");
}

#[test]
fn ours_goes_through_the_whole_lifecycle_and_the_report_stands_alone() {
    let folder = Folder::new("ours");
    let jobs = folder.file("trace.csv", MURI);
    let page = folder.0.join("report.html").display().to_string();
    let one = json(&["muri", "--jobs", &jobs, "--policy", "ours", "--html", &page]);
    // The long one is rotated out after its 30 minutes, resumes when the short one is through, and pays a second start.
    assert_eq!((&one["makespan_s"], &one["preemptions"]), (&serde_json::json!(2_263.0), &serde_json::json!(1)));
    let html = std::fs::read_to_string(&page).expect("the report");
    assert!(html.contains("Jobs that wait") && html.matches("<svg").count() == 3 && !html.contains("<script"));
    let (code, _, error) = replay(&["muri", "--jobs", &jobs, "--policy", "ours", "--compat"]);
    assert_eq!(code, 2);
    assert!(error.contains("cannot replay ours in compat mode"), "{error}");
    let (code, table, _) = replay(&["muri", "--jobs", &jobs, "--compat"]);
    assert!(code == 0 && !table.contains("ours"), "{table}");
    let (code, _, error) = replay(&["muri", "--jobs", &jobs, "--policy", "fifo", "--html", "/no/such/page.html"]);
    assert_eq!(code, 2);
    assert!(error.contains("cannot write the report to /no/such/page.html"), "{error}");
}

#[test]
fn mixed_load_and_failing_servers_are_tables_and_json() {
    let folder = Folder::new("trials");
    let pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
                scheduled_time\na,1,1,1,1000,,BE,Running,0,100,0\nb,1,1,8,1000,,LS,Running,7200,7300,7200\n\
                c,1,1,1,1000,,LS,Running,30000,30100,30000\n";
    let jobs = "job_id,submission_time,duration,num_gpu\nx,0,20000,8\ny,0,20000,8\n";
    let (pods, jobs) = (folder.file("pods.csv", pods), folder.file("jobs.csv", jobs));
    let files = ["mixed", "--pods", &pods, "--jobs", &jobs, "--nodes", "2", "--every", "1"];
    let rows = json(&files);
    assert_eq!(rows.as_array().map(Vec::len), Some(4), "{rows}");
    assert_eq!(
        (&rows[0]["policy"], &rows[0]["claims"], &rows[0]["claims_kept"]),
        (&"ours".into(), &1.into(), &1.into())
    );
    let failing = ["failures", "--jobs", &jobs, "--nodes", "4", "--rate", "2e-3,0.5"];
    let rows = json(&failing);
    assert_eq!(rows.as_array().map(Vec::len), Some(6), "{rows}");
    assert!(rows[0]["effective_ratio"].as_f64().is_some_and(|ratio| ratio > 0.9), "{rows}");
    let (code, table, _) = replay(&failing);
    assert!(code == 0 && table.starts_with("RATE") && table.contains("no-checks"), "{table}");
    let (code, _, error) = replay(&["failures", "--jobs", &jobs, "--rate", "often"]);
    assert_eq!(code, 2);
    assert!(error.contains("`often` is no rate"), "{error}");
}

#[test]
fn the_other_readers_feed_the_same_queue() {
    let folder = Folder::new("others");
    let philly = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:00:00,66.0,1,66,aa\n";
    let itp = "job_id,submission_time,duration,num_gpu\nx,0,66,1\n";
    let acme =
        "job_id,arrival_time,num_iteration,gpu_workers,gpu_per_worker,cpu_per_gpu_worker\n0,0.0,132,1,1.0,15.0\n";
    for (reader, text) in [("philly", philly), ("itp", itp), ("acme", acme)] {
        let file = folder.file(reader, text);
        // 10 s for the start and 66 s of work.
        let one = json(&[reader, "--jobs", &file, "--policy", "fifo", "--nodes", "1"]);
        assert_eq!(one["makespan_s"], 76.0, "{reader}: {one}");
    }
}

#[test]
fn bad_traces_and_words_end_with_2_and_their_place() {
    let folder = Folder::new("bad");
    let (pods, nodes) = (folder.file("pods.csv", PODS), folder.file("nodes.csv", NODES));
    let wrong = folder.file("wrong.csv", &PODS.replace("b,1000", "b,lots"));
    let large = folder.file("large.csv", &MURI.replace("0,64,0", "0,65,0"));
    let damaged = folder.0.join("damaged.gz");
    std::fs::write(&damaged, [0x1f, 0x8b, 0, 0]).expect("a file for the test");
    let damaged = damaged.display().to_string();
    for (words, says) in [
        (
            vec!["openb", "--pods", &wrong, "--nodes", &nodes],
            "wrong.csv:3:3: cpu_milli is `lots`; expected thousandths",
        ),
        (vec!["openb", "--pods", &damaged, "--nodes", &nodes], "its gzip data is damaged"),
        (vec!["openb", "--pods", &pods, "--nodes", &pods], "no column `sn`; expected it among"),
        (vec!["openb", "--pods", &pods, "--nodes", &nodes, "--policy", "best"], "no policy `best`; there are random"),
        (vec!["openb", "--pods", &pods, "--nodes", &nodes, "--seeds", "9..1"], "write A..B with A below B"),
        (vec!["muri", "--jobs", &large], "job 0 asks for 65 GPUs, which 8 nodes of 8 never hold"),
        (vec!["muri", "--jobs", &large, "--label", "bert"], "no job has label `bert`"),
        (vec!["muri", "--jobs", "/no/such"], "cannot read /no/such"),
    ] {
        let (code, out, error) = replay(&words);
        assert_eq!((code, out.as_str()), (2, ""), "{words:?}: {error}");
        assert!(error.contains(says), "{words:?}: {error}");
    }
}
