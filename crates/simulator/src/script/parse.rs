//! Line by line from text to [`Script`]: the order of the parts, and what was declared so far.
//!
//! First the cluster (`nodes`, `uplink`, `pool`, `queue`, `set`), then `at` lines, then `finally` lines. `at` lines may stand in
//! any order of time, so that a story can be told job by job: they are sorted, and those of one time keep the order of the file.
use super::ast::{Script, Step};
use super::error::ScriptError;
use super::lexer::{Word, words};
use super::{expect, header, names, pools, steps};
use ganger_core::model::time::{Span, Time};

const STATEMENTS: [&str; 7] = ["nodes", "uplink", "pool", "queue", "set", "at", "finally"];

/// Reads a scenario; the error has no file name yet.
pub fn parse(text: &str) -> Result<Script, ScriptError> {
    let mut script = Script::default();
    let mut last_line = 1;
    for (line, text) in (1..).zip(text.lines()) {
        let words = words(line, text)?;
        if !words.is_empty() {
            statement(&mut script, line, text, &words)?;
        }
        last_line = line;
    }
    if script.nodes.is_empty() {
        return Err(ScriptError::missing(last_line, "a nodes statement", "nodes 4 dgx-a100"));
    }
    script.steps.sort_by_key(|step| step.at);
    names::check(&script)?;
    Ok(script)
}

fn statement(script: &mut Script, line: u32, text: &str, words: &[Word]) -> Result<(), ScriptError> {
    let (head, rest) = (words[0].text.as_str(), &words[1..]);
    if !STATEMENTS.contains(&head) {
        return Err(ScriptError::unknown(line, "statement", head, &STATEMENTS));
    }
    let begun = !script.steps.is_empty() || !script.finals.is_empty();
    if begun && matches!(head, "nodes" | "uplink" | "pool" | "queue" | "set") {
        return Err(ScriptError::out_of_place(line, head, "the cluster is described before the first at"));
    }
    match head {
        "nodes" => header::nodes(script, line, rest),
        "uplink" => header::uplink(script, line, rest),
        "pool" => pools::pool(script, line, rest),
        "queue" => header::queue(script, line, rest),
        "set" => header::settings(script, line, rest),
        "at" if !script.finals.is_empty() => {
            Err(ScriptError::out_of_place(line, head, "finally comes last; move this line above it"))
        }
        "at" => at(script, line, text, rest),
        _ => finally(script, line, text, rest),
    }
}

fn at(script: &mut Script, line: u32, text: &str, rest: &[Word]) -> Result<(), ScriptError> {
    let Some((time, rest)) = rest.split_first() else {
        return Err(ScriptError::missing(line, "the time", "at 10s submit A"));
    };
    let at = Span::parse(&time.text).map_err(|why| ScriptError::value(line, "the time", &time.text, why))?;
    let text = written_from(text, &time.text);
    let action = steps::action(script, line, &text, rest)?;
    script.steps.push(Step { line, at: Time(at.0), text, action });
    Ok(())
}

fn finally(script: &mut Script, line: u32, text: &str, rest: &[Word]) -> Result<(), ScriptError> {
    match rest.split_first() {
        Some((word, rest)) if word.text == "expect" => {
            script.finals.push(expect::expectation(script, line, written_from(text, "finally"), rest)?);
            Ok(())
        }
        Some((word, _)) => Err(ScriptError::unknown(line, "word after finally", &word.text, &["expect"])),
        None => Err(ScriptError::missing(line, "what is expected", "finally expect cluster violations=0")),
    }
}

/// What is written behind `word`, without the comment at the end.
fn written_from(text: &str, word: &str) -> String {
    let behind = text.find(word).map_or(text, |at| &text[at + word.len()..]);
    let mut quoted = false;
    let mut before = ' ';
    for (at, c) in behind.char_indices() {
        match c {
            '"' if before != '\\' => quoted = !quoted,
            '#' if !quoted && before.is_whitespace() => return behind[..at].trim().to_string(),
            _ => {}
        }
        before = c;
    }
    behind.trim().to_string()
}

/// The one word at `at`, which carries no value: a name or a keyword.
pub(super) fn bare<'a>(line: u32, words: &'a [Word], what: &str, example: &str) -> Result<&'a str, ScriptError> {
    match words.first() {
        None => Err(ScriptError::missing(line, what, example)),
        Some(word) if word.op.is_some() || word.text.is_empty() => {
            Err(ScriptError::value(line, what, &word.text, format!("a bare word is expected here, like: {example}")))
        }
        Some(word) => Ok(&word.text),
    }
}

/// Refuses words behind a statement that is complete.
pub(super) fn no_more(line: u32, words: &[Word], what: &str) -> Result<(), ScriptError> {
    match words.first() {
        None => Ok(()),
        Some(word) => Err(ScriptError::out_of_place(line, &word.text, &format!("{what} takes no more words"))),
    }
}
