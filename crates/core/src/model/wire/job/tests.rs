//! Every refusal by its field, and the defaults.
use super::*;
use crate::model::JobId;
use crate::model::job::{DependencyKind, Launcher, Level, Priority, Shrink};
use crate::model::split::{PartAsk, ShareMode};
use crate::model::time::{Span, Time};
use serde_json::json;

fn known(name: &str) -> Option<JobId> {
    match name {
        "prep" => Some(JobId(7)),
        "12" => Some(JobId(12)),
        _ => None,
    }
}

fn file(change: serde_json::Value) -> JobFile {
    let mut base = json!({"name": "j", "command": ["true"]});
    base.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    serde_json::from_value(base).unwrap()
}

#[test]
fn a_full_file_is_read_whole() {
    let spec = file(json!({
        "name": "llama-ft", "queue": "research/nlp", "priority": "P1", "gang": {"workers": 16, "min": 16, "step": 16},
        "resources": {"gpus": 1, "gpu_model": "h100", "cpus": 12, "memory": "120GiB", "vram": "80GB", "labels": {"disk": "nvme"}},
        "launcher": "torchrun", "topology": {"require": "leaf", "prefer": "island", "ranks_per_island": 8},
        "group": "pair/2", "pool": "training", "time": "12h", "retries": 3, "begin": "2026-12-01T08:00:00Z",
        "checkpoint": {"dir": "/shared/x", "every": "10m", "signal": "USR1", "grace": "120s"},
        "after": ["prep", "afternotok:12"], "workdir": "/run", "env": {"NCCL_DEBUG": "WARN"}, "output": "o-%j-%t.log",
    }))
    .into_spec(&known)
    .unwrap();
    assert_eq!((spec.priority, spec.preemptible, spec.gang.workers), (Priority::P1, false, 16));
    assert_eq!(spec.shape.gpu_model.as_deref(), Some("H100"));
    assert_eq!((spec.shape.memory_bytes, spec.shape.vram_bytes), (120 << 30, 80_000_000_000));
    assert_eq!((spec.topology.require, spec.topology.prefer), (Some(Level::Leaf), Some(Level::Island)));
    assert_eq!(spec.run.launcher, Launcher::Torchrun);
    assert_eq!(spec.checkpoint.signal.as_deref(), Some("SIGUSR1"));
    assert!(spec.checkpoint.on_demand);
    assert_eq!((spec.checkpoint.grace, spec.time_limit), (Span::seconds(120), Some(Span::hours(12))));
    assert_eq!(spec.after[1].kind, DependencyKind::AfterNotOk);
    assert_eq!(spec.begin, Some(Time(1_796_112_000_000)));
}

#[test]
fn defaults_are_the_documented_ones() {
    let spec = file(json!({})).into_spec(&known).unwrap();
    assert_eq!((spec.gang.workers, spec.shape.gpus, spec.shape.cpus, spec.shape.memory_bytes), (1, 0, 1, 0));
    assert_eq!((spec.priority, spec.queue.as_str(), spec.preemptible), (Priority::P2, "default", false));
    assert_eq!(
        (spec.checkpoint.grace, spec.checkpoint.signal, spec.checkpoint.on_demand),
        (Span::seconds(30), None, false)
    );
    let spec = file(json!({"priority": "P3", "resources": {"gpus": 2}})).into_spec(&known).unwrap();
    assert_eq!((spec.shape.cpus, spec.preemptible), (8, true));
    assert!(!file(json!({"checkpoint": {"dir": "/c"}})).into_spec(&known).unwrap().checkpoint.on_demand);
}

#[test]
fn a_command_line_is_run_by_bash() {
    let spec = file(json!({"command": "python train.py"})).into_spec(&known).unwrap();
    assert_eq!(spec.run.command, ["bash", "-c", "python train.py"]);
}

#[test]
fn an_elastic_gang_restarts_when_its_size_changes() {
    let gang = |change| file(change).into_spec(&known).unwrap().gang;
    let elastic = gang(json!({"gang": {"workers": 16, "min": 8, "step": 8}}));
    assert_eq!((elastic.workers, elastic.min, elastic.step, elastic.shrink), (16, 8, 8, Shrink::Restart));
    assert_eq!(gang(json!({"gang": {"workers": 4, "min": 1}})).step, 1);
    let islands =
        json!({"gang": {"workers": 8, "min": 2}, "resources": {"gpus": 1}, "topology": {"ranks_per_island": 2}});
    assert_eq!(gang(islands).step, 2, "islands come and go whole");
}

