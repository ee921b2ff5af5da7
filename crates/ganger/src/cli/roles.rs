//! Words of the commands that start parts of Ganger, and of the simulator.
use super::Reader;
use clap::{Args, Subcommand};
use ganger_core::model::Span;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Up {
    /// Virtual nodes, such as 2xdgx-h100 or 2xdgx-h100,4xl40s-8: their hardware is only described, what runs is real.
    /// Without it: this machine as it is.
    #[arg(long, value_name = "COUNTxPROFILE,…")]
    pub nodes: Option<String>,
    /// Where the state is kept; without it a folder below ~/.local/share/ganger.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Where the server listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7411")]
    pub listen: std::net::SocketAddr,
    /// Each agent in a process of its own.
    #[arg(long)]
    pub agents_apart: bool,
}

#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Where the state is kept.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Where the server listens.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7411")]
    pub listen: std::net::SocketAddr,
    /// Listen on an address that others reach, without TLS: tokens can be read on the way.
    #[arg(long)]
    pub allow_remote: bool,
    /// Accept jobs of root.
    #[arg(long)]
    pub allow_root: bool,
    /// How long agents may be silent before their ranks may run elsewhere.
    #[arg(long, value_name = "TIME", value_parser = Span::parse)]
    pub lease: Option<Span>,
    /// Log as JSON lines.
    #[arg(long)]
    pub log_json: bool,
}

#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The server to join: http://HOST:PORT or unix:PATH.
    #[arg(long, value_name = "ADDRESS")]
    pub join: String,
    /// This node's name; without it the host's.
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// File with the agent's token; without it as for every command.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Where its workers, logs and reports are kept.
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Describe this node as such a machine, such as dgx-h100, whatever it is: its GPUs are made up. Without it: CPUs and
    /// memory as they are, no GPUs.
    #[arg(long, value_name = "PROFILE")]
    pub profile: Option<String>,
    /// Where ranks on other nodes reach this one.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub address: String,
    /// Its leaf switch.
    #[arg(long)]
    pub leaf: Option<String>,
    #[arg(long)]
    pub pool: Option<String>,
    /// May be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    pub labels: Vec<String>,
    /// Log as JSON lines.
    #[arg(long)]
    pub log_json: bool,
}

#[derive(Debug, Args)]
pub struct Demo {
    /// Keep the files of the demo and say where they are.
    #[arg(long)]
    pub keep: bool,
}

#[derive(Debug, Args)]
pub struct SimArgs {
    #[command(subcommand)]
    pub command: SimCommand,
}

#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run scenario files and check what they expect.
    Scenario {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print each event.
        #[arg(short, long)]
        verbose: bool,
    },
    /// Make the decision of a snapshot (`GET /v1/snapshot`) again and compare.
    Decide { snapshot: PathBuf },
    /// Replay a public trace: what a policy makes of it, beside the baselines. Files may be gzipped.
    Replay {
        #[command(subcommand)]
        reader: Reader,
    },
}
