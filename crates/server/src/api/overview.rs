//! The cluster at a glance (`top`), and what was charged to whom (`usage`). Sums of what the state holds, and no more.
use super::{App, Problem, find, views};
use crate::auth::Caller;
use crate::cycle::View;
use axum::Json;
use axum::extract::{Query, State};
use ganger_core::model::budget::Purse;
use ganger_core::model::decision::Reason;
use ganger_core::model::ids::LeafId;
use ganger_core::model::job::{Job, JobState};
use ganger_core::model::node::{Device, Node};
use ganger_core::model::queue::Queue;
use ganger_core::model::time::rfc3339;
use ganger_core::model::whole::is_inside;
use ganger_core::model::wire::api::{
    ApiError, BudgetView, GpuStates, LeafView, PendingView, TopView, UplinkView, UsageView,
};
use ganger_core::model::{Cluster, Span, Time};
use ganger_core::scheduler::uplinks::{self, Load};
use ganger_runtime::clock::unix_ms;
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use utoipa::IntoParams;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UsageQuery {
    /// Only this queue and those below it.
    queue: Option<String>,
    /// Only this user, where a budget has a part for each.
    user: Option<String>,
}

/// What was charged against budgets in this period, and the decayed use of queues.
#[utoipa::path(get, path = "/v1/usage", tag = "queues", params(UsageQuery),
    responses((status = 200, body = [UsageView]), (status = "default", body = ApiError)))]
pub(super) async fn get_usage(
    State(app): State<App>,
    _caller: Caller,
    Query(query): Query<UsageQuery>,
) -> Result<Json<Vec<UsageView>>, Problem> {
    let view = app.cycle.view();
    // Not the time of the state, which stands still while nothing happens.
    let now = Time(unix_ms());
    if let Some(queue) = &query.queue {
        find::queue(&view, queue)?;
    }
    let below = |queue: &Queue| query.queue.as_ref().is_none_or(|asked| is_inside(&queue.path, asked));
    let queues = view.cluster.queues.values().filter(|queue| below(queue));
    let lines = queues.flat_map(|queue| usage(queue, now, view.cluster.policy.usage_half_life));
    let of_user = |line: &UsageView| query.user.is_none() || line.user == query.user;
    let lines: Vec<UsageView> = lines.filter(of_user).collect();
    match &query.user {
        Some(user) if lines.is_empty() => Err(Problem::not_found(format!(
            "no budget has a part for user {user:?} that was used: usage is kept by user only where a budget says per_user"
        ))),
        _ => Ok(Json(lines)),
    }
}

/// The queue itself, then each user with a part of its budget.
fn usage(queue: &Queue, now: Time, half_life: Span) -> Vec<UsageView> {
    let decayed = queue.past.after(queue.used, now, half_life).gpu_ms();
    let whole = UsageView {
        queue: queue.path.clone(),
        user: None,
        gpu_milli: queue.used.all_gpus_milli(),
        budget: queue.purse().map(|purse| budget(&purse, now)),
        decayed_gpu_ms: (half_life > Span::ZERO).then_some(decayed),
    };
    let parts = queue.purses().filter(|purse| purse.user.is_some()).map(|purse| UsageView {
        queue: queue.path.clone(),
        user: purse.user.map(str::to_string),
        gpu_milli: purse.gpu_milli,
        budget: Some(budget(&purse, now)),
        decayed_gpu_ms: None,
    });
    std::iter::once(whole).chain(parts).collect()
}

fn budget(purse: &Purse<'_>, now: Time) -> BudgetView {
    let spent_gpu_ms = purse.spent_gpu_ms(now);
    BudgetView {
        gpu_ms: purse.gpu_ms,
        per: purse.per,
        spent_gpu_ms,
        left_gpu_ms: purse.gpu_ms.saturating_sub(spent_gpu_ms),
        renews_at: rfc3339(purse.per.end(now)),
    }
}

/// The cluster on one screen.
#[utoipa::path(get, path = "/v1/top", tag = "system",
    responses((status = 200, body = TopView), (status = "default", body = ApiError)))]
pub(super) async fn get_top(State(app): State<App>, _caller: Caller) -> Json<TopView> {
    Json(top(&app.cycle.view()))
}

