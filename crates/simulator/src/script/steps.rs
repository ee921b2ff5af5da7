//! What can follow `at T`, except for the two long ones, `submit` and `expect`.
use super::ast::{Action, JobVerb, NodeVerb, Script};
use super::error::ScriptError;
use super::keys::{Keys, count};
use super::lexer::Word;
use super::parse::{bare, no_more};
use super::{expect, submit};

const VERBS: [&str; 18] = [
    "submit",
    "expect",
    "fail",
    "recover",
    "drain",
    "uncordon",
    "cut",
    "heal",
    "refuse-launch",
    "accept-launch",
    "cancel",
    "hold",
    "release",
    "xid",
    "pcie",
    "restart",
    "resize",
    "requeue",
];

/// `text` is the statement as written, for the messages of expectations.
pub fn action(script: &Script, line: u32, text: &str, words: &[Word]) -> Result<Action, ScriptError> {
    let verb = bare(line, words, "the statement", "at 10s submit A")?;
    let rest = &words[1..];
    match verb {
        "submit" => submit::submit(script, line, rest).map(|s| Action::Submit(Box::new(s))),
        "expect" => expect::expectation(script, line, text.to_string(), rest).map(Action::Expect),
        "fail" => node(line, NodeVerb::Fail, rest),
        "recover" => node(line, NodeVerb::Recover, rest),
        "drain" if rest.len() > 1 => maintain(line, rest),
        "drain" => node(line, NodeVerb::Drain, rest),
        "uncordon" => node(line, NodeVerb::Uncordon, rest),
        "cut" => node(line, NodeVerb::Cut, rest),
        "heal" => node(line, NodeVerb::Heal, rest),
        "refuse-launch" => node(line, NodeVerb::RefuseLaunch, rest),
        "accept-launch" => node(line, NodeVerb::AcceptLaunch, rest),
        "cancel" => job(line, JobVerb::Cancel, rest),
        "hold" => job(line, JobVerb::Hold, rest),
        "requeue" => job(line, JobVerb::Requeue, rest),
        "release" => job(line, JobVerb::Release, rest),
        "xid" => xid(line, rest),
        "pcie" => pcie(line, rest),
        "restart" => restart(line, rest),
        "resize" => resize(line, rest),
        _ => Err(ScriptError::unknown(line, "statement after the time", verb, &VERBS)),
    }
}

fn node(line: u32, verb: NodeVerb, words: &[Word]) -> Result<Action, ScriptError> {
    let node = bare(line, words, "the node", "at 20s fail n0")?.to_string();
    no_more(line, &words[1..], "this statement")?;
    Ok(Action::Node { verb, node })
}

fn maintain(line: u32, words: &[Word]) -> Result<Action, ScriptError> {
    let example = "at 1h drain n0 at=4h for=2h";
    let node = bare(line, words, "the node", example)?.to_string();
    let keys = Keys::read(line, "drain", &words[1..], &["at", "for"])?;
    let from = keys.time("at")?.ok_or_else(|| ScriptError::missing(line, "at=T", example))?;
    Ok(Action::Maintain { node, from, lasts: keys.span("for")? })
}

fn job(line: u32, verb: JobVerb, words: &[Word]) -> Result<Action, ScriptError> {
    let job = bare(line, words, "the job", "at 20s cancel A")?.to_string();
    no_more(line, &words[1..], "this statement")?;
    Ok(Action::Job { verb, job })
}

fn restart(line: u32, words: &[Word]) -> Result<Action, ScriptError> {
    let what = bare(line, words, "what restarts", "at 20s restart control")?;
    if what != "control" {
        return Err(ScriptError::unknown(line, "part to restart", what, &["control"]));
    }
    no_more(line, &words[1..], "restart control")?;
    Ok(Action::RestartControl)
}

fn xid(line: u32, words: &[Word]) -> Result<Action, ScriptError> {
    let example = "at 20s xid n0/gpu3 79";
    let (node, gpu) = device(line, words, example)?;
    let code = bare(line, &words[1..], "the XID code", example)?;
    let code = count(code).map_err(|why| ScriptError::value(line, "the XID code", code, why))?;
    no_more(line, &words[2..], "xid")?;
    Ok(Action::Xid { node, gpu, code })
}

fn pcie(line: u32, words: &[Word]) -> Result<Action, ScriptError> {
    let example = "at 20s pcie n0/gpu3 x8";
    let (node, gpu) = device(line, words, example)?;
    let width = bare(line, &words[1..], "the link width", example)?;
    let lanes =
        width.strip_prefix('x').and_then(|n| n.parse().ok()).filter(|n| [1, 2, 4, 8, 16].contains(n)).ok_or_else(
            || ScriptError::value(line, "the link width", width, "one of x1, x2, x4, x8, x16 is expected"),
        )?;
    no_more(line, &words[2..], "pcie")?;
    Ok(Action::Pcie { node, gpu, lanes })
}

/// `NODE/gpuI`
fn device(line: u32, words: &[Word], example: &str) -> Result<(String, u32), ScriptError> {
    let word = bare(line, words, "the device", example)?;
    word.split_once("/gpu")
        .and_then(|(node, index)| Some((node.to_string(), index.parse().ok()?)))
        .ok_or_else(|| ScriptError::value(line, "the device", word, format!("it is written like: {example}")))
}

fn resize(line: u32, words: &[Word]) -> Result<Action, ScriptError> {
    let example = "at 20s resize A workers=8";
    let job = bare(line, words, "the job", example)?.to_string();
    let keys = Keys::read(line, "resize", &words[1..], &["workers"])?;
    let workers = keys.positive("workers")?.ok_or_else(|| ScriptError::missing(line, "workers=N", example))?;
    Ok(Action::Resize { job, workers })
}
