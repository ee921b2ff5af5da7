//! The command line, as `clap` reads it. Words only: what a command does is in `commands`.
mod admin;
mod jobs;
mod replay;
mod roles;

pub use admin::*;
pub use jobs::*;
pub use replay::*;
pub use roles::*;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ganger_core::model::Span;

/// One control plane for training and inference on a private GPU cluster.
#[derive(Debug, Parser)]
#[command(name = "ganger", version, max_term_width = 100, disable_help_subcommand = true)]
#[command(after_help = "Exit codes: 0 done, 1 the thing failed, 2 the request was wrong. A JOB is an id or a name.")]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Verb,
}

#[derive(Debug, Clone, Args)]
pub struct Global {
    /// How results are printed.
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub output: Format,
    /// The server: http://HOST:PORT or unix:PATH. Without it: the one that `ganger up` started last.
    #[arg(long, global = true, env = "GANGER_SERVER", value_name = "ADDRESS")]
    pub server: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Json,
}

/// How long this terminal waits: a bare number is seconds, as `watch` and `timeout` take it.
fn pause(text: &str) -> Result<Span, String> {
    match text.parse::<u64>() {
        Ok(seconds) => Ok(Span::seconds(seconds)),
        Err(_) => Span::parse(text).map_err(|error| error.to_string()),
    }
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Submit a job file or a #SBATCH script; prints the job's id.
    Submit(Submit),
    /// Run a command as a job, follow its output, end with its exit code.
    Run(Box<Run>),
    /// List jobs.
    Jobs(Jobs),
    /// Show one job in full.
    Show(OneJob),
    /// Explain why a job waits, with numbers.
    Why(OneJob),
    /// Print the logs of a job.
    Logs(Logs),
    /// Run one more command in a rank's environment.
    Exec(Exec),
    /// Cancel jobs.
    Cancel(ManyJobs),
    /// Keep pending jobs from starting.
    Hold(ManyJobs),
    /// Let held jobs start again.
    Release(ManyJobs),
    /// End the current run of jobs with their grace and run them again.
    Requeue(ManyJobs),
    /// Give an elastic gang another size.
    Resize(Resize),
    /// Wait until jobs have ended; fails if one did not end well.
    Wait(Wait),
    /// List nodes.
    Nodes(Nodes),
    /// Draw the cluster, or what one node is made of and who uses it.
    Topo(Topo),
    /// The cluster on one screen: GPUs, queues, leaves, and what waits for what.
    Top(Top),
    /// What was charged to queues and users, and what they used before.
    Usage(Usage),
    /// Move work away from a node, now or at a planned time.
    ///
    /// Nothing starts there that could not have left by then.
    Drain(Drain),
    /// Let nothing new start on a node; what runs goes on.
    Cordon(OneNode),
    /// End drain, cordon and quarantine of a node.
    Uncordon(OneNode),
    /// Strike a node that is gone for good from the list; its agent may register it again.
    Forget(OneNode),
    /// Take a node out of service.
    Quarantine(Quarantine),
    /// List queues, change or remove them.
    Queues(Queues),
    /// Show or change leaves, spines, pools and settings.
    Cluster(ClusterArgs),
    /// What happened, in order.
    Events(Events),
    /// Create, list and revoke access tokens.
    Token(TokenArgs),
    /// Check this machine, the server and the way between.
    Doctor(Doctor),
    /// Seal a checkpoint and tell Ganger about it, from inside a job.
    Checkpoint(CheckpointArgs),
    /// Start everything on this machine: server and agents.
    Up(Up),
    /// Run the server.
    Server(ServerArgs),
    /// Run the agent of this node.
    Agent(AgentArgs),
    /// A tour with real processes: train, preempt, break a node, recover. Ends by itself.
    Demo(Demo),
    /// Workloads that come with Ganger.
    Example {
        #[command(subcommand)]
        command: crate::example::ExampleCommand,
    },
    /// Run the scheduler on scenarios and snapshots, without a cluster.
    Sim(SimArgs),
    /// Print the completions of a shell.
    Completions { shell: clap_complete::Shell },
    /// Write the manual pages into a directory.
    Man {
        #[arg(value_name = "DIR")]
        dir: std::path::PathBuf,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_seconds() {
        assert_eq!(
            (pause("10"), pause("2m"), pause("0")),
            (Ok(Span::seconds(10)), Ok(Span::minutes(2)), Ok(Span::ZERO))
        );
        assert!(pause("10 apples").is_err() && pause("-1").is_err());
    }
}