fn top(view: &View) -> TopView {
    let (cluster, now) = (&view.cluster, Time(unix_ms()));
    let mut gpus = GpuStates::default();
    cluster.listed_nodes().for_each(|node| count(&mut gpus, node, now));
    TopView {
        status: views::status(view),
        gpus,
        queues: views::queue_views(cluster),
        leaves: leaves(cluster, now),
        pending: pending(cluster),
    }
}

fn count(gpus: &mut GpuStates, node: &Node, now: Time) {
    let takes_work = node.accepts(false, now);
    gpus.split_held_milli += node.used().gpu_milli;
    for device in &node.devices {
        let state = match device {
            Device::Used(_) => &mut gpus.used,
            Device::Free if takes_work => &mut gpus.free,
            Device::Free => &mut gpus.out,
            Device::Claimed(_) => &mut gpus.claimed,
            Device::Draining { .. } => &mut gpus.draining,
            Device::Split { .. } => &mut gpus.split,
            Device::Sick { .. } => &mut gpus.sick,
        };
        *state += 1;
    }
}

/// Those that have nodes, in the order of the fabric.
fn leaves(cluster: &Cluster, now: Time) -> Vec<LeafView> {
    let loads = uplinks::loads(cluster);
    let mut by_leaf: BTreeMap<LeafId, LeafView> = BTreeMap::new();
    for node in cluster.listed_nodes() {
        let view = by_leaf.entry(node.leaf).or_insert_with(|| empty_leaf(cluster, node.leaf, loads.get(&node.leaf)));
        view.nodes += 1;
        view.nodes_ready += u32::from(node.accepts(false, now));
        view.gpus += node.capacity().all_gpus();
        view.gpus_used += node.used().all_gpus();
        view.gpu_milli_used += node.used().all_gpus_milli();
    }
    by_leaf.into_values().collect()
}

fn empty_leaf(cluster: &Cluster, id: LeafId, load: Option<&Load>) -> LeafView {
    let leaf = &cluster.fabric.leaves[id.index()];
    let uplink =
        load.map(|load| UplinkView { capacity_bps: load.capacity_bps, asked_bps: load.asked_bps, gangs: load.gangs });
    let (leaf, spine) = (leaf.name.clone(), cluster.fabric.spines[leaf.spine.0 as usize].clone());
    LeafView { leaf, spine, nodes: 0, nodes_ready: 0, gpus: 0, gpus_used: 0, gpu_milli_used: 0, uplink }
}

/// By reason; tasks that are no jobs yet wait for what their array waits for.
fn pending(cluster: &Cluster) -> Vec<PendingView> {
    let mut sums: BTreeMap<Option<Reason>, (u64, u64, u64)> = BTreeMap::new();
    let mut add = |reason: Option<Reason>, jobs: u64, job: &Job| {
        let sum = sums.entry(reason).or_default();
        sum.0 += jobs;
        sum.1 = sum.1.saturating_add(job.spec.total().all_gpus().saturating_mul(jobs));
        sum.2 = sum.2.saturating_add(job.spec.total().all_gpus_milli().saturating_mul(jobs));
    };
    for job in cluster.jobs.values().filter(|job| job.state == JobState::Pending) {
        let blocker = cluster.blocked.get(&job.id).map(|blocker| blocker.reason());
        add(if job.held_by.is_some() { Some(Reason::Held) } else { blocker }, 1, job);
    }
    for array in cluster.arrays.values().filter(|array| Cluster::unmade_in(array) > 0) {
        let held = array.array.as_ref().map_or(0, |state| state.held.count());
        add(Some(cluster.array_waits_for(array).0), Cluster::unmade_in(array) - held, array);
        add(Some(Reason::Held), held, array);
    }
    let views = sums.into_iter().filter(|(_, (jobs, ..))| *jobs > 0);
    let view = |(reason, (jobs, gpus, gpu_milli))| PendingView { reason, jobs, gpus, gpu_milli };
    let mut views: Vec<PendingView> = views.map(view).collect();
    views.sort_by_key(|view| Reverse(view.jobs));
    views
}
