//! The built-in trainer as real processes on the loopback interface.

// The helpers of tests fail by panicking, as tests do; clippy sees only the `#[test]` functions as tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(60);
const STEPS: u64 = 100;

/// A directory of one test, removed when the test passes.
struct Scratch(PathBuf);

impl Scratch {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ganger-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// One running rank; killed if its test gives up.
struct Rank {
    child: Child,
    stdout: BufReader<ChildStdout>,
    said: String,
}

struct Ended {
    code: Option<i32>,
    signal: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Rank {
    fn start(rank: usize, world: usize, port: u16, environment: &[(&str, &str)], flags: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ganger"))
            .args(["example", "train"])
            .args(flags)
            .env_clear()
            .envs([("MASTER_ADDR", "127.0.0.1"), ("GANGER_JOB_ID", "7"), ("GANGER_ATTEMPT", "1")])
            .env("MASTER_PORT", port.to_string())
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", world.to_string())
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, said: String::new() }
    }

    /// Reads the log until a line contains `text`.
    fn wait_for(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "ended before {text:?}:\n{}", self.said);
            self.said.push_str(&line);
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn end(mut self) -> Ended {
        wait_until("the rank ends", || self.has_ended());
        let status = self.child.wait().unwrap();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        self.stdout.read_to_string(&mut self.said).unwrap();
        Ended { code: status.code(), signal: status.signal(), stdout: std::mem::take(&mut self.said), stderr }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn start_gang(world: usize, environment: &[(&str, &str)], flags: &[&str]) -> Vec<Rank> {
    let port = free_port();
    (0..world).map(|rank| Rank::start(rank, world, port, environment, flags)).collect()
}

fn end_all(gang: Vec<Rank>, code: i32) -> Vec<Ended> {
    let ended: Vec<Ended> = gang.into_iter().map(Rank::end).collect();
    for (place, end) in ended.iter().enumerate() {
        let Ended { signal, stdout, stderr, .. } = end;
        assert_eq!(end.code, Some(code), "process {place} signal {signal:?}\n{stdout}\n{stderr}");
    }
    ended
}

fn final_loss(ended: &[Ended]) -> String {
    ended[0].stdout.lines().find(|line| line.starts_with("final loss ")).unwrap().to_string()
}

/// The final loss and the loss log of a run that nobody disturbed.
fn undisturbed(scratch: &Scratch) -> (String, String) {
    let log = scratch.path("undisturbed.log");
    let steps = STEPS.to_string();
    let ended = end_all(start_gang(4, &[], &["--steps", &steps, "--loss-log", text(&log)]), 0);
    (final_loss(&ended), fs::read_to_string(log).unwrap())
}

/// Step and path of the last checkpoint that was announced.
fn newest_announced(ack: &Path) -> (u64, String) {
    let announced = fs::read_to_string(ack).unwrap();
    let words: Vec<&str> = announced.lines().last().unwrap().splitn(3, ' ').collect();
    assert_eq!(words[0], "CHECKPOINT");
    (words[1].parse().unwrap(), words[2].to_string())
}

/// (event, attempt, boot-time nanoseconds) of each stamp of a rank.
fn stamps(dir: &Path, rank: usize) -> Vec<(String, u32, u64)> {
    let lines = fs::read_to_string(dir.join(format!("rank-{rank:05}.stamps"))).unwrap();
    let field = |line: &str, name: &str| {
        let word = line.split(' ').find_map(|word| word.strip_prefix(name).and_then(|word| word.strip_prefix('=')));
        word.unwrap().to_string()
    };
    let stamp = |line: &str| {
        let event = line.split(' ').next().unwrap().to_string();
        (event, field(line, "attempt").parse().unwrap(), field(line, "boottime_ns").parse().unwrap())
    };
    lines.lines().map(stamp).collect()
}

/// No rank ran twice at once: the attempts of each rank lie one after the other, each with a start and an end.
fn assert_attempts_in_turn(dir: &Path, ranks: usize, attempts: usize) {
    for rank in 0..ranks {
        let stamps = stamps(dir, rank);
        let count = |wanted: &str| stamps.iter().filter(|(event, ..)| event == wanted).count();
        assert_eq!((count("start"), count("end")), (attempts, attempts), "rank {rank}");
        assert!(stamps.is_sorted_by_key(|(_, attempt, at)| (*attempt, *at)), "rank {rank} ran twice at once");
    }
}

#[test]
fn two_stops_and_resumes_change_no_bit_of_the_loss() {
    let scratch = Scratch::new("stops");
    let (expected_loss, expected_log) = undisturbed(&scratch);
    let (log, ack, preempt) = (scratch.path("loss.log"), scratch.path("ack"), scratch.path("preempt"));
    let (dir, stamp_dir, steps) = (scratch.path("ckpt"), scratch.path("stamps"), STEPS.to_string());
    let flags = ["--steps", &steps, "--log-every", "1", "--loss-log", text(&log), "--stamp-dir", text(&stamp_dir)];
    let paced = [&flags[..], &["--step-time", "50ms"]].concat();
    let saving = [("GANGER_CHECKPOINT_DIR", text(&dir)), ("GANGER_CHECKPOINT_ACK", text(&ack))];

    let mut gang = start_gang(4, &saving, &paced);
    gang[0].wait_for("step 10 ");
    gang[2].signal(Signal::USR1);
    end_all(gang, 85);
    let (first_step, first_path) = newest_announced(&ack);
    assert!((10..STEPS).contains(&first_step), "stopped at {first_step}");

    let second =
        [("GANGER_ATTEMPT", "2"), ("GANGER_RESUME_FROM", &first_path), ("GANGER_PREEMPT_FILE", text(&preempt))];
    let mut gang = start_gang(4, &[&saving[..], &second].concat(), &paced);
    gang[0].wait_for(&format!("step {} ", first_step + 10));
    fs::write(&preempt, "0\n").unwrap();
    end_all(gang, 85);
    let (second_step, second_path) = newest_announced(&ack);
    assert!((first_step + 10..STEPS).contains(&second_step), "stopped at {second_step}");

    let third = [("GANGER_ATTEMPT", "3"), ("GANGER_RESUME_FROM", &second_path)];
    let ended = end_all(start_gang(4, &[&saving[..], &third].concat(), &flags), 0);
    assert_eq!(final_loss(&ended), expected_loss);
    assert_eq!(fs::read_to_string(&log).unwrap(), expected_log);
    assert!(ended[3].stdout.contains(&format!("rank 3/4 resume step {second_step} from {second_path}")));
    assert_attempts_in_turn(&stamp_dir, 4, 3);
}

#[test]
fn a_killed_peer_ends_the_others_who_name_it_and_the_last_checkpoint_carries_on() {
    let scratch = Scratch::new("killed");
    let (expected_loss, _) = undisturbed(&scratch);
    let (dir, ack, steps) = (scratch.path("ckpt"), scratch.path("ack"), STEPS.to_string());
    let saving = [("GANGER_CHECKPOINT_DIR", text(&dir)), ("GANGER_CHECKPOINT_ACK", text(&ack))];
    let flags = ["--steps", &steps, "--checkpoint-every", "5", "--log-every", "1"];
    let mut gang = start_gang(4, &saving, &[&flags[..], &["--step-time", "50ms"]].concat());
    gang[0].wait_for("step 12 ");
    let killed = gang.remove(2);
    killed.signal(Signal::KILL);
    assert_eq!(killed.end().signal, Some(9));
    for end in end_all(gang, 4) {
        assert!(end.stderr.contains("lost rank 2"), "{}", end.stderr);
    }

    let (step, path) = newest_announced(&ack);
    assert!(step >= 10 && step.is_multiple_of(5), "checkpoint of step {step}");
    let resume = [("GANGER_ATTEMPT", "2"), ("GANGER_RESUME_FROM", &path)];
    let ended = end_all(start_gang(4, &[&saving[..], &resume].concat(), &flags), 0);
    assert_eq!(final_loss(&ended), expected_loss);
}

#[test]
fn a_broken_or_missing_resume_is_never_a_start_from_zero() {
    let scratch = Scratch::new("broken");
    let dir = scratch.path("ckpt");
    end_all(start_gang(1, &[("GANGER_CHECKPOINT_DIR", text(&dir))], &["--steps", "5"]), 0);
    let whole = dir.join("step-000005");
    let refused = |path: &Path, why: &str| {
        let ended = end_all(start_gang(1, &[("GANGER_RESUME_FROM", text(path))], &["--steps", "9"]), 3);
        assert!(ended[0].stderr.contains(why) && ended[0].stderr.contains(text(path)), "{}", ended[0].stderr);
        assert_eq!(ended[0].stdout, "");
    };
    refused(&dir.join("step-000006"), "cannot be read");
    let parameters = fs::read(whole.join("parameters.f64")).unwrap();
    fs::write(whole.join("parameters.f64"), &parameters[8..]).unwrap();
    refused(&whole, "bytes");
    fs::write(whole.join("parameters.f64"), parameters.iter().map(|byte| byte ^ 1).collect::<Vec<u8>>()).unwrap();
    refused(&whole, "hash");
    fs::write(whole.join("parameters.f64"), &parameters).unwrap();
    end_all(start_gang(1, &[("GANGER_RESUME_FROM", text(&whole))], &["--steps", "9"]), 0);
}

#[test]
fn ranks_that_start_from_different_states_refuse_to_train() {
    let scratch = Scratch::new("differ");
    let dir = scratch.path("ckpt");
    end_all(start_gang(1, &[("GANGER_CHECKPOINT_DIR", text(&dir))], &["--steps", "5"]), 0);
    let (port, path) = (free_port(), dir.join("step-000005"));
    let resuming = Rank::start(0, 2, port, &[("GANGER_RESUME_FROM", text(&path))], &[]);
    let fresh = Rank::start(1, 2, port, &[], &[]);
    end_all(vec![resuming, fresh], 3);
}

#[test]
fn a_rank_of_an_older_attempt_is_refused() {
    let port = free_port();
    let second = [("GANGER_ATTEMPT", "2")];
    let master = Rank::start(0, 2, port, &second, &["--steps", "5"]);
    let old = Rank::start(1, 2, port, &[], &["--steps", "5"]);
    let refused = end_all(vec![old], 5);
    assert!(refused[0].stderr.contains("attempt 1, attempt 2 is running"), "{}", refused[0].stderr);
    end_all(vec![master, Rank::start(1, 2, port, &second, &["--steps", "5"])], 0);
}

#[test]
fn a_second_copy_of_a_rank_is_refused() {
    let port = free_port();
    let start = |rank| Rank::start(rank, 3, port, &[], &["--steps", "5"]);
    let (master, mut one, mut other) = (start(0), start(1), start(1));
    wait_until("one of the twins ends", || one.has_ended() || other.has_ended());
    let (refused, kept) = if one.has_ended() { (one, other) } else { (other, one) };
    end_all(vec![refused], 5);
    end_all(vec![master, kept, start(2)], 0);
}

#[test]
fn a_stop_without_a_place_for_checkpoints_promises_nothing() {
    let mut gang = start_gang(2, &[], &["--steps", "1000", "--step-time", "50ms", "--log-every", "1"]);
    gang[0].wait_for("step 1 ");
    gang[1].signal(Signal::TERM);
    for end in end_all(gang, 1) {
        assert!(end.stderr.contains("GANGER_CHECKPOINT_DIR"), "{}", end.stderr);
    }
}

#[test]
fn wrong_settings_are_exit_2_with_the_name() {
    let ended = end_all(vec![Rank::start(4, 4, 1, &[], &[])], 2);
    assert!(ended[0].stderr.contains("RANK=\"4\""), "{}", ended[0].stderr);
    end_all(vec![Rank::start(0, 1, 1, &[], &["--step-time", "50"])], 2);
}
