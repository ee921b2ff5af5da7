//! `at T submit NAME …`: a job as a scenario states it.
use super::ast::{Begin, Script, Submit};
use super::error::ScriptError;
use super::header::queue_path;
use super::keys::{Keys, millionths};
use super::lexer::Word;
use super::parse::bare;
use ganger_core::model::job::{ArraySpec, DependencyKind, Level, Priority, Shrink};
use ganger_core::model::machine::mig::ProfileName;
use ganger_core::model::split::{PartAsk, ShareMode};
use ganger_core::model::time::{Span, Time};
use ganger_core::model::window::{Window, clock};

const KEYS: [&str; 39] = [
    "workers",
    "min",
    "step",
    "shrink",
    "gpus",
    "cpus",
    "memory",
    "vram",
    "share",
    "sharing",
    "mig",
    "distinct_gpus",
    "needs_vram",
    "intermittent",
    "gpu_model",
    "label",
    "pcie_bandwidth",
    "network_bandwidth",
    "priority",
    "queue",
    "work",
    "time",
    "require",
    "prefer",
    "ranks_per_island",
    "ranks_per_node",
    "group",
    "ckpt_every",
    "ckpt_time",
    "restart_time",
    "on_demand_ckpt",
    "grace",
    "preemptible",
    "after",
    "begin",
    "deadline",
    "pool",
    "windows",
    "array",
];

pub fn submit(script: &Script, line: u32, words: &[Word]) -> Result<Submit, ScriptError> {
    let name = bare(line, words, "the job's name", "at 0s submit A gpus=8")?.to_string();
    if name == "cluster" {
        return Err(ScriptError::value(line, "the job's name", &name, "the word stands for the cluster in expect"));
    }
    let keys = Keys::read(line, "submit", &words[1..], &KEYS)?;
    let priority = keys.with("priority", priority)?.unwrap_or_default();
    let queue = keys.text("queue").unwrap_or_else(|| "default".to_string());
    Ok(Submit {
        name,
        workers: keys.positive("workers")?.unwrap_or(1),
        min: keys.positive("min")?,
        step: keys.positive("step")?,
        shrink: keys.with("shrink", shrink)?.unwrap_or_default(),
        gpus: keys.count("gpus")?.unwrap_or(0),
        cpus: keys.count("cpus")?.unwrap_or(1),
        memory_bytes: keys.bytes("memory")?.unwrap_or(0),
        vram_bytes: keys.bytes("vram")?.unwrap_or(0),
        part: part(&keys)?,
        distinct_gpus: keys.flag("distinct_gpus")?.unwrap_or(false),
        needs_vram_bytes: keys.bytes("needs_vram")?.unwrap_or(0),
        intermittent: keys.flag("intermittent")?.unwrap_or(false),
        gpu_model: keys.text("gpu_model"),
        labels: keys.labels("label")?,
        pcie_bandwidth_bps: keys.bandwidth("pcie_bandwidth")?.unwrap_or(0),
        network_bandwidth_bps: keys.bandwidth("network_bandwidth")?.unwrap_or(0),
        priority,
        queue: queue_path(script, line, &queue)?,
        work: keys.span("work")?.unwrap_or(Span::hours(1)),
        time: keys.span("time")?,
        require: keys.with("require", level)?,
        prefer: keys.with("prefer", level)?,
        ranks_per_island: keys.positive("ranks_per_island")?,
        ranks_per_node: keys.positive("ranks_per_node")?,
        group: keys.with("group", group)?,
        ckpt_every: keys.with("ckpt_every", some_time)?,
        ckpt_time: keys.span("ckpt_time")?.unwrap_or_default(),
        restart_time: keys.span("restart_time")?.unwrap_or_default(),
        on_demand_ckpt: keys.flag("on_demand_ckpt")?.unwrap_or(false),
        grace: keys.span("grace")?.unwrap_or(Span::seconds(30)),
        preemptible: keys.flag("preemptible")?.unwrap_or(priority == Priority::P3),
        firm: keys.flag("preemptible")? == Some(false),
        after: keys.with("after", after)?.unwrap_or_default(),
        begin: keys.with("begin", begin)?,
        deadline: keys.time("deadline")?,
        pool: keys.text("pool"),
        windows: keys.with("windows", windows)?.unwrap_or_default(),
        array: keys.with("array", |text| ArraySpec::parse(text).map_err(|error| error.to_string()))?,
    })
}

