//! Hand-made views for the golden tests of the printers.
use super::Look;
use crate::cli::Format;
use ganger_core::model::amounts::{Limit, Resources};
use ganger_core::model::budget::Period;
use ganger_core::model::decision::Reason;
use ganger_core::model::job::{JobState, Priority};
use ganger_core::model::node::HealthState;
use ganger_core::model::wire::api::*;
use ganger_core::model::wire::job::parse_rfc3339;

pub fn look() -> Look {
    let now_ms = parse_rfc3339("2026-11-30T09:03:12Z").unwrap().0;
    Look { format: Format::Table, colour: false, width: 100, now_ms }
}

fn at(clock: &str) -> String {
    format!("2026-11-30T{clock}Z")
}

pub fn jobs() -> Vec<JobView> {
    let running = JobView {
        id: 7,
        name: "eval".into(),
        user: "ada".into(),
        queue: "research/nlp".into(),
        priority: Priority::P1,
        state: JobState::Running,
        state_since: at("08:10:00"),
        workers: 4,
        gpus: 4,
        gpu_milli: 4_000,
        nodes: vec!["n0".into()],
        attempt: 1,
        evictions: 0,
        submitted_at: at("08:00:00"),
        started_at: Some(at("08:10:00")),
        ended_at: None,
        reason: None,
        note: None,
        exit_code: None,
        task: None,
        array: None,
    };
    let pending = JobView {
        id: 12,
        name: "llama-ft".into(),
        user: "grace".into(),
        queue: "default".into(),
        priority: Priority::P2,
        state: JobState::Pending,
        state_since: at("09:00:00"),
        workers: 16,
        gpus: 16,
        gpu_milli: 16_000,
        nodes: vec![],
        attempt: 2,
        evictions: 1,
        submitted_at: at("07:00:00"),
        started_at: Some(at("07:00:05")),
        reason: Some(Reason::Resources),
        note: Some("needs 16 GPUs at once, 12 of the 16 in the cluster are free".into()),
        ..running.clone()
    };
    vec![running, pending]
}

/// The rest of an array, a task of it that runs, and one as a list by tasks shows it.
pub fn arrays() -> Vec<JobView> {
    let [running, pending] = jobs().try_into().unwrap();
    let rest = JobView {
        id: 20,
        name: "sweep".into(),
        attempt: 0,
        evictions: 0,
        started_at: None,
        reason: Some(Reason::ArrayLimit),
        note: Some("2 tasks of it live, at most 2 may at once".into()),
        array: Some(ArrayView {
            indices: "0-9%2".into(),
            pending: Some("5-9%2".into()),
            limit: Some(2),
            tasks: 10,
            waiting: 5,
            started: 2,
            done: 2,
            failed: 1,
            cancelled: 0,
        }),
        ..pending
    };
    let of_array = |index| Some(TaskView { array: 20, index });
    let task = JobView { id: 24, name: "sweep".into(), task: of_array(3), ..running };
    let unmade = JobView { id: 26, state: JobState::Pending, task: of_array(5), array: None, ..rest.clone() };
    vec![rest, task, unmade]
}

pub fn job_detail() -> JobDetail {
    let view = JobView {
        state: JobState::Running,
        state_since: at("09:01:00"),
        nodes: vec!["n0".into(), "n1".into()],
        workers: 2,
        gpus: 2,
        gpu_milli: 2_000,
        reason: None,
        note: None,
        ..jobs()[1].clone()
    };
    let rank = |rank: u32, node: &str| RankView {
        rank,
        node: node.into(),
        gpus: vec![rank as u8],
        slice: None,
        cpus: "0-3".into(),
        nics: vec!["mlx5_0".into()],
        phase: "running".into(),
        exit: None,
        log_of: None,
    };
    JobDetail {
        view,
        resources_per_worker: Resources { gpus: 1, cpus: 4, memory_bytes: 64 << 30, ..Resources::ZERO },
        time_limit_ms: Some(43_200_000),
        preemptible: true,
        command: vec!["python".into(), "train.py".into(), "--note=it's".into()],
        checkpoint: Some(CheckpointView {
            step: 1_200,
            path: "/shared/ckpt/step-001200".into(),
            attempt: 1,
            at: at("08:55:00"),
        }),
        ranks: vec![rank(0, "n0"), rank(1, "n1")],
        failures: 0,
        gpu_seconds: 7_200,
        events: events(),
        never: None,
    }
}

