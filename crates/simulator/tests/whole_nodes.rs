//! What is promised whole is as good as a slice of one's own: beside others no job waits longer than it would alone on as
//! many nodes, but for the time that guests take to leave.
#![allow(clippy::unwrap_used)]
use ganger_simulator::run_file;
use std::collections::BTreeMap;
use std::fmt::Write;

const NODES: u64 = 2;
/// What each start of the tenant may be later by: a guest saves for ten seconds, and ticks come every few.
const LEAVING_MS: u64 = 11_000;

/// A small generator of its own, so that the workloads of this test stay what they are.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Jobs of the tenant: gangs that ask as many whole nodes each, at random moments of eight hours.
fn tenant(draw: &mut Draw, workers: u64) -> Vec<(u64, String)> {
    let job = |number: u64, draw: &mut Draw| {
        let (at, minutes) = (draw.below(480), 5 + draw.below(90));
        (
            at,
            format!("submit t{number} queue=team workers={workers} gpus=8 priority=P2 work={minutes}m time={minutes}m"),
        )
    };
    (0..14).map(|number| job(number, draw)).collect()
}

/// Jobs of others, of any class and size; every other one yields and saves.
fn others(draw: &mut Draw) -> Vec<(u64, String)> {
    let job = |number: u64, draw: &mut Draw| {
        let (at, minutes, workers, gpus) = (draw.below(480), 5 + draw.below(300), 1 + draw.below(3), 1 + draw.below(8));
        let class = draw.below(4);
        let saves = if draw.below(2) == 0 { "priority=P3 on_demand_ckpt=true ckpt_time=10s" } else { "" };
        let class = if saves.is_empty() { format!("priority=P{class}") } else { String::new() };
        let shape = format!("workers={workers} gpus={gpus} work={minutes}m {class} {saves}");
        (at, format!("submit o{number} queue=other {shape}"))
    };
    (0..60).map(|number| job(number, draw)).collect()
}

/// When each job of the tenant first ran, and the evictions that were its doing.
fn starts(head: &str, mut jobs: Vec<(u64, String)>) -> (BTreeMap<String, u64>, usize) {
    jobs.sort();
    let lines = jobs.iter().fold(String::new(), |mut text, (at, job)| {
        let _ = writeln!(text, "at {at}m {job}");
        text
    });
    let outcome = run_file(&format!("# A workload.\n{head}\n{lines}"), "workload").unwrap();
    assert!(outcome.passed(), "{}", outcome.report());
    let mut starts = BTreeMap::new();
    for line in outcome.trace.iter().filter(|line| line.kind == "running" && line.text.starts_with('t')) {
        let name = line.text.split(' ').next().unwrap().to_string();
        starts.entry(name).or_insert(line.at_ms);
    }
    let stopped = outcome.trace.iter().filter(|line| line.kind == "stopping" || line.kind == "preempted");
    (starts, stopped.count())
}

#[test]
fn nobody_waits_longer_than_on_nodes_of_its_own() {
    let (mut sooner, mut stopped) = (0, 0);
    for seed in 0..24 {
        let mut draw = Draw(seed * 7_919 + 1);
        let own = tenant(&mut draw, 1 + seed % NODES);
        let (alone, _) = starts(&format!("nodes {NODES} custom gpus=8 cpus=64\nqueue team"), own.clone());
        let head = format!(
            "nodes 5 custom gpus=8 cpus=64\nqueue team whole_nodes={NODES}x8 limit=gpu:{}\nqueue other guarantee=gpu:40",
            NODES * 8
        );
        let (beside, evictions) = starts(&head, own.into_iter().chain(others(&mut draw)).collect());
        assert_eq!(alone.len(), 14);
        let mut late = 0;
        let mut order: Vec<(&String, &u64)> = alone.iter().collect();
        order.sort_by_key(|(_, at)| **at);
        for (name, at) in order {
            // Who started before was as late at most, and so is who waits for its end.
            late += LEAVING_MS;
            assert!(beside[name] <= at + late, "seed {seed}: {name} ran at {}, alone at {at}", beside[name]);
            sooner += usize::from(beside[name] <= *at);
        }
        stopped += evictions;
    }
    assert!(sooner > 20, "{sooner} were not later at all");
    assert!(stopped > 20, "{stopped} guests were told to leave: nothing was lent");
}
