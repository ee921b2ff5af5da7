//! `ganger up`: server and agents of one machine in one process group, with everything at its default.
//!
//! Agents speak to the server over its Unix socket, where the kernel says who they are: no token is needed. What is
//! started stays in the foreground; jobs go on when it ends, and are adopted when it comes back.
use super::roles::{host_name, own_binary, start_logging, stop_on_signals};
use crate::cli::Up;
use crate::client::records::{self, Record};
use crate::failure::Failure;
use crate::output::{say, text::count};
use ganger_agent::Config as AgentConfig;
use ganger_agent::inventory::InventorySource;
use ganger_core::model::machine::profiles::profile;
use ganger_runtime::clock::unix_ms;
use ganger_runtime::http::Endpoint;
use ganger_runtime::shutdown::{self, Shutdown};
use ganger_server::Running;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::task::JoinSet;

const NODES_MAX: usize = 256;

/// One node to be: its name and the machine that it pretends to be.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NodePlan {
    name: String,
    profile: Option<String>,
}

pub async fn run(args: Up) -> Result<(), Failure> {
    start_logging(false, "warn")?;
    let plans = plan(args.nodes.as_deref())?;
    let data_dir = data_dir(args.data_dir.clone())?;
    let shutdown = stop_on_signals()?;
    // The server stops last, so that agents can still say goodbye to it.
    let (server_trigger, server_shutdown) = shutdown::pair();
    let mut config = ganger_server::Config::new(data_dir.join("server"));
    config.listen = Some(args.listen);
    config.allow_root = rustix::process::geteuid().is_root();
    let running =
        ganger_server::serve(config, server_shutdown).await.map_err(|error| Failure::failed(error.to_string()))?;
    let record = write_record(&running, &data_dir)?;
    let mut agents = start_agents(&plans, &running, &record, &data_dir, args.agents_apart, &shutdown)?;
    greet(&record, &plans);
    let outcome = tokio::select! {
        () = shutdown.wait() => Ok(()),
        failed = first_failure(&mut agents) => Err(failed),
    };
    say("stopping; jobs that run go on and are taken up again by the next `ganger up`");
    while agents.join_next().await.is_some() {}
    server_trigger.pull();
    running.wait().await;
    if let Some(folder) = records::own_folder() {
        records::remove(&folder, &record);
    }
    outcome
}

/// `2xdgx-h100,4xl40s-8` to six nodes `n0` to `n5`; nothing to this machine.
fn plan(text: Option<&str>) -> Result<Vec<NodePlan>, Failure> {
    let Some(text) = text else { return Ok(vec![NodePlan { name: host_name(), profile: None }]) };
    let mut plans = Vec::new();
    for part in text.split(',') {
        let (count, name) = match part.split_once('x') {
            Some((count, name)) if !count.is_empty() && count.bytes().all(|b| b.is_ascii_digit()) => (count, name),
            _ => ("1", part),
        };
        let count = count.parse::<usize>().ok().filter(|count| (1..=NODES_MAX).contains(count));
        let count =
            count.ok_or_else(|| Failure::wrong(format!("--nodes: {part:?}: give a count from 1 to {NODES_MAX}")))?;
        profile(name).map_err(|error| Failure::wrong(format!("--nodes: {error}")))?;
        for _ in 0..count {
            plans.push(NodePlan { name: format!("n{}", plans.len()), profile: Some(name.to_string()) });
        }
    }
    if plans.len() > NODES_MAX {
        return Err(Failure::wrong(format!("--nodes: {} nodes are more than {NODES_MAX}", plans.len())));
    }
    Ok(plans)
}

/// Jobs of other users must be able to pass through to their own files, so only the server's part is private.
fn data_dir(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = || Some(var("XDG_DATA_HOME").or_else(|| Some(var("HOME")?.join(".local/share")))?.join("ganger"));
    let dir = given.or_else(usual).ok_or_else(|| Failure::wrong("HOME is not set: give --data-dir"))?;
    let dir =
        std::path::absolute(&dir).map_err(|error| Failure::wrong(format!("cannot use {}: {error}", dir.display())))?;
    make_passable(&dir)?;
    Ok(dir)
}

/// Makes a directory through which others may pass, but which they may not list.
pub fn make_passable(dir: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o711).create(dir);
    made.map_err(|error| Failure::failed(format!("cannot create {}: {error}", dir.display())))
}

fn write_record(running: &Running, data_dir: &Path) -> Result<Record, Failure> {
    let port = running.addr.map_or(0, |addr| addr.port());
    let url =
        running.addr.map_or_else(|| format!("unix:{}", running.socket.display()), |addr| format!("http://{addr}"));
    let record = Record {
        url,
        port,
        data_dir: data_dir.to_path_buf(),
        token_file: running.owner_token.clone(),
        pid: std::process::id(),
        started_at_ms: unix_ms(),
    };
    let Some(folder) = records::own_folder() else { return Ok(record) };
    if let Err(why) = records::write(&folder, &record) {
        say(format!("note: other commands will not find this server by themselves: {why}"));
    }
    Ok(record)
}

