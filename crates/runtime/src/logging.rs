//! Log set-up, called once by a process. Lines go to standard error: standard output is for data.
//!
//! Secrets never reach a log because they are [`crate::secret::Secret`], which prints stars.
use std::io::IsTerminal;
use thiserror::Error;
use tracing::Level;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl Format {
    pub fn parse(text: &str) -> Option<Format> {
        match text {
            "text" => Some(Format::Text),
            "json" => Some(Format::Json),
            _ => None,
        }
    }
}

#[derive(Debug, Error)]
#[error("cannot set up logging: {0}")]
pub struct LoggingError(String);

/// Sends the process's log to standard error, from `level` (`error`, `warn`, `info`, `debug`, `trace`) upwards.
pub fn init(format: Format, level: &str) -> Result<(), LoggingError> {
    let known = "error, warn, info, debug, trace";
    let level: Level = level.parse().map_err(|_| LoggingError(format!("the level {level:?} is not one of {known}")))?;
    let builder = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let outcome = match format {
        Format::Text => builder.with_target(false).try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    outcome.map_err(|error| LoggingError(error.to_string()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_unknown_level_is_refused_by_name() {
        let error = super::init(super::Format::Text, "loud").unwrap_err().to_string();
        assert!(error.contains("\"loud\"") && error.contains("debug"), "{error}");
    }
}
