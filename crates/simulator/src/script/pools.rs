//! `pool NAME lend=…`: a pool that is kept for its own jobs, and how it is lent.
use super::ast::{PoolLine, Script};
use super::error::{Problem, ScriptError};
use super::header::queue_path;
use super::keys::Keys;
use super::lexer::Word;
use super::parse::bare;
use super::submit::windows;
use ganger_core::model::job::Priority;
use ganger_core::model::pool::{LendTime, Lending};
use ganger_core::model::time::Time;

const KEYS: [&str; 3] = ["lend", "to", "classes"];

pub fn pool(script: &mut Script, line: u32, words: &[Word]) -> Result<(), ScriptError> {
    let example = "pool inference lend=20:00-08:00";
    let name = bare(line, words, "the pool", example)?.to_string();
    if let Some(twin) = script.pools.iter().find(|pool| pool.name == name) {
        let first = Some(twin.line);
        return Err(ScriptError::new(line, Problem::Twice { what: "pool".to_string(), word: name, first }));
    }
    let keys = Keys::read(line, "pool", &words[1..], &KEYS)?;
    let when = keys.with("lend", lend_time)?.ok_or_else(|| ScriptError::missing(line, "lend=", example))?;
    let names = keys.text("to").unwrap_or_default();
    let names = names.split(',').filter(|name| !name.is_empty());
    let to = names.map(|name| queue_path(script, line, name)).collect::<Result<Vec<_>, _>>()?;
    let classes = keys.with("classes", classes)?.unwrap_or_default();
    script.pools.push(PoolLine { line, name, lending: Lending { when, to, classes, since: Time(0) } });
    Ok(())
}

fn lend_time(value: &str) -> Result<LendTime, String> {
    match value {
        "always" => Ok(LendTime::Always),
        "never" => Ok(LendTime::Never),
        value => windows(value).map(LendTime::in_windows),
    }
}

fn classes(value: &str) -> Result<Vec<Priority>, String> {
    let class = |name: &str| Priority::ALL.into_iter().find(|class| class.to_string() == name);
    value.split(',').map(|name| class(name).ok_or_else(|| "classes are P0 to P3, like P2,P3".to_string())).collect()
}
