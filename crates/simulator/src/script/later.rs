//! The one list of what the grammar has and the cluster cannot do yet. A scenario that uses it is read whole and then
//! refused by name; when a feature arrives, its line here goes.
use super::ast::{Action, Script};
use super::error::{Problem, ScriptError};

type Uses = (&'static str, fn(&Action) -> bool);

const ACTION: &[Uses] = &[("xid", |a| matches!(a, Action::Xid { .. })), ("pcie", |a| matches!(a, Action::Pcie { .. }))];

/// The first use of something that is not there yet, as the error to answer with.
pub fn refuse_later_work(script: &Script) -> Result<(), ScriptError> {
    let refuse = |line: u32, what: &str| ScriptError::new(line, Problem::NotSupported { what: what.to_string() });
    let used =
        script.steps.iter().find_map(|step| Some((step.line, ACTION.iter().find(|(_, uses)| uses(&step.action))?)));
    used.map_or(Ok(()), |(line, (what, _))| Err(refuse(line, what)))
}
