//! What `decide` returns: steps to take as one whole, reservations, and one typed reason for every job looked at.
use super::amounts::{amount_figure, amount_words, count, count_are};
use super::budget::{GpuHours, Period};
use super::ids::{AttemptNo, JobId, NodeId, Rank};
use super::job::{Level, Place, Priority, StopWhy};
use super::split::Layout;
use super::time::{Time, rfc3339};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Devices being freed that are promised to one claimant (or to all jobs of its group, each with its own claim).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    pub claimant: JobId,
    /// Where each worker will be, in rank order.
    pub places: Vec<Place>,
    /// Whose stop frees it.
    pub victims: Vec<(JobId, AttemptNo)>,
    pub made_at: Time,
    pub deadline: Time,
    /// GPU-milliseconds of work that the victims lose.
    pub lost_gpu_ms: u64,
    /// The victims are moved: each has a claim of its own for its new place, with the same victims.
    #[serde(default)]
    pub moves: bool,
    /// Its claimant restarts on these places with more or fewer workers: it is its own only victim.
    #[serde(default)]
    pub resizes: bool,
}

/// A future start promised to a gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    pub job: JobId,
    pub start: Time,
    pub places: Vec<Place>,
    /// Set when the start rests on an assumed end: some holder states no time limit.
    pub conditional: bool,
    /// The jobs that have to leave its devices first, nearest end last; at most a few of them.
    #[serde(default)]
    pub awaits: Vec<JobId>,
}

/// One step of a decision. Steps of one decision are applied together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// End the live attempt of `job`.
    Stop { job: JobId, attempt: AttemptNo, why: StopWhy },
    /// Let an elastic gang go on without some of its workers, never below its minimum. One that restarts for that claims
    /// the places of the others.
    Shrink { job: JobId, attempt: AttemptNo, ranks: Vec<Rank>, claimant: JobId },
    /// Promise what the victims free.
    Claim(Claim),
    /// Give up a claim, because its claimant starts elsewhere or can no longer use it.
    Unclaim { claimant: JobId, why: String },
    /// Split the GPU anew, or make it whole, for the starts that follow; it takes its time.
    Repartition { node: NodeId, gpu: u8, layout: Layout },
    /// Start a new attempt on these places, in rank order.
    Start {
        job: JobId,
        attempt: AttemptNo,
        places: Vec<Place>,
        /// Whose reserved devices it uses until they are needed.
        #[serde(default)]
        guest_of: Vec<JobId>,
    },
}

/// The short codes that scripts read; each maps to Slurm's name where one exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub enum Reason {
    Resources,
    Topology,
    NodeFilter,
    Health,
    Priority,
    QueueLimit,
    Budget,
    Dependency,
    BeginTime,
    Window,
    Lending,
    /// Room is there, on whole nodes that are promised to another queue.
    Promised,
    Held,
    Backoff,
    Yielding,
    Unsatisfiable,
    /// No more tasks of its array may run at once.
    ArrayLimit,
}

