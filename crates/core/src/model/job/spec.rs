//! What was asked: [`JobSpec`] and its parts, as checked.
use super::ArraySpec;
use crate::model::amounts::{Resources, count};
use crate::model::ids::JobId;
use crate::model::split::PartAsk;
use crate::model::time::{Span, Time};
use crate::model::window::{Window, longest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The four classes. The lower number goes first.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, utoipa::ToSchema,
)]
pub enum Priority {
    /// Customer-facing and urgent.
    P0,
    /// Production.
    P1,
    /// Normal.
    #[default]
    P2,
    /// Yields.
    P3,
}

impl Priority {
    pub const ALL: [Priority; 4] = [Priority::P0, Priority::P1, Priority::P2, Priority::P3];

    pub fn parse(text: &str) -> Option<Priority> {
        Priority::ALL.into_iter().find(|p| p.to_string() == text)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "P{}", *self as u8)
    }
}

/// How wide a set of devices is, from the tightest to the whole cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// One GPU, for workers that ask for a part of one.
    Gpu,
    /// One PCIe switch.
    Switch,
    /// One NUMA node with CPUs.
    Socket,
    /// GPUs joined by NVLink, which may span nodes.
    Island,
    Node,
    Leaf,
    Spine,
    Cluster,
}

impl Level {
    pub const ALL: [Level; 8] = [
        Level::Gpu,
        Level::Switch,
        Level::Socket,
        Level::Island,
        Level::Node,
        Level::Leaf,
        Level::Spine,
        Level::Cluster,
    ];

    pub fn parse(text: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|l| l.to_string() == text)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Gpu => "gpu",
            Level::Switch => "switch",
            Level::Socket => "socket",
            Level::Island => "island",
            Level::Node => "node",
            Level::Leaf => "leaf",
            Level::Spine => "spine",
            Level::Cluster => "cluster",
        })
    }
}

/// How many workers make the gang. With `min == workers` the gang is rigid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gang {
    /// The size that it wants.
    pub workers: u32,
    pub min: u32,
    pub step: u32,
    #[serde(default)]
    pub shrink: Shrink,
}

/// How a running gang gives up workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shrink {
    /// The attempt goes on with the others.
    #[default]
    InPlace,
    /// The attempt saves and ends, and the next one is smaller.
    Restart,
}

impl Gang {
    pub fn rigid(workers: u32) -> Gang {
        Gang { workers, min: workers, step: workers, shrink: Shrink::InPlace }
    }
}

/// What one worker needs on one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Shape {
    pub gpus: u32,
    pub cpus: u32,
    pub memory_bytes: u64,
    /// Only GPUs of this model, such as `H100`.
    pub gpu_model: Option<String>,
    /// Only GPUs with at least this much memory each; of a share the memory that it gets.
    pub vram_bytes: u64,
    /// Only nodes that carry all of these labels.
    pub labels: BTreeMap<String, String>,
    /// Of the way from its GPUs to the CPUs, split evenly over the GPUs.
    #[serde(default)]
    pub pcie_bandwidth_bps: u64,
    #[serde(default)]
    pub network_bandwidth_bps: u64,
    /// A part of one GPU instead of whole ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<PartAsk>,
    /// Each worker's part on a GPU of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub distinct_gpus: bool,
    /// GPU memory that the worker's model needs, over all of its GPUs.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub needs_vram_bytes: u64,
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// PCIe bandwidth is given out in whole megabits per second: so what a switch has left is kept small and exact.
pub const PCIE_UNIT_BPS: u64 = 1_000_000;

impl Shape {
    /// What one worker asks at least.
    pub fn resources(&self) -> Resources {
        let gpus = u64::from(self.gpus);
        let shared = if let Some(PartAsk::Share { .. }) = self.part { self.vram_bytes } else { 0 };
        Resources {
            gpus,
            cpus: self.cpus.into(),
            memory_bytes: self.memory_bytes,
            vram_bytes: self.vram_bytes.saturating_mul(gpus).saturating_add(shared),
            pcie_bandwidth_bps: self.pcie_per_gpu_bps().saturating_mul(gpus),
            network_bandwidth_bps: self.network_bandwidth_bps,
            gpu_milli: self.milli().into(),
        }
    }

    /// Each GPU's part of the PCIe bandwidth, rounded up.
    pub fn pcie_per_gpu_bps(&self) -> u64 {
        let part = self.pcie_bandwidth_bps.div_ceil(u64::from(self.gpus.max(1)));
        part.div_ceil(PCIE_UNIT_BPS).saturating_mul(PCIE_UNIT_BPS)
    }

    /// What its part of a GPU counts as, in thousandths; 0: it asks for none.
    pub fn milli(&self) -> u32 {
        self.part.map_or(0, |part| part.milli(self.gpu_model.as_deref()))
    }

