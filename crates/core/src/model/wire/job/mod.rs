//! The job file: what users write (YAML) and send (`POST /v1/jobs`, JSON), and how it becomes a [`JobSpec`].
//!
//! Amounts, times and names are text here, as people write them; [`JobFile::into_spec`] reads every one of them and
//! tells all that is wrong at once, each with its field and what to do. Fields of features that do not exist yet are
//! known by name, so that they are refused as such and never ignored. Unknown fields are refused by the parser.
//!
//! What is taken where nothing is said: one worker; 4 CPUs per GPU and at least 1 (few enough to fit every machine that
//! has GPUs, enough to feed one); memory 0, which means neither counted nor limited; class P2; queue `default`; no time
//! limit; no retries; `SIGTERM` and 30 s of grace. A job with a checkpoint directory and a signal is taken to write a
//! checkpoint when it gets that signal.
mod check;
mod decimal;
mod parts;
mod some;
mod spec;
mod words;

use crate::model::job::JobSpec;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

pub use check::Findings;
pub use decimal::Decimal;
pub use some::one_or_more;
pub(crate) use words::{is_label, is_queue_path};
pub use words::{parse_rfc3339, parse_signal};

/// The longest single argument that Linux hands to a process, without its final zero byte.
pub const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 1;

/// One thing that is wrong in a file or request: where, what, and how to put it right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Path of the field, such as `gang.workers`.
    pub field: String,
    pub problem: String,
    pub fix: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.field, self.problem, self.fix)
    }
}

/// A job as its user wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    pub name: String,
    /// Path in the tenant tree, such as `research/nlp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// `P0` to `P3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<String>,
    /// Whether others may stop it; P3 is unless it says no, the others are not unless they say yes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preemptible: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang: Option<GangFile>,
    /// Per worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesFile>,
    /// `ranks`, `torchrun` or `mpi`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<TopologyFile>,
    /// `G/2`: the two jobs that say so start together or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Only nodes of this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Ended after so long in the running state, such as `12h`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<CheckpointFile>,
    /// How often a run that failed by itself is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retries: Option<i64>,
    /// Jobs to wait for, by id or name: `12` or `afterok:12`, `afternotok:prep`, `afterany:prep`.
    #[serde(default, deserialize_with = "one_or_more", skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Not started before this moment, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<String>,
    /// It should have ended by this moment, RFC 3339; needs `time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// It runs only in these weekly windows, such as `Mon-Fri 22:00-06:00 Europe/Berlin`; UTC where no zone is named.
    #[serde(default, deserialize_with = "one_or_more", skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<String>,
    /// Absolute by the time that it reaches the server; the command line sends the directory it was called in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// So many tasks like this job: their indices, and behind a `%` how many run at once, such as `0-9%2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub array: Option<Decimal>,
    /// Where the logs go besides the node's own disk; `%j` job, `%x` name, `%t` rank, `%a` attempt, `%%`; of an array `%A`
    /// is its number and `%a` the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// It has work only now and then, so it may share a GPU in turns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub intermittent: bool,
    /// A terminal for the one worker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pty: bool,
    /// A list of arguments, or one line for `bash -c`.
    #[serde(default)]
    pub command: Command,

    // Features that do not exist yet: known, so that they are refused by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub roles: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub image: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub mounts: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub budget: Option<Value>,
}

/// How many workers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GangFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<i64>,
    /// What it can do with where there is no room for more; all of them, unless given. It restarts from its checkpoint
    /// whenever its size changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<i64>,
    /// It runs with whole steps of so many workers less than all; 1 unless given, or `topology.ranks_per_island`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
}

/// What one worker needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourcesFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<i64>,
    /// Such as `H100`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// The least memory of each GPU, such as `80GB`; of a share the memory that it gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<i64>,
    /// Such as `120GiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Between its GPUs and the CPUs, such as `20GB/s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_bandwidth: Option<String>,
    /// To other nodes, such as `50Gbps`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_bandwidth: Option<String>,
    /// Only nodes that carry all of these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,

    /// A MIG instance instead of whole GPUs, such as `3g.40gb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<String>,
    /// A share of one GPU instead of whole ones, such as `0.5`; `vram` is then the memory that it gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub share: Option<Decimal>,
    /// How the GPU is shared: `mps` (the default) or `time-slice`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<String>,
    /// Each worker's part on a GPU of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub distinct_gpus: bool,
    /// GPU memory that the worker's model needs, over all of its GPUs, such as `140GB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs_vram: Option<String>,
}

/// Where the gang wants to be. Levels: `gpu switch socket island node leaf spine cluster`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologyFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub require: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_per_island: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_per_node: Option<i64>,
}

/// How the job saves its work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFile {
    /// Absolute by the time that it reaches the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// How often it writes one unasked, such as `10m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<String>,
    /// The signal that asks for one and for an end, such as `SIGUSR1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// How long a stop waits for the ranks to save and leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace: Option<String>,
}

/// The process to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Command {
    Arguments(Vec<String>),
    /// Run by `bash -c`.
    Line(String),
}

impl Default for Command {
    fn default() -> Self {
        Command::Arguments(Vec::new())
    }
}

/// By hand, because an untagged enum would read `[sleep, 60]` as a text and a number and refuse it: here YAML hands
/// over each argument as it is written.
impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CommandVisitor)
    }
}

struct CommandVisitor;

impl<'de> Visitor<'de> for CommandVisitor {
    type Value = Command;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a list of arguments, such as [python, train.py], or one line of shell")
    }

    fn visit_str<E: de::Error>(self, line: &str) -> Result<Command, E> {
        Ok(Command::Line(line.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Command, A::Error> {
        let mut arguments = Vec::new();
        while let Some(argument) = list.next_element()? {
            arguments.push(argument);
        }
        Ok(Command::Arguments(arguments))
    }
}

impl Command {
    fn into_arguments(self) -> Vec<String> {
        match self {
            Command::Arguments(arguments) => arguments,
            Command::Line(line) if line.trim().is_empty() => Vec::new(),
            Command::Line(line) => vec!["bash".to_string(), "-c".to_string(), line],
        }
    }
}

impl JobFile {
    /// Reads and checks everything. `resolve` finds the newest job by id or name, for dependencies.
    ///
    /// # Errors
    /// All that is wrong, in the order of the file's fields.
    pub fn into_spec(self, resolve: &dyn Fn(&str) -> Option<crate::model::JobId>) -> Result<JobSpec, Vec<FieldError>> {
        spec::build(self, resolve)
    }
}

#[cfg(test)]
mod tests;