pub fn why() -> Why {
    let gate = |gate: &str, passed, text: &str| Gate { gate: gate.into(), passed, text: text.into() };
    let nodes = |nodes, because: &str| NodeCount { nodes, because: because.into() };
    Why {
        id: 12,
        name: "llama-ft".into(),
        state: JobState::Pending,
        since: at("09:00:00"),
        reason: Some(Reason::Topology),
        slurm_reason: Some("Resources".into()),
        summary: "needs 4 nodes with 8 free GPUs each under one leaf; the best leaf, leaf1, has 3".into(),
        facts: vec![],
        position: Some(3),
        ahead: vec!["eval (P1, job 7)".into(), "sweep (P2, job 9)".into()],
        gates: vec![
            gate("hold", true, "nobody holds it"),
            gate("queue limit", true, "research/nlp: 16 of 64 GPUs used, it asks for 32"),
            gate(
                "topology",
                false,
                "leaf1 could take 3 of its 4 workers, leaf2 could take 1; all in all there is room for 4",
            ),
        ],
        nodes: vec![
            nodes(4, "could take a worker"),
            nodes(10, "busy: 52 GPUs in use by 6 jobs"),
            nodes(2, "quarantined"),
        ],
        nodes_total: 16,
        estimate: Some(Estimate {
            start: at("11:08:12"),
            conditional_on: vec!["eval (job 7) ends by its limit".into(), "no node fails".into()],
        }),
        preemption: Some("P2 evicts nobody by class; its queue is above its guarantee".into()),
        would_start_now: vec!["with topology.prefer: leaf instead of require".into(), "with 3 workers".into()],
        satisfiable: true,
    }
}

pub fn nodes() -> Vec<NodeView> {
    let ready = NodeView {
        name: "n0".into(),
        profile: "dgx-h100".into(),
        gpu_model: "H100".into(),
        leaf: "leaf0".into(),
        spine: "spine0".into(),
        pool: Some("training".into()),
        address: "127.0.0.1".into(),
        health: HealthState::Ready,
        health_since: at("07:00:00"),
        health_cause: "registered".into(),
        state: "ready".into(),
        capacity: Resources { gpus: 8, cpus: 224, memory_bytes: 2 << 40, ..Resources::ZERO },
        used: Resources { gpus: 5, cpus: 20, memory_bytes: 256 << 30, gpu_milli: 625, ..Resources::ZERO },
        devices: "UUUUDPCX".into(),
        owners: [(0, 7), (1, 7), (2, 7), (3, 7), (4, 9)].into(),
        held_milli: [(5, 625)].into(),
        last_heard: at("09:03:10"),
        jobs: vec![7, 9],
        maintenance: Vec::new(),
    };
    let lost = NodeView {
        name: "n1".into(),
        pool: None,
        leaf: "leaf1".into(),
        health: HealthState::Fenced,
        health_since: at("09:02:00"),
        health_cause: "silent for 60s: the lease ran out".into(),
        state: "fenced".into(),
        used: Resources::ZERO,
        devices: "........".into(),
        owners: [].into(),
        held_milli: [].into(),
        last_heard: at("09:01:00"),
        jobs: vec![],
        maintenance: Vec::new(),
        ..ready.clone()
    };
    vec![ready, lost]
}