    pub fn asks_gpu(&self) -> bool {
        self.gpus > 0 || self.part.is_some()
    }

    /// What it asks of GPUs, in words.
    pub fn gpu_words(&self) -> String {
        self.part.map_or_else(|| count(self.gpus.into(), "GPU"), |part| part.to_string())
    }
}

/// Where the gang wants to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct TopologyWish {
    /// Hard: the whole gang within one domain of this level.
    pub require: Option<Level>,
    /// Soft: tried first.
    pub prefer: Option<Level>,
    /// Hard: each run of this many consecutive ranks within one NVLink island.
    pub ranks_per_island: Option<u32>,
    /// Hard: each run of this many consecutive ranks on a node that has no other rank of the gang.
    #[serde(default)]
    pub ranks_per_node: Option<u32>,
}

impl TopologyWish {
    /// So many ranks are placed together or not at all.
    pub fn together(&self) -> u32 {
        self.ranks_per_island.or(self.ranks_per_node).unwrap_or(1).max(1)
    }

    /// How many workers a node takes that has room for `most`.
    pub fn on_node(&self, most: u32) -> u32 {
        self.ranks_per_node.map_or(most, |each| if most < each { 0 } else { each })
    }

    /// What speaks against so many workers on each node.
    pub fn spreads(&self, gang: &Gang) -> Result<(), String> {
        let (Some(each), workers) = (self.ranks_per_node, gang.workers) else { return Ok(()) };
        let one_node = self.require.is_some_and(|level| level <= Level::Node);
        if each == 0 || !workers.is_multiple_of(each) {
            return Err(format!("{} cannot be spread over nodes by {each}", count(workers.into(), "worker")));
        }
        if gang.min < workers {
            return Err("an elastic gang is as large as there is room for, on any nodes".to_string());
        }
        if self.ranks_per_island.is_some() {
            return Err("topology.ranks_per_island is given too, and only one of them may be".to_string());
        }
        if one_node && each != workers {
            return Err(format!("{workers} workers by {each} are on several nodes, and topology.require allows one"));
        }
        Ok(())
    }
}

/// `group: G/2` makes two jobs one atomic gang.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    pub size: u32,
}

/// What a job may assume about its checkpoints, and how it is asked to write one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckpointPolicy {
    /// The directory that all ranks share; `None`: the job has no checkpoints and loses all since its start.
    pub dir: Option<String>,
    /// How often it writes one unasked.
    pub every: Option<Span>,
    /// The signal that asks for one, such as `SIGUSR1`; `None`: `SIGTERM`.
    pub signal: Option<String>,
    /// Whether it writes one when asked, within `grace`; then a stop loses nothing.
    pub on_demand: bool,
    /// How long a stop waits for the ranks to save and leave.
    pub grace: Span,
    /// How long writing one takes, as stated or measured; for the cost of evicting.
    pub write_time: Span,
    /// How long a restart takes until work goes on; for the cost of evicting.
    pub restart_time: Span,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DependencyKind {
    /// Start after that job is done.
    AfterOk,
    /// Start after that job failed or was cancelled.
    AfterNotOk,
    /// Start after that job ended in any way.
    AfterAny,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dependency {
    pub job: JobId,
    pub kind: DependencyKind,
    /// Set when the other job has ended as asked.
    pub met: bool,
}

/// How worker processes are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// One process a worker.
    #[default]
    Ranks,
    /// One process a node, which starts its own ranks (`torchrun`); the slots are named in its environment.
    Torchrun,
    /// One process a node with a hostfile that names all slots.
    Mpi,
}

/// What only agents read: the process to run. The scheduler never looks inside.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunSpec {
    pub launcher: Launcher,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub workdir: Option<String>,
    /// Where logs go besides the agent's own disk; `%j` job, `%x` name, `%t` rank, `%a` attempt; of a task of an array `%A`
    /// array and `%a` index.
    pub output: Option<String>,
    /// A terminal for rank 0.
    pub pty: bool,
}

/// Everything a user asked for, validated. Shared, never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: String,
    /// Path in the tenant tree, such as `research/nlp`.
    pub queue: String,
    pub priority: Priority,
    /// Whether a job with the right to do so may stop this one.
    pub preemptible: bool,
    /// `preemptible: false` was said: not even what is guaranteed to other queues is taken from it.
    #[serde(default)]
    pub firm: bool,
    pub gang: Gang,
    pub shape: Shape,
    pub topology: TopologyWish,
    pub group: Option<Group>,
    /// Only nodes of this pool.
    pub pool: Option<String>,
    /// After so long in the running state the job is ended; `None`: never.
    pub time_limit: Option<Span>,
    pub checkpoint: CheckpointPolicy,
    /// How often a failed run is tried again. Evictions, node faults and refusals do not count.
    pub retries: u32,
    pub after: Vec<Dependency>,
    pub begin: Option<Time>,
    /// It has work only now and then: it may share a GPU in turns.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub intermittent: bool,
    /// It should have ended by then; such a job states a time limit.
    #[serde(default)]
    pub deadline: Option<Time>,
    /// It runs only while one of them is open; none: always.
    #[serde(default)]
    pub windows: Vec<Window>,
    /// So many jobs like this one, which differ in their index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArraySpec>,
    pub run: RunSpec,
}

