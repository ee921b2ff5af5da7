//! As `corruptions.rs`, for GPUs in parts: a healthy state, one planted fault in it, and `check` says that rule 1 or 3 broke.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job_mut, node_mut};
use ganger_core::check;
use ganger_core::model::budget::{Budget, Period};
use ganger_core::model::job::{JobSpec, Priority, Shape};
use ganger_core::model::machine::mig::{Extra, Instance, ProfileName};
use ganger_core::model::machine::profiles::Custom;
use ganger_core::model::node::{Device, Node};
use ganger_core::model::split::{Made, Mode, Part, PartAsk, ShareMode, Split};
use ganger_core::model::{Attempt, Cluster, JobId, NodeId, Span, Time};
use std::sync::Arc;

const GIB: u64 = 1 << 30;

struct Busy {
    cluster: Cluster,
    /// Holds 3g.40gb at slot 4 of GPU 0, and 1g.10gb of the same GPU.
    large: JobId,
    small: JobId,
    /// Shares of GPU 1: a half and a quarter.
    half: JobId,
    quarter: JobId,
    /// P0: claims the place of a P3 on GPU 2.
    urgent: JobId,
}

fn part(name: &str, part: PartAsk, vram_gib: u64, priority: Priority) -> JobSpec {
    let shape = Shape { cpus: 1, part: Some(part), vram_bytes: vram_gib * GIB, ..Shape::default() };
    JobSpec { priority, preemptible: priority == Priority::P3, ..JobSpec::new(name, 1, shape) }
}

fn mig(name: &str, profile: &str, priority: Priority) -> JobSpec {
    part(name, PartAsk::Mig { profile: ProfileName::parse(profile).unwrap() }, 0, priority)
}

fn share(name: &str, milli: u32, vram_gib: u64, priority: Priority) -> JobSpec {
    part(name, PartAsk::Share { milli, mode: ShareMode::Mps }, vram_gib, priority)
}

fn busy() -> Busy {
    let custom = Custom { gpus: 3, cpus: 16, gpu_model: "H100".to_string(), ..Custom::default() };
    let mut lab = Lab::new(1, &Arc::new(custom.build().unwrap()), 1);
    let large = lab.submit(mig("large", "3g.40gb", Priority::P2));
    lab.settle();
    let small = lab.submit(mig("small", "1g.10gb", Priority::P2));
    let half = lab.submit(share("half", 500, 40, Priority::P2));
    lab.settle();
    let quarter = lab.submit(share("quarter", 250, 10, Priority::P2));
    let mut victim = mig("victim", "7g.80gb", Priority::P3);
    victim.checkpoint.grace = Span::seconds(30);
    lab.submit(victim);
    lab.settle();
    lab.pass(Span::seconds(20));
    lab.settle();
    lab.pass(Span::seconds(1));
    let urgent = lab.submit(mig("urgent", "4g.40gb", Priority::P0));
    lab.decide();
    let cluster = lab.cluster;
    assert!(cluster.claims.contains_key(&urgent), "{:?}", cluster.blocked);
    Busy { cluster, large, small, half, quarter, urgent }
}

impl Busy {
    fn node(&mut self) -> &mut Node {
        node_mut(&mut self.cluster, NodeId(0))
    }

    fn split(&mut self, gpu: u8) -> &mut Split {
        self.node().splits.get_mut(&gpu).expect("a GPU in parts")
    }

    fn attempt(&mut self, id: JobId) -> &mut Attempt {
        job_mut(&mut self.cluster, id).attempt.as_mut().expect("an attempt")
    }

    /// Changes a part where its worker says it is and where its node does.
    fn change(&mut self, id: JobId, change: impl Fn(&mut ganger_core::model::split::Slice)) {
        change(self.attempt(id).workers[0].place.slice.as_mut().unwrap());
        let held = self.node().splits.values_mut().flat_map(|split| &mut split.held);
        held.filter(|held| held.job == id).for_each(|held| change(&mut held.slice));
    }
}

fn at(compute: u8, memory: u8, start: u8) -> Instance {
    Instance { compute, memory, extra: Extra::Plain, start }
}

#[track_caller]
fn breaks(rule: u8, says: &str, plant: impl FnOnce(&mut Busy)) {
    let mut state = busy();
    plant(&mut state);
    let found = check::full(&state.cluster);
    let told = found.iter().any(|violation| violation.rule == rule && violation.text.contains(says));
    assert!(told, "rule {rule} is not reported with {says:?}: {found:#?}");
    let jobs = state.cluster.jobs.keys().copied().collect();
    let delta = check::delta(&state.cluster, &[NodeId(0)], &jobs);
    assert!(delta.iter().any(|violation| violation.rule == rule), "delta does not see it: {delta:#?}");
}

