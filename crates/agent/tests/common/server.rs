//! The server's side of the agents' protocol, with switches for what a server may do wrong.
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use ganger_core::model::report::Report;
use ganger_core::model::wire::agent::*;
use hyper_util::rt::TokioIo;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncReadExt;

#[derive(Default)]
pub struct Node {
    pub generation: u64,
    pub orders: Vec<Order>,
    pub registered: Option<RegisterRequest>,
    /// All reports that came, repetitions included.
    pub heard: Vec<NumberedReport>,
    pub committed: u64,
    pub vouched: Vec<Vouch>,
    pub doubtful: bool,
    pub streams: Vec<StreamAsk>,
}

#[derive(Default)]
pub struct Inner {
    pub term: u64,
    pub lease_ms: u64,
    pub nodes: BTreeMap<String, Node>,
    /// Nodes that get no answer; `*` is all of them.
    pub away: BTreeSet<String>,
    /// Reports are heard, but their acknowledgement is lost.
    pub forgetful: bool,
    pub streamed: BTreeMap<u64, Vec<u8>>,
}

#[derive(Clone)]
pub struct FakeServer {
    pub address: String,
    pub inner: Arc<Mutex<Inner>>,
}

impl FakeServer {
    pub async fn start(lease_ms: u64) -> FakeServer {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let inner = Arc::new(Mutex::new(Inner { term: 1, lease_ms, ..Inner::default() }));
        let server = FakeServer { address, inner };
        let router = Router::new()
            .route("/v1/agent/register", post(register))
            .route("/v1/agent/sync", post(sync))
            .route("/v1/agent/streams/{id}", post(stream))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        server
    }

    pub fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap())
    }

    pub fn order(&self, node: &str, orders: Vec<Order>) {
        self.with(|inner| {
            let node = inner.nodes.entry(node.to_string()).or_default();
            node.orders = orders;
            node.generation += 1;
        });
    }

    /// The reports of a node in order of their numbers, each once.
    pub fn reports(&self, node: &str) -> Vec<Report> {
        self.with(|inner| {
            let heard = inner.nodes.get(node).map(|node| node.heard.clone()).unwrap_or_default();
            let numbered: BTreeMap<u64, Report> = heard.into_iter().map(|r| (r.number, r.report)).collect();
            numbered.into_values().collect()
        })
    }

    pub fn is_registered(&self, node: &str) -> bool {
        self.with(|inner| inner.nodes.get(node).is_some_and(|node| node.registered.is_some()))
    }

    fn answers(&self, node: &str) -> bool {
        self.with(|inner| !inner.away.contains("*") && !inner.away.contains(node))
    }
}

fn away() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "away").into_response()
}

async fn register(State(server): State<FakeServer>, body: Bytes) -> Response {
    let request: RegisterRequest = serde_json::from_slice(&body).unwrap();
    if !server.answers(&request.node) {
        return away();
    }
    server.with(|inner| {
        let name = request.node.clone();
        inner.nodes.entry(name).or_default().registered = Some(request);
        Json(RegisterReply { term: inner.term, lease_ms: inner.lease_ms }).into_response()
    })
}

async fn sync(State(server): State<FakeServer>, body: Bytes) -> Response {
    let request: SyncRequest = serde_json::from_slice(&body).unwrap();
    let name = request.node.clone();
    if !server.answers(&name) {
        return away();
    }
    server.with(|inner| {
        let node = inner.nodes.entry(name.clone()).or_default();
        node.committed = request.reports.iter().map(|r| r.number).fold(node.committed, u64::max);
        node.heard.extend(request.reports);
        if !request.vouched.is_empty() {
            node.vouched = request.vouched;
        }
        node.doubtful |= !request.witness;
    });
    for _ in 0..request.wait_ms / 10 {
        let new = server.with(|inner| {
            let node = &inner.nodes[&name];
            node.generation != request.generation_seen || !node.streams.is_empty() || inner.term != request.term_seen
        });
        if new {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    if !server.answers(&name) {
        return away();
    }
    server.with(|inner| Json(reply(inner, &name)).into_response())
}

fn reply(inner: &mut Inner, name: &str) -> SyncReply {
    let agents = inner.nodes.iter().filter(|(other, _)| *other != name).map(|(other, node)| Peer {
        node: other.clone(),
        address: node.registered.as_ref().and_then(|registered| registered.peer_address.clone()),
    });
    let peers = Peers { version: 1, secret: "between agents".into(), agents: agents.collect() };
    let (term, lease_ms, forgetful) = (inner.term, inner.lease_ms, inner.forgetful);
    let node = inner.nodes.get_mut(name).unwrap();
    SyncReply {
        term,
        generation: node.generation,
        lease_ms,
        acknowledged: if forgetful { 0 } else { node.committed },
        orders: Some(node.orders.clone()),
        streams: std::mem::take(&mut node.streams),
        peers: Some(peers),
    }
}

async fn stream(State(server): State<FakeServer>, Path(id): Path<u64>, mut request: Request) -> Response {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut connection = TokioIo::new(upgrade.await.unwrap());
        let mut all = Vec::new();
        connection.read_to_end(&mut all).await.unwrap();
        server.with(|inner| inner.streamed.insert(id, all));
    });
    let headers = [("connection", "upgrade"), ("upgrade", ganger_runtime::http::STREAM_PROTOCOL)];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}
