//! Queues, and the shape of the cluster: the files that administrators apply.
use super::{App, JsonBody, Problem, views};
use crate::auth::{AdminCaller, Caller};
use axum::Json;
use axum::extract::State;
use ganger_core::lifecycle::input::Input;
use ganger_core::model::wire::api::{ApiError, QueueView};
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

/// Sets leaves, spines and pools of nodes, and scheduler settings.
#[utoipa::path(post, path = "/v1/cluster", tag = "queues", request_body = ClusterFile,
    responses((status = 200, body = Object), (status = "default", body = ApiError)))]
pub(super) async fn apply_cluster(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    JsonBody(file): JsonBody<ClusterFile>,
) -> Result<Json<serde_json::Value>, Problem> {
    let plan = file.into_plan().map_err(|errors| Problem::fields("the cluster file", &errors))?;
    if !plan.placements.is_empty() || !plan.uplinks.is_empty() || !plan.pools.is_empty() {
        let (placements, uplinks, pools, by) = (plan.placements, plan.uplinks, plan.pools, caller.user.clone());
        app.cycle.apply(Input::Fabric { placements, uplinks, pools, by }).await?;
    }
    for (name, value) in plan.settings {
        app.cycle.apply(Input::Setting { name, value, by: caller.user.clone() }).await?;
    }
    Ok(Json(serde_json::json!({})))
}
