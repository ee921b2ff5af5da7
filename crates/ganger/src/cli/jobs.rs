//! Words of the commands about jobs.
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[command(
    after_help = "The smallest job file:\n  name: hello\n  command: [echo, hello]\n\nAll of its keys: docs/reference/job.md in the source tree. Examples: examples/."
)]
pub struct Submit {
    /// A job file (YAML), a script with #SBATCH lines, or - for standard input.
    pub file: PathBuf,
    /// Only say where it would run, or why it would wait.
    #[arg(long)]
    pub dry_run: bool,
    /// As many tasks like it, such as 0-9%2; instead of what the file says.
    #[arg(short, long, value_name = "INDICES")]
    pub array: Option<String>,
}

// Negative numbers are refused by the field's name, not as an unknown flag.
#[derive(Debug, Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "Ctrl-C (or SIGTERM) once cancels the job, twice leaves it to itself.\n\nExamples:\n  ganger run --gpus 8 -N 2 -- sh -c 'echo rank $RANK of $WORLD_SIZE has $CUDA_VISIBLE_DEVICES'\n  ganger run --gpus 8 -N 2 --launcher torchrun --time 1h -- torchrun train.py"
)]
pub struct Run {
    /// Name of the job; without it the command's.
    #[arg(short = 'J', long)]
    pub name: Option<String>,
    /// Number of workers.
    #[arg(short = 'n', long, value_name = "N")]
    pub workers: Option<i64>,
    /// On N nodes, as many workers on each; without --workers one.
    #[arg(short = 'N', long, value_name = "N")]
    pub nodes: Option<i64>,
    /// GPUs of each worker.
    #[arg(short = 'G', long, value_name = "N")]
    pub gpus: Option<i64>,
    /// Only GPUs of this model, such as H100.
    #[arg(long, value_name = "MODEL")]
    pub gpu_model: Option<String>,
    /// CPUs of each worker; without it 4 per GPU and at least 1.
    #[arg(short, long, value_name = "N")]
    pub cpus: Option<i64>,
    /// Memory of each worker, such as 120GiB.
    #[arg(short, long, value_name = "AMOUNT")]
    pub memory: Option<String>,
    /// P0 to P3.
    #[arg(short, long, value_name = "CLASS")]
    pub priority: Option<String>,
    /// Others may stop it.
    #[arg(long)]
    pub preemptible: bool,
    /// Path of the queue, such as research/nlp.
    #[arg(short, long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Only nodes of this pool.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// End it after so long, such as 12h.
    #[arg(short, long, value_name = "TIME")]
    pub time: Option<String>,
    /// The whole gang within one switch, socket, island, node, leaf or spine.
    #[arg(long, value_name = "LEVEL")]
    pub require: Option<String>,
    /// As --require, but only tried first.
    #[arg(long, value_name = "LEVEL")]
    pub prefer: Option<String>,
    /// ranks, torchrun or mpi.
    #[arg(short, long, value_name = "LAUNCHER")]
    pub launcher: Option<String>,
    /// Directory of its checkpoints.
    #[arg(long, value_name = "DIR")]
    pub checkpoint_dir: Option<String>,
    /// Signal that asks it to save and leave, such as SIGUSR1.
    #[arg(long, value_name = "SIGNAL")]
    pub signal: Option<String>,
    /// How long a stop waits for it to save and leave.
    #[arg(long, value_name = "TIME")]
    pub grace: Option<String>,
    /// How often a failed run is tried again.
    #[arg(long, value_name = "N")]
    pub retries: Option<i64>,
    /// Wait for another job, such as afterok:12.
    #[arg(long, value_name = "JOB")]
    pub after: Vec<String>,
    /// One more variable; may be repeated.
    #[arg(short, long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Do not hand on the variables of this shell.
    #[arg(long)]
    pub clean_env: bool,
    /// Where it runs; without it, here.
    #[arg(short = 'D', long, value_name = "DIR")]
    pub workdir: Option<String>,
    /// A terminal, for one worker.
    #[arg(long)]
    pub pty: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Jobs {
    /// Also those that have ended.
    #[arg(short, long)]
    pub all: bool,
    /// Only those in this state: pending, starting, running, stopping, done, failed, cancelled.
    #[arg(short, long, value_name = "STATE", value_parser = state)]
    pub state: Option<String>,
    /// Only those of this queue.
    #[arg(short, long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Only those of this user.
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,
    /// A line for each task of an array, also for those that never started.
    #[arg(short = 'r', long)]
    pub array: bool,
}

fn state(text: &str) -> Result<String, String> {
    match ganger_core::model::job::JobState::parse(text) {
        Some(state) => Ok(state.to_string()),
        None => Err("give one of pending, starting, running, stopping, done, failed, cancelled".to_string()),
    }
}

#[derive(Debug, Args)]
pub struct OneJob {
    /// Id or name; of a task of an array like 12_3.
    pub job: String,
}

#[derive(Debug, Args)]
pub struct ManyJobs {
    /// Ids or names; tasks of an array like 12_3.
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Resize {
    /// Id or name.
    pub job: String,
    /// From `gang.min` to `gang.workers` of its file, in whole steps. What is too much leaves at once; what is missing comes when there is room.
    pub workers: u32,
}

#[derive(Debug, Args)]
pub struct Logs {
    /// Id or name.
    pub job: String,
    /// Go on until the ranks have ended.
    #[arg(short, long)]
    pub follow: bool,
    /// Only this rank; without it all, each line with its rank in front, or the ranks of the node whose launcher wrote it.
    #[arg(short, long, value_name = "N")]
    pub rank: Option<u32>,
    /// Of an earlier run than the newest.
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
}

#[derive(Debug, Args)]
pub struct Exec {
    /// Id or name.
    pub job: String,
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub rank: u32,
    /// With a terminal.
    #[arg(short = 't', long)]
    pub pty: bool,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct Wait {
    /// Ids or names.
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<String>,
    /// Give up after so long, such as 10m; a bare number is seconds.
    #[arg(short, long, value_name = "TIME", value_parser = super::pause)]
    pub timeout: Option<ganger_core::model::Span>,
}

#[derive(Debug, Args)]
pub struct CheckpointArgs {
    #[command(subcommand)]
    pub command: CheckpointCommand,
}

#[derive(Debug, clap::Subcommand)]
pub enum CheckpointCommand {
    /// A checkpoint of STEP is complete at PATH.
    Announce {
        step: u64,
        path: PathBuf,
        /// First do as `seal` does: PATH is a directory of files of no format that Ganger knows.
        #[arg(long)]
        seal: bool,
    },
    /// The last act of a save into DIR: make its files durable and write ganger-checkpoint.json with their names, sizes
    /// and hashes, which proves later that the checkpoint of STEP is whole.
    Seal { dir: PathBuf, step: u64 },
}
