//! The HTTP API: one thin handler per route of `wire::api`. A handler reads the request, asks the board or the loop, and
//! prints a view. Nothing is decided here.
mod arrays;
mod body;
mod events;
mod find;
mod jobs;
mod names;
mod nodes;
mod openapi;
mod overview;
mod problem;
mod queues;
mod state;
mod streams;
mod system;
mod tokens;
mod views;

pub use body::{JsonBody, ReadBody, accept_upgrade, take_upgrade};
pub use openapi::document;
pub use problem::Problem;
pub use state::App;

use crate::agents;
use axum::Router;
use axum::routing::{delete, get, post};

/// All routes. Authentication is part of each handler's arguments; only health and the API's own description are open.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/healthz", get(system::healthz))
        .route("/openapi.json", get(openapi::get_openapi))
        .route("/v1/status", get(system::get_status))
        .route("/v1/top", get(overview::get_top))
        .route("/v1/usage", get(overview::get_usage))
        .route("/v1/snapshot", get(system::get_snapshot))
        .route("/v1/recording", get(system::get_recording))
        .route("/v1/jobs", get(jobs::list_jobs).post(jobs::submit_job))
        .route("/v1/jobs/{job}", get(jobs::get_job))
        .route("/v1/jobs/{job}/why", get(jobs::get_why))
        .route("/v1/jobs/{job}/wait", get(jobs::wait_for_job))
        .route("/v1/jobs/{job}/cancel", post(jobs::cancel_job))
        .route("/v1/jobs/{job}/hold", post(jobs::hold_job))
        .route("/v1/jobs/{job}/release", post(jobs::release_job))
        .route("/v1/jobs/{job}/requeue", post(jobs::requeue_job))
        .route("/v1/jobs/{job}/resize", post(jobs::resize_job))
        .route("/v1/jobs/{job}/checkpoints", post(jobs::announce_checkpoint))
        .route("/v1/jobs/{job}/logs", get(streams::get_logs))
        .route("/v1/jobs/{job}/exec", post(streams::exec))
        .route("/v1/jobs/{job}/attach", post(streams::attach))
        .route("/v1/nodes", get(nodes::list_nodes))
        .route("/v1/nodes/{node}", get(nodes::get_node))
        .route("/v1/nodes/{node}/drain", post(nodes::drain_node))
        .route("/v1/nodes/{node}/cordon", post(nodes::cordon_node))
        .route("/v1/nodes/{node}/uncordon", post(nodes::uncordon_node))
        .route("/v1/nodes/{node}/forget", post(nodes::forget_node))
        .route("/v1/nodes/{node}/recover", post(nodes::recover_node))
        .route("/v1/nodes/{node}/quarantine", post(nodes::quarantine_node))
        .route("/v1/queues", get(queues::list_queues).post(queues::apply_queues))
        .route("/v1/queues/{queue}", delete(queues::remove_queue))
        .route("/v1/cluster", get(queues::get_cluster).post(queues::apply_cluster))
        .route("/v1/events", get(events::list_events))
        .route("/v1/tokens", get(tokens::list_tokens).post(tokens::create_token))
        .route("/v1/tokens/{name}", delete(tokens::revoke_token))
        .route("/v1/agent/register", post(agents::register))
        .route("/v1/agent/sync", post(agents::sync))
        .route("/v1/agent/streams/{id}", post(agents::connect_stream))
        .fallback(problem::no_such_route)
        .method_not_allowed_fallback(problem::no_such_method)
        .with_state(app)
}
