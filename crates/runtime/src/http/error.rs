//! What can go wrong between a request and its answer.
use super::endpoint::Endpoint;
use hyper::StatusCode;
use serde::Deserialize;
use std::time::Duration;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum HttpError {
    /// Nothing was sent.
    #[error("cannot reach {endpoint}: {source}; is the server running there?")]
    Connect { endpoint: Endpoint, source: std::io::Error },
    /// The connection broke after the request may have been sent.
    #[error("the connection to {endpoint} broke during {request}: {source}")]
    Broken { endpoint: Endpoint, request: String, source: hyper::Error },
    #[error("{endpoint} did not answer {request} within {} s", within.as_secs_f32())]
    Timeout { endpoint: Endpoint, request: String, within: Duration },
    /// The server refused; the message is the server's own.
    #[error("{message}")]
    Refused { status: StatusCode, code: String, message: String, field: Option<String> },
    #[error("the answer to {request} cannot be read: {why}")]
    Unreadable { request: String, why: String },
    #[error("cannot make the request {request}: {why}")]
    BadRequest { request: String, why: String },
}

impl HttpError {
    /// The server's status, if it answered.
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            HttpError::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the same request may succeed later: nobody answered, or the server said that it cannot now.
    pub fn is_transient(&self) -> bool {
        match self {
            HttpError::Connect { .. } | HttpError::Broken { .. } | HttpError::Timeout { .. } => true,
            HttpError::Refused { status, .. } => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            HttpError::Unreadable { .. } | HttpError::BadRequest { .. } => false,
        }
    }
}

/// The body of a refusal: `{"code": …, "message": …, "field": …}`.
#[derive(Deserialize)]
struct RefusalBody {
    code: String,
    message: String,
    #[serde(default)]
    field: Option<String>,
}

/// Turns an answer with an error status into an error, also when its body is not ours.
pub(super) fn refused(status: StatusCode, body: &[u8]) -> HttpError {
    match serde_json::from_slice::<RefusalBody>(body) {
        Ok(RefusalBody { code, message, field }) => HttpError::Refused { status, code, message, field },
        Err(_) => {
            let text = String::from_utf8_lossy(&body[..body.len().min(500)]).trim().to_string();
            let message = format!("the server answered {status}: {text}");
            HttpError::Refused { status, code: "unknown".to_string(), message, field: None }
        }
    }
}
