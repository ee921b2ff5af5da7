//! Model types to the views that the API shows. Pure printing: no question is asked of anybody.
use super::arrays;
use crate::cycle::View;
use crate::store::NumberedEvent;
use ganger_core::model::amounts::{Resources, count};
use ganger_core::model::decision::Reason;
use ganger_core::model::doubts;
use ganger_core::model::ids::{JobId, NodeId};
use ganger_core::model::job::{Attempt, Checkpoint, Job, JobState, Launcher, Worker, WorkerPhase};
use ganger_core::model::node::{Device, HealthState, Maintenance, Node};
use ganger_core::model::queue::{Queue, ancestry};
use ganger_core::model::time::rfc3339;
use ganger_core::model::whole::{Kept, WholeNodes, is_inside};
use ganger_core::model::wire::api::{
    BudgetView, CheckpointView, EventView, JobDetail, JobView, MaintenanceView, NodeView, QueueView, RankView, Status,
    TaskView, WholeNodesView,
};
use ganger_core::model::{Cluster, Time};
use ganger_core::scheduler::fragment::fragmentation;
use ganger_runtime::clock::unix_ms;
use std::collections::BTreeMap;

pub fn job_view(job: &Job, cluster: &Cluster) -> JobView {
    let view = plain_view(job, cluster);
    if job.array.is_some() {
        return arrays::array_view(view, job, cluster);
    }
    arrays::unmade_view(view, job, cluster)
}

fn plain_view(job: &Job, cluster: &Cluster) -> JobView {
    let blocker = cluster.blocked.get(&job.id).filter(|_| job.state == JobState::Pending);
    let reason = match (&job.held_by, job.state) {
        (Some(_), JobState::Pending) => Some(Reason::Held),
        _ => blocker.map(|blocker| blocker.reason()),
    };
    let note = match (blocker.map(ToString::to_string), &job.note) {
        // What a user can put right is often in the last run and not in what it waits for now.
        (Some(blocker), Some(last)) if !blocker.contains(last.as_str()) => Some(format!("{blocker}; last run: {last}")),
        (blocker, last) => blocker.or_else(|| last.clone()),
    };
    // An elastic gang may run with fewer than it wants.
    let placed = job.attempt.as_ref().map(|attempt| (attempt.workers.len() as u32).saturating_sub(attempt.given_up));
    let workers = placed.unwrap_or(job.spec.gang.workers);
    let asks = job.spec.shape.resources().times(workers.into());
    JobView {
        id: job.id.0,
        name: job.spec.name.clone(),
        user: job.owner.user.clone(),
        queue: job.spec.queue.clone(),
        priority: job.spec.priority,
        state: job.state,
        state_since: rfc3339(job.state_since),
        workers,
        gpus: asks.all_gpus(),
        gpu_milli: asks.all_gpus_milli(),
        nodes: job.attempt.as_ref().map(|a| node_names(&a.nodes(), cluster)).unwrap_or_default(),
        attempt: job.attempts.0,
        evictions: job.evictions,
        submitted_at: rfc3339(job.submitted_at),
        started_at: job.started_at.map(rfc3339),
        ended_at: job.ended_at.map(rfc3339),
        reason,
        note,
        exit_code: job.exit_code,
        task: job.task.map(|task| TaskView { array: task.array.0, index: task.index }),
        array: None,
    }
}

/// `sites`: the nodes of the last attempt in rank order, for a job that has ended.
pub fn job_detail(job: &Job, cluster: &Cluster, events: Vec<EventView>, sites: &[NodeId]) -> JobDetail {
    let mut ranks: Vec<RankView> = match &job.attempt {
        Some(attempt) => attempt.workers.iter().map(|worker| rank_view(worker, cluster)).collect(),
        None => (0u32..).zip(sites).map(|(rank, node)| past_rank_view(rank, *node, cluster)).collect(),
    };
    if job.spec.run.launcher != Launcher::Ranks {
        share_logs(&mut ranks);
    }
    JobDetail {
        view: job_view(job, cluster),
        resources_per_worker: job.spec.shape.resources(),
        time_limit_ms: job.spec.time_limit.map(|span| span.0),
        preemptible: job.spec.preemptible,
        command: job.spec.run.command.clone(),
        checkpoint: job.checkpoint.as_ref().map(checkpoint_view),
        ranks,
        failures: job.failures,
        gpu_seconds: gpu_us(job, cluster.now) / 1_000_000,
        events,
        never: None,
    }
}

/// What ended attempts were charged, and what the live one holds since it ran.
fn gpu_us(job: &Job, now: Time) -> u64 {
    let live = job.attempt.as_ref().and_then(|attempt| Some((attempt.ran_from?, attempt)));
    let since = live.map_or(0, |(from, attempt)| {
        // Milliseconds of thousandths are microseconds.
        now.since(from).0.saturating_mul(attempt.live_resources().all_gpus_milli())
    });
    job.gpu_us.saturating_add(since)
}

fn checkpoint_view(checkpoint: &Checkpoint) -> CheckpointView {
    CheckpointView {
        step: checkpoint.step,
        path: checkpoint.path.clone(),
        attempt: checkpoint.attempt.0,
        at: rfc3339(checkpoint.at),
    }
}

