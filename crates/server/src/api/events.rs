//! The audit trail: a list, or a stream that goes on.
use super::{App, Problem, find, views};
use crate::auth::Caller;
use crate::store::EventFilter;
use axum::Json;
use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use ganger_core::model::wire::api::{ApiError, EventView};
use serde::Deserialize;
use tokio::io::{AsyncWriteExt, DuplexStream};
use utoipa::IntoParams;

const LISTED: u32 = 1_000;
const STREAM_BUFFER_BYTES: usize = 64 << 10;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Only of this job (number or name).
    job: Option<String>,
    /// Only of this node.
    node: Option<String>,
    /// Only events with a higher number. Without it: the newest ones.
    since: Option<u64>,
    /// Go on as events happen, one JSON object a line.
    #[serde(default)]
    follow: bool,
    /// How many at most; 1000 unless given.
    limit: Option<u32>,
}

/// Events, oldest first.
#[utoipa::path(get, path = "/v1/events", tag = "events", params(EventsQuery),
    responses((status = 200, body = [EventView]), (status = "default", body = ApiError)))]
pub(super) async fn list_events(
    State(app): State<App>,
    _caller: Caller,
    Query(query): Query<EventsQuery>,
) -> Result<Response, Problem> {
    let job = match &query.job {
        Some(name) => Some(find::job(&app, name).await?.job.id),
        None => None,
    };
    let node = query.node.as_deref().map(|name| find::node(&app.cycle.view(), name).map(|node| node.id)).transpose()?;
    let limit = query.limit.unwrap_or(LISTED);
    let filter = EventFilter { after: query.since.unwrap_or(0), job, node, newest: query.since.is_none(), limit };
    if !query.follow {
        return Ok(Json(read(&app, filter).await?).into_response());
    }
    let (ours, theirs) = tokio::io::duplex(STREAM_BUFFER_BYTES);
    app.tasks.spawn("follow events", {
        let app = app.clone();
        async move {
            // It ends when the reader leaves, which is an error only to the pipe.
            if let Err(problem) = follow(&app, filter, ours).await {
                tracing::debug!(message = problem.error.message, "a stream of events ended");
            }
        }
    });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], super::ReadBody::response_body(theirs)).into_response())
}

async fn follow(app: &App, mut filter: EventFilter, mut to: DuplexStream) -> Result<(), Problem> {
    let mut newest = app.cycle.board().last_event();
    loop {
        newest.mark_unchanged();
        for event in read(app, filter.clone()).await? {
            filter.after = event.number;
            let mut line = serde_json::to_vec(&event).map_err(Problem::internal)?;
            line.push(b'\n');
            to.write_all(&line).await.map_err(Problem::internal)?;
        }
        // From the second round on: everything since, not only the newest.
        filter.newest = false;
        tokio::select! {
            changed = newest.changed() => changed.map_err(Problem::internal)?,
            _ = app.shutdown.wait() => return Ok(()),
        }
    }
}

async fn read(app: &App, filter: EventFilter) -> Result<Vec<EventView>, Problem> {
    let events = app.read(move |reader| reader.events(&filter)).await?;
    let view = app.cycle.view();
    Ok(events.iter().map(|event| views::event_view(event, &view.cluster)).collect())
}
