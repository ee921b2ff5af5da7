//! The one list of what the grammar has and the cluster cannot do yet. A scenario that uses it is read whole and then
//! refused by name; when a feature arrives, its line here goes.
use super::ast::{Action, Begin, Script, Submit};
use super::error::{Problem, ScriptError};

type Uses<T> = (&'static str, fn(&T) -> bool);

const SUBMIT: &[Uses<Submit>] = &[
    ("submit begin= as a time of day", |s| matches!(s.begin, Some(Begin::Clock(_)))),
    ("submit deadline=", |s| s.deadline.is_some()),
    ("submit windows=", |s| !s.windows.is_empty()),
];

const ACTION: &[Uses<Action>] =
    &[("xid", |a| matches!(a, Action::Xid { .. })), ("pcie", |a| matches!(a, Action::Pcie { .. }))];

/// The first use of something that is not there yet, as the error to answer with.
pub fn refuse_later_work(script: &Script) -> Result<(), ScriptError> {
    for step in &script.steps {
        refuse(ACTION, &step.action, step.line)?;
        if let Action::Submit(submit) = &step.action {
            refuse(SUBMIT, submit.as_ref(), step.line)?;
        }
    }
    Ok(())
}

fn refuse<T>(list: &[Uses<T>], used: &T, line: u32) -> Result<(), ScriptError> {
    match list.iter().find(|(_, uses)| uses(used)) {
        Some((what, _)) => Err(ScriptError::new(line, Problem::NotSupported { what: what.to_string() })),
        None => Ok(()),
    }
}
