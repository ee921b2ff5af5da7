//! A crash on purpose, for tests with the real binary: `GANGER_CRASH_AT=after-commit:N` ends the process at once, with no
//! cleaning up, right after the N-th commit that carries a submission, before anybody is answered.
//!
//! From outside that instant is microseconds long and cannot be hit. It is in every build, so that what is tested is what
//! is shipped (a feature would make another binary, and `debug_assertions` would leave the release build untested), and
//! costs one comparison a commit. It is refused unless `GANGER_TESTING=1` stands beside it: a variable that somebody forgot
//! in an environment must never take a server down.
use super::Batch;
use ganger_core::lifecycle::input::Input;
use thiserror::Error;

pub const CRASH_VARIABLE: &str = "GANGER_CRASH_AT";
pub const TESTING_VARIABLE: &str = "GANGER_TESTING";

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CrashPointError {
    #[error(
        "{CRASH_VARIABLE} is set without {TESTING_VARIABLE}=1: it ends the server on purpose and is for tests only; unset it"
    )]
    NotTesting,
    #[error("{CRASH_VARIABLE}={0:?} names no moment: write after-commit:N with N from 1")]
    Unknown(String),
}

/// The process aborts right after the `left`-th commit from here that carries a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPoint {
    left: u32,
}

impl CrashPoint {
    /// What the environment asks for; `variable` looks a name up.
    pub fn asked_for(variable: impl Fn(&str) -> Option<String>) -> Result<Option<CrashPoint>, CrashPointError> {
        let Some(text) = variable(CRASH_VARIABLE) else { return Ok(None) };
        if variable(TESTING_VARIABLE).as_deref() != Some("1") {
            return Err(CrashPointError::NotTesting);
        }
        let left = text.strip_prefix("after-commit:").and_then(|number| number.parse().ok()).filter(|left| *left > 0);
        left.map(|left| Some(CrashPoint { left })).ok_or(CrashPointError::Unknown(text))
    }

    /// Counts a commit that was just made.
    pub(super) fn committed(&mut self, batch: &Batch) {
        if self.is_reached(batch) {
            std::process::abort();
        }
    }

    fn is_reached(&mut self, batch: &Batch) -> bool {
        let submits = batch.inputs.iter().any(|logged| matches!(logged.input, Input::Submit { .. }));
        self.left -= u32::from(submits && self.left > 0);
        submits && self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LoggedInput;
    use ganger_core::model::Time;
    use ganger_core::model::job::Owner;
    use ganger_core::model::wire::job::{Command, JobFile};
    use std::sync::Arc;

    fn asked(crash: &str, testing: Option<&str>) -> Result<Option<CrashPoint>, CrashPointError> {
        CrashPoint::asked_for(|name| match name {
            CRASH_VARIABLE => Some(crash.to_string()),
            _ => testing.map(str::to_string),
        })
    }

    #[test]
    fn it_is_refused_outside_tests_and_when_it_names_no_moment() {
        assert_eq!(CrashPoint::asked_for(|_| None), Ok(None));
        assert_eq!(asked("after-commit:3", Some("1")), Ok(Some(CrashPoint { left: 3 })));
        for testing in [None, Some(""), Some("0")] {
            assert_eq!(asked("after-commit:3", testing), Err(CrashPointError::NotTesting));
        }
        for wrong in ["", "after-commit", "after-commit:0", "after-commit:-1", "before-commit:1"] {
            assert_eq!(asked(wrong, Some("1")), Err(CrashPointError::Unknown(wrong.to_string())));
        }
    }

    #[test]
    fn only_commits_with_a_submission_count() {
        let commit = |input| {
            let inputs = vec![LoggedInput { at: Time(0), heard: Vec::new(), input }];
            Batch { inputs, ..Batch::default() }
        };
        let file = JobFile { name: "j".into(), command: Command::Line("true".into()), ..JobFile::default() };
        let spec = Arc::new(file.into_spec(&|_| None).unwrap());
        let submission = commit(Input::Submit { spec, owner: Owner::default() });
        let mut point = CrashPoint { left: 2 };
        let reached = [&submission, &commit(Input::Tick), &submission].map(|batch| point.is_reached(batch));
        assert_eq!(reached, [false, false, true]);
    }
}