#[test]
fn every_refusal_names_its_field() {
    let long = "x".repeat(ARGUMENT_BYTES_MAX + 1);
    for (field, change) in [
        ("name", json!({"name": ""})),
        ("name", json!({"name": "42"})),
        ("name", json!({"name": "a b"})),
        ("name", json!({"name": "x".repeat(64)})),
        ("queue", json!({"queue": "a//b"})),
        ("priority", json!({"priority": "P9"})),
        ("gang.workers", json!({"gang": {"workers": 0}})),
        ("gang.workers", json!({"gang": {"workers": -1}})),
        ("gang.workers", json!({"gang": {"workers": 99_999_999_999i64}})),
        ("gang.min", json!({"gang": {"workers": 2, "min": 4}})),
        ("gang.min", json!({"gang": {"workers": 8, "min": 3, "step": 2}})),
        ("gang.min", json!({"gang": {"workers": 4, "min": 2}, "group": "G/2"})),
        ("gang.step", json!({"gang": {"workers": 4, "step": 2}})),
        (
            "gang.step",
            json!({"gang": {"workers": 8, "min": 2, "step": 3}, "topology": {"ranks_per_island": 2}, "resources": {"gpus": 1}}),
        ),
        ("resources.gpus", json!({"resources": {"gpus": -1}})),
        ("resources.gpus", json!({"resources": {"gpus": 65}})),
        ("resources.cpus", json!({"resources": {"cpus": 0}})),
        ("resources.memory", json!({"resources": {"memory": "-5GiB"}})),
        ("resources.memory", json!({"resources": {"memory": "99999999999PiB"}})),
        ("resources.memory", json!({"resources": {"memory": "16000PiB"}, "gang": {"workers": 100}})),
        ("resources.vram", json!({"resources": {"vram": "20GiB"}})),
        ("resources.gpu_model", json!({"resources": {"gpu_model": "H100"}})),
        ("resources.labels.a b", json!({"resources": {"labels": {"a b": "c"}}})),
        ("resources", json!({"resources": {"gpus": 1, "mig": "3g.40gb"}})),
        ("resources", json!({"resources": {"mig": "3g.40gb", "share": 0.5}})),
        ("resources.mig", json!({"resources": {"mig": "half"}})),
        ("resources.share", json!({"resources": {"share": 1.5}})),
        ("resources.share", json!({"resources": {"share": "half"}})),
        ("resources.sharing", json!({"resources": {"share": 0.5, "sharing": "turns"}})),
        ("resources.sharing", json!({"resources": {"sharing": "mps"}})),
        ("resources.needs_vram", json!({"resources": {"needs_vram": "140GB"}})),
        ("topology.require", json!({"topology": {"require": "gpu"}})),
        ("resources.pcie_bandwidth", json!({"resources": {"pcie_bandwidth": "20GB/s"}})),
        ("resources.network_bandwidth", json!({"resources": {"network_bandwidth": "50GiB"}})),
        ("resources.pcie_bandwidth", json!({"resources": {"gpus": 1, "pcie_bandwidth": "fast"}})),
        (
            "resources.network_bandwidth",
            json!({"resources": {"network_bandwidth": "9000000Tbps"}, "gang": {"workers": 9}}),
        ),
        ("launcher", json!({"launcher": "slurm"})),
        ("topology.require", json!({"topology": {"require": "rack"}})),
        ("topology.require", json!({"topology": {"require": "island"}})),
        ("topology.prefer", json!({"topology": {"require": "node", "prefer": "leaf"}})),
        ("topology.ranks_per_island", json!({"topology": {"ranks_per_island": 2}})),
        (
            "topology.ranks_per_island",
            json!({"topology": {"ranks_per_island": 3}, "gang": {"workers": 4}, "resources": {"gpus": 1}}),
        ),
        ("topology.ranks_per_node", json!({"topology": {"ranks_per_node": 3}, "gang": {"workers": 4}})),
        ("topology.ranks_per_node", json!({"topology": {"ranks_per_node": 2}, "gang": {"workers": 4, "min": 2}})),
        (
            "topology.ranks_per_node",
            json!({"topology": {"ranks_per_node": 2, "require": "node"}, "gang": {"workers": 4}}),
        ),
        (
            "topology.ranks_per_node",
            json!({"topology": {"ranks_per_node": 2, "ranks_per_island": 2}, "gang": {"workers": 4}, "resources": {"gpus": 1}}),
        ),
        ("group", json!({"group": "g"})),
        ("group", json!({"group": "g/1"})),
        ("pool", json!({"pool": "a/b"})),
        ("time", json!({"time": "90"})),
        ("time", json!({"time": "0"})),
        ("time", json!({"time": "99999d"})),
        ("checkpoint.dir", json!({"checkpoint": {"dir": "ckpt"}})),
        ("checkpoint.every", json!({"checkpoint": {"every": "10m"}})),
        ("checkpoint.signal", json!({"checkpoint": {"signal": "SIGKILL"}})),
        ("checkpoint.grace", json!({"checkpoint": {"grace": "48h"}})),
        ("retries", json!({"retries": -1})),
        ("after[0]", json!({"after": ["nobody"]})),
        ("after[0]", json!({"after": ["j"]})),
        ("after[0]", json!({"after": ["before:prep"]})),
        ("begin", json!({"begin": "tomorrow"})),
        ("deadline", json!({"deadline": "soon", "time": "1h"})),
        ("deadline", json!({"deadline": "2026-12-01T08:00:00Z"})),
        ("windows[1]", json!({"windows": ["22:00-06:00", "at night"]})),
        ("workdir", json!({"workdir": "run"})),
        ("env.A-B", json!({"env": {"A-B": "1"}})),
        ("env.A", json!({"env": {"A": "x\u{0}y"}})),
        ("output", json!({"output": "x-%q.log"})),
        ("output", json!({"output": ""})),
        ("pty", json!({"pty": true, "gang": {"workers": 2}})),
        ("command", json!({"command": []})),
        ("command", json!({"command": "  "})),
        ("command", json!({"command": ["a\u{0}"]})),
        ("command", json!({"command": ["bash", "-c", long]})),
        ("roles", json!({"roles": []})),
        ("image", json!({"image": "x"})),
        ("mounts", json!({"mounts": []})),
        ("array", json!({"array": "0-9,3"})),
        ("array", json!({"array": "0-9", "group": "a/2"})),
        ("array", json!({"array": "0-9", "pty": true})),
        ("budget", json!({"budget": 1})),
    ] {
        let errors = file(change.clone()).into_spec(&known).unwrap_err();
        assert!(errors.iter().any(|e| e.field == field && !e.fix.is_empty()), "{field}: {change}: {errors:?}");
    }
}

