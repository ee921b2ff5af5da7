//! Keepers on the real binary: every test starts one, or several, and real workers below them.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ganger_agent::keeper::client::{Client, StreamEvent, StreamOutput};
use ganger_agent::keeper::protocol::{ExecExit, Target};
use ganger_agent::keeper::scan::end_orphan;
use ganger_agent::keeper::spares::Spares;
use ganger_agent::keeper::state::{IsolationKind, Phase, State, Why};
use ganger_agent::keeper::{KeeperError, LaunchFile, Standing, boottime_ms, scan, spawn};

const TERM: i32 = 15;
const USR1: i32 = 10;
const KILL: i32 = 9;
/// Far beyond anything that a working keeper needs, also on a crowded machine.
const DEADLINE: Duration = Duration::from_secs(30);

fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_ganger"))
}

/// A folder of workers, gone with everything in it at the end of a test, also of a failed one.
struct Workers {
    root: PathBuf,
}

impl Workers {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("ganger-keeper-{}-{number}", std::process::id()));
        std::fs::create_dir_all(root.join("workers")).unwrap();
        Self { root: root.canonicalize().unwrap() }
    }

    fn dir(&self) -> PathBuf {
        self.root.join("workers")
    }

    /// A directory with a launch file for `sh -c SCRIPT`; `change` adjusts it.
    fn prepare(&self, script: &str, change: impl FnOnce(&mut LaunchFile)) -> PathBuf {
        let dir = self.dir().join("w0");
        std::fs::create_dir_all(&dir).unwrap();
        let unique = self.root.file_name().unwrap().to_str().unwrap();
        let mut launch = LaunchFile {
            job: 7,
            attempt: 2,
            rank: 3,
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            env: BTreeMap::from([
                ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
                ("FLAGS".to_owned(), self.root.display().to_string()),
            ]),
            workdir: "/".into(),
            uid: None,
            gid: None,
            groups: None,
            cpus: None,
            memory_bytes: None,
            log: dir.join("log"),
            cgroup: format!("ganger-test/{unique}"),
            lease_deadline_boottime_ms: None,
            pty: false,
        };
        change(&mut launch);
        launch.write(&dir).unwrap();
        dir
    }

    async fn start(&self, script: &str, change: impl FnOnce(&mut LaunchFile)) -> (PathBuf, Client) {
        let dir = self.prepare(script, change);
        let client = spawn(binary(), &dir).await.unwrap().connect().await.unwrap();
        (dir, client)
    }

    /// A file that tells a script to go on, or that a script made.
    fn flag(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let resting = std::fs::read_dir(self.root.join("spare")).into_iter().flatten().flatten();
        resting.for_each(|spare| drop(ask(&spare.path().join("keeper.sock"), r#"{"op":"forget"}"#)));
        for found in scan(&self.dir()).into_iter().flatten() {
            for request in [r#"{"op":"kill"}"#, r#"{"op":"wait","phase":"ended"}"#, r#"{"op":"forget"}"#] {
                let _ = ask(&found.dir.join("keeper.sock"), request);
            }
        }
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

fn ask(socket: &Path, request: &str) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    writeln!(stream, "{request}")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer)
}

async fn ended(client: &mut Client) -> State {
    tokio::time::timeout(DEADLINE, client.wait(Phase::Ended)).await.expect("the worker did not end").unwrap().state
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn pid_in(path: &Path) -> i32 {
    until("a file with a process number", || std::fs::read_to_string(path).ok()?.trim().parse().ok())
}

fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn outcome(state: &State) -> (Option<i32>, Option<i32>, Why) {
    let exit = state.exit.clone().unwrap();
    (exit.code, exit.signal, exit.why)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Makes a child that leaves session and process group, and outlives its parent; its number is in `$FLAGS/stray`.
const STRAY: &str = "setsid sh -c 'echo $$ > $FLAGS/stray.new; mv $FLAGS/stray.new $FLAGS/stray; \
                     exec sleep 600' >/dev/null 2>&1 & \
                     while [ ! -e $FLAGS/stray ]; do sleep 0.02; done;";

#[tokio::test]
async fn exit_code_and_log_arrive_whole() {
    let workers = Workers::new();
    let script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done; echo last >&2; exit 3";
    let (dir, mut client) = workers.start(script, |_| {}).await;
    let state = ended(&mut client).await;
    assert_eq!(outcome(&state), (Some(3), None, Why::Exited));
    assert_eq!((state.job, state.attempt, state.rank), (7, 2, 3));
    assert_eq!((state.leftovers_killed, state.log_lost_bytes, state.stuck_pids.len()), (0, 0, 0));
    let log = std::fs::read_to_string(dir.join("log")).unwrap();
    assert_eq!(log.lines().count(), 20_001);
    assert!(log.starts_with("line 0\n") && log.ends_with("line 19999\nlast\n"));
    assert_eq!(State::read(&dir).unwrap(), state, "what the keeper says is on disk");
    assert!(state.cgroups.iter().all(|cgroup| !cgroup.exists()), "cgroups are removed");
    assert!(matches!(client.lease(boottime_ms() + 60_000).await, Err(KeeperError::Refused(_))));
    client.forget().await.unwrap();
    until("the socket to go", || (!dir.join("keeper.sock").exists()).then_some(()));
}

#[tokio::test]
async fn a_launch_failure_is_no_exit_code() {
    type Change = fn(&mut LaunchFile);
    let cases: [(&str, Change); 2] = [
        ("cannot enter the working directory /nowhere", |l| l.workdir = "/nowhere".into()),
        ("cannot open the log file /nowhere/log", |l| l.log = "/nowhere/log".into()),
    ];
    for (expected, change) in cases {
        let workers = Workers::new();
        let (_, mut client) = workers.start("true", change).await;
        let state = ended(&mut client).await;
        let (code, signal, why) = outcome(&state);
        let Why::LaunchFailed { message } = why else { panic!("{expected}: reported as {why:?}") };
        assert!(message.contains(expected), "{message}");
        assert_eq!((code, signal), (None, None));
    }
}

/// A command that is not there is the job's fault and told as a shell tells it.
#[tokio::test]
async fn a_command_that_cannot_be_executed_is_an_exit_code_and_a_line_in_the_log() {
    let cases = [
        ("no-such-program", 127, "No such file"),
        ("/etc/passwd", 126, "Permission denied"),
        ("/etc", 126, "Permission denied"),
    ];
    for (program, code, expected) in cases {
        let workers = Workers::new();
        let (dir, mut client) = workers.start("true", |launch| launch.command = vec![program.into()]).await;
        assert_eq!(outcome(&ended(&mut client).await), (Some(code), None, Why::Exited));
        let log = std::fs::read_to_string(dir.join("log")).unwrap();
        assert!(log.contains(&format!("cannot execute `{program}`: {expected}")), "{log}");
    }
}

#[tokio::test]
async fn a_bad_launch_file_or_a_used_directory_starts_nothing() {
    let workers = Workers::new();
    let dir = workers.prepare("true", |_| {});
    let text = std::fs::read_to_string(LaunchFile::path(&dir)).unwrap();
    std::fs::write(LaunchFile::path(&dir), text.replace("\"workdir\":\"/\"", "\"workdir\":\"here\"")).unwrap();
    let error = spawn(binary(), &dir).await.unwrap_err().to_string();
    assert!(error.contains("workdir"), "{error}");
    std::fs::write(LaunchFile::path(&dir), text).unwrap();
    let mut client = spawn(binary(), &dir).await.unwrap().connect().await.unwrap();
    let error = spawn(binary(), &dir).await.unwrap_err().to_string();
    assert!(error.contains("another keeper"), "{error}");
    ended(&mut client).await;
    client.forget().await.unwrap();
    // The same rank must never run twice from one directory, also when its keeper is gone.
    until("the keeper to go", || (!dir.join("keeper.sock").exists()).then_some(()));
    let error = until("the second start to be refused for good", || {
        let output = Command::new(binary()).arg("keeper").arg(&dir).output().unwrap();
        assert!(!output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        (!text.contains("another keeper")).then_some(text)
    });
    assert!(error.contains("one run of one worker"), "{error}");
}

#[tokio::test]
async fn nothing_is_left_after_a_natural_exit() {
    let workers = Workers::new();
    let (_, mut client) = workers.start(&format!("{STRAY} exit 5"), |_| {}).await;
    let state = ended(&mut client).await;
    assert_eq!(outcome(&state), (Some(5), None, Why::Exited));
    assert_eq!(state.leftovers_killed, 1);
    assert!(!lives(pid_in(&workers.flag("stray"))));
}

#[tokio::test]
async fn nothing_is_left_after_a_stop() {
    let workers = Workers::new();
    let (_, mut client) = workers.start(&format!("{STRAY} sleep 600"), |_| {}).await;
    let stray = pid_in(&workers.flag("stray"));
    assert!(lives(stray));
    client.stop(TERM, 30_000, Target::Group).await.unwrap();
    let state = ended(&mut client).await;
    assert_eq!(outcome(&state), (None, Some(TERM), Why::Stopped));
    assert!(!lives(stray));
}

#[tokio::test]
async fn a_stray_that_holds_the_log_open_does_not_hang_the_end() {
    let workers = Workers::new();
    let holder = "(trap '' HUP TERM; echo $$ > $FLAGS/holder; sleep 600) & \
                  while [ ! -s $FLAGS/holder ]; do sleep 0.02; done; echo tail; exit 0";
    let (dir, mut client) = workers.start(holder, |_| {}).await;
    assert_eq!(outcome(&ended(&mut client).await), (Some(0), None, Why::Exited));
    assert_eq!(std::fs::read_to_string(dir.join("log")).unwrap(), "tail\n");
}

#[tokio::test]
async fn the_worker_outlives_a_killed_agent_and_is_adopted() {
    let workers = Workers::new();
    let script = "touch $FLAGS/up; while [ ! -e $FLAGS/go ]; do sleep 0.02; done; echo bye; exit 7";
    let dir = workers.prepare(script, |_| {});
    let mut agent = Command::new("sh")
        .args(["-c", "\"$0\" keeper \"$1\" 2>\"$1/keeper.log\"; read forever"])
        .arg(binary())
        .arg(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = String::new();
    BufReader::new(agent.stdout.take().unwrap()).read_line(&mut word).unwrap();
    assert_eq!(word, "ready\n");
    until("the worker to run", || workers.flag("up").exists().then_some(()));
    agent.kill().unwrap();
    agent.wait().unwrap();

    let found = scan(&workers.dir()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].standing, found[0].launch.as_ref().unwrap().job), (Standing::Kept, 7));
    let mut client = Client::connect(&found[0].dir).await.unwrap();
    let status = client.status().await.unwrap();
    assert!(status.state.phase < Phase::Ended && lives(status.state.worker.unwrap().pid));
    std::fs::write(workers.flag("go"), "").unwrap();
    assert_eq!(outcome(&ended(&mut client).await), (Some(7), None, Why::Exited));
    client.forget().await.unwrap();
    until("the keeper to go", || (scan(&workers.dir()).unwrap()[0].standing == Standing::Ended).then_some(()));
    assert_eq!(outcome(scan(&workers.dir()).unwrap()[0].state.as_ref().unwrap()), (Some(7), None, Why::Exited));
    assert_eq!(std::fs::read_to_string(dir.join("log")).unwrap(), "bye\n");
}

#[tokio::test]
async fn the_lease_ends_the_tree_with_nobody_attached() {
    let workers = Workers::new();
    let script = format!("trap '' TERM; {STRAY} while :; do sleep 600; done");
    let (dir, client) = workers.start(&script, |l| l.lease_deadline_boottime_ms = Some(boottime_ms() + 4_000)).await;
    drop(client);
    let state = until("the end on disk", || State::read(&dir).ok().filter(|s| s.phase == Phase::Ended));
    assert_eq!(outcome(&state), (None, Some(KILL), Why::LeaseExpired));
    assert!(!lives(pid_in(&workers.flag("stray"))));
}

#[tokio::test]
async fn a_renewed_lease_prolongs_and_never_moves_backwards() {
    let workers = Workers::new();
    let first = boottime_ms() + 15_000;
    let (_, mut client) = workers.start("sleep 600", |l| l.lease_deadline_boottime_ms = Some(first)).await;
    client.lease(first + 600_000).await.unwrap();
    client.lease(first - 5_000).await.unwrap();
    let status = client.status().await.unwrap();
    assert_eq!(status.lease_deadline_boottime_ms, Some(first + 600_000));
    let still = tokio::time::timeout(Duration::from_millis(first + 500 - boottime_ms()), client.wait(Phase::Ended));
    assert!(still.await.is_err(), "the worker ended at its first deadline");
}

#[tokio::test]
async fn a_worker_that_handles_the_stop_signal_is_stopped_with_its_own_code() {
    let workers = Workers::new();
    let script = "trap 'echo saved; exit 0' USR1; touch $FLAGS/up; while :; do sleep 0.05; done";
    let (dir, mut client) = workers.start(script, |_| {}).await;
    until("the worker to be ready", || workers.flag("up").exists().then_some(()));
    client.stop(USR1, 60_000, Target::Group).await.unwrap();
    assert_eq!(outcome(&ended(&mut client).await), (Some(0), None, Why::Stopped));
    // The shell may say before that its sleep, of the same group, was hit.
    assert!(std::fs::read_to_string(dir.join("log")).unwrap().ends_with("saved\n"));
}

#[tokio::test]
async fn a_worker_that_ignores_everything_is_killed() {
    let workers = Workers::new();
    let script = "trap '' USR1 TERM; touch $FLAGS/up; while :; do sleep 0.05; done";
    let (_, mut client) = workers.start(script, |_| {}).await;
    until("the worker to be ready", || workers.flag("up").exists().then_some(()));
    client.stop(USR1, 100, Target::Group).await.unwrap();
    assert_eq!(outcome(&ended(&mut client).await), (None, Some(KILL), Why::Killed));
}

#[tokio::test]
async fn a_signal_can_go_past_the_launcher_to_its_ranks() {
    let workers = Workers::new();
    let script = "trap 'echo launcher hit' USR1; \
                  setsid sh -c \"trap 'echo rank saved; exit 0' USR1; touch $FLAGS/up; while :; do sleep 0.05; done\" & \
                  wait $!; exit 0";
    let (dir, mut client) = workers.start(script, |_| {}).await;
    until("the rank to be ready", || workers.flag("up").exists().then_some(()));
    client.stop(USR1, 60_000, Target::Descendants).await.unwrap();
    assert_eq!(outcome(&ended(&mut client).await), (Some(0), None, Why::Stopped));
    let log = std::fs::read_to_string(dir.join("log")).unwrap();
    assert!(log.contains("rank saved") && !log.contains("launcher hit"), "{log}");
}

#[tokio::test]
async fn a_reused_number_is_neither_adopted_nor_signalled() {
    let workers = Workers::new();
    let (dir, mut client) = workers.start("exit 0", |_| {}).await;
    let mut state = ended(&mut client).await;
    client.forget().await.unwrap();
    until("the keeper to go", || (scan(&workers.dir()).unwrap()[0].standing == Standing::Ended).then_some(()));

    // As if keeper and worker had died without a word, and others had been given their numbers.
    let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
    let number = i32::try_from(stranger.id()).unwrap();
    state.phase = Phase::Running;
    state.exit = None;
    state.keeper.pid = number;
    state.worker.as_mut().unwrap().pid = number;
    std::fs::write(State::path(&dir), serde_json::to_vec(&state).unwrap()).unwrap();
    assert_eq!(scan(&workers.dir()).unwrap()[0].standing, Standing::Orphaned);
    assert!(end_orphan(&dir).unwrap().is_empty());
    assert!(stranger.try_wait().unwrap().is_none(), "a stranger was signalled");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    assert_eq!(outcome(&State::read(&dir).unwrap()).2, Why::KeeperLost);

    // After a reboot every process of before has ended, whatever runs now.
    state.boot_id = "another boot".into();
    std::fs::write(State::path(&dir), serde_json::to_vec(&state).unwrap()).unwrap();
    let found = scan(&workers.dir()).unwrap();
    assert_eq!((found[0].standing, outcome(found[0].state.as_ref().unwrap()).2), (Standing::Ended, Why::Reboot));
}

#[tokio::test]
async fn what_a_killed_keeper_leaves_is_found_and_ended() {
    let workers = Workers::new();
    let (dir, mut client) = workers.start(&format!("{STRAY} sleep 600"), |_| {}).await;
    let stray = pid_in(&workers.flag("stray"));
    let state = client.wait(Phase::Running).await.unwrap().state;
    assert!(end_orphan(&dir).is_err(), "the keeper lives");
    let keeper = rustix::process::Pid::from_raw(state.keeper.pid).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).unwrap();
    let worker = state.worker.unwrap().pid;
    until("the main process to go with its keeper", || (!lives(worker)).then_some(()));
    until("the scan to see it", || (scan(&workers.dir()).unwrap()[0].standing == Standing::Orphaned).then_some(()));
    until("the orphan to end", || end_orphan(&dir).unwrap().is_empty().then_some(()));
    if state.isolation != IsolationKind::ProcessTree {
        assert!(!lives(stray));
    } else {
        let pid = rustix::process::Pid::from_raw(stray).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    }
    assert_eq!(outcome(&State::read(&dir).unwrap()).2, Why::KeeperLost);
}

async fn drain(output: &mut StreamOutput) -> (String, String, ExecExit) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        match tokio::time::timeout(DEADLINE, output.next()).await.expect("the stream stands still").unwrap() {
            StreamEvent::Output(bytes) => out.extend(bytes),
            StreamEvent::ErrorOutput(bytes) => err.extend(bytes),
            StreamEvent::Exit(exit) => {
                return (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), exit);
            }
        }
    }
}