/// Most workers of one gang: more would only serve to exhaust the memory of the server.
pub const MAX_WORKERS: u32 = 100_000;

/// Longest grace of a stop: without a bound a job could never be made to leave.
pub const MAX_GRACE: Span = Span::hours(7 * 24);

impl JobSpec {
    /// A gang of `workers` that asks for its shape and nothing else: queue `default`, P2, not elastic, no command yet.
    pub fn new(name: &str, workers: u32, shape: Shape) -> JobSpec {
        JobSpec {
            name: name.to_string(),
            queue: "default".to_string(),
            priority: Priority::P2,
            preemptible: false,
            firm: false,
            gang: Gang::rigid(workers),
            shape,
            topology: TopologyWish::default(),
            group: None,
            pool: None,
            time_limit: None,
            checkpoint: CheckpointPolicy::default(),
            retries: 0,
            after: Vec::new(),
            begin: None,
            intermittent: false,
            deadline: None,
            windows: Vec::new(),
            array: None,
            run: RunSpec::default(),
        }
    }

    /// Refuses what contradicts itself: the field and why. Whether the cluster holds it is another question.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let Gang { workers, min, .. } = self.gang;
        if workers == 0 || min == 0 || min > workers || workers > MAX_WORKERS {
            let why = format!(
                "workers {workers} and min {min}: both at least 1, min at most workers, workers at most {MAX_WORKERS}"
            );
            return Err(("gang", why));
        }
        if let Some(slice) = self.topology.ranks_per_island
            && self.is_elastic()
            && !self.gang.step.is_multiple_of(slice.max(1))
        {
            let why = format!("steps of {} would break up islands of {slice} ranks", self.gang.step);
            return Err(("gang.step", why));
        }
        if !self.shape.asks_gpu() && self.shape.cpus == 0 && self.shape.memory_bytes == 0 {
            return Err(("resources", "a worker needs at least one GPU, CPU or byte of memory".to_string()));
        }
        if self.shape.pcie_bandwidth_bps > 0 && self.shape.gpus == 0 {
            let why = "it is that of the GPUs' way to the CPUs, and the workers ask for no whole ones".to_string();
            return Err(("resources.pcie_bandwidth", why));
        }
        if let Some(slice) = self.topology.ranks_per_island
            && (slice == 0 || workers % slice != 0 || self.shape.gpus == 0)
        {
            return Err((
                "topology.ranks_per_island",
                format!("{slice} does not divide {} with GPUs", count(workers.into(), "worker")),
            ));
        }
        self.topology.spreads(&self.gang).map_err(|why| ("topology.ranks_per_node", why))?;
        if !self.shape.asks_gpu() && matches!(self.topology.require, Some(Level::Island | Level::Switch | Level::Gpu)) {
            return Err(("topology.require", "workers without GPUs are on no GPU, island or switch".to_string()));
        }
        if self.checkpoint.grace > MAX_GRACE {
            return Err(("checkpoint.grace", format!("{} is longer than {MAX_GRACE}", self.checkpoint.grace)));
        }
        if self.deadline.is_some() && self.time_limit.is_none() {
            return Err(("deadline", "it needs a time limit, to know when the job has to start".to_string()));
        }
        if self.array.is_some() && self.group.is_some() {
            return Err(("array", "the tasks of an array start each by itself, those of a group together".to_string()));
        }
        if self.array.as_ref().is_some_and(|array| array.count() == 0) {
            return Err(("array", "it has no task".to_string()));
        }
        self.fits_some_window()?;
        super::parts::check(self)
    }

    /// A job that cannot save has to fit into one stretch of windows, or it would wait for ever.
    fn fits_some_window(&self) -> Result<(), (&'static str, String)> {
        let open = longest(&self.windows);
        match (self.windows.is_empty() || self.can_save(), self.time_limit) {
            (true, _) => Ok(()),
            (false, Some(limit)) if limit <= open => Ok(()),
            (false, Some(limit)) => {
                Err(("windows", format!("a job that does not save and takes up to {limit} fits into none of them")))
            }
            (false, None) => {
                Err(("windows", "a job that does not save needs a time limit that fits into one of them".to_string()))
            }
        }
    }

    /// What the whole gang holds at full size.
    pub fn total(&self) -> Resources {
        self.shape.resources().times(self.gang.workers.into())
    }
}
