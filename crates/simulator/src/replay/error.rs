//! What is wrong in a trace, and where: file, line, column, what is there and what was expected.
use std::fmt;

/// A trace that cannot be read. Traces are refused whole: half a trace gives figures that look right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadError {
    pub file: String,
    /// From 1; 0 where the fault has no line.
    pub line: usize,
    /// Characters from 1; 0 where the whole line is meant.
    pub column: usize,
    pub message: String,
}

impl ReadError {
    /// A fault of the file as a whole.
    pub fn file(file: &str, message: impl Into<String>) -> ReadError {
        ReadError { file: file.to_string(), line: 0, column: 0, message: message.into() }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.line, self.column) {
            (0, _) => write!(f, "cannot read trace {}: {}", self.file, self.message),
            (line, 0) => write!(f, "{}:{line}: {}", self.file, self.message),
            (line, column) => write!(f, "{}:{line}:{column}: {}", self.file, self.message),
        }
    }
}

impl std::error::Error for ReadError {}