#[tokio::test]
async fn exec_runs_beside_the_worker_and_returns_its_code() {
    let workers = Workers::new();
    let (dir, mut client) = workers.start("sleep 600", |l| l.workdir = "/usr".into()).await;
    client.wait(Phase::Running).await.unwrap();
    let extra = BTreeMap::from([("EXTRA".to_owned(), "more".to_owned())]);
    let script = "echo $EXTRA $FLAGS; pwd; cat; echo oops >&2; cat /proc/self/cgroup >&2; exit 9";
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let mut stream = client.exec(command, extra, false).await.unwrap();
    let big = "x".repeat(3_000_000);
    let (mut input, mut output) = (stream.input, stream.output);
    let writer = tokio::spawn(async move {
        input.write(big.as_bytes()).await.unwrap();
        input.close().await.unwrap();
        input
    });
    let (out, err, exit) = drain(&mut output).await;
    assert_eq!(exit, ExecExit { code: Some(9), ..ExecExit::default() });
    assert!(out.starts_with(&format!("more {}\n/usr\n", workers.root.display())));
    assert_eq!(out.matches('x').count() - out.lines().next().unwrap().matches('x').count(), 3_000_000);
    assert!(err.starts_with("oops\n"), "{err}");
    if State::read(&dir).unwrap().isolation != IsolationKind::ProcessTree {
        assert!(err.contains(workers.root.file_name().unwrap().to_str().unwrap()), "not in the rank's cgroup: {err}");
    }
    writer.await.unwrap();

    let client = Client::connect(&dir).await.unwrap();
    stream = client.exec(vec!["no-such-program".into()], BTreeMap::new(), false).await.unwrap();
    let (_, err, exit) = drain(&mut stream.output).await;
    assert_eq!(exit, ExecExit { code: Some(127), ..ExecExit::default() });
    assert!(err.contains("cannot execute `no-such-program`"), "{err}");
}

