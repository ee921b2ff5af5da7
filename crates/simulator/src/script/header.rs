//! The statements that describe the cluster: `nodes`, `uplink`, `queue`, `set`.
use super::ast::{NodesLine, QueueLine, Script, SettingLine, UplinkLine};
use super::error::{Problem, ScriptError};
use super::keys::{Keys, count};
use super::lexer::{Op, Word};
use super::parse::{bare, no_more};
use ganger_core::model::amounts::{parse_bandwidth, parse_limit};
use ganger_core::model::budget::{Budget, Period};
use ganger_core::model::machine::profiles::{Custom, profile, profile_names};
use ganger_core::model::machine::{Machine, Parts, gpu_models};
use ganger_core::model::policy::{Policy, PolicyError};
use ganger_core::model::queue::QueuePolicy;
use ganger_core::model::whole::WholeNodes;
use std::sync::Arc;

/// More nodes than this in a file that reads like prose is a slip of the keyboard.
const MOST_NODES: u32 = 100_000;
const PLACE_KEYS: [&str; 7] = ["prefix", "leaf", "leaf_name", "spine", "pool", "label", "gpu_model"];
const CUSTOM_KEYS: [&str; 10] =
    ["gpus", "sockets", "cpus", "memory", "vram", "islands", "switches", "nics", "pcie_bandwidth", "network_bandwidth"];
const QUEUE_KEYS: [&str; 7] = ["parent", "weight", "guarantee", "limit", "budget", "policy", "whole_nodes"];

pub fn nodes(script: &mut Script, line: u32, words: &[Word]) -> Result<(), ScriptError> {
    let example = "nodes 4 dgx-a100 leaf=2";
    let number = bare(line, words, "the number of nodes", example)?;
    let number = count(number)
        .ok()
        .filter(|n| (1..=MOST_NODES).contains(n))
        .ok_or_else(|| ScriptError::value(line, "the number of nodes", number, "1 to 100000 are expected"))?;
    let kind = bare(line, &words[1..], "the machine", example)?;
    let custom = kind == "custom";
    let known: Vec<&str> = PLACE_KEYS.into_iter().chain(CUSTOM_KEYS.into_iter().filter(|_| custom)).collect();
    let keys = Keys::read(line, "nodes", &words[2..], &known)?;
    let machine = if custom { custom_machine(&keys)? } else { shipped(&keys, kind)? };
    let prefix = keys.text("prefix").unwrap_or_else(|| "n".to_string());
    let first = script.nodes.iter().filter(|n| n.prefix == prefix).map(|n| n.count).sum();
    script.nodes.push(NodesLine {
        line,
        count: number,
        machine,
        prefix,
        first,
        nodes_per_leaf: keys.positive("leaf")?,
        leaf_name: keys.text("leaf_name"),
        leaves_per_spine: keys.positive("spine")?,
        pool: keys.text("pool"),
        labels: keys.labels("label")?,
    });
    Ok(())
}

/// A machine that is shipped, under another GPU model if the line says so.
fn shipped(keys: &Keys, name: &str) -> Result<Arc<Machine>, ScriptError> {
    let machine = profile(name).map_err(|unknown| {
        let known: Vec<&str> = profile_names().into_iter().chain(["custom"]).collect();
        ScriptError::unknown(keys.line, "machine", &unknown.name, &known)
    })?;
    let Some(gpu_model) = keys.text("gpu_model") else { return Ok(machine) };
    let parts = Parts { gpu_model: gpu_models::family(&gpu_model), ..Parts::from(machine.as_ref().clone()) };
    Machine::new(parts).map(Arc::new).map_err(|why| ScriptError::value(keys.line, "gpu_model", &gpu_model, why))
}

fn custom_machine(keys: &Keys) -> Result<Arc<Machine>, ScriptError> {
    let usual = Custom::default();
    let custom = Custom {
        gpus: keys.count("gpus")?.unwrap_or(usual.gpus),
        sockets: keys.count("sockets")?.unwrap_or(usual.sockets),
        cpus: keys.count("cpus")?.unwrap_or(usual.cpus),
        memory_bytes: keys.bytes("memory")?.unwrap_or(usual.memory_bytes),
        vram_bytes: keys.bytes("vram")?.unwrap_or(usual.vram_bytes),
        islands: keys.text("islands"),
        switches: keys.text("switches"),
        nics: keys.count("nics")?,
        pcie_bandwidth_bps: keys.bandwidth("pcie_bandwidth")?.unwrap_or(usual.pcie_bandwidth_bps),
        network_bandwidth_bps: keys.bandwidth("network_bandwidth")?,
        gpu_model: keys.text("gpu_model").unwrap_or(usual.gpu_model),
    };
    custom.build().map(Arc::new).map_err(|why| ScriptError::value(keys.line, "the machine", "custom", why))
}

