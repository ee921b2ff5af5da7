//! The real binary as a cluster: starts `up`, `server` and `agent` processes in a directory of their own, waits by
//! polling until they answer, runs the command line against them, and leaves no process behind, whatever a test did.
//!
//! Every process of a cluster carries its directory's unique name in its arguments or environment; that is how the end
//! finds keepers and ranks, also those that left their parents.
#![allow(clippy::unwrap_used, dead_code, reason = "helpers of tests may panic, and not every test uses all of them")]
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Far beyond what anything here needs, also on a crowded machine.
pub const PATIENCE: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(40);

/// Polls until there is an answer.
pub fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_within(PATIENCE, what, look)
}

pub fn until_within<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "in vain waited for: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// What a command of the binary did.
#[derive(Debug, Clone)]
pub struct Answer {
    pub code: i32,
    pub out: String,
    pub error: String,
}

/// Processes whose arguments or environment hold `needle`, apart from this one.
pub fn processes_with(needle: &str) -> Vec<i32> {
    let holds = |path: PathBuf| fs::read(path).is_ok_and(|text| contains(&text, needle.as_bytes()));
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = i32::try_from(std::process::id()).unwrap();
    pids.filter(|pid| *pid != own)
        .filter(|pid| {
            ["cmdline", "environ"].iter().any(|file| holds(Path::new("/proc").join(pid.to_string()).join(file)))
        })
        .collect()
}

fn contains(text: &[u8], needle: &[u8]) -> bool {
    text.windows(needle.len()).any(|window| window == needle)
}

pub fn kill(pid: i32, signal: rustix::process::Signal) {
    // It may be gone already.
    let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal);
}

/// A directory with all that runs in it.
pub struct Cluster {
    pub dir: PathBuf,
    /// `GANGER_SERVER` of the commands.
    pub server: String,
    children: BTreeMap<String, Child>,
}

