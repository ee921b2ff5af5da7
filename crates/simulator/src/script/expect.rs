//! `expect NAME STATE …` and `expect cluster …`.
use super::ast::{ClusterCheck, ClusterCount, Expectation, JobCheck, JobCount, JobMoment, JobWords, Script, Subject};
use super::error::{Problem, ScriptError};
use super::header::queue_path;
use super::keys::millionths;
use super::lexer::{Op, Word};
use super::parse::bare;
use super::submit::level;
use ganger_core::model::decision::Reason;
use ganger_core::model::job::{JobState, Level};
use ganger_core::model::time::Span;

const EXAMPLE: &str = "at 10s expect A running workers=4";
const STATES: [&str; 7] = ["pending", "starting", "running", "stopping", "done", "failed", "cancelled"];
const JOB_KEYS: [&str; 11] =
    ["workers", "on", "same", "reason", "text", "attempts", "started", "ended", "evictions", "resumed_from", "slices"];
const CLUSTER_KEYS: [&str; 11] = [
    "evictions",
    "violations",
    "running",
    "pending",
    "free",
    "used(QUEUE)",
    "spent(QUEUE)",
    "frag",
    "lost_gpu_hours",
    "quarantined",
    "repartitions",
];
const ORDERED: [Op; 6] = [Op::Equal, Op::NotEqual, Op::AtMost, Op::AtLeast, Op::Below, Op::Above];
const WORDY: [Op; 3] = [Op::Equal, Op::NotEqual, Op::Contains];
const EITHER: [Op; 2] = [Op::Equal, Op::NotEqual];

/// Every reason code that `reason=` may name.
const REASONS: [Reason; 17] = [
    Reason::Resources,
    Reason::Topology,
    Reason::NodeFilter,
    Reason::Health,
    Reason::Lending,
    Reason::Promised,
    Reason::Priority,
    Reason::QueueLimit,
    Reason::Budget,
    Reason::Dependency,
    Reason::BeginTime,
    Reason::Window,
    Reason::Held,
    Reason::Backoff,
    Reason::Yielding,
    Reason::Unsatisfiable,
    Reason::ArrayLimit,
];

pub fn expectation(script: &Script, line: u32, text: String, words: &[Word]) -> Result<Expectation, ScriptError> {
    let name = bare(line, words, "a job's name or cluster", EXAMPLE)?;
    let rest = &words[1..];
    let subject = match (name, rest.first()) {
        (_, None) => return Err(ScriptError::missing(line, "what is expected", EXAMPLE)),
        ("cluster", _) => Subject::Cluster { checks: once_each(line, rest, |w| cluster_check(script, line, w))? },
        (_, Some(word)) if word.op.is_none() => {
            let known = || ScriptError::unknown(line, "state", &word.text, &STATES);
            let state = Some(JobState::parse(&word.text).ok_or_else(known)?);
            let checks = once_each(line, &rest[1..], |w| job_check(line, w))?;
            Subject::Job { name: name.to_string(), state, checks }
        }
        _ => {
            Subject::Job { name: name.to_string(), state: None, checks: once_each(line, rest, |w| job_check(line, w))? }
        }
    };
    Ok(Expectation { line, text, subject })
}

/// Reads each word with `read`. The same key may stand twice only with another operator: `started>=1h started<2h`.
fn once_each<T>(
    line: u32,
    words: &[Word],
    read: impl Fn(&Word) -> Result<T, ScriptError>,
) -> Result<Vec<T>, ScriptError> {
    for (at, word) in words.iter().enumerate() {
        if words[..at].iter().any(|w| w.key == word.key && w.op == word.op) {
            let what = "expected key".to_string();
            return Err(ScriptError::new(line, Problem::Twice { what, word: word.key.clone(), first: None }));
        }
    }
    words.iter().map(read).collect()
}

fn operator(line: u32, word: &Word, allowed: &[Op]) -> Result<Op, ScriptError> {
    let symbols = || allowed.iter().map(|op| op.symbol()).collect::<Vec<_>>().join(" ");
    match word.op {
        Some(op) if allowed.contains(&op) && !word.value.is_empty() => Ok(op),
        Some(_) if word.value.is_empty() => Err(ScriptError::value(line, &word.key, &word.text, "the value is empty")),
        _ => {
            let why = format!("{} is compared with one of {}", word.key, symbols());
            Err(ScriptError::value(line, &word.key, &word.text, why))
        }
    }
}

