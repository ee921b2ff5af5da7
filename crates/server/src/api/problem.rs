//! Refusals as the API gives them: a status, a stable word, a message that says what to do.
use crate::cycle::CycleError;
use crate::store::StoreError;
use axum::Json;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use ganger_core::lifecycle::input::Refusal;
use ganger_core::model::wire::api::ApiError;
use ganger_core::model::wire::job::FieldError;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub status: StatusCode,
    pub error: ApiError,
}

impl Problem {
    pub fn new(status: StatusCode, code: &str, message: impl ToString) -> Problem {
        Problem { status, error: ApiError { code: code.to_string(), message: message.to_string(), field: None } }
    }

    pub fn bad_request(code: &str, message: impl ToString) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub fn unauthorized(message: impl ToString) -> Problem {
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
    }

    pub fn forbidden(message: impl ToString) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub fn not_found(message: impl ToString) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub fn conflict(code: &str, message: impl ToString) -> Problem {
        Problem::new(StatusCode::CONFLICT, code, message)
    }

    /// Understood, but `field` cannot be as it is.
    pub fn unprocessable(field: &str, message: impl ToString) -> Problem {
        let mut problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message);
        problem.error.field = Some(field.to_string());
        problem
    }

    pub fn internal(message: impl ToString) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }

    /// All that is wrong with a file, in one message; the first field is named apart.
    pub fn fields(what: &str, errors: &[FieldError]) -> Problem {
        let lines: Vec<String> = errors.iter().map(|e| format!("{}: {}; {}", e.field, e.problem, e.fix)).collect();
        let first = errors.first().map_or("", |e| e.field.as_str());
        Problem::unprocessable(first, format!("cannot accept {what}: {}", lines.join("\n")))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::warn!(
                status = self.status.as_u16(),
                code = self.error.code,
                message = self.error.message,
                "refused"
            );
        }
        (self.status, Json(self.error)).into_response()
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        match &refusal {
            Refusal::NoSuchJob { .. } => Problem::not_found(refusal),
            Refusal::WrongState { .. } => Problem::conflict("wrong_state", refusal),
            Refusal::StaleDecision { .. } => Problem::conflict("stale", refusal),
            Refusal::NoSuchQueue { .. } => Problem::unprocessable("queue", refusal),
            Refusal::BadSpec { field, .. } => Problem::unprocessable(&field.clone(), refusal),
            Refusal::BadQueue { .. } => Problem::unprocessable("queues", refusal),
            Refusal::BadMaintenance { .. } => Problem::conflict("bad_maintenance", refusal),
            Refusal::QueueInUse { .. } | Refusal::NodeNeeded { .. } => Problem::conflict("in_use", refusal),
            Refusal::NodeInUse { .. } => Problem::conflict("in_use", refusal),
            Refusal::NoSuchNode { .. } => Problem::not_found(refusal),
            Refusal::BadNode { .. } => Problem::unprocessable("node", refusal),
            Refusal::BadSetting(_) => Problem::unprocessable("settings", refusal),
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        match &error {
            StoreError::Full(_) => Problem::new(StatusCode::INSUFFICIENT_STORAGE, "store_full", error),
            StoreError::ReadOnly(_) => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_read_only", error),
            _ => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "store", error),
        }
    }
}

impl From<CycleError> for Problem {
    fn from(error: CycleError) -> Problem {
        match error {
            CycleError::Refused(refusal) => refusal.into(),
            CycleError::Store(error) => error.into(),
            CycleError::Overloaded => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", error),
            CycleError::Stopping => Problem::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", error),
        }
    }
}

pub(super) async fn no_such_route(method: Method, uri: Uri) -> Problem {
    let text = format!("there is no route {method} {}; GET /openapi.json lists all", uri.path());
    Problem::new(StatusCode::NOT_FOUND, "no_such_route", text)
}

pub(super) async fn no_such_method(method: Method, uri: Uri) -> Problem {
    let text = format!("{} does not take {method}; GET /openapi.json lists all routes", uri.path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no_such_method", text)
}