fn priority(value: &str) -> Result<Priority, &'static str> {
    Priority::parse(value).ok_or("a class is one of P0, P1, P2, P3")
}

pub fn level(value: &str) -> Result<Level, String> {
    let known = || Level::ALL.map(|l| l.to_string()).join(", ");
    Level::parse(value).ok_or_else(|| format!("a level is one of {}", known()))
}

/// A part of a GPU instead of whole ones.
fn part(keys: &Keys<'_>) -> Result<Option<PartAsk>, ScriptError> {
    let (share, mode) = (keys.with("share", share)?, keys.with("sharing", sharing)?);
    let wrong = |key, value: &str, why: &str| Err(ScriptError::value(keys.line, key, value, why));
    if let (Some(mode), None) = (mode, share) {
        return wrong("sharing", &mode.to_string(), "it says how a share is given: share= is missing");
    }
    if let Some(profile) = keys.with("mig", mig)? {
        if share.is_some() {
            return wrong("mig", &profile.to_string(), "a worker gets an instance or a share, not both");
        }
        return Ok(Some(PartAsk::Mig { profile }));
    }
    Ok(share.map(|milli| PartAsk::Share { milli, mode: mode.unwrap_or_default() }))
}

fn shrink(value: &str) -> Result<Shrink, &'static str> {
    match value {
        "in-place" => Ok(Shrink::InPlace),
        "restart" => Ok(Shrink::Restart),
        _ => Err("a gang gives up workers in-place or by a restart"),
    }
}

/// In thousandths of a GPU.
fn share(value: &str) -> Result<u32, String> {
    match millionths(value)? {
        part @ 1_000..=1_000_000 if part % 1_000 == 0 => Ok((part / 1_000) as u32),
        _ => Err("a share is above 0 and at most 1, with three decimals at most".to_string()),
    }
}

fn sharing(value: &str) -> Result<ShareMode, &'static str> {
    ShareMode::parse(value).ok_or("a GPU is shared by mps or time-slice")
}

fn mig(value: &str) -> Result<ProfileName, &'static str> {
    ProfileName::parse(value).ok_or("a MIG profile is written like 3g.40gb")
}

fn group(value: &str) -> Result<(String, u32), &'static str> {
    let (name, size) = value.split_once('/').ok_or("a group is written like G/2")?;
    match size.parse() {
        Ok(size) if size >= 1 && !name.is_empty() => Ok((name.to_string(), size)),
        _ => Err("a group is a name and its number of jobs, like G/2"),
    }
}

fn some_time(value: &str) -> Result<Span, String> {
    match Span::parse(value).map_err(|e| e.to_string())? {
        Span::ZERO => Err("it must be longer than 0s".to_string()),
        span => Ok(span),
    }
}

/// `A,B`, or with the kind in front: `afternotok:A`.
fn after(value: &str) -> Result<Vec<(DependencyKind, String)>, &'static str> {
    let one = |part: &str| {
        let (kind, name) = part.split_once(':').unwrap_or(("afterok", part));
        let kind = match kind {
            "afterok" => DependencyKind::AfterOk,
            "afternotok" => DependencyKind::AfterNotOk,
            "afterany" => DependencyKind::AfterAny,
            _ => return Err("before the colon stands one of afterok, afternotok, afterany"),
        };
        if name.is_empty() { Err("a job's name is missing") } else { Ok((kind, name.to_string())) }
    };
    value.split(',').map(one).collect()
}

fn begin(value: &str) -> Result<Begin, String> {
    match Span::parse(value) {
        Ok(span) => Ok(Begin::At(Time(span.0))),
        Err(why) => match clock(value).filter(|minutes| *minutes < 1_440) {
            Some(minutes) => Ok(Begin::Clock(Span::minutes(minutes.into()))),
            None => Err(format!("{why}, or as a time of day like 22:00")),
        },
    }
}

/// 0s is a Monday, and the core's own zero a Thursday.
const FROM_THURSDAY: u32 = 3;

/// Comma-separated windows, each `[DAYS ]HH:MM-HH:MM[ ZONE]`.
pub(super) fn windows(value: &str) -> Result<Vec<Window>, String> {
    value.split(',').map(|text| Window::parse(text).map(|window| window.days_later(FROM_THURSDAY))).collect()
}