impl Cluster {
    fn new() -> Cluster {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("ganger-e2e-{}-{number}-", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        // Jobs of any user must be able to pass.
        fs::DirBuilder::new().mode(0o755).create(&dir).unwrap();
        fs::create_dir(dir.join("home")).unwrap();
        Cluster { dir: dir.canonicalize().unwrap(), server: String::new(), children: BTreeMap::new() }
    }

    /// `ganger up` with virtual nodes, found by its address alone.
    pub fn up(nodes: &str) -> Cluster {
        let mut cluster = Cluster::new();
        let data = cluster.dir.join("data");
        let words = ["up", "--nodes", nodes, "--listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
        cluster.start("up", &words);
        let records = cluster.dir.join("home/.local/state/ganger/servers");
        cluster.server = until("the address of `ganger up`", || {
            cluster.assert_alive("up");
            let record =
                fs::read_dir(&records).ok()?.flatten().find(|e| e.path().extension().is_some_and(|x| x == "json"))?;
            let record: Value = serde_json::from_slice(&fs::read(record.path()).ok()?).ok()?;
            Some(record["url"].as_str()?.to_string())
        });
        let count = nodes.split(',').map(|part| part.split_once('x').map_or(1, |(n, _)| n.parse().unwrap_or(1))).sum();
        cluster.await_ready(count);
        cluster
    }

    /// `ganger server` alone, with a lease; agents join by [`Cluster::start_agent`].
    pub fn server(lease: &str) -> Cluster {
        let mut cluster = Cluster::new();
        let data = cluster.dir.join("data/server");
        fs::create_dir_all(cluster.dir.join("data")).unwrap();
        cluster.server = format!("unix:{}", data.join("ganger.sock").display());
        cluster.restart_server(lease);
        cluster
    }

    /// Starts the server of [`Cluster::server`], on what it left behind.
    pub fn restart_server(&mut self, lease: &str) {
        let data = self.dir.join("data/server");
        let data = data.to_str().unwrap();
        let words = ["server", "--data-dir", data, "--listen", "127.0.0.1:0", "--allow-root", "--lease", lease];
        self.start("server", &words);
        until("the server", || {
            self.assert_alive("server");
            (self.ganger(&["nodes"]).code == 0).then_some(())
        });
    }

    pub fn start_agent(&mut self, node: &str) {
        let dir = self.node_dir(node);
        let (server, dir) = (self.server.clone(), dir.to_str().unwrap().to_string());
        let words = ["agent", "--join", &server, "--node", node, "--profile", "dgx-h100", "--data-dir", &dir];
        self.start(node, &words);
    }

    /// An agent as a script starts one in its background: with signals ignored.
    pub fn start_deaf_agent(&mut self, node: &str) {
        let dir = self.node_dir(node);
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' HUP INT QUIT TERM USR1 USR2; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_ganger")]);
        command.args(["agent", "--join", &self.server, "--node", node, "--profile", "dgx-h100", "--data-dir"]).arg(dir);
        command.current_dir(&self.dir).env("HOME", self.dir.join("home"));
        let log = File::create(self.dir.join(format!("{node}.log"))).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.children.insert(node.to_string(), command.spawn().unwrap());
    }

    /// Waits until so many nodes are ready.
    pub fn await_ready(&self, count: usize) {
        until("all nodes are ready", || {
            let nodes = self.try_json(&["nodes"])?;
            let ready = nodes.as_array()?.iter().filter(|node| node["state"] == "ready").count();
            (ready == count).then_some(())
        });
    }

    pub fn node_dir(&self, node: &str) -> PathBuf {
        self.dir.join("data/nodes").join(node)
    }

    pub fn start(&mut self, name: &str, words: &[&str]) {
        let log = File::options().create(true).append(true).open(self.dir.join(format!("{name}.log"))).unwrap();
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.children.insert(name.to_string(), command.spawn().unwrap());
    }

    /// Ends a process that was started here and waits for its end; true if it ended well.
    pub fn end(&mut self, name: &str, signal: rustix::process::Signal) -> bool {
        let mut child = self.children.remove(name).unwrap();
        kill(i32::try_from(child.id()).unwrap(), signal);
        let status = until("the end of a process", || child.try_wait().unwrap());
        status.success()
    }

    fn assert_alive(&mut self, name: &str) {
        let ended = self.children.get_mut(name).unwrap().try_wait().unwrap();
        assert!(ended.is_none(), "{name} has ended: {ended:?}");
    }

    /// The binary with nothing in its environment but what a login has, and `GANGER_SERVER`.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ganger"));
        command.args(words).env_clear().current_dir(&self.dir).env("HOME", self.dir.join("home"));
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        if !self.server.is_empty() {
            command.env("GANGER_SERVER", &self.server);
        }
        command
    }

    pub fn ganger(&self, words: &[&str]) -> Answer {
        self.ganger_with(words, b"")
    }

    /// With `input` on standard input.
    pub fn ganger_with(&self, words: &[&str], input: &[u8]) -> Answer {
        let mut command = self.command(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that does not read its input may have ended before all is written.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Answer { code: output.status.code().unwrap_or(-1), out: text(output.stdout), error: text(output.stderr) }
    }

    /// Standard output of a command that must end with 0.
    pub fn ok(&self, words: &[&str]) -> String {
        let answer = self.ganger(words);
        assert_eq!(answer.code, 0, "{words:?}: {answer:?}");
        answer.out
    }

    pub fn try_json(&self, words: &[&str]) -> Option<Value> {
        let answer = self.ganger(&[&["-o", "json"], words].concat());
        if answer.code == 0 { serde_json::from_str(&answer.out).ok() } else { None }
    }

    /// What a command that must end with 0 prints as JSON.
    pub fn json(&self, words: &[&str]) -> Value {
        let text = self.ok(&[&["-o", "json"], words].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"))
    }

    /// A request that must be refused with code 2 and these words.
    pub fn refused(&self, words: &[&str], says: &[&str]) {
        self.refused_with(words, b"", says);
    }

    pub fn refused_with(&self, words: &[&str], input: &[u8], says: &[&str]) {
        let answer = self.ganger_with(words, input);
        assert_eq!((answer.code, answer.out.as_str()), (2, ""), "{words:?}: {answer:?}");
        for said in says {
            assert!(answer.error.contains(said), "{words:?} does not say {said:?}: {}", answer.error);
        }
    }

    /// Writes a file and answers its path.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.dir.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Submits a job of YAML; answers its id.
    pub fn submit(&self, yaml: &str) -> String {
        let answer = self.ganger_with(&["submit", "-"], yaml.as_bytes());
        assert_eq!(answer.code, 0, "{answer:?}\n{yaml}");
        answer.out.trim().to_string()
    }

    pub fn job(&self, job: &str) -> Value {
        self.json(&["show", job])
    }

    /// Waits until the job is in this state.
    pub fn await_state(&self, job: &str, state: &str) -> Value {
        until(&format!("job {job} is {state}"), || Some(self.job(job)).filter(|detail| detail["state"] == state))
    }

    /// Waits until attempt `number` of the job runs.
    pub fn await_run(&self, job: &str, number: u64) -> Value {
        let runs = |detail: &Value| detail["state"] == "running" && detail["attempt"] == number;
        until(&format!("attempt {number} of job {job} runs"), || Some(self.job(job)).filter(runs))
    }

    /// The texts of a job's events of one kind.
    pub fn events(&self, job: &str, kind: &str) -> Vec<String> {
        let events = self.json(&["events", "--job", job]);
        let all = events.as_array().unwrap().iter().filter(|event| event["kind"] == kind);
        all.map(|event| event["text"].as_str().unwrap().to_string()).collect()
    }

    /// This cluster's name, which is in the arguments or the environment of each of its processes.
    fn marker(&self) -> String {
        self.dir.file_name().unwrap().to_str().unwrap().to_string()
    }

    fn print_logs(&self) {
        for entry in
            fs::read_dir(&self.dir).unwrap().flatten().filter(|e| e.path().extension().is_some_and(|x| x == "log"))
        {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            eprintln!("--- {} (last lines of {})", entry.path().display(), lines.len());
            lines.iter().skip(lines.len().saturating_sub(60)).for_each(|line| eprintln!("{line}"));
        }
        for words in [["jobs", "--all"].as_slice(), &["nodes"], &["events"]] {
            eprintln!("--- ganger {}\n{}", words.join(" "), self.ganger(words).out);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.print_logs();
        }
        for child in self.children.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let marker = self.marker();
        let end = Instant::now() + Duration::from_secs(20);
        // Again and again: what is starting at this moment is found in the next round.
        while Instant::now() < end {
            let left = processes_with(&marker);
            if left.is_empty() {
                break;
            }
            left.into_iter().for_each(|pid| kill(pid, rustix::process::Signal::KILL));
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// What one rank stamped: event, boot-time nanoseconds, attempt, node, devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    pub event: String,
    pub at_ns: u128,
    pub attempt: u32,
    pub node: String,
    pub devices: String,
}

/// The stamps of a rank in the order of writing.
pub fn stamps(dir: &Path, rank: u32) -> Vec<Stamp> {
    let text = fs::read_to_string(dir.join(format!("rank-{rank:05}.stamps"))).unwrap_or_default();
    let line = |line: &str| {
        let (event, rest) = line.split_once(' ')?;
        let words: BTreeMap<&str, &str> = rest.split(' ').filter_map(|word| word.split_once('=')).collect();
        Some(Stamp {
            event: event.to_string(),
            at_ns: words.get("boottime_ns")?.parse().ok()?,
            attempt: words.get("attempt")?.parse().ok()?,
            node: words.get("node")?.to_string(),
            devices: words.get("devices")?.to_string(),
        })
    };
    text.split_inclusive('\n').filter(|l| l.ends_with('\n')).filter_map(|l| line(l.trim_end())).collect()
}

/// A rank that ran twice at once would stamp one attempt between two stamps of another.
pub fn assert_never_twice(stamps: &[Stamp]) {
    let attempts: Vec<u32> = stamps.iter().map(|stamp| stamp.attempt).collect();
    assert!(attempts.is_sorted(), "two attempts of one rank ran at once: {stamps:#?}");
    assert!(stamps.is_sorted_by_key(|stamp| stamp.at_ns), "two copies of one rank stamped: {stamps:#?}");
    for attempt in attempts {
        let starts = stamps.iter().filter(|stamp| stamp.attempt == attempt && stamp.event == "start").count();
        assert_eq!(starts, 1, "attempt {attempt} of one rank started {starts} times: {stamps:#?}");
    }
}