#[tokio::test]
async fn what_exec_started_dies_with_the_worker() {
    let workers = Workers::new();
    let script = "while [ ! -e $FLAGS/go ]; do sleep 0.02; done; exit 0";
    let (dir, mut client) = workers.start(script, |_| {}).await;
    client.wait(Phase::Running).await.unwrap();
    let command = ["sh", "-c", "echo $$; exec sleep 600"].map(str::to_owned).to_vec();
    let mut stream = client.exec(command, BTreeMap::new(), false).await.unwrap();
    let StreamEvent::Output(number) = stream.output.next().await.unwrap() else { panic!("no number") };
    let pid: i32 = String::from_utf8(number).unwrap().trim().parse().unwrap();
    assert!(lives(pid));
    std::fs::write(workers.flag("go"), "").unwrap();
    let (_, _, exit) = drain(&mut stream.output).await;
    assert_eq!((exit.signal, lives(pid)), (Some(KILL), false));
    let mut client = Client::connect(&dir).await.unwrap();
    assert_eq!(outcome(&ended(&mut client).await), (Some(0), None, Why::Exited));
    assert!(matches!(client.exec(vec!["true".into()], BTreeMap::new(), false).await, Err(KeeperError::Refused(_))));
}

async fn read_until(output: &mut StreamOutput, seen: &mut String, expected: &str) {
    while !seen.contains(expected) {
        match tokio::time::timeout(DEADLINE, output.next()).await {
            Ok(Ok(StreamEvent::Output(bytes))) => seen.push_str(&String::from_utf8_lossy(&bytes)),
            other => panic!("waiting for {expected:?} after {seen:?}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn attach_speaks_with_the_workers_terminal() {
    let workers = Workers::new();
    let script = "touch $FLAGS/up; while read line; do stty size; echo got $line; [ $line = end ] && exit 4; done";
    let (dir, client) = workers.start(script, |l| l.pty = true).await;
    until("the worker to be ready", || workers.flag("up").exists().then_some(()));
    let mut stream = client.attach().await.unwrap();
    stream.input.resize(33, 123).await.unwrap();
    stream.input.write(b"hello\n").await.unwrap();
    let mut seen = String::new();
    read_until(&mut stream.output, &mut seen, "got hello").await;
    assert!(seen.contains("hello\r\n") && seen.contains("33 123"), "{seen:?}");
    stream.input.write(b"end\n").await.unwrap();
    let (_, _, exit) = drain(&mut stream.output).await;
    assert_eq!(exit.code, Some(4));
    assert!(std::fs::read_to_string(dir.join("log")).unwrap().contains("got end"));
}

#[tokio::test]
async fn exec_with_a_terminal_has_one_and_is_hung_up_with_its_client() {
    let workers = Workers::new();
    let (_, mut client) = workers.start("sleep 600", |_| {}).await;
    client.wait(Phase::Running).await.unwrap();
    let command = ["sh", "-c", "tty; echo pid $$.; exec sleep 600"].map(str::to_owned).to_vec();
    let mut stream = client.exec(command, BTreeMap::new(), true).await.unwrap();
    let mut seen = String::new();
    read_until(&mut stream.output, &mut seen, ".").await;
    assert!(seen.starts_with("/dev/pts/"), "{seen:?}");
    let number = seen.split("pid ").nth(1).unwrap().trim().trim_end_matches('.');
    let pid = number.parse().unwrap();
    drop(stream);
    until("the command to be hung up", || (!lives(pid)).then_some(()));
}

#[tokio::test]
async fn as_root_a_worker_runs_as_another_user() {
    if !is_root() {
        eprintln!("skipped: needs root");
        return;
    }
    let workers = Workers::new();
    let script = "id -u; id -g; id -G; echo direct > /dev/stderr; exit 0";
    let (dir, mut client) = workers
        .start(script, |l| {
            (l.uid, l.gid, l.groups) = (Some(65_534), Some(65_533), Some(vec![65_533, 4242]));
        })
        .await;
    assert_eq!(outcome(&ended(&mut client).await), (Some(0), None, Why::Exited));
    let mut log = String::new();
    std::fs::File::open(dir.join("log")).unwrap().read_to_string(&mut log).unwrap();
    assert_eq!(log, "65534\n65533\n65533 4242\ndirect\n");
}

#[tokio::test]
async fn cpus_that_do_not_exist_are_recorded_not_applied() {
    let workers = Workers::new();
    let script = "grep Cpus_allowed_list /proc/self/status";
    let (dir, mut client) = workers.start(script, |l| l.cpus = Some("0,1000-1003".into())).await;
    let state = ended(&mut client).await;
    assert_eq!(outcome(&state), (Some(0), None, Why::Exited));
    let missing = state.not_applied.iter().find(|wish| wish.what == "cpus").unwrap();
    assert!(missing.why.contains("1000-1003"), "{}", missing.why);
    assert_eq!(std::fs::read_to_string(dir.join("log")).unwrap(), "Cpus_allowed_list:\t0\n");
}

#[tokio::test]
async fn a_memory_limit_is_in_force_or_recorded_as_not() {
    let workers = Workers::new();
    let script = "head -c 200000000 /dev/zero | tail -c 200000000 | wc -c; exit 0";
    let (dir, mut client) = workers.start(script, |l| l.memory_bytes = Some(50 << 20)).await;
    let state = ended(&mut client).await;
    let log = std::fs::read_to_string(dir.join("log")).unwrap();
    let in_force = !state.not_applied.iter().any(|wish| wish.what == "memory");
    assert_eq!(in_force, !log.contains("200000000"), "{:?}\n{log}", state.not_applied);
}

/// Where the agent keeps what rests, beside the workers.
fn rest_in(workers: &Workers, dir: &Path) -> PathBuf {
    let spare = workers.root.join("spare");
    std::fs::rename(dir, &spare).unwrap();
    spare
}

#[tokio::test]
async fn a_keeper_that_rests_takes_the_next_worker_and_keeps_nothing_of_the_one_before() {
    let workers = Workers::new();
    let (dir, mut client) =
        workers.start("echo one; exit 3", |l| drop(l.env.insert("SECRET".into(), "s".into()))).await;
    let state = ended(&mut client).await;
    assert_eq!(outcome(&state), (Some(3), None, Why::Exited));
    let spare = rest_in(&workers, &dir);
    let mut client = Client::connect(&spare).await.unwrap();
    client.rest().await.unwrap();
    assert!(!State::is_there(&spare));
    for refused in [client.status().await.map(drop), client.kill().await, client.lease(1).await] {
        assert!(refused.unwrap_err().to_string().contains("rests"));
    }
    let next = workers.dir().join("w1");
    std::fs::rename(&spare, &next).unwrap();
    assert!(client.begin(&workers.dir()).await.unwrap_err().to_string().contains("not the directory"));
    let mut launch = LaunchFile::read(&next).unwrap();
    launch.rank = 4;
    launch.command[2] = "echo two $SECRET; exit 4".into();
    launch.env.remove("SECRET");
    launch.log = next.join("log2");
    launch.write(&next).unwrap();
    client.begin(&next).await.unwrap();
    assert!(client.begin(&next).await.unwrap_err().to_string().contains("has a worker"));
    let second = ended(&mut client).await;
    assert_eq!((second.rank, outcome(&second), second.keeper), (4, (Some(4), None, Why::Exited), state.keeper));
    assert_eq!(std::fs::read_to_string(next.join("log2")).unwrap(), "two\n");
    assert_eq!(State::read(&next).unwrap(), second);
    client.forget().await.unwrap();
    until("the keeper to go", || (!next.join("keeper.sock").exists()).then_some(()));
}

#[tokio::test]
async fn a_keeper_killed_while_it_rests_or_between_two_workers_leaves_nothing_running() {
    let workers = Workers::new();
    let (dir, mut client) = workers.start("true", |_| {}).await;
    let keeper = rustix::process::Pid::from_raw(ended(&mut client).await.keeper.pid).unwrap();
    client.rest().await.unwrap();
    assert_eq!(scan(&workers.dir()).unwrap()[0].standing, Standing::NotStarted);
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).unwrap();
    until("the keeper to be gone", || (!lives(keeper.as_raw_nonzero().get())).then_some(()));
    // Another one starts in the same place.
    let mut client = spawn(binary(), &dir).await.unwrap().connect().await.unwrap();
    assert_eq!(outcome(&ended(&mut client).await), (Some(0), None, Why::Exited));
}

#[tokio::test]
async fn workers_follow_one_another_in_the_same_keeper() {
    let workers = Workers::new();
    let spares = Spares::default();
    let mut keepers = std::collections::BTreeSet::new();
    for number in 0..4 {
        let prepared = workers.prepare(&format!("exit {number}"), |launch| launch.log = workers.flag("log"));
        let launch = LaunchFile::read(&prepared).unwrap();
        std::fs::remove_dir_all(&prepared).unwrap();
        let dir = workers.dir().join(format!("7.2.{number}"));
        spares.furnish(&dir).unwrap();
        spares.start(binary(), &dir, &launch).await.unwrap();
        let state = ended(&mut Client::connect(&dir).await.unwrap()).await;
        assert_eq!(outcome(&state), (Some(number), None, Why::Exited));
        keepers.insert(state.keeper);
        spares.take_back(&dir).await.unwrap();
        assert!(!dir.exists());
    }
    assert_eq!(keepers.len(), 1, "one keeper had all of them");
    let resting = std::fs::read_dir(workers.root.join("spare")).unwrap().count();
    assert_eq!(resting, 1);
}

#[tokio::test]
async fn a_keeper_does_not_rest_while_its_worker_runs() {
    let workers = Workers::new();
    let (dir, mut client) = workers.start("sleep 600", |_| {}).await;
    assert!(client.rest().await.unwrap_err().to_string().contains("has not ended"));
    assert!(client.begin(&dir).await.unwrap_err().to_string().contains("has a worker"));
    client.kill().await.unwrap();
    assert_eq!(outcome(&ended(&mut client).await), (None, Some(KILL), Why::Killed));
}