fn job_check(line: u32, word: &Word) -> Result<JobCheck, ScriptError> {
    let bad = |why: String| ScriptError::value(line, &word.key, &word.value, why);
    let count = |field| {
        let op = operator(line, word, &ORDERED)?;
        Ok(JobCheck::Count { field, op, value: number(&word.value).map_err(bad)? })
    };
    let moment = |field| {
        let op = operator(line, word, &ORDERED)?;
        Ok(JobCheck::Moment { field, op, value: Span::parse(&word.value).map_err(|e| bad(e.to_string()))? })
    };
    match word.key.as_str() {
        "workers" => count(JobCount::Workers),
        "attempts" => count(JobCount::Attempts),
        "evictions" => count(JobCount::Evictions),
        "started" => moment(JobMoment::Started),
        "ended" => moment(JobMoment::Ended),
        "resumed_from" => moment(JobMoment::ResumedFrom),
        "reason" => reason(line, word),
        "text" | "slices" => {
            let op = operator(line, word, &WORDY)?;
            let field = if word.key == "text" { JobWords::Text } else { JobWords::Slices };
            Ok(JobCheck::Words { field, op, value: word.value.clone() })
        }
        "on" => {
            let op = operator(line, word, &EITHER)?;
            Ok(JobCheck::On { op, nodes: word.value.split(',').map(str::to_string).collect() })
        }
        "same" => {
            let op = operator(line, word, &EITHER)?;
            Ok(JobCheck::Same { op, level: level(&word.value).and_then(shareable).map_err(bad)? })
        }
        _ => Err(ScriptError::unknown(line, "key of expect", &word.key, &JOB_KEYS)),
    }
}

fn reason(line: u32, word: &Word) -> Result<JobCheck, ScriptError> {
    let op = operator(line, word, &WORDY)?;
    let names = REASONS.map(|r| r.to_string());
    if op != Op::Contains && !names.contains(&word.value) {
        let known: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(ScriptError::unknown(line, "reason", &word.value, &known));
    }
    Ok(JobCheck::Words { field: JobWords::Reason, op, value: word.value.clone() })
}

fn shareable(level: Level) -> Result<Level, String> {
    match level {
        Level::Leaf | Level::Node | Level::Socket | Level::Island => Ok(level),
        _ => Err("workers share one of leaf, node, socket, island".to_string()),
    }
}

fn number(value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| "a whole number is expected".to_string())
}

fn cluster_check(script: &Script, line: u32, word: &Word) -> Result<ClusterCheck, ScriptError> {
    let bad = |why: String| ScriptError::value(line, &word.key, &word.value, why);
    let count = |field| {
        let op = operator(line, word, &ORDERED)?;
        Ok(ClusterCheck::Count { field, op, value: number(&word.value).map_err(bad)? })
    };
    let of_queue = |name: &str| word.key.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    if let Some(queue) = of_queue("spent") {
        let op = operator(line, word, &ORDERED)?;
        // One millionth of a GPU hour is 3.6 GPU-milliseconds.
        let value = (u128::from(millionths(&word.value).map_err(bad)?) * 36 / 10_000) as u64;
        return Ok(ClusterCheck::Count { field: ClusterCount::Spent(queue_path(script, line, queue)?), op, value });
    }
    let used = of_queue("used");
    match (word.key.as_str(), used) {
        (_, Some(queue)) => count(ClusterCount::Used(queue_path(script, line, queue)?)),
        ("evictions", _) => count(ClusterCount::Evictions),
        ("violations", _) => count(ClusterCount::Violations),
        ("running", _) => count(ClusterCount::Running),
        ("pending", _) => count(ClusterCount::Pending),
        ("free", _) => count(ClusterCount::Free),
        ("repartitions", _) => count(ClusterCount::Repartitions),
        ("quarantined", _) => count(ClusterCount::Quarantined),
        ("frag", _) => {
            let op = operator(line, word, &ORDERED)?;
            Ok(ClusterCheck::Frag { op, millionths: part_of_one(&word.value).map_err(bad)? })
        }
        ("lost_gpu_hours", _) => {
            let op = operator(line, word, &ORDERED)?;
            let millionths = millionths(&word.value).map_err(bad)?;
            // One millionth of a GPU hour is 3.6 GPU-milliseconds.
            Ok(ClusterCheck::LostGpuHours { op, gpu_ms: (u128::from(millionths) * 36 / 10) as u64 })
        }
        _ => Err(ScriptError::unknown(line, "key of expect cluster", &word.key, &CLUSTER_KEYS)),
    }
}

/// `0.25` or `25%`, in millionths.
fn part_of_one(value: &str) -> Result<u64, String> {
    match value.strip_suffix('%') {
        Some(percent) => Ok(millionths(percent)? / 100),
        None => millionths(value),
    }
}