#[test]
fn the_busy_state_is_clean() {
    let mut state = busy();
    assert_eq!(check::full(&state.cluster), []);
    assert_eq!(state.split(0).held.len(), 2);
    assert_eq!((state.split(1).mode, state.split(1).held.len()), (Mode::Mps, 2));
}

#[test]
fn a_start_that_the_card_does_not_have() {
    breaks(1, "cannot start there", |state| {
        let large = state.large;
        state.change(large, |slice| slice.part = Part::Mig(at(3, 4, 2)));
    });
}

#[test]
fn two_instances_on_one_slot() {
    breaks(1, "overlaps", |state| {
        let small = state.small;
        state.change(small, |slice| slice.part = Part::Mig(at(1, 1, 5)));
    });
}

#[test]
fn a_profile_of_another_card() {
    breaks(1, "no such profile", |state| {
        let small = state.small;
        state.change(small, |slice| slice.part = Part::Mig(at(1, 3, 0)));
    });
}

#[test]
fn an_instance_that_was_never_made() {
    breaks(1, "never made", |state| state.split(0).instances.clear());
}

#[test]
fn a_layout_that_cannot_be() {
    breaks(1, "in a way that it cannot be", |state| {
        state.split(0).instances.push(Made { instance: at(4, 4, 0), ready_at: Time(0) });
        state.split(0).instances.push(Made { instance: at(3, 4, 0), ready_at: Time(0) });
    });
}

#[test]
fn shares_of_more_than_a_gpu() {
    breaks(1, "add up to 1.1", |state| {
        let quarter = state.quarter;
        state.change(quarter, |slice| slice.milli = 600);
    });
}

#[test]
fn shares_of_more_memory_than_there_is() {
    breaks(1, "hold 90GiB of its 80GiB", |state| {
        let half = state.half;
        state.change(half, |slice| slice.vram_bytes = 80 * GIB);
    });
}

#[test]
fn two_ways_of_sharing_one_gpu() {
    breaks(1, "is split by MPS", |state| {
        let quarter = state.quarter;
        state.change(quarter, |slice| slice.part = Part::Share(ShareMode::TimeSlice));
    });
}

#[test]
fn turns_for_somebody_who_is_owed_something() {
    breaks(1, "takes turns", |state| {
        for job in [state.half, state.quarter] {
            state.change(job, |slice| slice.part = Part::Share(ShareMode::TimeSlice));
        }
        state.split(1).mode = Mode::TimeSlice;
    });
}

#[test]
fn a_part_that_nobody_holds_and_one_that_the_node_forgot() {
    breaks(1, "which holds none", |state| {
        let small = state.small;
        state.attempt(small).workers[0].place.slice = None;
    });
    breaks(1, "which does not know it", |state| {
        state.split(0).held.pop();
    });
}

#[test]
fn a_gpu_that_is_whole_and_in_parts() {
    breaks(1, "is Free with 2 parts", |state| state.node().devices[0] = Device::Free);
    breaks(1, "holds it", |state| {
        let half = state.half;
        let node = state.node();
        node.devices[0] = Device::Used(half);
    });
}

#[test]
fn a_claim_on_what_stays() {
    breaks(3, "claims a part of GPU 0", |state| {
        let urgent = state.urgent;
        let claim = state.cluster.claims.get_mut(&urgent).unwrap();
        let slice = claim.places[0].slice.as_mut().unwrap();
        (slice.gpu, slice.part) = (0, Part::Mig(at(3, 4, 4)));
    });
}

#[test]
fn a_whole_promised_while_parts_stay() {
    breaks(3, "promised as a whole", |state| {
        let urgent = state.urgent;
        state.node().devices[0] = Device::Split { claimant: Some(urgent) };
    });
}

#[test]
fn a_record_from_before_there_were_parts_still_loads() {
    let state = busy();
    let mut record = serde_json::to_value(&*state.cluster.nodes[0]).unwrap();
    record.as_object_mut().unwrap().remove("splits");
    let node: Node = serde_json::from_value(record).unwrap();
    assert!(node.splits.is_empty());
    let text = serde_json::to_string(&state.cluster).unwrap();
    assert_eq!(serde_json::from_str::<Cluster>(&text).unwrap(), state.cluster);
}

#[test]
fn rule_6_a_part_starts_that_a_spent_budget_does_not_pay() {
    let Busy { mut cluster, quarter, .. } = busy();
    cluster.queues.get_mut("default").unwrap().budget = Some(Budget { gpu_ms: 0, per: Period::Day, user_gpu_ms: None });
    assert!(check::full(&cluster).is_empty(), "nothing starts at this moment");
    let now = cluster.now;
    job_mut(&mut cluster, quarter).attempt.as_mut().unwrap().placed_at = now;
    let found = check::full(&cluster);
    assert!(found.iter().any(|one| one.rule == 6 && one.text.contains("whose budget is spent")), "{found:?}");
}