type Agents = JoinSet<Result<(), Failure>>;

fn start_agents(
    plans: &[NodePlan],
    running: &Running,
    record: &Record,
    data_dir: &Path,
    apart: bool,
    shutdown: &Shutdown,
) -> Result<Agents, Failure> {
    let mut agents = JoinSet::new();
    let binary = own_binary()?;
    for plan in plans {
        let dir = data_dir.join("nodes").join(&plan.name);
        make_passable(&dir)?;
        let mut config = AgentConfig::new(&plan.name, Endpoint::Unix(running.socket.clone()), dir, binary.clone());
        config.inventory = plan.profile.clone().map_or(InventorySource::Real, InventorySource::Virtual);
        config.server_for_jobs = record.url.clone();
        let stopped = shutdown.clone();
        if apart {
            agents.spawn(apart_process(config, stopped));
        } else {
            agents.spawn(async move {
                let name = config.node.clone();
                let outcome = ganger_agent::run(config, async move { stopped.wait().await }).await;
                outcome.map_err(|error| Failure::failed(format!("the agent of {name} cannot run: {error}")))
            });
        }
    }
    Ok(agents)
}

async fn apart_process(config: AgentConfig, stopped: Shutdown) -> Result<(), Failure> {
    let name = config.node.clone();
    let fail = |error: std::io::Error| Failure::failed(format!("cannot start the agent of {name}: {error}"));
    let mut command = tokio::process::Command::new(&config.binary);
    command.arg("agent").arg("--join").arg(config.server.to_string()).arg("--node").arg(&config.node);
    command.arg("--data-dir").arg(&config.data_dir).stdin(Stdio::null());
    if std::env::var_os("GANGER_LOG").is_none() {
        command.env("GANGER_LOG", "warn");
    }
    if let InventorySource::Virtual(profile) = &config.inventory {
        command.arg("--profile").arg(profile);
    }
    let mut child = command.spawn().map_err(fail)?;
    tokio::select! {
        ended = child.wait() => {
            let status = ended.map_err(fail)?;
            Err(Failure::failed(format!("the agent of {name} has ended: {status}")))
        }
        () = stopped.wait() => {
            if let Some(pid) = child.id().and_then(|id| rustix::process::Pid::from_raw(i32::try_from(id).ok()?)) {
                // It may have ended by the same signal already.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            child.wait().await.map(drop).map_err(fail)
        }
    }
}

/// Waits until an agent ends badly; agents that end well mean that all are being stopped.
async fn first_failure(agents: &mut Agents) -> Failure {
    while let Some(ended) = agents.join_next().await {
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => return failure,
            Err(error) => return Failure::failed(format!("an agent broke off: {error}")),
        }
    }
    std::future::pending().await
}

fn greet(record: &Record, plans: &[NodePlan]) {
    say(format!("Ganger is up on {} with {}: {}", record.url, count(plans.len() as u64, "node"), names(plans)));
    if rustix::process::geteuid().is_root() {
        say("note: you are root, and jobs of root are accepted: their processes can do anything on this machine");
    }
    say("try in another terminal:  ganger run --gpus 1 -- env    ganger topo    ganger jobs    (Ctrl-C stops)");
}

fn names(plans: &[NodePlan]) -> String {
    let name = |plan: &NodePlan| match &plan.profile {
        Some(profile) => format!("{} ({profile}, virtual)", plan.name),
        None => format!("{} (this machine)", plan.name),
    };
    let shown: Vec<String> = plans.iter().take(4).map(name).collect();
    let more = if plans.len() > 4 { ", …" } else { "" };
    shown.join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_counted_by_profile() {
        let plans = plan(Some("2xdgx-h100,l40s-8")).unwrap();
        let seen: Vec<(&str, &str)> = plans.iter().map(|p| (p.name.as_str(), p.profile.as_deref().unwrap())).collect();
        assert_eq!(seen, [("n0", "dgx-h100"), ("n1", "dgx-h100"), ("n2", "l40s-8")]);
        assert_eq!(plan(None).unwrap()[0].profile, None);
        for (text, says) in [
            ("2xwarp", "warp"),
            ("0xdgx-h100", "count"),
            ("999xdgx-h100", "count"),
            ("", "--nodes"),
            ("200xpcie-4,100xpcie-4", "300"),
        ] {
            let error = plan(Some(text)).unwrap_err();
            assert!(error.code == 2 && error.message.contains(says), "{text}: {error}");
        }
    }
}
