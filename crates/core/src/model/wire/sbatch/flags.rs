//! One `#SBATCH` flag after the other into what was asked.
use super::super::job::{CheckpointFile, Decimal, JobFile, parse_signal};
use super::{SbatchError, values};
use crate::model::job::{ArrayError, ArraySpec};

/// What the flags say, before tasks, nodes and resources are set against one another.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub job: JobFile,
    pub nodes: Option<u64>,
    pub tasks: Option<u64>,
    pub tasks_per_node: Option<u64>,
    pub cpus_per_task: Option<u64>,
    pub cpus_per_gpu: Option<u64>,
    pub gpu_model: Option<String>,
    pub gpus: Option<u64>,
    pub gpus_per_node: Option<u64>,
    pub gpus_per_task: Option<u64>,
    pub memory_per_node: Option<u64>,
    pub memory_per_cpu: Option<u64>,
    pub memory_per_gpu: Option<u64>,
    pub export_limited: bool,
    /// Flags that were passed over, each with its line.
    pub unused: Vec<(usize, String)>,
    /// The line that last spoke of sizes, for errors about how they go together.
    pub line: usize,
}

/// Short flags and the long names that they stand for.
const SHORT: &[(char, &str)] = &[
    ('J', "job-name"),
    ('p', "partition"),
    ('A', "account"),
    ('q', "qos"),
    ('t', "time"),
    ('N', "nodes"),
    ('n', "ntasks"),
    ('c', "cpus-per-task"),
    ('G', "gpus"),
    ('d', "dependency"),
    ('o', "output"),
    ('e', "error"),
    ('D', "chdir"),
    ('a', "array"),
    ('C', "constraint"),
    ('w', "nodelist"),
    ('x', "exclude"),
    ('b', "begin"),
    ('H', "hold"),
    ('L', "licenses"),
    ('W', "wait"),
    ('m', "distribution"),
    ('Q', "quiet"),
    ('v', "verbose"),
    ('s', "oversubscribe"),
];

/// Flags that change nothing of what runs, where, when and with what: they are passed over with a warning that says why.
const UNUSED: &[(&str, &str)] = &[
    ("mail-type", NO_MAIL),
    ("mail-user", NO_MAIL),
    ("wckey", NO_ACCOUNTING),
    ("acctg-freq", NO_ACCOUNTING),
    ("profile", NO_ACCOUNTING),
    ("quiet", "`ganger submit` says the same with it and without"),
    ("verbose", "`ganger submit` says the same with it and without"),
    ("open-mode", "each attempt has a log of its own, and none is overwritten"),
    ("oversubscribe", "a worker's CPUs and GPUs are its own"),
    ("ignore-pbs", "#PBS lines are not read anyway"),
];
const NO_MAIL: &str = "Ganger sends no mail; `ganger wait` ends when the job does, `ganger events -f` tells of it";
const NO_ACCOUNTING: &str = "Ganger keeps no such accounts";

/// Flags that take no value.
const BARE: &[&str] = &[
    "requeue",
    "no-requeue",
    "exclusive",
    "parsable",
    "test-only",
    "hold",
    "wait",
    "overcommit",
    "oversubscribe",
    "quiet",
    "verbose",
    "ignore-pbs",
];

pub(super) fn apply(asked: &mut Asked, line: usize, words: &[String], errors: &mut Vec<SbatchError>) {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (name, mut value) = match split(word) {
            Some(parts) => parts,
            None => {
                errors.push(error(line, word, "it is not a flag", "write flags such as --nodes=2"));
                continue;
            }
        };
        if value.is_none() && !BARE.contains(&name.as_str()) {
            value = words.next().cloned();
        }
        if let Some(warning) = unused(&name) {
            asked.unused.push((line, warning));
        } else if let Err((problem, fix)) = set(asked, &name, value.as_deref(), line) {
            errors.push(error(line, &format!("--{name}"), &problem, &fix));
        }
    }
}

fn error(line: usize, what: &str, problem: &str, fix: &str) -> SbatchError {
    SbatchError { line, what: what.to_string(), problem: problem.to_string(), fix: fix.to_string() }
}

