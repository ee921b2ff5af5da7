//! Jobs: submit, list, show, why, wait, and the verbs that people use on them.
use super::find::{self, Found};
use super::{App, JsonBody, Problem, arrays, names, views};
use crate::auth::Caller;
use crate::cycle::{Applied, CycleError, View};
use crate::store::{EventFilter, FinishedFilter};
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ganger_core::lifecycle::input::{Input, Refusal};
use ganger_core::model::ids::{AttemptNo, JobId};
use ganger_core::model::job::{Job, JobSpec, JobState, Owner};
use ganger_core::model::report::Report;
use ganger_core::model::wire::api::{ApiError, CheckpointAnnounce, JobDetail, JobView, ResizeRequest, Why};
use ganger_core::model::wire::job::JobFile;
use ganger_core::scheduler;
use serde::Deserialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use utoipa::IntoParams;

const EVENTS_OF_A_JOB: u32 = 200;
const FINISHED_LISTED: u32 = 1_000;
/// How often a name that was free a moment ago may be taken before this is given up.
const NAMES_TRIED: u32 = 100;
const LONGEST_WAIT_MS: u64 = 60_000;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SubmitQuery {
    /// Only say whether and why it would wait; nothing is stored.
    #[serde(default)]
    dry_run: bool,
    /// Where a live job has the name already, the next free one of `NAME-2`, `NAME-3` and so on is taken.
    #[serde(default)]
    numbered: bool,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// Also those that ended, newest first.
    #[serde(default)]
    all: bool,
    /// `pending`, `starting`, `running`, `stopping`, `done`, `failed` or `cancelled`; the last three imply `all`.
    state: Option<String>,
    queue: Option<String>,
    user: Option<String>,
    /// How many ended jobs at most; 1000 unless given.
    limit: Option<u32>,
    /// Each task of an array by itself, also those that never started.
    #[serde(default)]
    tasks: bool,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitQuery {
    /// At most 60000; 30000 unless given.
    timeout_ms: Option<u64>,
}

/// Submits a job; with `dry_run` only says whether it would start.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", params(SubmitQuery), request_body = JobFile,
    responses((status = 201, body = JobDetail), (status = 200, description = "dry run", body = Why), (status = "default", body = ApiError)))]
pub(super) async fn submit_job(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<SubmitQuery>,
    JsonBody(file): JsonBody<JobFile>,
) -> Result<Response, Problem> {
    let spec = Arc::new(checked_spec(&app, file).await?);
    let owner = allowed_owner(&app, &caller)?;
    if query.dry_run {
        let view = app.cycle.view();
        let why = blocking(move || scheduler::dry_run(&view.cluster, &spec, owner, view.cluster.now)).await?;
        return Ok(Json(why).into_response());
    }
    let applied = match query.numbered {
        true => submit_numbered(&app, &spec, &owner).await?,
        false => app.cycle.apply(Input::Submit { spec, owner }).await?,
    };
    let id = applied.submitted.ok_or_else(|| Problem::internal("the job was accepted without a number"))?;
    // That it waits is no news; that it waits for ever is. Cheap, and so the client need not ask why, which is not.
    let view = applied.view.clone();
    let never = blocking(move || scheduler::never(&view.cluster, id, view.cluster.now)).await?;
    let detail = match applied.view.cluster.record(id) {
        // As it was stored: all is known here, and nobody has to ask the store.
        Some(job) => {
            let cluster = &applied.view.cluster;
            let events = applied.events.iter().map(|event| views::event_view(event, cluster)).collect();
            views::job_detail(&job, cluster, events, &[])
        }
        None => detail_of(&app, &id.to_string()).await?,
    };
    Ok((StatusCode::CREATED, Json(JobDetail { never, ..detail })).into_response())
}

/// Others may take the name between the look and the submission; then the next free one is looked for.
async fn submit_numbered(app: &App, spec: &JobSpec, owner: &Owner) -> Result<Applied, CycleError> {
    let mut tries = NAMES_TRIED;
    loop {
        let view = app.cycle.view();
        let name = names::free(&spec.name, |name| view.cluster.job_named(name).is_some());
        let spec = Arc::new(JobSpec { name, ..spec.clone() });
        match app.cycle.apply(Input::Submit { spec, owner: owner.clone() }).await {
            Err(CycleError::Refused(Refusal::BadSpec { field, .. })) if field == "name" && tries > 0 => tries -= 1,
            answer => return answer,
        }
    }
}

