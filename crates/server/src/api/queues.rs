//! Queues, and the shape of the cluster: the files that administrators apply.
use super::{App, JsonBody, Problem, views};
use crate::auth::{AdminCaller, Caller};
use axum::Json;
use axum::extract::{Path, State};
use ganger_core::lifecycle::input::Input;
use ganger_core::model::doubts;
use ganger_core::model::wire::api::{ApiError, ClusterApplied, QueueView};
use ganger_core::model::wire::cluster::{ClusterFile, QueuesFile};

/// All queues by path.
#[utoipa::path(get, path = "/v1/queues", tag = "queues",
    responses((status = 200, body = [QueueView]), (status = "default", body = ApiError)))]
pub(super) async fn list_queues(State(app): State<App>, _caller: Caller) -> Json<Vec<QueueView>> {
    Json(views::queue_views(&app.cycle.view().cluster))
}

/// Creates and changes queues; those that are not named stay as they are.
#[utoipa::path(post, path = "/v1/queues", tag = "queues", request_body = QueuesFile,
    responses((status = 200, body = [QueueView]), (status = "default", body = ApiError)))]
pub(super) async fn apply_queues(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    JsonBody(file): JsonBody<QueuesFile>,
) -> Result<Json<Vec<QueueView>>, Problem> {
    let queues = file.into_specs().map_err(|errors| Problem::fields("the queues", &errors))?;
    let applied = app.cycle.apply(Input::Queues { queues, by: caller.user }).await?;
    Ok(Json(views::queue_views(&applied.view.cluster)))
}

/// Removes a queue that has no job, no queue below it, and no pool lent to it.
#[utoipa::path(delete, path = "/v1/queues/{queue}", tag = "queues",
    params(("queue" = String, Path, description = "path of the queue, with / written as %2F")),
    responses((status = 200, body = [QueueView]), (status = "default", body = ApiError)))]
pub(super) async fn remove_queue(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Path(queue): Path<String>,
) -> Result<Json<Vec<QueueView>>, Problem> {
    let applied = app.cycle.apply(Input::RemoveQueue { queue, by: caller.user }).await?;
    Ok(Json(views::queue_views(&applied.view.cluster)))
}

/// Leaves, spines, pools, uplinks and all settings as they are, in the form in which they are set.
#[utoipa::path(get, path = "/v1/cluster", tag = "queues",
    responses((status = 200, body = ClusterFile), (status = "default", body = ApiError)))]
pub(super) async fn get_cluster(State(app): State<App>, _caller: Caller) -> Json<ClusterFile> {
    Json(ClusterFile::of(&app.cycle.view().cluster))
}

/// Sets leaves, spines and pools of nodes, and scheduler settings.
#[utoipa::path(post, path = "/v1/cluster", tag = "queues", request_body = ClusterFile,
    responses((status = 200, body = ClusterApplied), (status = "default", body = ApiError)))]
pub(super) async fn apply_cluster(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    JsonBody(file): JsonBody<ClusterFile>,
) -> Result<Json<ClusterApplied>, Problem> {
    let said = file.into_plan().map_err(|errors| Problem::fields("the cluster file", &errors))?;
    let plan = said.clone().with_leaving(&app.cycle.view().cluster);
    if !plan.placements.is_empty() || !plan.uplinks.is_empty() || !plan.pools.is_empty() {
        let (placements, uplinks, pools, by) = (plan.placements, plan.uplinks, plan.pools, caller.user.clone());
        app.cycle.apply(Input::Fabric { placements, uplinks, pools, by }).await?;
    }
    for (name, value) in plan.settings {
        app.cycle.apply(Input::Setting { name, value, by: caller.user.clone() }).await?;
    }
    Ok(Json(ClusterApplied { warnings: doubts::of_cluster(&app.cycle.view().cluster, &said) }))
}