/// `--name=value`, `--name`, `-Nvalue`, `-N` to the long name and the value that clings to it.
fn split(word: &str) -> Option<(String, Option<String>)> {
    if let Some(long) = word.strip_prefix("--") {
        return Some(match long.split_once('=') {
            Some((name, value)) => (name.to_string(), Some(value.to_string())),
            None => (long.to_string(), None),
        });
    }
    let mut chars = word.strip_prefix('-')?.chars();
    let short = chars.next()?;
    let rest: String = chars.collect();
    let name = SHORT.iter().find(|(c, _)| *c == short).map_or(short.to_string(), |(_, name)| name.to_string());
    Some((name, (!rest.is_empty()).then(|| rest.trim_start_matches('=').to_string())))
}

type Problem = (String, String);

/// The warning about a flag that is passed over.
fn unused(name: &str) -> Option<String> {
    let (_, why) = UNUSED.iter().find(|(unused, _)| *unused == name)?;
    Some(format!("--{name} has no effect here: {why}"))
}

fn set(asked: &mut Asked, name: &str, value: Option<&str>, line: usize) -> Result<(), Problem> {
    let text =
        || value.filter(|v| !v.is_empty()).ok_or(("its value is missing".to_string(), format!("write --{name}=VALUE")));
    let number = || {
        let text = text()?;
        match text.parse::<u64>() {
            Ok(n) if (1..=1_000_000).contains(&n) => Ok(Some(n)),
            _ => Err((format!("cannot read {text:?}"), "give a whole number from 1".to_string())),
        }
    };
    let memory = || {
        let text = text()?;
        match values::memory(text) {
            Some(0) | None => Err((
                format!("cannot take {text:?}"),
                "write it like 64G (0, all of a node, is not supported)".to_string(),
            )),
            bytes => Ok(bytes),
        }
    };
    asked.line = line;
    match name {
        "job-name" => asked.job.name = text()?.to_string(),
        "account" => asked.job.queue = Some(text()?.to_string()),
        "partition" => asked.job.pool = Some(text()?.to_string()),
        "qos" => asked.job.priority = Some(class(text()?)?),
        "time" => asked.job.time = Some(time(text()?)?),
        "output" => asked.job.output = Some(text()?.to_string()),
        "chdir" => asked.job.workdir = Some(text()?.to_string()),
        "dependency" => asked.job.after = dependencies(text()?)?,
        "signal" => asked.job.checkpoint = Some(signal(text()?)?),
        "export" => export(asked, text()?)?,
        "requeue" | "comment" | "parsable" | "gpu-bind" if name != "gpu-bind" || value == Some("closest") => {}
        "nodes" => asked.nodes = nodes(text()?)?,
        "ntasks" => asked.tasks = number()?,
        "ntasks-per-node" => asked.tasks_per_node = number()?,
        "cpus-per-task" => asked.cpus_per_task = number()?,
        "cpus-per-gpu" => asked.cpus_per_gpu = number()?,
        "mem" => asked.memory_per_node = memory()?,
        "mem-per-cpu" => asked.memory_per_cpu = memory()?,
        "mem-per-gpu" => asked.memory_per_gpu = memory()?,
        "gpus" => asked.gpus = gpus(asked, values::gpus(text()?), text()?)?,
        "gpus-per-node" => asked.gpus_per_node = gpus(asked, values::gpus(text()?), text()?)?,
        "gpus-per-task" => asked.gpus_per_task = gpus(asked, values::gpus(text()?), text()?)?,
        "gres" => asked.gpus_per_node = gpus(asked, values::gres(text()?), text()?)?,
        "array" => asked.job.array = Some(array(text()?)?),
        "error" => {
            return Err((
                "the two outputs of a rank go into one log".to_string(),
                "remove it; --output names the log".to_string(),
            ));
        }
        _ => return Err(("not supported".to_string(), "remove it; what it asks for would not happen".to_string())),
    }
    Ok(())
}