/// What the check asks for by name is looked up between two tries of it, because the check itself asks nobody.
async fn checked_spec(app: &App, file: JobFile) -> Result<JobSpec, Problem> {
    let mut known: BTreeMap<String, Option<JobId>> = BTreeMap::new();
    if file.after.is_empty() {
        // Asks for nobody, so one check is enough.
        return check(file, &known).0;
    }
    loop {
        let (outcome, unknown) = check(file.clone(), &known);
        if unknown.is_empty() {
            return outcome;
        }
        for name in unknown {
            let id = find::job_id(app, &name).await;
            known.insert(name, id);
        }
    }
}

/// The outcome, and the names that it asked for in vain.
fn check(file: JobFile, known: &BTreeMap<String, Option<JobId>>) -> (Result<JobSpec, Problem>, Vec<String>) {
    let unknown = RefCell::new(Vec::new());
    let resolve = |name: &str| match known.get(name) {
        Some(found) => *found,
        None => {
            unknown.borrow_mut().push(name.to_string());
            None
        }
    };
    let outcome = file.into_spec(&resolve).map_err(|errors| Problem::fields("the job", &errors));
    (outcome, unknown.into_inner())
}

fn allowed_owner(app: &App, caller: &Caller) -> Result<Owner, Problem> {
    let owner = caller.owner()?;
    if owner.uid == 0 && !app.allow_root {
        let text = "jobs of the superuser are refused here, because their processes could do anything on every node: submit \
                    as an ordinary user (`ganger token create --user NAME`), or start the server with --allow-root";
        return Err(Problem::forbidden(text));
    }
    Ok(owner)
}

/// Jobs in the order of their numbers.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", params(ListQuery),
    responses((status = 200, body = [JobView]), (status = "default", body = ApiError)))]
pub(super) async fn list_jobs(
    State(app): State<App>,
    _caller: Caller,
    Query(query): Query<ListQuery>,
) -> Result<Json<Vec<JobView>>, Problem> {
    let states = "pending, starting, running, stopping, done, failed, cancelled";
    let unknown = || Problem::unprocessable("state", format!("the state is not one of {states}"));
    let state = query.state.as_deref().map(|text| JobState::parse(text).ok_or_else(unknown)).transpose()?;
    let (view, asked_queue) = (app.cycle.view(), query.queue.clone());
    let wanted = |job: &Job| {
        state.is_none_or(|state| job.state == state)
            && query.queue.as_ref().is_none_or(|queue| job.spec.queue == *queue)
            && query.user.as_ref().is_none_or(|user| job.owner.user == *user)
    };
    let shown = |job: &&Arc<Job>| wanted(job) && (query.tasks || !arrays::is_in_line(job));
    let alive = view.cluster.jobs.values().filter(shown);
    let mut jobs: Vec<JobView> = alive.map(|job| views::job_view(job, &view.cluster)).collect();
    jobs.extend(arrays::pending_lines(&view.cluster, query.tasks, wanted));
    if query.all || state.is_some_and(JobState::is_terminal) {
        let filter = FinishedFilter {
            state: state.map(|state| state.to_string()),
            queue: query.queue,
            user: query.user,
            limit: query.limit.unwrap_or(FINISHED_LISTED),
        };
        let finished = app.read(move |reader| reader.finished_list(&filter)).await?;
        // A job that ended since the view was taken is in both; what the store says is newer.
        jobs.retain(|job| finished.iter().all(|ended| ended.id.0 != job.id));
        jobs.extend(finished.iter().map(|job| views::job_view(job, &view.cluster)));
    }
    // A queue may be gone while its old jobs are still on record.
    if let Some(queue) = asked_queue.filter(|_| jobs.is_empty()) {
        find::queue(&view, &queue)?;
    }
    jobs.sort_by_key(|job| job.id);
    Ok(Json(jobs))
}

/// One job with its ranks and newest events.
#[utoipa::path(get, path = "/v1/jobs/{job}", tag = "jobs", params(("job" = String, Path, description = "number or name")),
    responses((status = 200, body = JobDetail), (status = "default", body = ApiError)))]
pub(super) async fn get_job(
    State(app): State<App>,
    _caller: Caller,
    Path(job): Path<String>,
) -> Result<Json<JobDetail>, Problem> {
    Ok(Json(detail_of(&app, &job).await?))
}

