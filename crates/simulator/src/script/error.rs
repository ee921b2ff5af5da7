//! What can be wrong with a scenario file: the line, the word at fault and what would have been right.
use serde::Serialize;
use thiserror::Error;

/// A scenario that cannot be run. The caller's exit code is 2: the request was wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScriptError {
    /// The file, as the caller named it; empty if it has no name.
    pub name: String,
    /// From 1.
    pub line: u32,
    pub problem: Problem,
}

/// One kind of mistake.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Problem {
    #[error("unknown {what} {word:?}; known: {known}")]
    Unknown { what: String, word: String, known: String },
    #[error("{what} {word:?} is given twice{}", .first.map(|l| format!(" (first in line {l})")).unwrap_or_default())]
    Twice { what: String, word: String, first: Option<u32> },
    #[error("cannot read {what} {word:?}: {why}")]
    Value { what: String, word: String, why: String },
    #[error("{word:?} is out of place: {why}")]
    OutOfPlace { word: String, why: String },
    #[error("{what} is missing; write it like: {example}")]
    Missing { what: String, example: String },
    #[error("not supported yet: {what}")]
    NotSupported { what: String },
    #[error("{what} was refused: {why}")]
    Refused { what: String, why: String },
}

impl ScriptError {
    pub(crate) fn new(line: u32, problem: Problem) -> ScriptError {
        ScriptError { name: String::new(), line, problem }
    }

    pub(crate) fn unknown(line: u32, what: impl Into<String>, word: &str, known: &[&str]) -> ScriptError {
        let known = known.join(", ");
        ScriptError::new(line, Problem::Unknown { what: what.into(), word: word.to_string(), known })
    }

    pub(crate) fn value(line: u32, what: impl Into<String>, word: &str, why: impl ToString) -> ScriptError {
        ScriptError::new(line, Problem::Value { what: what.into(), word: word.to_string(), why: why.to_string() })
    }

    pub(crate) fn missing(line: u32, what: &str, example: &str) -> ScriptError {
        ScriptError::new(line, Problem::Missing { what: what.to_string(), example: example.to_string() })
    }

    pub(crate) fn out_of_place(line: u32, word: &str, why: &str) -> ScriptError {
        ScriptError::new(line, Problem::OutOfPlace { word: word.to_string(), why: why.to_string() })
    }

    /// The same error with the name of the file in front.
    pub fn named(mut self, name: &str) -> ScriptError {
        self.name = name.to_string();
        self
    }
}

impl std::error::Error for ScriptError {}

impl std::fmt::Display for ScriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.name.is_empty() {
            write!(f, "{}: ", self.name)?;
        }
        match &self.problem {
            problem @ Problem::NotSupported { .. } => write!(f, "{problem} (line {})", self.line),
            problem => write!(f, "line {}: {problem}", self.line),
        }
    }
}