fn class(text: &str) -> Result<String, Problem> {
    match text {
        "P0" | "P1" | "P2" | "P3" => Ok(text.to_string()),
        _ => Err((format!("there is no class {text:?}"), "give one of P0, P1, P2, P3, or remove it".to_string())),
    }
}

fn time(text: &str) -> Result<String, Problem> {
    match values::seconds(text) {
        Some(seconds) if seconds > 0 => Ok(format!("{seconds}s")),
        _ => Err((format!("cannot read {text:?} as a time"), "write it like 12:00:00 or 1-12:00:00".to_string())),
    }
}

fn array(text: &str) -> Result<Decimal, Problem> {
    let unread =
        |error: ArrayError| (format!("cannot read {text:?} from character {} on: {}", error.at, error.why), error.fix);
    ArraySpec::parse(text).map(|array| Decimal(array.to_string())).map_err(unread)
}

fn nodes(text: &str) -> Result<Option<u64>, Problem> {
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    match (min.parse::<u64>(), max.parse::<u64>()) {
        (Ok(min), Ok(max)) if min == max && (1..=100_000).contains(&min) => Ok(Some(min)),
        (Ok(min), Ok(max)) if min < max => {
            Err(("not supported yet: a range of nodes".to_string(), format!("give one number, such as {max}")))
        }
        _ => Err((format!("cannot read {text:?}"), "give a whole number from 1".to_string())),
    }
}

fn gpus(asked: &mut Asked, read: Option<(Option<String>, u64)>, text: &str) -> Result<Option<u64>, Problem> {
    let Some((model, count)) = read else {
        return Err((
            format!("cannot read {text:?}"),
            "write it like gpu:h100:4 in --gres, h100:4 or 4 elsewhere".to_string(),
        ));
    };
    if model.is_some() {
        asked.gpu_model = model;
    }
    Ok(Some(count))
}

/// `[B:]USR1[@60]`: the signal that asks the job to save, and how long before its end.
fn signal(text: &str) -> Result<CheckpointFile, Problem> {
    let fail = || (format!("cannot read {text:?}"), "write it like USR1@60 or B:TERM@120".to_string());
    let text_only = text.strip_prefix("B:").or(text.strip_prefix("b:")).unwrap_or(text);
    let (signal, grace) = match text_only.split_once('@') {
        Some((signal, seconds)) => (signal, seconds.parse::<u64>().map_err(|_| fail())?),
        None => (text_only, 60),
    };
    let numbered = match signal {
        "1" => "HUP",
        "2" => "INT",
        "10" => "USR1",
        "12" => "USR2",
        "15" => "TERM",
        other => other,
    };
    let signal = Some(parse_signal(numbered).ok_or_else(fail)?);
    Ok(CheckpointFile { signal, grace: Some(format!("{}s", grace.max(1))), ..CheckpointFile::default() })
}

/// `afterok:12:13,afterany:14`; a bare id waits for its end in any way.
fn dependencies(text: &str) -> Result<Vec<String>, Problem> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (kind, jobs) = part.split_once(':').unwrap_or(("afterany", part));
        if !matches!(kind, "afterok" | "afternotok" | "afterany")
            || jobs.contains('?')
            || jobs.contains('+')
            || jobs == "singleton"
        {
            let fix = "use afterok:ID, afternotok:ID, afterany:ID, joined by commas";
            return Err((format!("not supported: {part:?}"), fix.to_string()));
        }
        all.extend(jobs.split(':').map(|job| format!("{kind}:{job}")));
    }
    Ok(all)
}

/// `ALL`, `NONE`/`NIL`, or a list of `NAME=VALUE`, to which `ALL` may belong.
fn export(asked: &mut Asked, text: &str) -> Result<(), Problem> {
    asked.export_limited = true;
    for part in text.split(',') {
        match part.split_once('=') {
            Some((name, value)) => {
                asked.job.env.insert(name.to_string(), value.to_string());
            }
            None if part == "ALL" => asked.export_limited = false,
            None if part == "NONE" || part == "NIL" => {}
            None => return Err((format!("{part:?} has no value"), "write NAME=VALUE, ALL or NONE".to_string())),
        }
    }
    Ok(())
}
