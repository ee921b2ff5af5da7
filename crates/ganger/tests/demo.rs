//! The tour itself, as a test: whatever does not come out as told makes it fail.
use std::process::Command;

#[test]
fn the_tour_comes_out_as_told() {
    let home = std::env::temp_dir().join(format!("ganger-demo-home-{}", std::process::id()));
    std::fs::create_dir_all(&home).unwrap();
    let mut demo = Command::new(env!("CARGO_BIN_EXE_ganger"));
    demo.args(["-o", "json", "demo"]).env_clear().env("HOME", &home).env("PATH", std::env::var_os("PATH").unwrap());
    let output = demo.output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{error}");
    let outcomes: serde_json::Value = serde_json::from_str(&out).unwrap();
    let outcomes = outcomes.as_array().unwrap();
    assert!(outcomes.len() >= 10, "{out}");
    assert!(outcomes.iter().all(|outcome| outcome["ok"] == true), "{out}");
    std::fs::remove_dir_all(&home).unwrap();
}
