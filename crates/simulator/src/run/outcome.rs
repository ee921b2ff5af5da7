//! What came of a scenario, as data and as text for people.
use crate::world::{Broken, TraceLine};
use ganger_core::model::amounts::count;
use ganger_core::model::time::Span;
use serde::Serialize;
use std::fmt::Write;

/// One expectation and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Result {
    pub line: u32,
    /// Since 0s.
    pub at_ms: u64,
    /// As written.
    pub text: String,
    pub ok: bool,
    /// The actual values of all that was asked for.
    pub actual: String,
}

/// A scenario that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    pub name: String,
    pub expectations: Vec<Result>,
    /// Rules that were broken on the way. They fail a scenario even if it does not ask for them.
    pub violations: Vec<Broken>,
    pub ended_at_ms: u64,
    pub trace: Vec<TraceLine>,
}

impl Outcome {
    /// Whether every expectation held and no rule was broken. The exit code is 0 then, else 1.
    pub fn passed(&self) -> bool {
        self.violations.is_empty() && self.expectations.iter().all(|result| result.ok)
    }

    /// Each expectation with `ok` or the actual values, then the broken rules, then one line that sums up.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for result in &self.expectations {
            let verdict = if result.ok { "ok".to_string() } else { format!("FAILED, actual: {}", result.actual) };
            let _ = writeln!(text, "{}:{}: {} ... {verdict}", self.name, result.line, result.text);
        }
        for broken in &self.violations {
            let at = Span(broken.at_ms);
            let _ = writeln!(text, "{}: at {at} rule {} was broken: {}", self.name, broken.rule, broken.text);
        }
        let failed = self.expectations.iter().filter(|result| !result.ok).count();
        let (total, broken) = (self.expectations.len(), self.violations.len());
        let verdict = if self.passed() { "passed" } else { "FAILED" };
        let _ = writeln!(
            text,
            "{}: {verdict}, {} of {} held, {} broken, ended at {}",
            self.name,
            total - failed,
            count(total as u64, "expectation"),
            count(broken as u64, "rule"),
            Span(self.ended_at_ms)
        );
        text
    }

    /// Every statement and event with its time, for `-v`.
    pub fn trace_text(&self) -> String {
        self.trace.iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{:>9}  {:<14} {}", Span(line.at_ms).to_string(), line.kind, line.text);
            text
        })
    }
}