#[test]
fn a_part_of_a_gpu_is_read_exactly() {
    let spec = |resources: serde_json::Value| {
        let spec = file(json!({"resources": resources, "intermittent": true})).into_spec(&known).unwrap();
        assert_eq!(spec.check(), Ok(()));
        spec
    };
    let mig = spec(json!({"mig": "3g.40gb", "gpu_model": "h100", "needs_vram": "30GiB"}));
    assert_eq!((mig.shape.part.map(|part| part.to_string()), mig.shape.cpus), (Some("MIG 3g.40gb".into()), 2));
    assert_eq!((mig.shape.gpu_model.as_deref(), mig.shape.needs_vram_bytes), (Some("H100"), 30 << 30));
    let share = spec(json!({"share": 0.25, "sharing": "time-slice", "vram": "20GiB", "distinct_gpus": true}));
    assert_eq!(share.shape.part, Some(PartAsk::Share { milli: 250, mode: ShareMode::TimeSlice }));
    assert_eq!((share.shape.vram_bytes, share.shape.distinct_gpus, share.intermittent), (20 << 30, true, true));
    assert_eq!(share.total().gpu_milli, 250);
}

#[test]
fn later_features_say_that_they_are_later() {
    let errors = file(json!({"resources": {"gpus": 1}, "roles": 1, "image": "x"})).into_spec(&known).unwrap_err();
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["roles: not supported yet: roles; remove it", "image: not supported yet: image; remove it"]);
}

#[test]
fn all_errors_come_at_once() {
    let errors = file(json!({"name": "a b", "time": "x", "gang": {"workers": 0}})).into_spec(&known).unwrap_err();
    assert_eq!(errors.iter().map(|e| e.field.as_str()).collect::<Vec<_>>(), ["name", "gang.workers", "time"]);
}

#[test]
fn unknown_keys_are_refused_at_every_depth() {
    for text in [
        r#"{"name":"j","command":["x"],"gpu":1}"#,
        r#"{"name":"j","command":["x"],"gang":{"size":1}}"#,
        r#"{"name":"j","command":["x"],"resources":{"gpu":1}}"#,
        r#"{"name":"j","command":["x"],"topology":{"level":"leaf"}}"#,
        r#"{"name":"j","command":["x"],"checkpoint":{"path":"/x"}}"#,
    ] {
        assert!(serde_json::from_str::<JobFile>(text).unwrap_err().to_string().contains("unknown field"), "{text}");
    }
}

#[test]
fn what_is_sent_is_what_was_written() {
    let sent = file(json!({"resources": {"gpus": 1, "share": "0.5"}, "env": {"A": "1"}, "after": ["prep"]}));
    assert_eq!(serde_json::from_str::<JobFile>(&serde_json::to_string(&sent).unwrap()).unwrap(), sent);
}

#[test]
fn an_array_is_read_also_where_yaml_sees_a_number() {
    for (array, written) in [(json!("0-9%2"), "0-9%2"), (json!(5), "5"), (json!("1,3,5-7"), "1,3,5-7")] {
        let spec = file(json!({"array": array})).into_spec(&known).unwrap();
        assert_eq!(spec.array.unwrap().to_string(), written);
    }
    let errors = file(json!({"array": "0-9,4"})).into_spec(&known).unwrap_err();
    let text = errors[0].to_string();
    assert_eq!(text, "array: cannot read \"0-9,4\" from character 5 on: index 4 is named twice; name each index once");
}
