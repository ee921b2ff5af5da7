//! The demo's machinery: a server in this process with its store in a temporary directory, and one agent process for
//! each node, so that a node can be killed as a power cut would: agent, keepers and workers at once, without a word.
use super::super::roles::own_binary;
use super::super::up::make_passable;
use crate::client::Api;
use crate::failure::Failure;
use ganger_agent::keeper::scan;
use ganger_agent::keeper::state::Phase;
use ganger_agent::record::Layout;
use ganger_core::model::wire::api::{Role, TokenRequest};
use ganger_runtime::http::{Client, Endpoint};
use ganger_runtime::secret::Secret;
use ganger_runtime::{datadir, shutdown};
use ganger_server::Running;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

pub const NODES: [&str; 2] = ["n0", "n1"];
const PROFILE: &str = "dgx-h100";
/// Short, so that a silent node need not be waited for; long enough for a busy laptop.
const LEASE: &str = "8s";
const STOP_PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Stage {
    pub api: Api,
    pub binary: PathBuf,
    place: PathBuf,
    server: Option<(Running, shutdown::Trigger)>,
    agents: Vec<(String, Child)>,
}

impl Stage {
    pub async fn build() -> Result<Stage, Failure> {
        let place = std::env::temp_dir().join(format!("ganger-demo-{}", std::process::id()));
        make_passable(&place)?;
        let (trigger, listen) = shutdown::pair();
        let mut config = ganger_server::Config::new(place.join("server"));
        config.allow_root = rustix::process::geteuid().is_root();
        config.settings.insert("lease".to_string(), LEASE.to_string());
        let running = ganger_server::serve(config, listen).await.map_err(|error| Failure::failed(error.to_string()))?;
        let addr = running.addr.ok_or_else(|| Failure::failed("the demo's server has no address"))?;
        let token = Secret::read_file(&running.owner_token).map_err(|error| Failure::failed(error.to_string()))?;
        let api = Api::new(Client::new(Endpoint::Tcp(addr.to_string()), Some(token)));
        let binary = own_binary()?;
        let mut stage = Stage { api, binary, place, server: Some((running, trigger)), agents: Vec::new() };
        // From here on a failure must not leave processes behind.
        match stage.start_agents().await {
            Ok(()) => Ok(stage),
            Err(failure) => {
                stage.tear_down(false).await;
                Err(failure)
            }
        }
    }

    pub fn place(&self) -> &Path {
        &self.place
    }

    async fn start_agents(&mut self) -> Result<(), Failure> {
        let request = TokenRequest { name: "demo-agents".to_string(), role: Role::Agent, user: None };
        let token = self.api.create_token(&request).await?;
        let token_file = self.place.join("agents.token");
        let secret = token.secret.unwrap_or_default();
        datadir::write_atomic(&token_file, format!("{secret}\n").as_bytes(), 0o600)
            .map_err(|error| Failure::failed(error.to_string()))?;
        for node in NODES {
            let agent = self.start_agent(node, &token_file)?;
            self.agents.push((node.to_string(), agent));
        }
        Ok(())
    }

    fn start_agent(&self, node: &str, token_file: &Path) -> Result<Child, Failure> {
        let dir = self.node_dir(node);
        make_passable(&dir)?;
        let fail = |error: std::io::Error| Failure::failed(format!("cannot start the agent of {node}: {error}"));
        let log = std::fs::File::create(self.place.join(format!("{node}.log"))).map_err(fail)?;
        let mut command = Command::new(&self.binary);
        command.args(["agent", "--join", &self.api.endpoint(), "--node", node, "--profile", PROFILE]);
        command.arg("--token-file").arg(token_file).arg("--data-dir").arg(dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // Ctrl-C reaches the demo alone, which then ends its agents in order.
        command.process_group(0).kill_on_drop(true).spawn().map_err(fail)
    }

    fn node_dir(&self, node: &str) -> PathBuf {
        self.place.join("nodes").join(node)
    }

    /// Ends all of a node's processes by SIGKILL, first those that could tell somebody.
    pub async fn cut_power(&mut self, node: &str) -> Result<usize, Failure> {
        let mut killed = 0;
        for (name, agent) in &mut self.agents {
            if name == node && agent.kill().await.is_ok() {
                killed += 1;
            }
        }
        Ok(killed + kill_workers(&self.node_dir(node))?)
    }

    pub async fn tear_down(&mut self, keep: bool) {
        for (_, agent) in &mut self.agents {
            if let Some(pid) = agent.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        for (name, agent) in &mut self.agents {
            if tokio::time::timeout(STOP_PATIENCE, agent.wait()).await.is_err() {
                crate::output::say(format!("the agent of {name} does not stop and is killed"));
                let _ = agent.kill().await;
            }
        }
        for node in NODES {
            // What cannot be listed has nothing to be killed in it.
            let _ = kill_workers(&self.node_dir(node));
        }
        if let Some((running, trigger)) = self.server.take() {
            trigger.pull();
            running.wait().await;
        }
        if !keep && let Err(error) = std::fs::remove_dir_all(&self.place) {
            crate::output::say(format!("cannot remove {}: {error}", self.place.display()));
        }
    }
}

/// Kills the keepers in a node's directory and then what they kept; answers how many processes.
fn kill_workers(node_dir: &Path) -> Result<usize, Failure> {
    let found = scan(&Layout::new(node_dir).workers()).map_err(|error| Failure::failed(error.to_string()))?;
    let states: Vec<_> = found.into_iter().filter_map(|worker| worker.state).collect();
    let mut killed = 0;
    for state in &states {
        killed += usize::from(kill(state.keeper.pid));
    }
    for worker in states.iter().filter(|state| state.phase != Phase::Ended).filter_map(|state| state.worker) {
        if let Some(group) = Pid::from_raw(worker.pid) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        killed += usize::from(kill(worker.pid));
    }
    Ok(killed)
}

fn kill(pid: i32) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
}