fn rank_view(worker: &Worker, cluster: &Cluster) -> RankView {
    let node = cluster.node(worker.place.node);
    let (phase, exit) = match &worker.phase {
        WorkerPhase::Assigned => ("assigned", None),
        WorkerPhase::Prepared { .. } => ("prepared", None),
        WorkerPhase::Running => ("running", None),
        WorkerPhase::Leaving { .. } => ("leaving", None),
        WorkerPhase::Ended(exit) => ("ended", Some(exit.to_string())),
    };
    let nics = bits(worker.place.nics).filter_map(|i| node.machine.nics.get(usize::from(i)));
    RankView {
        rank: worker.rank.0,
        node: node.name.clone(),
        gpus: bits(worker.place.gpus).collect(),
        slice: worker.place.slice.map(|slice| format!("{}: {}", slice.gpu, slice.words_on(&node.machine))),
        cpus: worker.place.cpus.to_string(),
        nics: nics.map(|nic| nic.name.clone()).collect(),
        phase: phase.to_string(),
        exit,
        log_of: None,
    }
}

/// One launcher a node runs its ranks: the first of them stands for its log.
fn share_logs(ranks: &mut [RankView]) {
    let mut first: BTreeMap<String, u32> = BTreeMap::new();
    for rank in ranks {
        let lead = *first.entry(rank.node.clone()).or_insert(rank.rank);
        rank.log_of = Some(lead).filter(|lead| *lead != rank.rank);
    }
}

fn past_rank_view(rank: u32, node: NodeId, cluster: &Cluster) -> RankView {
    let node = node_names(&[node], cluster).pop().unwrap_or_default();
    let phase = "ended".to_string();
    RankView {
        rank,
        node,
        gpus: Vec::new(),
        slice: None,
        cpus: String::new(),
        nics: Vec::new(),
        phase,
        exit: None,
        log_of: None,
    }
}

fn maintenance_view(one: &Maintenance) -> MaintenanceView {
    let until = (one.until < Time::NEVER).then(|| rfc3339(one.until));
    MaintenanceView { from: rfc3339(one.from), until, by: one.by.clone() }
}

pub fn node_view(node: &Node, cluster: &Cluster) -> NodeView {
    let leaf = &cluster.fabric.leaves[node.leaf.index()];
    let mut jobs: Vec<u64> = node.tenants.iter().map(|(JobId(id), _)| *id).collect();
    jobs.dedup();
    let (since, cause) = match node.cooldown_until {
        until if until > cluster.now && node.health.state == HealthState::Ready => {
            let refused = node.refusals.len();
            (
                until - cluster.policy.cooldown,
                format!("{}; open again at {}", count(refused as u64, "refused start"), rfc3339(until)),
            )
        }
        _ => (node.health.since, node.health.cause.clone()),
    };
    let owner = |(i, device): (usize, &Device)| Some((i as u8, device.owner()?.0));
    NodeView {
        name: node.name.clone(),
        profile: node.machine.profile.clone(),
        gpu_model: node.machine.gpu_model.clone(),
        leaf: leaf.name.clone(),
        spine: cluster.fabric.spines[leaf.spine.0 as usize].clone(),
        pool: node.pool.clone(),
        address: node.address.clone(),
        health: node.health.state,
        health_since: rfc3339(since),
        health_cause: cause,
        state: node_state(node, cluster.now),
        capacity: node.capacity(),
        used: node.used(),
        devices: node.devices.iter().map(device_letter).collect(),
        owners: node.devices.iter().enumerate().filter_map(owner).collect(),
        held_milli: held_milli(node),
        last_heard: rfc3339(node.last_heard),
        maintenance: node.maintenance.iter().map(maintenance_view).collect(),
        jobs,
    }
}

fn held_milli(node: &Node) -> BTreeMap<u8, u64> {
    let mut held = BTreeMap::new();
    node.held_slices().for_each(|slice| *held.entry(slice.gpu).or_default() += u64::from(slice.milli));
    held
}

fn node_state(node: &Node, now: Time) -> String {
    match node.health.state {
        HealthState::Ready | HealthState::Probation if node.draining.is_some() => "draining".to_string(),
        HealthState::Ready | HealthState::Probation if node.cordoned => "cordoned".to_string(),
        HealthState::Ready if node.cooldown_until > now => "cooling down".to_string(),
        state => state.to_string(),
    }
}

fn device_letter(device: &Device) -> char {
    match device {
        Device::Free => '.',
        Device::Claimed(_) => 'C',
        Device::Used(_) => 'U',
        Device::Draining { .. } => 'D',
        Device::Split { .. } => 'P',
        Device::Sick { .. } => 'X',
    }
}

