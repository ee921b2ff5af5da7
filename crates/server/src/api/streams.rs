//! Byte streams between a user and a rank: logs, one more command, the rank's terminal. The server only joins the two ends.
use super::body::{accept_upgrade, take_upgrade};
use super::find::{self, Found};
use super::{App, JsonBody, Problem, ReadBody, jobs, views};
use crate::agents::relay_both;
use crate::auth::Caller;
use axum::extract::{FromRequest, Path, Query, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ganger_core::model::Job;
use ganger_core::model::ids::{AttemptNo, NodeId, Rank};
use ganger_core::model::job::JobState;
use ganger_core::model::wire::agent::StreamKind;
use ganger_core::model::wire::api::{ApiError, ExecRequest};
use ganger_runtime::http::Duplex;
use serde::Deserialize;
use std::time::Duration;
use utoipa::IntoParams;

/// Who follows the log of a job that has not started yet waits this long for its start.
const START_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogsQuery {
    /// 0 unless given.
    #[serde(default)]
    rank: u32,
    /// The newest unless given.
    attempt: Option<u32>,
    /// Go on until the rank has ended.
    #[serde(default)]
    follow: bool,
    #[serde(default)]
    from_byte: u64,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RankQuery {
    /// 0 unless given.
    #[serde(default)]
    rank: u32,
}

/// The log of one rank, as bytes.
#[utoipa::path(get, path = "/v1/jobs/{job}/logs", tag = "jobs",
    params(("job" = String, Path, description = "number or name"), LogsQuery),
    responses((status = 200, content_type = "application/octet-stream", body = [u8]), (status = "default", body = ApiError)))]
pub(super) async fn get_logs(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<LogsQuery>,
) -> Result<Response, Problem> {
    let mut found = single(find::job(&app, &name).await?)?;
    caller.may_act_on(&found.job.owner, &format!("the log of job {}", found.job.id))?;
    let id = found.job.id;
    if query.follow && found.job.attempts.0 == 0 && query.attempt.is_none() {
        jobs::until(&app, id, START_PATIENCE, |job| job.attempts.0 > 0).await;
        found = find::job(&app, &id.to_string()).await?;
    }
    let attempt = query.attempt.map_or(found.job.attempts, AttemptNo);
    let node = site(&app, &found, attempt, query.rank).await?;
    let kind = StreamKind::Log { from_byte: query.from_byte, follow: query.follow };
    let stream = open(&app, &found.job, node, attempt, query.rank, kind).await?;
    Ok(([(CONTENT_TYPE, "application/octet-stream")], ReadBody::response_body(stream)).into_response())
}

/// Runs one more command in a rank's environment; the connection becomes a two-way stream of keeper frames.
#[utoipa::path(post, path = "/v1/jobs/{job}/exec", tag = "jobs",
    params(("job" = String, Path, description = "number or name"), RankQuery), request_body = ExecRequest,
    responses((status = 101, description = "a `ganger-stream`"), (status = "default", body = ApiError)))]
pub(super) async fn exec(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<RankQuery>,
    mut request: Request,
) -> Result<Response, Problem> {
    let upgrade = take_upgrade(&mut request)?;
    let JsonBody(ExecRequest { command, pty }) = JsonBody::<ExecRequest>::from_request(request, &app).await?;
    if command.is_empty() {
        return Err(Problem::unprocessable("command", "the command is empty: name a program and its arguments"));
    }
    join(&app, &caller, &name, query.rank, StreamKind::Exec { command, pty }, upgrade).await
}

/// Joins the caller to a rank's own terminal (jobs submitted with `pty`).
#[utoipa::path(post, path = "/v1/jobs/{job}/attach", tag = "jobs",
    params(("job" = String, Path, description = "number or name"), RankQuery),
    responses((status = 101, description = "a `ganger-stream`"), (status = "default", body = ApiError)))]
pub(super) async fn attach(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    Query(query): Query<RankQuery>,
    mut request: Request,
) -> Result<Response, Problem> {
    let upgrade = take_upgrade(&mut request)?;
    join(&app, &caller, &name, query.rank, StreamKind::Attach, upgrade).await
}

async fn join(
    app: &App,
    caller: &Caller,
    name: &str,
    rank: u32,
    kind: StreamKind,
    upgrade: hyper::upgrade::OnUpgrade,
) -> Result<Response, Problem> {
    let found = single(find::job(app, name).await?)?;
    let job = &found.job;
    caller.may_act_on(&job.owner, &format!("job {}", job.id))?;
    if !matches!(job.state, JobState::Running | JobState::Stopping) {
        let text = format!("job {} is {}: there is no process to join", job.id, job.state);
        return Err(Problem::conflict("wrong_state", text));
    }
    let node = site(app, &found, job.attempts, rank).await?;
    let agent = open(app, job, node, job.attempts, rank, kind).await?;
    app.tasks.spawn("relay", relay_both(upgrade, agent, app.shutdown.clone()));
    accept_upgrade()
}

/// An array has no processes of its own.
fn single(found: Found) -> Result<Found, Problem> {
    let job = &found.job;
    let Some(indices) = &job.spec.array else { return Ok(found) };
    let (id, first) = (job.id, indices.lowest());
    let text = format!("job {id} is an array with the tasks {indices}: name one of them, such as {id}_{first}");
    Err(Problem::conflict("is_array", text))
}

/// The node on which a rank of an attempt is or was.
async fn site(app: &App, found: &Found, attempt: AttemptNo, rank: u32) -> Result<NodeId, Problem> {
    let job = &found.job;
    if job.attempts.0 == 0 {
        let text = format!(
            "job {} is {} and never started: there is no log; `ganger why {}` says more",
            job.id, job.state, job.id
        );
        return Err(Problem::conflict("not_started", text));
    }
    let live = job.attempt.as_ref().filter(|live| live.number == attempt);
    if let Some(worker) = live.and_then(|live| views::worker(live, rank)) {
        return Ok(worker.place.node);
    }
    let id = job.id;
    let sites = app.read(move |reader| reader.sites(id, attempt)).await?;
    let text = format!("job {id} has no attempt {attempt}; its newest is {}", job.attempts);
    let sites = sites.ok_or_else(|| Problem::not_found(text))?;
    let text =
        format!("job {id} has no rank {rank}: attempt {attempt} has ranks 0 to {}", sites.len().saturating_sub(1));
    sites.get(rank as usize).copied().ok_or_else(|| Problem::not_found(text))
}

async fn open(
    app: &App,
    job: &Job,
    node: NodeId,
    attempt: AttemptNo,
    rank: u32,
    kind: StreamKind,
) -> Result<Duplex, Problem> {
    let name = app.cycle.view().cluster.node(node).name.clone();
    let asked = app.relays.ask(node, job.id, attempt, Rank(rank), kind)?;
    app.cycle.board().ring_node(node);
    asked.connected(&name).await
}
