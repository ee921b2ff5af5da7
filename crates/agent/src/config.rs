//! How an agent is told who it is and where everything lies. Several agents may run in one process, each with its own
//! node name and data directory; nothing is global.
use crate::inventory::InventorySource;
use ganger_runtime::http::Endpoint;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of one agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The node's name, unique in the cluster.
    pub node: String,
    pub server: Endpoint,
    /// Holds the agent's token; `None` on a Unix socket.
    pub token_file: Option<PathBuf>,
    /// Journal, records, logs. Jobs of other users reach their own files below it, so the directories above must let
    /// them pass.
    pub data_dir: PathBuf,
    pub inventory: InventorySource,
    /// Where ranks on other nodes reach this one.
    pub address: String,
    /// `host:port` where other agents reach this one; port 0 takes a free one.
    pub peer_listen: String,
    pub leaf: Option<String>,
    pub pool: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// The `ganger` program, for keepers.
    pub binary: PathBuf,
    /// What jobs find in `GANGER_SERVER`.
    pub server_for_jobs: String,
    pub logs: LogPolicy,
}

/// How long the logs of ended jobs stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPolicy {
    pub keep_for: Duration,
    /// Oldest jobs go first once all logs together are larger.
    pub keep_bytes: u64,
}

impl Default for LogPolicy {
    fn default() -> LogPolicy {
        LogPolicy { keep_for: Duration::from_secs(14 * 24 * 3600), keep_bytes: 10 << 30 }
    }
}

impl Config {
    /// Settings for a node on this machine: address 127.0.0.1, the real inventory, no token.
    pub fn new(node: impl Into<String>, server: Endpoint, data_dir: PathBuf, binary: PathBuf) -> Config {
        Config {
            node: node.into(),
            server_for_jobs: server.to_string(),
            server,
            token_file: None,
            data_dir,
            inventory: InventorySource::Real,
            address: "127.0.0.1".to_string(),
            peer_listen: "127.0.0.1:0".to_string(),
            leaf: None,
            pool: None,
            labels: BTreeMap::new(),
            binary,
            logs: LogPolicy::default(),
        }
    }
}
