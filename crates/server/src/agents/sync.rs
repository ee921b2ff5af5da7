//! Registration and the long poll. An agent's request renews its lease from the moment that the loop takes it up.
use super::relay::Relays;
use crate::api::{App, JsonBody, Problem, accept_upgrade, take_upgrade};
use crate::auth::AgentCaller;
use crate::cycle::{Contact, View};
use axum::Json;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use ganger_core::lifecycle::input::{Input, NodePlacement, NodeSpec};
use ganger_core::lifecycle::orders;
use ganger_core::model::ids::NodeId;
use ganger_core::model::wire::agent::{RegisterReply, RegisterRequest, StreamAsk, SyncReply, SyncRequest};
use ganger_core::model::{Span, Time};
use ganger_runtime::clock::unix_ms;
use std::time::Duration;

/// Reports that gathered while the server was away come in one piece.
const SYNC_LIMIT_BYTES: usize = 16 << 20;
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// An agent whose reports could not be stored is not answered sooner: it would only send them again.
const STORE_PAUSE: Duration = Duration::from_secs(1);

pub(crate) async fn register(
    State(app): State<App>,
    _caller: AgentCaller,
    JsonBody(request): JsonBody<RegisterRequest>,
) -> Result<Json<RegisterReply>, Problem> {
    let RegisterRequest { node, machine, address, boot_id, agent, labels, pool, leaf, peer_address, version } = request;
    tracing::info!(node, version, address, profile = machine.profile, "an agent registers");
    let name = node.clone();
    let placement = NodePlacement { leaf, spine: None, pool, labels };
    let spec = NodeSpec { name: node, machine, placement, address, boot_id, agent };
    let applied = app.cycle.apply(Input::Register(Box::new(spec))).await?;
    let peers = app.peers.clone();
    let noted = tokio::task::spawn_blocking(move || peers.note(&name, peer_address)).await;
    noted.map_err(|_| Problem::internal("the agent's address could not be noted"))??;
    let cluster = &applied.view.cluster;
    Ok(Json(RegisterReply { term: cluster.term, lease_ms: cluster.policy.lease.0 }))
}

pub(crate) async fn sync(
    State(app): State<App>,
    _caller: AgentCaller,
    JsonBody(request): JsonBody<SyncRequest, SYNC_LIMIT_BYTES>,
) -> Result<Json<SyncReply>, Problem> {
    let node = registered(&app.cycle.view(), &request)?;
    let brought_reports = !request.reports.is_empty();
    let contact =
        Contact { vouched: vouched(&app.cycle.view(), &request), witness: request.witness, reports: request.reports };
    let synced = app.cycle.sync(node, contact).await?;
    let seen = (request.term_seen, request.generation_seen);
    let wait = Duration::from_millis(request.wait_ms).min(LONGEST_WAIT);
    let streams = if !synced.all_stored {
        tokio::time::sleep(wait.min(STORE_PAUSE)).await;
        app.relays.take(node)
    } else if brought_reports {
        // The agent can forget them sooner; its next request waits.
        app.relays.take(node)
    } else {
        until_news(&app, node, seen, wait).await
    };
    let view = app.cycle.view();
    let mut reply = reply(&view, node, synced.acknowledged, streams);
    let cluster = &view.cluster;
    let has_them = cluster.node(node).generation == seen.1 || brought_reports;
    if cluster.term == seen.0 && has_them {
        reply.generation = seen.1;
    } else {
        reply.orders = Some(orders(cluster, node));
    }
    reply.peers = app.peers.news(&view.cluster, node, request.peers_seen);
    Ok(Json(reply))
}

/// A node whose agent runs on another boot than the registered one must say so first.
fn registered(view: &View, request: &SyncRequest) -> Result<NodeId, Problem> {
    let name = &request.node;
    let missing = || {
        Problem::new(
            axum::http::StatusCode::NOT_FOUND,
            "register_first",
            format!("node {name:?} is not registered here: register first"),
        )
    };
    let node = view.cluster.node_named(name).ok_or_else(missing)?;
    if node.boot_id != request.boot_id {
        let text = format!("node {name:?} is registered with another boot id: register again first");
        return Err(Problem::conflict("register_first", text));
    }
    Ok(node.id)
}

/// For whom the agent vouched, and until when. A name that is not known here has no ranks to give away.
fn vouched(view: &View, request: &SyncRequest) -> Vec<(NodeId, Time)> {
    let known = request.vouched.iter().filter_map(|vouch| Some((view.cluster.node_named(&vouch.node)?.id, vouch)));
    known.map(|(node, vouch)| (node, Time(unix_ms()) + Span(vouch.remaining_ms))).collect()
}

/// Waits until the node's orders differ from those seen or a stream is asked for; at most for `wait`.
async fn until_news(app: &App, node: NodeId, seen: (u64, u64), wait: Duration) -> Vec<StreamAsk> {
    let bell = app.cycle.board().node_bell(node);
    let relays: &Relays = &app.relays;
    let news = async {
        loop {
            let rung = bell.rung();
            tokio::pin!(rung);
            rung.as_mut().enable();
            let cluster = app.cycle.view().cluster.clone();
            let streams = relays.take(node);
            if (cluster.term, cluster.node(node).generation) != seen || !streams.is_empty() {
                return streams;
            }
            rung.await;
        }
    };
    tokio::select! {
        streams = tokio::time::timeout(wait, news) => streams.unwrap_or_default(),
        _ = app.shutdown.wait() => Vec::new(),
    }
}

fn reply(view: &View, node: NodeId, acknowledged: u64, streams: Vec<StreamAsk>) -> SyncReply {
    let cluster = &view.cluster;
    let revoked = cluster.node(node).revoked_at.is_some();
    SyncReply {
        term: cluster.term,
        generation: cluster.node(node).generation,
        lease_ms: if revoked { 0 } else { cluster.policy.lease.0 },
        acknowledged,
        orders: None,
        streams,
        peers: None,
    }
}

/// The agent's end of a stream that was asked for.
pub(crate) async fn connect_stream(
    State(app): State<App>,
    _caller: AgentCaller,
    Path(id): Path<u64>,
    mut request: Request,
) -> Result<Response, Problem> {
    let upgrade = take_upgrade(&mut request)?;
    let missing = || Problem::not_found(format!("nobody waits for stream {id} any more"));
    let waiting = app.relays.claim(id).ok_or_else(missing)?;
    app.tasks.spawn("stream from an agent", async move {
        match upgrade.await {
            Ok(upgraded) => waiting.deliver(hyper_util::rt::TokioIo::new(upgraded)),
            Err(error) => tracing::debug!(%error, id, "an agent's stream did not come about"),
        }
    });
    accept_upgrade()
}
