//! The server about itself: health, status, and what its last decision was made from.
use super::{App, Problem, views};
use crate::auth::{AdminCaller, Caller};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ganger_core::model::decision::Decision;
use ganger_core::model::wire::api::{ApiError, Status};
use ganger_core::model::{Cluster, Time};
use serde::Serialize;

/// Whether the server can take work: `store` says what is wrong when it cannot.
#[utoipa::path(get, path = "/healthz", tag = "system", responses((status = 200, body = Object), (status = 503, body = Object)))]
pub(super) async fn healthz(State(app): State<App>) -> Response {
    match &app.cycle.view().store_fault {
        None => Json(serde_json::json!({"status": "ok"})).into_response(),
        Some(fault) => {
            let body = serde_json::json!({"status": "degraded", "store": fault});
            (axum::http::StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
    }
}

#[utoipa::path(get, path = "/v1/status", tag = "system",
    responses((status = 200, body = Status), (status = "default", body = ApiError)))]
pub(super) async fn get_status(State(app): State<App>, _caller: Caller) -> Json<Status> {
    Json(views::status(&app.cycle.view()))
}

/// The same fields as `wire::api::Snapshot`, borrowed.
#[derive(Serialize)]
struct SnapshotRef<'a> {
    cluster: &'a Cluster,
    now: Time,
    decision: Option<&'a Decision>,
}

/// The last decision with the state that it was made from; before the first one the state alone.
#[utoipa::path(get, path = "/v1/snapshot", tag = "system",
    responses((status = 200, body = Object), (status = "default", body = ApiError)))]
pub(super) async fn get_snapshot(State(app): State<App>, _caller: AdminCaller) -> Result<Response, Problem> {
    let view = app.cycle.view();
    let snapshot = match &view.decision {
        Some(record) => SnapshotRef { cluster: &record.from, now: record.now(), decision: Some(&record.decision) },
        None => SnapshotRef { cluster: &view.cluster, now: view.cluster.now, decision: None },
    };
    json(&snapshot)
}

/// A recent state and every input since: enough to make each recent decision again, offline.
#[utoipa::path(get, path = "/v1/recording", tag = "system",
    responses((status = 200, body = Object), (status = "default", body = ApiError)))]
pub(super) async fn get_recording(State(app): State<App>, _caller: AdminCaller) -> Result<Response, Problem> {
    let recording = app.read(|reader| reader.recording()).await?;
    json(&recording.ok_or_else(|| Problem::not_found("nothing was recorded yet"))?)
}

fn json(value: &impl Serialize) -> Result<Response, Problem> {
    let bytes = serde_json::to_vec(value).map_err(Problem::internal)?;
    Ok(([(CONTENT_TYPE, "application/json")], bytes).into_response())
}