/// Jobs are counted in their queue and in all above it, as what is used is.
pub fn queue_views(cluster: &Cluster) -> Vec<QueueView> {
    let now = Time(unix_ms());
    let kept = [cluster.kept_nodes(cluster.holds(), now), cluster.kept_nodes(std::iter::empty(), now)];
    let view = |queue| {
        let whole_nodes = whole_nodes(queue, &kept);
        let warnings = doubts::of_queue(cluster, queue, whole_nodes.as_ref().map(|whole| whole.coverable));
        QueueView { whole_nodes, warnings, ..queue_view(cluster, queue, now) }
    };
    let mut views: BTreeMap<&str, QueueView> =
        cluster.queues.iter().map(|(path, queue)| (path.as_str(), view(queue))).collect();
    for job in cluster.jobs.values() {
        for path in ancestry(&job.spec.queue) {
            let Some(view) = views.get_mut(path) else { continue };
            match job.state {
                JobState::Pending => view.pending_jobs += 1,
                _ => view.running_jobs += 1,
            }
        }
    }
    for array in cluster.arrays.values() {
        let unmade = u32::try_from(Cluster::unmade_in(array)).unwrap_or(u32::MAX);
        for path in ancestry(&array.spec.queue) {
            let Some(view) = views.get_mut(path) else { continue };
            view.pending_jobs = view.pending_jobs.saturating_add(unmade);
        }
    }
    views.into_values().collect()
}

fn queue_view(cluster: &Cluster, queue: &Queue, now: Time) -> QueueView {
    let capacity = cluster.listed_nodes().fold(Resources::ZERO, |sum, node| sum.plus(node.capacity()));
    let (dominant, share_millionths) = queue.used.dominant_part(capacity);
    QueueView {
        name: queue.path.clone(),
        weight: queue.weight,
        guarantee: queue.guarantee,
        limit: queue.limit,
        used: queue.used,
        share_millionths,
        dominant: dominant.map(str::to_string),
        budget: queue.budget.map(|budget| {
            let spent_gpu_ms = queue.spent_gpu_ms(now);
            let (gpu_ms, per) = (budget.gpu_ms, budget.per);
            let left_gpu_ms = gpu_ms.saturating_sub(spent_gpu_ms);
            BudgetView { gpu_ms, per, spent_gpu_ms, left_gpu_ms, renews_at: rfc3339(budget.per.end(now)) }
        }),
        whole_nodes: None,
        pending_jobs: 0,
        running_jobs: 0,
        warnings: Vec::new(),
    }
}

/// Its promise, with those of the queues below it: as it is now, and as it would be if nothing ran.
fn whole_nodes(queue: &Queue, [now, empty]: &[Vec<Kept<'_>>; 2]) -> Option<WholeNodesView> {
    let WholeNodes { nodes, gpus, gpu_model } = queue.whole_nodes.clone()?;
    let inside = |kept: &'_ &Kept<'_>| is_inside(kept.path, &queue.path);
    let (taken, open) =
        now.iter().filter(inside).fold((0, 0), |(taken, open), kept| (taken + kept.taken, open + kept.open));
    let coverable = empty.iter().filter(inside).map(|kept| kept.open).sum();
    Some(WholeNodesView { nodes, gpus, gpu_model, taken, open, coverable })
}

pub fn event_view(NumberedEvent { number, event }: &NumberedEvent, cluster: &Cluster) -> EventView {
    EventView {
        number: *number,
        at: rfc3339(event.at),
        kind: event.kind.clone(),
        job: event.job.map(|JobId(id)| id),
        node: event.node.and_then(|node| node_names(&[node], cluster).pop()),
        text: event.text.clone(),
    }
}

pub fn status(view: &View) -> Status {
    let cluster = &view.cluster;
    // Not the time of the state, which stands still while nothing happens.
    let now = Time(unix_ms());
    let count = |wanted: &[JobState]| cluster.jobs.values().filter(|job| wanted.contains(&job.state)).count() as u32;
    let sum = |of: fn(&Node) -> u64| cluster.listed_nodes().map(of).sum();
    Status {
        version: env!("CARGO_PKG_VERSION").to_string(),
        term: cluster.term,
        now: rfc3339(now),
        nodes: cluster.listed_nodes().count() as u32,
        nodes_ready: cluster.nodes.iter().filter(|node| node.accepts(false, now)).count() as u32,
        gpus: sum(|node| node.capacity().all_gpus()),
        gpus_used: sum(|node| node.used().all_gpus()),
        gpu_milli_used: sum(|node| node.used().all_gpus_milli()),
        fragmented_millionths: fragmentation(cluster).millionths(),
        jobs_pending: count(&[JobState::Pending]).saturating_add(cluster.tasks_unmade() as u32),
        jobs_running: count(&[JobState::Starting, JobState::Running, JobState::Stopping]),
        last_decision_us: view.metrics.last_decision_us,
        decisions: view.metrics.decisions,
    }
}

fn node_names(nodes: &[NodeId], cluster: &Cluster) -> Vec<String> {
    nodes.iter().filter_map(|id| cluster.nodes.get(id.index())).map(|node| node.name.clone()).collect()
}

fn bits(mask: u64) -> impl Iterator<Item = u8> {
    (0..64u8).filter(move |i| mask >> i & 1 == 1)
}

/// The worker of a rank in a live attempt.
pub fn worker(attempt: &Attempt, rank: u32) -> Option<&Worker> {
    attempt.workers.iter().find(|worker| worker.rank.0 == rank)
}