/// `uplink LEAF BANDWIDTH`; whether there is such a leaf is known when the nodes are there.
pub fn uplink(script: &mut Script, line: u32, words: &[Word]) -> Result<(), ScriptError> {
    let example = "uplink leaf0 400Gbps";
    let leaf = bare(line, words, "the leaf", example)?.to_string();
    let value = bare(line, &words[1..], "the bandwidth", example)?;
    no_more(line, &words[2..], "uplink")?;
    let bps = parse_bandwidth(value).map_err(|why| ScriptError::value(line, "the bandwidth", value, why))?;
    if let Some(twin) = script.uplinks.iter().find(|uplink| uplink.leaf == leaf) {
        let first = Some(twin.line);
        return Err(ScriptError::new(line, Problem::Twice { what: "uplink".to_string(), word: leaf, first }));
    }
    script.uplinks.push(UplinkLine { line, leaf, bps });
    Ok(())
}

pub fn queue(script: &mut Script, line: u32, words: &[Word]) -> Result<(), ScriptError> {
    let name = bare(line, words, "the queue's name", "queue lab weight=2")?.to_string();
    let keys = Keys::read(line, "queue", &words[1..], &QUEUE_KEYS)?;
    let path = match keys.text("parent") {
        Some(parent) => format!("{}/{name}", queue_path(script, line, &parent)?),
        None => name.clone(),
    };
    if let Some(twin) = script.queues.iter().find(|q| q.path == path) {
        let first = Some(twin.line);
        return Err(ScriptError::new(line, Problem::Twice { what: "queue".to_string(), word: path, first }));
    }
    let queue = QueueLine {
        line,
        name,
        path,
        weight: keys.count("weight")?.unwrap_or(1),
        guarantee: keys.with("guarantee", parse_limit)?.unwrap_or_default(),
        limit: keys.with("limit", parse_limit)?.unwrap_or_default(),
        budget: keys.with("budget", budget)?,
        policy: keys.with("policy", queue_policy)?.unwrap_or_default(),
        whole_nodes: keys.with("whole_nodes", whole_nodes)?,
    };
    script.queues.push(queue);
    Ok(())
}

fn queue_policy(value: &str) -> Result<QueuePolicy, String> {
    QueuePolicy::parse(value).ok_or_else(|| "a policy is seniority or las".to_string())
}

/// `4x8`, or `4x8xH100`.
fn whole_nodes(value: &str) -> Result<WholeNodes, String> {
    let mut parts = value.splitn(3, 'x');
    let mut number = || parts.next().and_then(|part| part.parse().ok()).filter(|n: &u32| *n > 0);
    let (nodes, gpus) = (number(), number());
    let gpu_model = parts.next().map(str::to_ascii_uppercase);
    let form = "nodes and the GPUs of each are written like 4x8 or 4x8xH100";
    Ok(WholeNodes { nodes: nodes.ok_or(form)?, gpus: gpus.ok_or(form)?, gpu_model })
}

/// `100gpuh`, for a month, or `8gpuh/day`.
fn budget(value: &str) -> Result<Budget, String> {
    let (amount, per) = value.split_once('/').unwrap_or((value, "month"));
    let per = Period::parse(per).ok_or("a budget is for a day, week or month, like 8gpuh/day")?;
    let number = amount.strip_suffix("gpuh").ok_or("a budget is written like 100gpuh")?;
    let hours: u32 = number.parse().map_err(|_| "whole GPU hours are expected, like 100gpuh".to_string())?;
    Ok(Budget { gpu_ms: u64::from(hours) * 3_600_000, per, user_gpu_ms: None })
}

/// The path of a declared queue, found by its path or, where only one has it, by its last name.
pub fn queue_path(script: &Script, line: u32, name: &str) -> Result<String, ScriptError> {
    let by_path = script.queues.iter().find(|q| q.path == name);
    let by_name: Vec<_> = script.queues.iter().filter(|q| q.name == name).collect();
    match (by_path, by_name.as_slice(), name) {
        (Some(queue), _, _) => Ok(queue.path.clone()),
        (None, [queue], _) => Ok(queue.path.clone()),
        (None, [], "default") => Ok(name.to_string()),
        (None, [], _) => {
            let known: Vec<&str> = script.queues.iter().map(|q| q.path.as_str()).chain(["default"]).collect();
            Err(ScriptError::unknown(line, "queue", name, &known))
        }
        (None, _, _) => Err(ScriptError::value(line, "queue", name, "several queues end so; write the whole path")),
    }
}

pub fn settings(script: &mut Script, line: u32, words: &[Word]) -> Result<(), ScriptError> {
    if words.is_empty() {
        return Err(ScriptError::missing(line, "the setting", "set aging.step=24h"));
    }
    for word in words {
        if word.op != Some(Op::Equal) {
            let why = "a name, = and a value are expected";
            return Err(ScriptError::value(line, "the setting", &word.text, why));
        }
        let (name, value) = (word.key.clone(), word.value.clone());
        Policy::default().set(&name, &value).map_err(|error| setting_error(line, error))?;
        if let Some(twin) = script.settings.iter().find(|s| s.name == name) {
            let first = Some(twin.line);
            return Err(ScriptError::new(line, Problem::Twice { what: "setting".to_string(), word: name, first }));
        }
        script.settings.push(SettingLine { line, name, value });
    }
    Ok(())
}

fn setting_error(line: u32, error: PolicyError) -> ScriptError {
    match error {
        PolicyError::Unknown { name, known } => {
            ScriptError::new(line, Problem::Unknown { what: "setting".to_string(), word: name, known })
        }
        PolicyError::Value { name, value, why } => ScriptError::value(line, name, &value, why),
    }
}
