//! Nodes: list, show, and what operators do with them.
use super::{App, JsonBody, Problem, find, views};
use crate::auth::{AdminCaller, Caller};
use axum::Json;
use axum::extract::{Path, State};
use ganger_core::lifecycle::input::Input;
use ganger_core::model::ids::NodeId;
use ganger_core::model::wire::api::{ApiError, DrainRequest, NodeView, QuarantineRequest};
use ganger_core::model::wire::job::parse_rfc3339;
use ganger_core::model::{Node, Span, Time};

/// All nodes by name, but those that were forgotten.
#[utoipa::path(get, path = "/v1/nodes", tag = "nodes",
    responses((status = 200, body = [NodeView]), (status = "default", body = ApiError)))]
pub(super) async fn list_nodes(State(app): State<App>, _caller: Caller) -> Json<Vec<NodeView>> {
    let view = app.cycle.view();
    let mut nodes: Vec<&Node> = view.cluster.listed_nodes().collect();
    nodes.sort_by_key(|node| &node.name);
    Json(nodes.into_iter().map(|node| views::node_view(node, &view.cluster)).collect())
}

#[utoipa::path(get, path = "/v1/nodes/{node}", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = NodeView), (status = "default", body = ApiError)))]
pub(super) async fn get_node(
    State(app): State<App>,
    _caller: Caller,
    Path(node): Path<String>,
) -> Result<Json<NodeView>, Problem> {
    let view = app.cycle.view();
    Ok(Json(views::node_view(find::node(&view, &node)?, &view.cluster)))
}

/// Nothing new starts there; its gangs are asked to save and move: at once, or in time for maintenance.
#[utoipa::path(post, path = "/v1/nodes/{node}/drain", tag = "nodes", params(("node" = String, Path)),
    request_body = DrainRequest,
    responses((status = 200, body = NodeView), (status = "default", body = ApiError)))]
pub(super) async fn drain_node(
    app: State<App>,
    caller: AdminCaller,
    node: Path<String>,
    JsonBody(request): JsonBody<Option<DrainRequest>>,
) -> Result<Json<NodeView>, Problem> {
    match maintenance(request.unwrap_or_default())? {
        None => act(app, caller, node, |node, by| Input::Drain { node, by }).await,
        Some((from, until)) => act(app, caller, node, |node, by| Input::Maintain { node, from, until, by }).await,
    }
}

/// From when until when; `None`: from now on.
fn maintenance(request: DrainRequest) -> Result<Option<(Time, Time)>, Problem> {
    let bad = |why: String| Problem::bad_request("bad_request", why);
    let Some(at) = request.at else {
        return match request.lasts {
            None => Ok(None),
            Some(_) => Err(bad("for: it needs `at`, the moment at which maintenance begins".to_string())),
        };
    };
    let unread = || bad(format!("at: cannot read {at:?} as a moment; write it like 2026-12-01T08:00:00Z"));
    let from = parse_rfc3339(&at).ok_or_else(unread)?;
    let lasts =
        request.lasts.map(|text| Span::parse(&text).map_err(|error| bad(format!("for: {error}")))).transpose()?;
    Ok(Some((from, lasts.map_or(Time::NEVER, |lasts| from + lasts))))
}

/// Nothing new starts there; what runs goes on.
#[utoipa::path(post, path = "/v1/nodes/{node}/cordon", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = NodeView), (status = "default", body = ApiError)))]
pub(super) async fn cordon_node(
    app: State<App>,
    caller: AdminCaller,
    node: Path<String>,
) -> Result<Json<NodeView>, Problem> {
    act(app, caller, node, |node, by| Input::Cordon { node, by }).await
}

/// Ends drain, cordon and quarantine.
#[utoipa::path(post, path = "/v1/nodes/{node}/uncordon", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = NodeView), (status = "default", body = ApiError)))]
pub(super) async fn uncordon_node(
    app: State<App>,
    caller: AdminCaller,
    node: Path<String>,
) -> Result<Json<NodeView>, Problem> {
    act(app, caller, node, |node, by| Input::Uncordon { node, by }).await
}

/// The node is gone for good: neither listed nor counted any more.
#[utoipa::path(post, path = "/v1/nodes/{node}/forget", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = NodeView), (status = "default", body = ApiError)))]
pub(super) async fn forget_node(
    app: State<App>,
    caller: AdminCaller,
    node: Path<String>,
) -> Result<Json<NodeView>, Problem> {
    act(app, caller, node, |node, by| Input::Forget { node, by }).await
}

/// The node is trusted again without probation.
#[utoipa::path(post, path = "/v1/nodes/{node}/recover", tag = "nodes", params(("node" = String, Path)),
    responses((status = 200, body = NodeView), (status = "default", body = ApiError)))]
pub(super) async fn recover_node(
    app: State<App>,
    caller: AdminCaller,
    node: Path<String>,
) -> Result<Json<NodeView>, Problem> {
    act(app, caller, node, |node, by| Input::Recover { node, by }).await
}

/// Takes the node out.
#[utoipa::path(post, path = "/v1/nodes/{node}/quarantine", tag = "nodes", params(("node" = String, Path)),
    request_body = QuarantineRequest,
    responses((status = 200, body = NodeView), (status = "default", body = ApiError)))]
pub(super) async fn quarantine_node(
    app: State<App>,
    caller: AdminCaller,
    node: Path<String>,
    JsonBody(request): JsonBody<QuarantineRequest>,
) -> Result<Json<NodeView>, Problem> {
    let QuarantineRequest { cause, fenced } = request;
    act(app, caller, node, |node, by| Input::Quarantine { node, cause: format!("{cause} (by {by})"), fenced }).await
}

async fn act(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    Path(name): Path<String>,
    input: impl FnOnce(NodeId, String) -> Input,
) -> Result<Json<NodeView>, Problem> {
    let id = find::node(&app.cycle.view(), &name)?.id;
    let applied = app.cycle.apply(input(id, caller.user)).await?;
    Ok(Json(views::node_view(applied.view.cluster.node(id), &applied.view.cluster)))
}
