//! The API's own description, made from the handlers. `openapi.json` beside this crate is a copy whose freshness is a test.
use super::{events, jobs, nodes, overview, queues, streams, system, tokens};
use axum::Json;
use utoipa::OpenApi;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Ganger",
        description = "The control API. Names work wherever ids do; errors are `ApiError`. On TCP send `Authorization: \
                       Bearer TOKEN`; on the Unix socket the kernel names the user. The agents' routes under `/v1/agent` are a \
                       protocol between parts of Ganger and not described here."
    ),
    paths(
        jobs::submit_job, jobs::list_jobs, jobs::get_job, jobs::get_why, jobs::wait_for_job, jobs::cancel_job,
        jobs::hold_job, jobs::release_job, jobs::requeue_job, jobs::resize_job, jobs::announce_checkpoint,
        streams::get_logs, streams::exec, streams::attach,
        nodes::list_nodes, nodes::get_node, nodes::drain_node, nodes::cordon_node, nodes::uncordon_node, nodes::forget_node,
        nodes::recover_node, nodes::quarantine_node,
        queues::list_queues, queues::apply_queues, queues::remove_queue, queues::get_cluster,
        queues::apply_cluster,
        overview::get_usage, overview::get_top,
        events::list_events, tokens::list_tokens, tokens::create_token, tokens::revoke_token,
        system::healthz, system::get_status, system::get_snapshot, system::get_recording,
    ),
    tags((name = "jobs"), (name = "nodes"), (name = "queues"), (name = "events"), (name = "tokens"), (name = "system"))
)]
struct Document;

/// The description as it is served.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

pub(super) async fn get_openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(document())
}
