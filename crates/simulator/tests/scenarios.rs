//! The golden suite: every file of `scenarios/` holds, and no rule is broken on the way.
#![allow(clippy::unwrap_used)]
use ganger_simulator::run_file;
use std::path::PathBuf;

fn scenario_files() -> Vec<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "txt"))
        .collect();
    files.sort();
    files
}

#[test]
fn every_scenario_holds() {
    let files = scenario_files();
    assert!(files.len() >= 20, "the golden suite is missing: {files:?}");
    let mut failed = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match run_file(&std::fs::read_to_string(&path).unwrap(), &name) {
            Ok(outcome) if outcome.passed() => {}
            Ok(outcome) => {
                println!("{}\n{}", outcome.trace_text(), outcome.report());
                failed.push(name);
            }
            Err(error) => {
                println!("{error}");
                failed.push(name);
            }
        }
    }
    assert!(failed.is_empty(), "scenarios that failed: {failed:?}");
}

#[test]
fn every_scenario_tells_its_story_and_source_first() {
    for path in scenario_files() {
        let text = std::fs::read_to_string(&path).unwrap();
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("# ") && first.len() > 20, "{} opens without its story", path.display());
    }
}
