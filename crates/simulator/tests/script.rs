//! The scenario grammar: all of it reads, and every kind of mistake is told with its line, word and alternatives.
#![allow(clippy::unwrap_used)]
use ganger_core::model::budget::Period;
use ganger_core::model::job::{DependencyKind, JobState, Level, Priority};
use ganger_core::model::split::{PartAsk, ShareMode};
use ganger_core::model::time::{Span, Time};
use ganger_simulator::script::ast::{Action, Begin, JobCheck, Subject};
use ganger_simulator::script::{Op, later, parse};

fn error_of(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

const WHOLE_GRAMMAR: &str = r#"
# Everything that the grammar has.
nodes 4 dgx-a100 leaf=2 spine=2 pool=training label=zone:a,disk:ssd
nodes 2 custom gpus=8 sockets=2 cpus=64 memory=512GiB vram=80GiB islands=0-3|4-7 switches=4 nics=2 pcie_bandwidth=32GB/s network_bandwidth=200Gbps gpu_model=H100 prefix=x leaf_name=edge
nodes 2 dgx-h100                      # numbering goes on: n4, n5
queue lab weight=2 guarantee=gpu:16 limit=gpu:32,cpu:400,memory:2TiB
queue nlp parent=lab budget=100gpuh policy=las
set aging.step=24h lease=30s
at 0s   submit A workers=4 gpus=8 priority=P1 work=1h time=2h queue=nlp preemptible=true group=G/2
at 0s   submit B workers=4 min=2 step=2 gpus=1 cpus=4 memory=8GiB vram=20GiB share=0.5 sharing=time-slice distinct_gpus=true needs_vram=10GiB intermittent=true gpu_model=H100 label=zone:a pcie_bandwidth=1GB/s network_bandwidth=50Gbps priority=P3 queue=lab/nlp require=leaf prefer=island ranks_per_island=8 group=G/2 ckpt_every=10m ckpt_time=30s restart_time=1m on_demand_ckpt=true grace=2m after=A begin=22:00 deadline=2d pool=training windows="22:00-06:00 Europe/Berlin"
at 10s  expect A running workers=4 on=n0,n1,n2,n3 same=leaf attempts=1 evictions=0 started=0s resumed_from=0s
at 10s  expect B pending reason=Resources text~="needs 32, # not a comment"
at 20s  fail n0
at 20s  cut n1
at 21s  heal n1
at 22s  drain n2
at 22s  drain n3 at=4h for=2h
at 23s  uncordon n2
at 24s  refuse-launch x0
at 25s  accept-launch x0
at 26s  xid n0/gpu3 79
at 26s  pcie n0/gpu3 x8
at 27s  restart control
at 28s  cancel A
at 28s  hold B
at 28s  release B
at 29s  resize B workers=8
at 2m   recover n0
at 1h   expect cluster evictions=0 violations=0 running>=1 pending<3 free!=0 used(nlp)<=8 frag<=25% lost_gpu_hours<1.5 quarantined=0
finally expect B done ended>1h started<=2h
"#;

#[test]
fn the_whole_grammar_reads() {
    let script = parse(WHOLE_GRAMMAR).unwrap();
    let names: Vec<String> = script.nodes.iter().flat_map(|line| line.names()).collect();
    assert_eq!(names, ["n0", "n1", "n2", "n3", "x0", "x1", "n4", "n5"]);
    assert_eq!(script.queues[1].path, "lab/nlp");
    let budget = script.queues[1].budget.unwrap();
    assert_eq!((budget.gpu_ms, budget.per), (360_000_000, Period::Month));
    assert_eq!(script.steps.len(), 21);
    let Action::Submit(a) = &script.steps[0].action else { panic!("{:?}", script.steps[0]) };
    assert_eq!((a.priority, a.preemptible, a.queue.as_str()), (Priority::P1, true, "lab/nlp"));
    assert_eq!((a.work, a.time, a.group.clone()), (Span::hours(1), Some(Span::hours(2)), Some(("G".to_string(), 2))));
    let Action::Submit(b) = &script.steps[1].action else { panic!("{:?}", script.steps[1]) };
    let half = PartAsk::Share { milli: 500, mode: ShareMode::TimeSlice };
    assert!(b.distinct_gpus && b.intermittent && b.needs_vram_bytes == 10 << 30);
    assert_eq!((b.min, b.part, b.require), (Some(2), Some(half), Some(Level::Leaf)));
    assert_eq!(b.after, [(DependencyKind::AfterOk, "A".to_string())]);
    assert!(b.preemptible, "P3 is preemptible unless it says otherwise");
    assert_eq!((&b.begin, b.deadline), (&Some(Begin::Clock(Span::hours(22))), Some(Time(Span::hours(48).0))));
    assert_eq!((b.windows[0].from_min, b.windows[0].zone.name.as_str()), (22 * 60, "Europe/Berlin"));
    let Action::Maintain { node, from, lasts } = &script.steps[8].action else { panic!("{:?}", script.steps[8]) };
    assert_eq!((node.as_str(), *from, *lasts), ("n3", Time(Span::hours(4).0), Some(Span::hours(2))));
    let Action::Expect(expectation) = &script.steps[3].action else { panic!("{:?}", script.steps[3]) };
    assert_eq!(expectation.text, r#"expect B pending reason=Resources text~="needs 32, # not a comment""#);
    let Subject::Job { state, checks, .. } = &expectation.subject else { panic!("{expectation:?}") };
    assert_eq!(*state, Some(JobState::Pending));
    assert!(matches!(&checks[1], JobCheck::Words { op: Op::Contains, .. }));
}

#[test]
fn later_work_is_read_and_then_refused_by_name() {
    let script = parse(WHOLE_GRAMMAR).unwrap();
    let error = later::refuse_later_work(&script).unwrap_err().to_string();
    assert_eq!(error, "not supported yet: xid (line 21)");
    for (statement, what) in [("xid n0/gpu0 79", "xid"), ("pcie n0/gpu0 x8", "pcie")] {
        let script = parse(&format!("nodes 1 dgx-a100\nat 0s {statement}")).unwrap();
        let error = later::refuse_later_work(&script).expect_err(statement).to_string();
        assert!(error.contains(what) && error.ends_with("(line 2)"), "{statement}: {error}");
    }
    let plain = "nodes 1 dgx-a100\nat 0s submit A workers=4 min=4 step=4 begin=2h";
    later::refuse_later_work(&parse(plain).unwrap()).unwrap();
}

#[test]
fn statements_run_in_order_of_time_and_then_of_the_file() {
    let text = "nodes 1 dgx-a100\nat 1h submit C\nat 0s submit A\nat 1h submit B\nat 10s cancel A";
    let script = parse(text).unwrap();
    let order: Vec<(Time, u32)> = script.steps.iter().map(|s| (s.at, s.line)).collect();
    assert_eq!(order, [(Time(0), 3), (Time(10_000), 5), (Time(3_600_000), 2), (Time(3_600_000), 4)]);
}

/// Each text is refused at `line` with all the parts in the message.
fn refused(line: u32, before: &str, cases: &[(&str, &[&str])]) {
    for (statement, parts) in cases {
        let error = error_of(&format!("{before}{statement}"));
        assert!(error.starts_with(&format!("line {line}: ")), "{statement}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{statement}: {error}");
    }
}

#[test]
fn mistakes_in_the_cluster_are_told_with_word_and_alternatives() {
    refused(
        1,
        "",
        &[
            ("nodse 4 dgx-a100", &["nodse", "nodes, uplink, pool, queue, set, at, finally"]),
            ("# only a comment", &["nodes statement", "nodes 4 dgx-a100"]),
            ("nodes four dgx-a100", &["four", "1 to 100000"]),
            ("nodes 0 dgx-a100", &["\"0\""]),
            ("nodes 4 dgx-z9", &["dgx-z9", "dgx-a100", "custom"]),
            ("nodes 4 dgx-a100 gpus=8", &["gpus", "leaf_name"]),
            ("nodes 4 custom gpus=8 islands=0-9", &["islands"]),
            ("nodes 4 dgx-a100 leaf=2 leaf=2", &["leaf", "given twice"]),
        ],
    );
    refused(
        2,
        "nodes 4 dgx-a100\n",
        &[
            ("queue lab limit=tpu:4", &["tpu:4", "gpu, cpu, memory"]),
            ("queue lab parent=dep", &["dep", "default"]),
            ("set aging=1h", &["aging", "aging.step"]),
            ("set aging.step=soon", &["aging.step", "soon", "90s"]),
        ],
    );
    refused(3, "nodes 4 dgx-a100\nqueue lab\n", &[("queue lab", &["lab", "line 2"])]);
}

#[test]
fn mistakes_in_statements_are_told_with_word_and_alternatives() {
    refused(
        2,
        "nodes 2 dgx-a100\n",
        &[
            ("at", &["the time", "at 10s"]),
            ("at 10", &["\"10\"", "unit is missing"]),
            ("at 10s", &["statement"]),
            ("at 10s sumbit A", &["sumbit", "submit, expect, fail"]),
            ("at 10s submit", &["job's name"]),
            ("at 10s submit cluster", &["cluster"]),
            ("at 10s submit A gpu=8", &["\"gpu\"", "gpus"]),
            ("at 10s submit A gpus", &["gpus", "= and a value"]),
            ("at 10s submit A gpus=", &["empty"]),
            ("at 10s submit A gpus>=8", &["gpus>=8"]),
            ("at 10s submit A workers=0", &["workers", "at least 1"]),
            ("at 10s submit A gpus=8 gpus=8", &["gpus", "twice"]),
            ("at 10s submit A priority=P7", &["P7", "P0, P1, P2, P3"]),
            ("at 10s submit A work=90", &["work", "unit"]),
            ("at 10s submit A memory=lots", &["lots", "120GiB"]),
            ("at 10s submit A require=rack", &["rack", "leaf"]),
            ("at 10s submit A preemptible=yes", &["yes", "true or false"]),
            ("at 10s submit A group=G", &["group", "G/2"]),
            ("at 10s submit A queue=nowhere", &["nowhere", "default"]),
            ("at 10s submit A after=Z", &["\"Z\""]),
            ("at 10s submit A share=2", &["share", "at most 1"]),
            ("at 10s submit A mig=big", &["3g.40gb"]),
            ("at 10s submit A mig=3g.40gb share=0.5", &["mig", "not both"]),
            ("at 10s submit A sharing=mps", &["sharing", "share="]),
            ("at 10s submit A share=0.5 sharing=turns", &["sharing", "time-slice"]),
            ("at 10s submit A windows=night", &["night", "Mon-Fri"]),
            ("at 10s submit A windows=22:00", &["22:00", "22:00-06:00"]),
            ("at 10s submit A begin=24:00", &["24:00", "22:00"]),
            ("at 10s drain n0 for=2h", &["at=T", "at=4h"]),
            ("at 10s drain n9 at=2h", &["n9", "n0, n1"]),
            ("at 10s submit A ckpt_every=0s", &["ckpt_every"]),
            ("at 10s fail", &["the node"]),
            ("at 10s fail n9", &["n9", "n0, n1"]),
            ("at 10s fail n0 n1", &["n1", "no more words"]),
            ("at 10s xid n0 79", &["n0/gpu3"]),
            ("at 10s pcie n0/gpu0 x7", &["x7", "x8"]),
            ("at 10s restart agents", &["agents", "control"]),
            ("at 10s cancel Z", &["\"Z\""]),
            ("at 10s expect Z running", &["\"Z\""]),
            ("at 10s expect cluster", &["what is expected"]),
            ("at 10s expect cluster used(nowhere)=1", &["nowhere"]),
            ("at 10s expect cluster evicted=1", &["evicted", "evictions"]),
            ("finally wait", &["wait", "expect"]),
            ("finally", &["what is expected"]),
        ],
    );
}

#[test]
fn mistakes_in_expectations_and_order_are_told() {
    refused(
        3,
        "nodes 2 dgx-a100\nat 0s submit A\n",
        &[
            ("at 0s submit A", &["\"A\"", "line 2"]),
            ("at 0s expect A runing", &["runing", "pending, starting, running"]),
            ("at 0s expect A", &["what is expected"]),
            ("at 0s expect A running worker=4", &["worker", "workers, on, same"]),
            ("at 0s expect A running workers~=4", &["workers", "= != <= >= < >"]),
            ("at 0s expect A running text<4", &["text", "= != ~="]),
            ("at 0s expect A pending reason=Lazy", &["Lazy", "Resources, Topology"]),
            ("at 0s expect A running on=n7", &["n7"]),
            ("at 0s expect A running same=rack", &["rack"]),
            ("at 0s expect A running same=cluster", &["leaf, node, socket, island"]),
            ("at 0s expect A done ended=soon", &["soon"]),
            ("queue late", &["queue", "before the first at"]),
        ],
    );
    refused(
        4,
        "nodes 2 dgx-a100\nat 0s submit A group=G/2\n",
        &[
            ("finally expect A done\nat 1h cancel A", &["finally comes last"]),
            ("at 0s fail n0\nat 0s submit C group=G/3", &["G/3", "2 jobs"]),
        ],
    );
}