impl Reason {
    /// The name that Slurm's users know.
    pub fn slurm(self) -> &'static str {
        match self {
            Reason::Resources | Reason::Topology => "Resources",
            Reason::NodeFilter | Reason::Unsatisfiable => "BadConstraints",
            Reason::Health => "ReqNodeNotAvail",
            Reason::Priority | Reason::Yielding => "Priority",
            Reason::QueueLimit => "AssocGrpGRES",
            Reason::Budget => "AssocGrpGRESMinutes",
            Reason::Dependency => "Dependency",
            Reason::BeginTime | Reason::Backoff => "BeginTime",
            Reason::Window | Reason::Lending | Reason::Promised => "Reservation",
            Reason::Held => "JobHeldUser",
            Reason::ArrayLimit => "JobArrayTaskLimit",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Why a job does not run, with the numbers of the moment. Turned into words only when someone asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason")]
pub enum Blocker {
    Held {
        by: String,
    },
    Dependency {
        on: JobId,
    },
    BeginTime {
        at: Time,
    },
    /// Its windows are closed, or close too soon.
    Window {
        opens: Time,
    },
    Backoff {
        until: Time,
        /// What its last run came to, where that is known.
        #[serde(default)]
        last: Option<String>,
    },
    /// Other jobs of its group are not submitted yet, or are themselves blocked.
    Group {
        name: String,
        present: u32,
        size: u32,
    },
    QueueLimit {
        queue: String,
        resource: String,
        used: u64,
        asks: u64,
        limit: u64,
    },
    /// What is left of a budget cannot pay for it beside what runs.
    Budget {
        queue: String,
        /// It is the part of this user.
        #[serde(default)]
        user: Option<String>,
        spent_gpu_ms: u64,
        committed_gpu_ms: u64,
        asks_gpu_ms: u64,
        budget_gpu_ms: u64,
        per: Period,
        renews_at: Time,
    },
    /// Not even an empty healthy cluster holds it.
    Unsatisfiable {
        text: String,
    },
    /// Only nodes that do not accept work now could hold it.
    Health {
        workers: u32,
        placeable: u32,
        out: u32,
    },
    /// Nodes of kept pools that are not lent to it now could hold it.
    Lending {
        workers: u32,
        placeable: u32,
        /// So many free GPUs are on such nodes, of these pools.
        gpus: u64,
        pools: String,
        /// When one of them is lent next for long enough.
        opens: Time,
    },
    /// There is room, but on nodes that are promised to a queue.
    Promised {
        queue: String,
        nodes: u32,
        gpus: u32,
        /// Of the promised nodes so many it has, and so many are open to it.
        taken: u32,
        open: u32,
    },
    /// No node passes the filters of model, memory, labels, pool.
    NodeFilter {
        workers: u32,
        rejected: u32,
    },
    Resources {
        workers: u32,
        placeable: u32,
        needs_gpus: u64,
        free_gpus: u64,
        short: String,
    },
    /// The cluster has room, but no single domain of the required level.
    Topology {
        workers: u32,
        level: Level,
        best: u32,
        best_gpus: u32,
        placeable: u32,
        domain: String,
    },
    /// There is room, but it is promised to a job that goes first.
    Priority {
        ahead: JobId,
        class: Priority,
    },
    /// Victims are leaving.
    Yielding {
        victims: u32,
        deadline: Time,
    },
    /// The work units of this decision were used up before its turn.
    NotReached,
}

impl Blocker {
    pub fn reason(&self) -> Reason {
        match self {
            Blocker::Held { .. } => Reason::Held,
            Blocker::Dependency { .. } => Reason::Dependency,
            Blocker::BeginTime { .. } => Reason::BeginTime,
            Blocker::Window { .. } => Reason::Window,
            Blocker::Backoff { .. } => Reason::Backoff,
            Blocker::Group { .. } => Reason::Dependency,
            Blocker::QueueLimit { .. } => Reason::QueueLimit,
            Blocker::Budget { .. } => Reason::Budget,
            Blocker::Unsatisfiable { .. } => Reason::Unsatisfiable,
            Blocker::Health { .. } => Reason::Health,
            Blocker::Lending { .. } => Reason::Lending,
            Blocker::Promised { .. } => Reason::Promised,
            Blocker::NodeFilter { .. } => Reason::NodeFilter,
            Blocker::Resources { .. } => Reason::Resources,
            Blocker::Topology { .. } => Reason::Topology,
            Blocker::Priority { .. } | Blocker::NotReached => Reason::Priority,
            Blocker::Yielding { .. } => Reason::Yielding,
        }
    }
}

/// One sentence with the numbers; codes beside it are for scripts.
impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocker::Held { by } => write!(f, "held by {by}"),
            Blocker::Dependency { on } => write!(f, "waits for job {on} to end as asked"),
            Blocker::BeginTime { at } => write!(f, "not to begin before {}", rfc3339(*at)),
            Blocker::Window { opens: Time::NEVER } => write!(f, "none of its windows is long enough for it"),
            Blocker::Window { opens } => {
                write!(f, "its windows are closed, or close too soon; the next opens at {}", rfc3339(*opens))
            }
            Blocker::Backoff { until, last } => {
                let last = last.as_deref().unwrap_or("its last run failed");
                write!(f, "not tried again before {}: {last}", rfc3339(*until))
            }
            Blocker::Group { name, present, size } => {
                write!(f, "its group {name} has {present} of {size} jobs: all of them start together")
            }
            Blocker::QueueLimit { queue, resource, used, asks, limit } => {
                let figure = |amount: u64| amount_figure(resource, amount);
                let (all, used, asks) = (amount_words(resource, used + asks), figure(*used), figure(*asks));
                let limit = figure(*limit);
                write!(f, "queue {queue} would hold {all} ({used} used + {asks} asked), limit {limit}")
            }
            Blocker::Budget {
                queue,
                user,
                spent_gpu_ms,
                committed_gpu_ms,
                asks_gpu_ms,
                budget_gpu_ms,
                per,
                renews_at,
            } => {
                write!(
                    f,
                    "{}queue {queue} has spent {} and needs {} for what runs, of {} this {per}; it needs {}; the budget renews at {}",
                    user.as_ref().map_or(String::new(), |user| format!("user {user} in ")),
                    GpuHours(*spent_gpu_ms),
                    GpuHours(*committed_gpu_ms),
                    GpuHours(*budget_gpu_ms),
                    GpuHours(*asks_gpu_ms),
                    rfc3339(*renews_at)
                )
            }
            Blocker::Unsatisfiable { text } => write!(f, "can never run: {text}"),
            Blocker::Health { workers, placeable, out } => write!(
                f,
                "{placeable} of {} placeable; {} without new work (health, drain, cordon, maintenance)",
                count((*workers).into(), "worker"),
                count((*out).into(), "suitable node")
            ),
            Blocker::Lending { workers, placeable, gpus, pools, opens } => write!(
                f,
                "{placeable} of {} placeable; {} on nodes that are not lent to it now (pool {pools}); {}",
                count((*workers).into(), "worker"),
                count(*gpus, "free GPU"),
                match *opens {
                    Time::NEVER => "no lending time is known".to_string(),
                    at => format!("the next lending time opens at {}", rfc3339(at)),
                }
            ),
            Blocker::Promised { queue, nodes, gpus, taken, open } => write!(
                f,
                "there is room, but {} with {} each {} promised to queue {queue} ({taken} in use by it, {open} open to it); \
                 others start there only if they are P3, preemptible, save and are in no group",
                count((*nodes).into(), "node"),
                count((*gpus).into(), "GPU"),
                if *nodes == 1 { "is" } else { "are" },
            ),
            Blocker::NodeFilter { rejected, .. } => {
                let nodes = count((*rejected).into(), "node");
                write!(f, "none of {nodes} has the model, memory, labels or pool asked for")
            }
            Blocker::Resources { workers, placeable, needs_gpus, free_gpus, short } => write!(
                f,
                "needs {}, {free_gpus} free; {placeable} of {} placeable, short of: {short}",
                count(*needs_gpus, "GPU"),
                count((*workers).into(), "worker")
            ),
            Blocker::Topology { workers, level, best, best_gpus, placeable, domain } => write!(
                f,
                "no {level} holds {}, best holds {best} ({domain}, {}); the cluster has room for {placeable}",
                count((*workers).into(), "worker"),
                count((*best_gpus).into(), "free GPU")
            ),
            Blocker::Priority { ahead, class } => {
                write!(f, "there is room, but it is promised to job {ahead} ({class}), which goes first")
            }
            Blocker::Yielding { victims, deadline } => {
                write!(
                    f,
                    "{} leaving for it, at the latest by {}",
                    count_are((*victims).into(), "job"),
                    rfc3339(*deadline)
                )
            }
            Blocker::NotReached => write!(f, "jobs that go first used up the work units of this decision"),
        }
    }
}

/// The result of one `decide`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Decision {
    pub at: Time,
    /// [`crate::model::Cluster::version`] that it was made for.
    pub based_on: u64,
    pub steps: Vec<Step>,
    /// The whole set; it replaces the one before.
    pub reservations: Vec<Reservation>,
    pub blocked: BTreeMap<JobId, Blocker>,
    /// Placement trials and node looks: what the budget counts.
    pub work: u64,
}

impl Decision {
    /// Nodes on which some step changes something, each once.
    pub fn touched_nodes(&self) -> Vec<NodeId> {
        let mut nodes: Vec<NodeId> = self
            .steps
            .iter()
            .flat_map(|step| match step {
                Step::Claim(claim) => claim.places.as_slice(),
                Step::Start { places, .. } => places.as_slice(),
                _ => &[],
            })
            .map(|place| place.node)
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }
}
