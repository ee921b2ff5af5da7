//! How a command fails: the exit code and what is said on standard error. 1: the thing failed; 2: the request was wrong.
use ganger_core::model::wire::job::FieldError;
use ganger_runtime::http::HttpError;
use std::fmt;

/// The end of a command that did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub code: u8,
    /// Printed on standard error; empty where all was said before.
    pub message: String,
    /// The server is away or cannot just now: asked later it may answer.
    pub transient: bool,
}

impl Failure {
    /// The thing failed.
    pub fn failed(message: impl Into<String>) -> Failure {
        Failure { code: 1, message: message.into(), transient: false }
    }

    /// The request was wrong: asking again changes nothing.
    pub fn wrong(message: impl Into<String>) -> Failure {
        Failure { code: 2, message: message.into(), transient: false }
    }

    /// Ends with `code` and says nothing more.
    pub fn silent(code: u8) -> Failure {
        Failure { code, message: String::new(), transient: false }
    }

    /// The reader of standard output has gone: the end, and no fault of ours.
    pub fn pipe_closed() -> Failure {
        Failure::silent(0)
    }

    /// All findings in `file`, one a line.
    pub fn fields(file: &str, errors: &[FieldError]) -> Failure {
        Failure::wrong(errors.iter().map(|error| format!("{file}: {error}")).collect::<Vec<_>>().join("\n"))
    }

    /// What was attempted, in front of the reason.
    pub fn context(mut self, attempted: impl fmt::Display) -> Failure {
        if !self.message.is_empty() {
            self.message = format!("{attempted}: {}", self.message);
        }
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Failure {
        let message = match &error {
            HttpError::Refused { message, field: Some(field), .. } if !message.contains(field.as_str()) => {
                format!("{field}: {message}")
            }
            _ => error.to_string(),
        };
        match &error {
            HttpError::Refused { status, .. } if status.is_client_error() => Failure::wrong(message),
            _ => Failure { transient: error.is_transient(), ..Failure::failed(message) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_runtime::http::StatusCode;

    #[test]
    fn refusals_are_wrong_requests_and_server_faults_are_failures() {
        let refused =
            |status| HttpError::Refused { status, code: "x".into(), message: "no".into(), field: Some("time".into()) };
        assert_eq!(Failure::from(refused(StatusCode::NOT_FOUND)), Failure::wrong("time: no"));
        assert_eq!(Failure::from(refused(StatusCode::INTERNAL_SERVER_ERROR)).code, 1);
    }
}