/// Why it waits, with numbers that add up.
#[utoipa::path(get, path = "/v1/jobs/{job}/why", tag = "jobs", params(("job" = String, Path, description = "number or name")),
    responses((status = 200, body = Why), (status = "default", body = ApiError)))]
pub(super) async fn get_why(
    State(app): State<App>,
    _caller: Caller,
    Path(job): Path<String>,
) -> Result<Json<Why>, Problem> {
    let found = find::job(&app, &job).await?;
    let (view, id) = (found.view.clone(), found.job.id);
    let alive = blocking(move || scheduler::why(&view.cluster, id, view.cluster.now)).await?;
    Ok(Json(alive.unwrap_or_else(|| why_ended(&found.job, &found.view))))
}

/// Answers when the job has ended, or after the time-out as it is then.
#[utoipa::path(get, path = "/v1/jobs/{job}/wait", tag = "jobs",
    params(("job" = String, Path, description = "number or name"), WaitQuery),
    responses((status = 200, body = JobDetail), (status = "default", body = ApiError)))]
pub(super) async fn wait_for_job(
    State(app): State<App>,
    _caller: Caller,
    Path(job): Path<String>,
    Query(query): Query<WaitQuery>,
) -> Result<Json<JobDetail>, Problem> {
    let patience = Duration::from_millis(query.timeout_ms.unwrap_or(30_000).min(LONGEST_WAIT_MS));
    let id = find::job(&app, &job).await?.job.id;
    until(&app, id, patience, |job| job.state.is_terminal()).await;
    Ok(Json(detail_of(&app, &id.to_string()).await?))
}

/// Waits until the job is as wanted or has ended; at most for `patience`, and not while the server stops.
pub(super) async fn until(app: &App, id: JobId, patience: Duration, wanted: impl Fn(&Job) -> bool) {
    let bell = app.cycle.board().job_bell(id);
    let waiting = async {
        loop {
            let rung = bell.rung();
            tokio::pin!(rung);
            rung.as_mut().enable();
            if app.cycle.view().cluster.record(id).is_none_or(|job| wanted(&job)) {
                return;
            }
            rung.await;
        }
    };
    tokio::select! {
        _ = tokio::time::timeout(patience, waiting) => {}
        _ = app.shutdown.wait() => {}
    }
}

/// Ends it for good.
#[utoipa::path(post, path = "/v1/jobs/{job}/cancel", tag = "jobs", params(("job" = String, Path, description = "number or name")),
    responses((status = 200, body = JobDetail), (status = "default", body = ApiError)))]
pub(super) async fn cancel_job(app: State<App>, caller: Caller, job: Path<String>) -> Result<Json<JobDetail>, Problem> {
    act(app, caller, job, |job, by| Input::Cancel { job, by }).await
}

/// Not looked at until it is released.
#[utoipa::path(post, path = "/v1/jobs/{job}/hold", tag = "jobs", params(("job" = String, Path, description = "number or name")),
    responses((status = 200, body = JobDetail), (status = "default", body = ApiError)))]
pub(super) async fn hold_job(app: State<App>, caller: Caller, job: Path<String>) -> Result<Json<JobDetail>, Problem> {
    act(app, caller, job, |job, by| Input::Hold { job, by }).await
}

/// Ends a hold.
#[utoipa::path(post, path = "/v1/jobs/{job}/release", tag = "jobs", params(("job" = String, Path, description = "number or name")),
    responses((status = 200, body = JobDetail), (status = "default", body = ApiError)))]
pub(super) async fn release_job(
    app: State<App>,
    caller: Caller,
    job: Path<String>,
) -> Result<Json<JobDetail>, Problem> {
    act(app, caller, job, |job, by| Input::Release { job, by }).await
}

/// Ends the running attempt with its grace and runs the job again.
#[utoipa::path(post, path = "/v1/jobs/{job}/requeue", tag = "jobs", params(("job" = String, Path, description = "number or name")),
    responses((status = 200, body = JobDetail), (status = "default", body = ApiError)))]
pub(super) async fn requeue_job(
    app: State<App>,
    caller: Caller,
    job: Path<String>,
) -> Result<Json<JobDetail>, Problem> {
    act(app, caller, job, |job, by| Input::Requeue { job, by }).await
}

