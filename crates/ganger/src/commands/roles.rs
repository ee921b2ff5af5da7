//! `ganger server` and `ganger agent`: one role each, for machines that run nothing else of Ganger.
use crate::cli::{AgentArgs, ServerArgs};
use crate::client::locate::Surroundings;
use crate::failure::Failure;
use crate::output::say;
use ganger_agent::Config as AgentConfig;
use ganger_agent::inventory::InventorySource;
use ganger_runtime::http::Endpoint;
use ganger_runtime::{logging, shutdown};
use ganger_server::store::CrashPoint;
use std::path::PathBuf;

/// Logs from this level up, unless `GANGER_LOG` names another.
pub fn start_logging(json: bool, level: &str) -> Result<(), Failure> {
    let format = if json { logging::Format::Json } else { logging::Format::Text };
    let level = std::env::var("GANGER_LOG").unwrap_or_else(|_| level.to_string());
    logging::init(format, &level).map_err(|error| Failure::wrong(error.to_string()))
}

pub fn stop_on_signals() -> Result<shutdown::Shutdown, Failure> {
    shutdown::on_signals().map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))
}

/// This program, which keepers are started from.
pub fn own_binary() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(|error| Failure::failed(format!("cannot tell where this program lies: {error}")))
}

pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    super::job_file::as_name(name.split('.').next().unwrap_or(&name))
}

pub async fn server(args: ServerArgs) -> Result<(), Failure> {
    start_logging(args.log_json, "info")?;
    let shutdown = stop_on_signals()?;
    let mut config = ganger_server::Config::new(args.data_dir);
    config.listen = Some(args.listen);
    config.allow_remote = args.allow_remote;
    config.allow_root = args.allow_root;
    let crash_at = CrashPoint::asked_for(|name| std::env::var(name).ok());
    config.store.crash_at = crash_at.map_err(|error| Failure::wrong(error.to_string()))?;
    if let Some(lease) = args.lease {
        config.settings.insert("lease".to_string(), format!("{}ms", lease.0));
    }
    let running = ganger_server::serve(config, shutdown).await.map_err(|error| Failure::failed(error.to_string()))?;
    if let Some(addr) = running.addr {
        say(format!("the server answers on http://{addr}; its owner's token is in {}", running.owner_token.display()));
    }
    running.wait().await;
    Ok(())
}

pub async fn agent(args: AgentArgs, server: Option<&str>) -> Result<(), Failure> {
    start_logging(args.log_json, "info")?;
    let shutdown = stop_on_signals()?;
    let endpoint = Endpoint::parse(&args.join).map_err(|error| Failure::wrong(format!("--join: {error}")))?;
    let token_file = args.token_file.clone().or_else(|| token_file(&args.join, server));
    let node = args.node.clone().unwrap_or_else(host_name);
    let mut config = AgentConfig::new(node, endpoint, args.data_dir.clone(), own_binary()?);
    config.token_file = token_file;
    config.inventory = args.profile.clone().map_or(InventorySource::Real, InventorySource::Virtual);
    config.address = args.address.clone();
    if args.address != "127.0.0.1" {
        config.peer_listen = format!("{}:0", args.address);
    }
    config.leaf = args.leaf.clone();
    config.pool = args.pool.clone();
    for label in &args.labels {
        let (key, value) =
            label.split_once('=').ok_or_else(|| Failure::wrong(format!("--label {label:?}: write KEY=VALUE")))?;
        config.labels.insert(key.to_string(), value.to_string());
    }
    let stopped = async move { shutdown.wait().await };
    ganger_agent::run(config, stopped).await.map_err(|error| Failure::failed(format!("the agent cannot run: {error}")))
}

/// The file that the other commands would take a token from, for a server that `ganger up` started.
fn token_file(join: &str, server: Option<&str>) -> Option<PathBuf> {
    let around = Surroundings::of_process(server);
    let recorded = || around.records.iter().find(|record| record.url == join).map(|record| record.token_file.clone());
    around.token_file.clone().or_else(recorded)
}