pub fn queues() -> Vec<QueueView> {
    let prod = QueueView {
        name: "prod".into(),
        weight: 3,
        guarantee: Limit { gpus: Some(16), ..Limit::default() },
        limit: Limit::default(),
        used: Resources { gpus: 8, cpus: 96, gpu_milli: 625, ..Resources::ZERO },
        share_millionths: 250_000,
        dominant: Some("gpus".into()),
        budget: None,
        whole_nodes: Some(WholeNodesView {
            nodes: 2,
            gpus: 8,
            gpu_model: Some("H100".into()),
            taken: 1,
            open: 0,
            coverable: 1,
        }),
        pending_jobs: 0,
        running_jobs: 1,
        warnings: vec![],
    };
    let limit = Limit { gpus: Some(32), memory_bytes: Some(2 << 40), ..Limit::default() };
    vec![
        prod.clone(),
        QueueView {
            name: "research/nlp".into(),
            weight: 1,
            guarantee: Limit::default(),
            limit,
            budget: Some(BudgetView {
                gpu_ms: 3_600_000_000,
                per: Period::Month,
                spent_gpu_ms: 1_485_000_000,
                left_gpu_ms: 2_115_000_000,
                renews_at: at("00:00:00"),
            }),
            whole_nodes: None,
            pending_jobs: 4,
            ..prod
        },
    ]
}

pub fn top() -> TopView {
    let leaf = |leaf: &str, gpus_used, uplink| LeafView {
        leaf: leaf.into(),
        spine: "spine0".into(),
        nodes: 4,
        nodes_ready: 3,
        gpus: 32,
        gpus_used,
        gpu_milli_used: gpus_used * 1_000 - 500,
        uplink,
    };
    let way = UplinkView { capacity_bps: 400_000_000_000, asked_bps: 500_000_000_000, gangs: 2 };
    let pending = |reason, jobs, gpus| PendingView { reason, jobs, gpus, gpu_milli: gpus * 1_000 };
    TopView {
        status: Status {
            version: "0.1.0".into(),
            term: 3,
            now: at("09:03:12"),
            nodes: 8,
            nodes_ready: 6,
            gpus: 64,
            gpus_used: 41,
            gpu_milli_used: 40_500,
            fragmented_millionths: 126_000,
            jobs_pending: 1_004,
            jobs_running: 7,
            last_decision_us: 900,
            decisions: 120,
        },
        gpus: GpuStates {
            used: 40,
            free: 12,
            out: 8,
            claimed: 1,
            draining: 2,
            split: 1,
            split_held_milli: 500,
            sick: 0,
        },
        queues: queues(),
        leaves: vec![leaf("leaf0", 32, Some(way)), leaf("leaf1", 9, None)],
        pending: vec![
            pending(Some(Reason::ArrayLimit), 1_000, 1_000),
            pending(Some(Reason::Resources), 3, 48),
            pending(None, 1, 0),
        ],
    }
}

pub fn usage() -> Vec<UsageView> {
    let budget = queues().remove(1).budget.map(|budget| BudgetView { renews_at: at("23:03:12"), ..budget });
    let whole = UsageView {
        queue: "research/nlp".into(),
        user: None,
        gpu_milli: 8_500,
        budget: budget.clone(),
        decayed_gpu_ms: Some(90_000_000),
    };
    let part = UsageView { user: Some("ada".into()), gpu_milli: 8_000, decayed_gpu_ms: None, ..whole.clone() };
    let free = UsageView { queue: "prod".into(), gpu_milli: 0, budget: None, decayed_gpu_ms: None, ..whole.clone() };
    vec![free, whole, part]
}

pub fn events() -> Vec<EventView> {
    let event = |number, at: String, kind: &str, job, node: Option<&str>, text: &str| EventView {
        number,
        at,
        kind: kind.into(),
        job,
        node: node.map(str::to_string),
        text: text.into(),
    };
    vec![
        event(41, at("09:00:00.5"), "preempted", Some(12), None, "llama-ft saves and leaves for hot (P0): 16 GPUs"),
        event(42, at("09:02:00"), "fenced", None, Some("n1"), "n1 was silent for 60s"),
    ]
}
