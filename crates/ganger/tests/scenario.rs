//! `ganger sim scenario` as a user meets it: what it prints where, and its exit codes.
#[path = "support/offline.rs"]
mod offline;

use offline::Folder;
use std::path::Path;

const HOLDS: &str = "nodes 1 custom gpus=1\nat 0s submit A gpus=1\nfinally expect A done ended=1h\n";
const FAILS: &str = "nodes 1 custom gpus=1\nat 0s submit A gpus=1\n\nat 1m expect A pending started=2h\n";

fn sim(words: &[&str]) -> (i32, String, String) {
    offline::sim("scenario", words)
}

#[test]
fn a_scenario_that_holds_ends_with_0_and_tells_each_expectation() {
    let folder = Folder::new("holds");
    let file = folder.file("holds.txt", HOLDS);
    let (code, out, error) = sim(&[&file]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(out.contains(":3: expect A done ended=1h ... ok"), "{out}");
    assert!(out.contains("passed, 1 of 1 expectation held, 0 rules broken"), "{out}");
    let (code, out, _) = sim(&["-v", &file]);
    assert!(code == 0 && out.contains("submitted") && out.contains("A attempt 1 runs"), "{out}");
}

#[test]
fn a_failed_expectation_ends_with_1_and_the_actual_values() {
    let folder = Folder::new("fails");
    let (holds, fails) = (folder.file("holds.txt", HOLDS), folder.file("fails.txt", FAILS));
    let (code, out, error) = sim(&[&fails, &holds]);
    assert_eq!((code, error.as_str()), (1, ""));
    assert!(out.contains(":4: expect A pending started=2h ... FAILED, actual: running started=0s"), "{out}");
    assert!(out.contains("passed, 1 of 1"), "the other file is run all the same: {out}");
    assert!(out.ends_with("\n2 files: 1 passed, 1 failed; 1 of 2 expectations held\n"), "{out}");
}

#[test]
fn json_is_an_array_with_one_object_a_file() {
    let folder = Folder::new("json");
    let (holds, fails) = (folder.file("holds.txt", HOLDS), folder.file("fails.txt", FAILS));
    let (code, out, error) = sim(&["-o", "json", &holds, &fails]);
    assert_eq!((code, error.as_str()), (1, ""));
    let files: serde_json::Value = serde_json::from_str(&out).expect("JSON and nothing else");
    let files = files.as_array().expect("an array");
    assert_eq!(files.len(), 2);
    assert_eq!(files[0]["name"], holds);
    assert_eq!(files[0]["expectations"][0]["ok"], true);
    assert_eq!(files[0]["ended_at_ms"], 3_600_000);
    assert_eq!(files[0]["violations"], serde_json::json!([]));
    let failed = &files[1]["expectations"][0];
    assert_eq!(
        (failed["line"].as_u64(), failed["ok"].as_bool(), failed["at_ms"].as_u64()),
        (Some(4), Some(false), Some(60_000))
    );
    assert_eq!(failed["actual"], "running started=0s");
}

#[test]
fn a_malformed_file_ends_with_2_its_line_and_what_is_known() {
    let folder = Folder::new("malformed");
    for (name, text, says) in [
        ("statement", "nodes 1 pcie-4\nat 0s sumbit A\n", &["line 2", "sumbit", "submit, expect, fail"][..]),
        ("key", "nodes 1 pcie-4\n\nat 0s submit A worker=2\n", &["line 3", "worker", "workers, min, step"]),
        ("machine", "# one\nnodes 1 dgx-z9\n", &["line 2", "dgx-z9", "dgx-h100", "custom"]),
        ("setting", "nodes 1 pcie-4\nset aging=1h\n", &["line 2", "aging", "aging.step, aging.ceiling"]),
        ("name", "nodes 1 pcie-4\nat 0s submit A\nat 1s cancel B\n", &["line 3", "\"B\"", "known: A"]),
        ("value", "nodes 1 pcie-4\nat soon submit A\n", &["line 2", "soon", "90s"]),
        ("later", "nodes 1 pcie-4\nat 0s xid n0/gpu0 79\n", &["line 2", "not supported yet: xid"]),
        ("refused", "nodes 1 pcie-4\nat 0s submit A workers=2 min=3\n", &["line 2", "min 3"]),
    ] {
        let file = folder.file(name, text);
        let (code, out, error) = sim(&[&file]);
        assert_eq!((code, out.as_str()), (2, ""), "{name}: {error}");
        assert!(error.contains(&file), "{name}: {error}");
        says.iter().for_each(|word| assert!(error.contains(word), "{name}: {word:?} is not in {error}"));
    }
}

#[test]
fn a_malformed_file_outweighs_a_failed_one_and_hides_no_other() {
    let folder = Folder::new("worst");
    let (bad, fails) = (folder.file("bad.txt", "nodes\n"), folder.file("fails.txt", FAILS));
    let (code, out, error) = sim(&["-o", "json", &bad, &fails]);
    assert_eq!(code, 2);
    assert!(error.contains("bad.txt: line 1: the number of nodes is missing"), "{error}");
    let files: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(files.as_array().map(Vec::len), Some(1));
    assert!(Path::new(files[0]["name"].as_str().expect("a name")).ends_with("fails.txt"));
}