/// Asks for another size of an elastic gang: what is too much leaves at once, what is missing comes when there is room.
#[utoipa::path(post, path = "/v1/jobs/{job}/resize", tag = "jobs", params(("job" = String, Path, description = "number or name")),
    request_body = ResizeRequest,
    responses((status = 200, body = JobDetail), (status = "default", body = ApiError)))]
pub(super) async fn resize_job(
    app: State<App>,
    caller: Caller,
    job: Path<String>,
    JsonBody(asked): JsonBody<ResizeRequest>,
) -> Result<Json<JobDetail>, Problem> {
    act(app, caller, job, |job, by| Input::Resize { job, workers: asked.workers, by }).await
}

async fn act(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    input: impl FnOnce(JobId, String) -> Input,
) -> Result<Json<JobDetail>, Problem> {
    let id = own_alive(&app, &caller, &name).await?.job.id;
    app.cycle.apply(input(id, caller.user)).await?;
    Ok(Json(detail_of(&app, &id.to_string()).await?))
}

/// A live job on which the caller may act.
async fn own_alive(app: &App, caller: &Caller, name: &str) -> Result<Found, Problem> {
    let found = find::job(app, name).await?;
    let job = &found.job;
    let (number, title) = (job.number(), job.title());
    caller.may_act_on(&job.owner, &format!("job {number} ({title})"))?;
    if job.state.is_terminal() {
        let text = format!("job {number} ({title}) is {} already: a job that has ended does not change", job.state);
        return Err(Problem::conflict("wrong_state", text));
    }
    Ok(found)
}

/// A job says that a checkpoint is written. Agents do this with verification; this is for jobs without one nearby.
#[utoipa::path(post, path = "/v1/jobs/{job}/checkpoints", tag = "jobs",
    params(("job" = String, Path, description = "number or name")), request_body = CheckpointAnnounce,
    responses((status = 200, body = Object), (status = "default", body = ApiError)))]
pub(super) async fn announce_checkpoint(
    State(app): State<App>,
    caller: Caller,
    Path(name): Path<String>,
    JsonBody(announce): JsonBody<CheckpointAnnounce>,
) -> Result<Json<serde_json::Value>, Problem> {
    let job = own_alive(&app, &caller, &name).await?.job;
    let attempt = AttemptNo(announce.attempt);
    let live = job.attempt.as_ref().filter(|live| live.number == attempt);
    let Some(worker) = live.and_then(|live| live.workers.first()) else {
        let text = format!("attempt {attempt} of job {} is not the live one: its checkpoints count no more", job.id);
        return Err(Problem::conflict("wrong_attempt", text));
    };
    let report = Report::Checkpoint { job: job.id, attempt, step: announce.step, path: announce.path };
    app.cycle.apply(Input::Report { node: worker.place.node, report }).await?;
    Ok(Json(serde_json::json!({})))
}

/// Everything about a job as it is now.
async fn detail_of(app: &App, name: &str) -> Result<JobDetail, Problem> {
    let Found { job, view } = find::job(app, name).await?;
    let filter = EventFilter { job: Some(job.id), newest: true, limit: EVENTS_OF_A_JOB, ..EventFilter::default() };
    let (id, attempt) = (job.id, job.attempts);
    let ended = job.attempt.is_none() && attempt.0 > 0;
    let (events, sites) = app
        .read(move |reader| {
            let sites = if ended { reader.sites(id, attempt)?.unwrap_or_default() } else { Vec::new() };
            Ok((reader.events(&filter)?, sites))
        })
        .await?;
    let events = events.iter().map(|event| views::event_view(event, &view.cluster)).collect();
    Ok(views::job_detail(&job, &view.cluster, events, &sites))
}

fn why_ended(job: &Job, view: &View) -> Why {
    let note = job.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
    Why {
        id: job.id.0,
        name: job.spec.name.clone(),
        state: job.state,
        since: ganger_core::model::time::rfc3339(job.state_since),
        reason: None,
        slurm_reason: None,
        summary: format!("{} is {}{note}", job.spec.name, job.state),
        facts: Vec::new(),
        position: None,
        ahead: Vec::new(),
        gates: Vec::new(),
        nodes: Vec::new(),
        nodes_total: view.cluster.listed_nodes().count() as u32,
        estimate: None,
        preemption: None,
        would_start_now: Vec::new(),
        satisfiable: true,
    }
}

/// Work that may take a while, on a thread for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Problem::internal("the question could not be worked out"))
}
