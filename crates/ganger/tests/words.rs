//! The binary's words: help pages, exit codes, standard output apart from standard error.
use std::process::{Command, Output, Stdio};

fn ganger(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ganger"));
    command.args(words).env_clear().env("HOME", "/nonexistent").env("COLUMNS", "100").stdin(Stdio::null());
    command
}

fn run(words: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = ganger(words).output().expect("the binary runs");
    (status.code().expect("it exits"), utf8(stdout), utf8(stderr))
}

fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("text")
}

#[test]
fn help_pages_of_the_main_commands() {
    for command in ["", "submit", "run", "jobs", "logs", "topo", "up", "demo"] {
        let words = [command, "--help"];
        let (code, page, _) = run(if command.is_empty() { &words[1..] } else { &words });
        assert_eq!(code, 0, "{command}");
        insta::assert_snapshot!(format!("help-{}", if command.is_empty() { "ganger" } else { command }), page);
    }
}

#[test]
fn wrong_requests_end_with_2_and_say_what_to_do_on_standard_error() {
    for (words, says) in [
        (vec!["frobnicate"], "unrecognized subcommand"),
        (vec!["jobs", "--state", "asleep"], "pending, starting"),
        (vec!["submit", "/no/such/file"], "cannot read /no/such/file"),
        (vec!["--server", "ftp://x", "jobs"], "write it like http://127.0.0.1:7411"),
        (vec!["topo", "--profile", "warp"], "dgx-h100"),
        (vec!["up", "--nodes", "2xwarp"], "warp"),
        (vec!["checkpoint", "announce", "1", "/no/such"], "does not exist"),
        (vec!["sim", "scenario", "/no/such"], "cannot read /no/such"),
    ] {
        let (code, out, error) = run(&words);
        assert_eq!((code, out.as_str()), (2, ""), "{words:?}: {error}");
        assert!(error.contains(says), "{words:?}: {error}");
    }
}

#[test]
fn a_server_that_is_away_is_a_failure() {
    let (code, out, error) = run(&["--server", "http://127.0.0.1:1", "jobs"]);
    assert_eq!((code, out.as_str()), (1, ""));
    assert!(error.contains("cannot reach http://127.0.0.1:1"), "{error}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = ganger(&["completions", "bash"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_machine_is_drawn_without_a_server() {
    let (code, picture, error) = run(&["topo", "--profile", "dgx-h100"]);
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(picture.contains("[GPU 7]") && !picture.contains('\x1b'), "{picture}");
    let (_, json, _) = run(&["-o", "json", "topo", "--profile", "dgx-h100"]);
    assert!(json.starts_with('{') && json.contains("\"gpus\""), "{json}");
}

#[test]
fn scripts_srun_runs_in_place_or_says_that_it_cannot() {
    for (line, code, out, error) in [
        ("srun -l --ntasks=4 -N2 echo hi", Some(0), "hi\n", ""),
        ("srun -n4 sh -c 'exit 3'", Some(3), "", ""),
        ("x=$(srun --nodes=1 --ntasks=1 hostname); echo survived", None, "", "--nodes 1 is only a part of the job's 2"),
        ("srun -w n0 hostname", None, "", "srun: -w is not supported here"),
    ] {
        let text = format!("#!/bin/bash\n#SBATCH -N2 --ntasks-per-node=2\n{line}\n");
        let job = ganger_core::model::wire::sbatch::read(&text, "s").unwrap().job;
        let command = job.into_spec(&|_| None).unwrap().run.command;
        let mut shell = Command::new(&command[0]);
        shell.args(&command[1..]).env("SLURM_NTASKS", "4").env("SLURM_JOB_NUM_NODES", "2");
        let output = shell.output().unwrap();
        assert_eq!(output.status.code(), code, "{line}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), out, "{line}");
        assert!(String::from_utf8(output.stderr).unwrap().contains(error), "{line}");
    }
}
