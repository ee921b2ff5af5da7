//! Agents ask one another "have you lost the server too?", so that a server outage of any length ends no rank, while a
//! node that alone is cut off gives its ranks up in time. The rule itself is [`Contact::may_go_on`].
//!
//! Who says yes gives its word: it is on disk before the answer goes out, and the server hears of it first of all.
//!
//! [`Contact::may_go_on`]: crate::contact::Contact::may_go_on
use crate::link::Link;
use ganger_core::model::wire::agent::{LostServerReply, LostServerRequest, Peer};
use ganger_runtime::clock::boottime_ms;
use ganger_runtime::http::{Client, Endpoint};
use ganger_runtime::secret::Secret;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const PATH: &str = "/peer/lost-server";
/// Between two looks at whether peers have to be asked, at most.
const LOOK: Duration = Duration::from_millis(500);
/// With a short lease there is less time to ask.
const LOOKS_PER_LEASE: u64 = 120;
const PATIENCE: Duration = Duration::from_secs(2);
/// Peers asked at the same time.
const AT_ONCE: usize = 64;
/// A peer is never believed to hold ranks for longer.
const LONGEST_VOUCH_MS: u64 = 10 * 60 * 1_000;
const LONGEST_BODY_BYTES: usize = 64 << 10;

/// Asks peers whenever the server is lost, for ever, and prolongs the lease while enough of them lost it too.
pub async fn ask_when_lost(link: Arc<Link>) {
    let mut told = None;
    loop {
        let lease_ms = link.contact().lease_ms;
        tokio::time::sleep(look(lease_ms)).await;
        let asked_at = boottime_ms();
        if !link.contact().should_ask_peers(asked_at) {
            continue;
        }
        let enough = enough_lost(&link).await;
        if enough {
            // An answer of the server that came meanwhile only moved the deadline further.
            link.contact().prolong(asked_at);
            link.leases.notify_one();
        }
        if told.replace(enough) != Some(enough) {
            tell(enough);
        }
    }
}

fn look(lease_ms: u64) -> Duration {
    let part = Duration::from_millis((lease_ms / LOOKS_PER_LEASE).max(20));
    if lease_ms == 0 { LOOK } else { part.min(LOOK) }
}

fn tell(enough: bool) {
    if enough {
        tracing::warn!("most agents lost the server: ranks go on without it");
    } else {
        tracing::warn!("too few agents lost the server: this node is cut off, and the leases of its ranks run out");
    }
}

async fn enough_lost(link: &Arc<Link>) -> bool {
    let (peers, lease_ms) = {
        let contact = link.contact();
        (contact.peers.clone(), contact.lease_ms)
    };
    let mut lost = 1;
    let mut asking = JoinSet::new();
    let mut left = peers.agents.iter().filter(|peer| peer.node != link.config.node);
    loop {
        if link.contact().may_go_on(lost) {
            return true;
        }
        while asking.len() < AT_ONCE {
            let Some(peer) = left.next() else { break };
            let request = LostServerRequest { node: link.config.node.clone(), lease_ms };
            asking.spawn(ask(peer.clone(), Secret::new(&*peers.secret), request));
        }
        match asking.join_next().await {
            Some(Ok(true)) => lost += 1,
            Some(_) => {}
            None => return false,
        }
    }
}

/// Whether `peer` lost the server. One that cannot be reached is no witness.
async fn ask(peer: Peer, secret: Secret, request: LostServerRequest) -> bool {
    let Some(address) = peer.address else { return false };
    let client = Client::new(Endpoint::Tcp(address), Some(secret));
    let reply = client.post_within::<_, LostServerReply>(PATH, &request, PATIENCE).await;
    match reply {
        // The name keeps one agent from being counted twice after addresses changed hands.
        Ok(reply) => reply.lost && reply.node == peer.node,
        Err(error) => {
            tracing::debug!(peer = %peer.node, %error, "a peer does not answer");
            false
        }
    }
}

/// Answers peers, for ever.
pub async fn serve(link: Arc<Link>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(connection(link.clone(), stream))),
            Err(error) => {
                tracing::warn!(%error, "a peer's connection was not accepted");
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

async fn connection(link: Arc<Link>, stream: TcpStream) {
    let service = service_fn(move |request| {
        let link = link.clone();
        async move { Ok::<_, Infallible>(answer(&link, request).await) }
    });
    let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    // A connection that says nothing is not kept.
    if let Ok(Err(error)) = tokio::time::timeout(Duration::from_secs(30), serving).await {
        tracing::debug!(%error, "a peer's connection ended with an error");
    }
}

async fn answer(link: &Arc<Link>, request: Request<Incoming>) -> Response<Full<Bytes>> {
    if (request.method(), request.uri().path()) != (&Method::POST, PATH) {
        return refuse(StatusCode::NOT_FOUND, "agents answer POST /peer/lost-server only");
    }
    if !may_ask(link, &request) {
        return refuse(StatusCode::UNAUTHORIZED, "the secret is not that of this cluster");
    }
    let body = Limited::new(request.into_body(), LONGEST_BODY_BYTES).collect().await;
    let asked = body.ok().and_then(|body| serde_json::from_slice::<LostServerRequest>(&body.to_bytes()).ok());
    let Some(asked) = asked else { return refuse(StatusCode::BAD_REQUEST, "the body is not a question of an agent") };
    let reply = LostServerReply { node: link.config.node.clone(), lost: vouch(link, asked).await };
    json(StatusCode::OK, serde_json::to_vec(&reply).unwrap_or_default())
}

fn may_ask(link: &Link, request: &Request<Incoming>) -> bool {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let secret = link.contact().peers.secret.clone();
    // Hashes are compared, so that the time it takes says nothing about the secret.
    !secret.is_empty() && given.is_some_and(|given| blake3::hash(given.as_bytes()) == blake3::hash(secret.as_bytes()))
}

/// Gives this agent's word if it lost the server; false if the word cannot be kept.
async fn vouch(link: &Arc<Link>, asked: LostServerRequest) -> bool {
    {
        let mut contact = link.contact();
        let now = boottime_ms();
        if !contact.has_lost_server(now) {
            return false;
        }
        contact.vouch(&asked.node, asked.lease_ms.min(LONGEST_VOUCH_MS), now);
    }
    let saving = link.clone();
    match tokio::task::spawn_blocking(move || saving.save_contact()).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::error!(%error, "cannot vouch for a peer");
            false
        }
        Err(_) => false,
    }
}

fn refuse(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    json(status, format!("{{\"code\":\"refused\",\"message\":\"{message}\"}}").into_bytes())
}

fn json(status: StatusCode, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static("application/json"));
    response
}
