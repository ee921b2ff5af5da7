//! A server and two agents as processes of their own, in one directory: started, killed with SIGKILL, started again.
//!
//! Everything speaks over the server's Unix socket, whose path outlives the server. Whatever a test did, no process is
//! left behind: keepers and ranks carry the directory's name in their arguments or environment.
use ganger_core::model::wire::api::{NodeView, Status};
use ganger_runtime::http::{Client, Endpoint};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

/// A bound, not a wait; far beyond what a crowded machine needs.
pub const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(15);
pub const NODES: [&str; 2] = ["n0", "n1"];

/// Polls until there is an answer.
pub async fn until<T>(what: &str, patience: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

pub struct Stage {
    dir: PathBuf,
    lease: Option<&'static str>,
    server: Option<Child>,
    agents: Vec<Child>,
    pub client: Client,
}

impl Stage {
    /// Both nodes are ready when this returns.
    pub async fn open(name: &str, lease: Option<&'static str>) -> Stage {
        let dir = std::env::temp_dir().join(format!("ganger-{name}-{}-", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        // Ranks of any user must be able to pass.
        fs::DirBuilder::new().mode(0o755).create(&dir).unwrap();
        let client = Client::new(Endpoint::Unix(dir.join("server/ganger.sock")), None);
        let mut stage = Stage { dir, lease, server: None, agents: Vec::new(), client };
        stage.start_server(None);
        stage.answers().await;
        for node in NODES {
            stage.start_agent(node);
        }
        let client = &stage.client;
        until("both nodes", PATIENCE, async || {
            let nodes: Vec<NodeView> = client.get("/v1/nodes").await.ok()?;
            (nodes.iter().filter(|node| node.state == "ready").count() == NODES.len()).then_some(())
        })
        .await;
        stage
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn server_dir(&self) -> PathBuf {
        self.path("server")
    }

    /// `crash_at`: the moment at which it is to end itself.
    pub fn start_server(&mut self, crash_at: Option<&str>) {
        let mut command = self.command("server.log");
        command.args(["server", "--listen", "127.0.0.1:0", "--allow-root", "--data-dir"]).arg(self.server_dir());
        if let Some(lease) = self.lease {
            command.args(["--lease", lease]);
        }
        if let Some(moment) = crash_at {
            command.env("GANGER_CRASH_AT", moment).env("GANGER_TESTING", "1");
        }
        self.server = Some(command.spawn().unwrap());
    }

    fn start_agent(&mut self, node: &str) {
        let mut command = self.command(&format!("{node}.log"));
        let join = self.client.endpoint().to_string();
        command.args(["agent", "--join", &join, "--node", node, "--profile", "dgx-h100", "--data-dir"]);
        self.agents.push(command.arg(self.path(node)).spawn().unwrap());
    }

    fn command(&self, log: &str) -> Command {
        let log = File::options().create(true).append(true).open(self.path(log)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ganger"));
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", &self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command
    }

    /// Waits until the server answers; its term.
    pub async fn answers(&mut self) -> u64 {
        let (client, server) = (self.client.clone(), self.server.as_mut().unwrap());
        until("the server", PATIENCE, async || match client.get::<Status>("/v1/status").await {
            Ok(status) => Some(status.term),
            Err(_) => {
                // One that is to end itself may do so before it is asked.
                let ended = server.try_wait().unwrap();
                assert!(ended.is_none_or(|status| status.signal().is_some()), "the server gave up: {ended:?}");
                ended.map(|_| 0)
            }
        })
        .await
    }

    pub fn kill_server(&mut self) -> ExitStatus {
        let mut server = self.server.take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap()
    }

    /// Whether the server ended by itself.
    pub fn server_is_gone(&mut self) -> bool {
        self.server.as_mut().is_none_or(|server| server.try_wait().unwrap().is_some())
    }

    /// Agents must outlive every server.
    pub fn assert_agents_live(&mut self) {
        for agent in &mut self.agents {
            assert_eq!(agent.try_wait().unwrap(), None, "an agent has ended");
        }
    }

    /// Runs `ganger` with these words.
    pub fn ganger(&self, words: &[&str]) -> Output {
        let mut command = self.command("commands.log");
        command.args(words).stdout(Stdio::piped()).output().unwrap()
    }

    fn leftovers(&self) -> Vec<Pid> {
        let needle = self.dir.as_os_str().as_encoded_bytes().to_vec();
        let holds = |path: &Path| fs::read(path).is_ok_and(|text| text.windows(needle.len()).any(|w| w == needle));
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        let own = i32::try_from(std::process::id()).unwrap();
        let ours = numbers.filter(|pid| *pid != own).filter(|pid| {
            let folder = PathBuf::from(format!("/proc/{pid}"));
            holds(&folder.join("cmdline")) || holds(&folder.join("environ"))
        });
        ours.filter_map(Pid::from_raw).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in self.server.iter_mut().chain(&mut self.agents) {
            let _ = child.kill();
            let _ = child.wait();
        }
        // What a killed keeper leaves is found on the next look.
        for _ in 0..20 {
            let left = self.leftovers();
            for pid in &left {
                let _ = kill_process(*pid, Signal::KILL);
            }
            if left.is_empty() {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        if std::thread::panicking() {
            eprintln!("what was left: {}", self.dir.display());
        } else {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}
