//! For each rule that always holds: a busy healthy state, one planted fault in it, and `check` says which rule broke.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job, job_mut, limit, node_mut, require, spec_mut};
use ganger_core::check::{self, Violation};
use ganger_core::lifecycle::Input;
use ganger_core::lifecycle::input::QueueSpec;
use ganger_core::model::amounts::Limit;
use ganger_core::model::budget::{Budget, Period, Spending};
use ganger_core::model::decision::{Blocker, Decision, Reservation, Step};
use ganger_core::model::job::{
    AttemptPhase, Checkpoint, Exit, Gang, Group, Job, JobSpec, JobState, Level, Priority, Stop, StopWhy, WorkerPhase,
};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::node::{Device, HealthState, Node};
use ganger_core::model::{AttemptNo, Cluster, JobId, NodeId, Rank, Span, Time};
use ganger_core::scheduler::decide;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What is where in the healthy state.
struct Busy {
    cluster: Cluster,
    /// Runs on two whole nodes of one leaf, which it requires.
    gang: JobId,
    /// Runs on half a node, one GPU a worker.
    ranks: JobId,
    /// P3, asked to leave for `urgent`.
    victim: JobId,
    /// P0, claims what the victim frees.
    urgent: JobId,
    /// Waits with a reserved start.
    patient: JobId,
    /// Two jobs of one group that run since this moment.
    pair: [JobId; 2],
}

/// Six machines, three under each leaf, and everything that can be in flight is in flight.
fn busy() -> Busy {
    let mut lab = Lab::new(6, &profile("dgx-h100").unwrap(), 3);
    let gpus = Limit { gpus: Some(44), ..Limit::default() };
    let queue = |path: &str, limit| QueueSpec { path: path.to_string(), limit, ..QueueSpec::default() };
    let queues = vec![queue("lab", Some(gpus)), queue("lab/a", None)];
    lab.apply(Input::Queues { queues, by: "ops".to_string() });
    let lab_job = |spec: JobSpec| JobSpec { queue: "lab/a".to_string(), ..spec };
    let gang = lab.submit(limit(require(lab_job(job("gang", 2, 8, Priority::P2)), Level::Leaf), Span::hours(2)));
    let victim = lab.submit(limit(with_grace(job("victim", 2, 8, Priority::P3)), Span::hours(4)));
    let mut ranks = limit(lab_job(job("ranks", 3, 1, Priority::P2)), Span::hours(3));
    ranks.shape.memory_bytes = 1 << 30;
    let ranks = lab.submit(ranks);
    lab.settle();
    lab.pass(Span::minutes(10));
    let member = |name: &str| JobSpec {
        group: Some(Group { name: "pair".to_string(), size: 2 }),
        ..limit(lab_job(job(name, 1, 2, Priority::P2)), Span::hours(1))
    };
    let pair = [lab.submit(member("left")), lab.submit(member("right"))];
    lab.pass(Span::seconds(1));
    let patient = lab.submit(limit(job("patient", 2, 8, Priority::P2), Span::hours(1)));
    let urgent = lab.submit(limit(job("urgent", 2, 8, Priority::P0), Span::hours(1)));
    lab.decide();
    let cluster = lab.cluster;
    assert_eq!(cluster.job(victim).unwrap().state, JobState::Stopping);
    assert!(cluster.claims.contains_key(&urgent) && cluster.reservations.contains_key(&patient));
    assert!(pair.iter().all(|id| cluster.job(*id).unwrap().state == JobState::Starting));
    Busy { cluster, gang, ranks, victim, urgent, patient, pair }
}

/// A node with a GPU that is free, and that GPU.
fn free_gpu(state: &Busy) -> (NodeId, usize) {
    let free = |node: &Arc<Node>| Some((node.id, node.devices.iter().position(|device| *device == Device::Free)?));
    state.cluster.nodes.iter().find_map(free).expect("not quite full")
}

fn with_grace(mut spec: JobSpec) -> JobSpec {
    spec.checkpoint.grace = Span::seconds(30);
    spec
}

impl Busy {
    fn job(&mut self, id: JobId) -> &mut Job {
        job_mut(&mut self.cluster, id)
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        node_mut(&mut self.cluster, id)
    }

    fn node_of(&self, id: JobId, rank: usize) -> NodeId {
        self.cluster.job(id).and_then(|job| job.attempt.as_ref()).expect("an attempt").workers[rank].place.node
    }

    fn attempt(&mut self, id: JobId) -> &mut ganger_core::model::Attempt {
        self.job(id).attempt.as_mut().expect("an attempt")
    }
}

/// Plants one fault; `full` and `delta` over everything must both say that this rule is broken.
#[track_caller]
fn breaks(rule: u8, plant: impl FnOnce(&mut Busy)) {
    let mut state = busy();
    plant(&mut state);
    let found = check::full(&state.cluster);
    let broken = |found: &[Violation]| found.iter().any(|violation| violation.rule == rule);
    assert!(broken(&found), "rule {rule} is not reported: {found:#?}");
    let nodes: Vec<NodeId> = state.cluster.nodes.iter().map(|node| node.id).collect();
    let jobs: BTreeSet<JobId> = state.cluster.jobs.keys().copied().collect();
    let delta = check::delta(&state.cluster, &nodes, &jobs);
    assert!(delta.iter().all(|violation| found.contains(violation)), "delta says more than full");
}

#[test]
fn the_busy_state_is_clean() {
    let state = busy();
    assert_eq!(check::full(&state.cluster), []);
    assert_eq!(check::unexplained(&state.cluster), []);
}

#[test]
fn rule_1_two_owners_of_a_device() {
    breaks(1, |state| {
        let place = state.attempt(state.ranks).workers[0].place.gpus;
        let ranks = state.ranks;
        state.attempt(ranks).workers[1].place.gpus = place;
    });
}

#[test]
fn rule_1_a_device_says_free_but_is_held() {
    breaks(1, |state| {
        let node = state.node_of(state.gang, 0);
        state.node(node).devices[0] = Device::Free;
    });
}

#[test]
fn rule_1_a_device_is_used_by_nobody_that_lives_there() {
    breaks(1, |state| {
        let ((node, free), gang) = (free_gpu(state), state.gang);
        state.node(node).devices[free] = Device::Used(gang);
    });
}

#[test]
fn rule_1_a_device_is_promised_to_one_without_a_claim() {
    breaks(1, |state| {
        let ((node, free), patient) = (free_gpu(state), state.patient);
        state.node(node).devices[free] = Device::Claimed(patient);
    });
}

#[test]
fn rule_1_shared_cores() {
    breaks(1, |state| {
        let ranks = state.ranks;
        let cpus = state.attempt(ranks).workers[0].place.cpus;
        state.attempt(ranks).workers[1].place.cpus = cpus;
    });
}

#[test]
fn rule_1_cores_that_nobody_holds_are_used() {
    breaks(1, |state| {
        let node = state.node_of(state.ranks, 0);
        let all = state.cluster.node(node).machine.sockets[0].cpus;
        state.node(node).cpus_used = all;
    });
}

#[test]
fn rule_1_memory_counted_wrong_or_overdrawn() {
    breaks(1, |state| {
        let node = state.node_of(state.ranks, 0);
        state.node(node).memory_used[0] += 1;
    });
    breaks(1, |state| {
        let (node, ranks) = (state.node_of(state.ranks, 0), state.ranks);
        state.attempt(ranks).workers[0].place.memory = vec![(0, 1 << 60)];
        state.node(node).memory_used[0] = 1 << 60;
    });
}

#[test]
fn rule_1_bandwidth_counted_wrong_or_overdrawn() {
    breaks(1, |state| {
        let node = state.node_of(state.ranks, 0);
        state.node(node).network_used_bps = 1;
    });
    breaks(1, |state| {
        let node = state.node_of(state.ranks, 0);
        state.node(node).pcie_used_bps.insert(0, 1_000_000);
    });
    breaks(1, |state| {
        let (node, ranks) = (state.node_of(state.ranks, 0), state.ranks);
        state.attempt(ranks).workers[0].place.network_bps = 1 << 60;
        state.node(node).network_used_bps = 1 << 60;
    });
}

#[test]
fn rule_1_a_worker_holds_other_than_it_asked() {
    breaks(1, |state| {
        let gang = state.gang;
        let node = state.node_of(gang, 0);
        state.attempt(gang).workers[0].place.gpus = 0x7f;
        state.node(node).devices[7] = Device::Free;
    });
}

#[test]
fn rule_2_a_running_gang_with_a_rank_missing() {
    breaks(2, |state| {
        let gang = state.gang;
        state.attempt(gang).workers[1].phase = WorkerPhase::Ended(Exit::Signal(9));
    });
    breaks(2, |state| {
        let gang = state.gang;
        state.attempt(gang).workers.pop();
    });
}

#[test]
fn rule_2_an_attempt_without_a_live_worker() {
    breaks(2, |state| {
        let gang = state.gang;
        for worker in &mut state.attempt(gang).workers {
            worker.phase = WorkerPhase::Ended(Exit::Code(0));
        }
    });
}

#[test]
fn rule_2_half_a_group_starts() {
    breaks(2, |state| {
        let right = state.pair[1];
        let job = state.job(right);
        (job.attempt, job.attempts, job.state) = (None, AttemptNo(0), JobState::Pending);
    });
}

#[test]
fn rule_3_a_claim_that_no_device_backs() {
    breaks(3, |state| {
        let node = state.node_of(state.victim, 0);
        let victim = state.victim;
        state.node(node).devices[0] = Device::Draining { owner: victim, claimant: None };
    });
}

#[test]
fn rule_3_a_claim_for_part_of_a_gang() {
    breaks(3, |state| {
        let urgent = state.urgent;
        state.cluster.claims.get_mut(&urgent).unwrap().places.pop();
    });
}

#[test]
fn rule_3_a_claimant_that_does_not_wait() {
    breaks(3, |state| {
        let (urgent, gang) = (state.urgent, state.gang);
        let mut claim = state.cluster.claims.remove(&urgent).unwrap();
        claim.claimant = gang;
        state.cluster.claims.insert(gang, claim);
    });
}

#[test]
fn rule_3_victims_that_may_not_be_stopped() {
    let respec = |state: &mut Busy, id: JobId, change: fn(&mut JobSpec)| {
        change(spec_mut(&mut state.cluster, id));
    };
    breaks(3, |state| respec(state, state.victim, |spec| spec.preemptible = false));
    breaks(3, |state| respec(state, state.victim, |spec| spec.priority = Priority::P0));
    breaks(3, |state| respec(state, state.urgent, |spec| spec.priority = Priority::P2));
}

#[test]
fn rule_3_a_victim_that_was_not_asked_to_leave() {
    breaks(3, |state| {
        let (urgent, ranks) = (state.urgent, state.ranks);
        spec_mut(&mut state.cluster, ranks).preemptible = true;
        state.cluster.claims.get_mut(&urgent).unwrap().victims.push((ranks, AttemptNo(1)));
    });
    breaks(3, |state| {
        let urgent = state.urgent;
        state.cluster.claims.get_mut(&urgent).unwrap().victims.clear();
    });
}

/// Two half nodes are free; a job that saves when asked moves over for one that needs a whole node. The decision, and who
/// moves.
fn moving() -> (Lab, Decision, JobId) {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    let on_demand = |name: &str| {
        let mut spec = with_grace(job(name, 1, 4, Priority::P2));
        spec.checkpoint.on_demand = true;
        spec
    };
    let moved = lab.submit(on_demand("a"));
    let fill = lab.submit(job("fill", 1, 4, Priority::P2));
    lab.submit(job("fixed", 1, 4, Priority::P2));
    lab.settle();
    lab.finish(fill);
    lab.settle();
    lab.submit(job("whole", 1, 8, Priority::P2));
    let decision = decide(&lab.cluster, lab.now);
    (lab, decision, moved)
}

#[test]
fn rule_3_nobody_is_moved_without_a_new_place() {
    let (mut lab, decision, moved) = moving();
    let home = |step: &Step| matches!(step, Step::Claim(claim) if claim.claimant == moved);
    assert!(decision.steps.iter().any(home), "{decision:#?}");
    let mut homeless = decision.clone();
    homeless.steps.retain(|step| !home(step));
    let refused = lab.try_apply(Input::Decided(Box::new(homeless))).unwrap_err().to_string();
    assert!(refused.contains("rule 3") && refused.contains("no place is kept for it"), "{refused}");
    lab.apply(Input::Decided(Box::new(decision)));
    lab.assert_rules();
    lab.settle();
    assert!(lab.cluster.jobs.values().all(|job| job.state == JobState::Running));
    assert_eq!(lab.cluster.job(moved).map(|job| (job.moves, job.evictions)), Some((1, 1)));
}

#[test]
fn rule_3_only_who_can_bear_it_is_moved() {
    for change in [(|spec: &mut JobSpec| spec.checkpoint.on_demand = false) as fn(&mut JobSpec), |spec| {
        spec.priority = Priority::P1
    }] {
        let (mut lab, decision, moved) = moving();
        lab.apply(Input::Decided(Box::new(decision)));
        change(spec_mut(&mut lab.cluster, moved));
        assert!(check::full(&lab.cluster).iter().any(|violation| violation.rule == 3));
    }
}

#[test]
fn who_is_cancelled_on_the_way_gives_its_new_place_back() {
    let (mut lab, decision, moved) = moving();
    lab.apply(Input::Decided(Box::new(decision)));
    lab.apply(Input::Cancel { job: moved, by: "owner".to_string() });
    lab.assert_rules();
    assert!(!lab.cluster.claims.contains_key(&moved));
    lab.settle();
    assert_eq!(lab.state(moved), JobState::Cancelled);
}

#[test]
fn rule_4_more_evictions_than_attempts_that_ended() {
    breaks(4, |state| {
        let gang = state.gang;
        state.job(gang).evictions = 1;
    });
}

/// A start of this moment that outlasts the reserved start of one that goes first.
fn overrun(state: &mut Busy) {
    let left = state.pair[0];
    let places: Vec<_> = state.attempt(left).workers.iter().map(|worker| worker.place.clone()).collect();
    let start = state.cluster.now + Span::minutes(1);
    let patient = state.patient;
    state.job(patient).submitted_at = Time(1);
    state.cluster.reservations.get_mut(&patient).unwrap().places = places;
    state.cluster.reservations.get_mut(&patient).unwrap().start = start;
}

#[test]
fn rule_5_a_junior_start_on_reserved_devices() {
    breaks(5, overrun);
}

#[test]
fn rule_5_a_guest_that_could_not_save_and_leave() {
    breaks(5, |state| {
        overrun(state);
        let (left, patient) = (state.pair[0], state.patient);
        state.attempt(left).guest_of = vec![patient];
    });
}

/// What a decision reserves on the devices of a guest that nobody told yet has to leave it its grace.
#[test]
fn rule_5_a_guest_that_is_told_too_late() {
    let found = |seconds: u64| {
        let mut state = busy();
        let (ranks, patient) = (state.ranks, state.patient);
        spec_mut(&mut state.cluster, ranks).checkpoint.grace = Span::seconds(30);
        let attempt = state.attempt(ranks);
        attempt.guest_of = vec![patient];
        let places: Vec<_> = attempt.workers.iter().map(|worker| worker.place.clone()).collect();
        let (now, reservation) = (state.cluster.now, state.cluster.reservations.get_mut(&patient).unwrap());
        (reservation.places, reservation.start) = (places, now + Span::seconds(seconds));
        check::decided(&state.cluster, &[], &BTreeSet::new(), now).iter().any(|violation| violation.rule == 5)
    };
    assert!(found(29), "a second is missing");
    assert!(!found(30), "just in time");
}

#[test]
fn rule_5_a_reservation_for_nobody_or_for_one_that_runs() {
    for id in [JobId(77), JobId(1)] {
        breaks(5, |state| {
            let reservation = state.cluster.reservations[&state.patient].clone();
            state.cluster.reservations.insert(id, Reservation { job: id, ..reservation });
        });
    }
}

#[test]
fn rule_5_the_same_devices_promised_twice() {
    breaks(5, |state| {
        let (urgent, reservation) = (state.urgent, state.cluster.reservations[&state.patient].clone());
        let start = reservation.start + Span::minutes(59);
        state.cluster.reservations.insert(urgent, Reservation { job: urgent, start, ..reservation });
    });
}

#[test]
fn rule_6_a_counter_that_is_not_the_sum() {
    for queue in ["lab/a", "lab", "default"] {
        breaks(6, |state| state.cluster.queues.get_mut(queue).unwrap().used.gpus += 1);
    }
    breaks(6, |state| state.cluster.queues.get_mut("lab").unwrap().used.cpus -= 1);
}

#[test]
fn rule_6_a_start_over_the_limit_of_a_queue_above() {
    breaks(6, |state| state.cluster.queues.get_mut("lab").unwrap().limit.gpus = Some(20));
}

#[test]
fn rule_6_use_of_a_new_dimension_that_is_not_the_sum() {
    breaks(6, |state| state.cluster.queues.get_mut("lab").unwrap().used.vram_bytes += 1);
    breaks(6, |state| state.cluster.queues.get_mut("lab").unwrap().used.network_bandwidth_bps += 1);
    breaks(6, |state| state.cluster.queues.get_mut("lab").unwrap().limit.vram_bytes = Some(1 << 30));
}

#[test]
fn rule_6_work_that_a_spent_budget_does_not_pay() {
    let per = Period::Day;
    // A pair starts at this moment although there is nothing left.
    breaks(6, |state| {
        state.cluster.queues.get_mut("lab").unwrap().budget = Some(Budget { gpu_ms: 0, per, user_gpu_ms: None })
    });
    // It was found spent, and yet somebody stays.
    breaks(6, |state| {
        let now = state.cluster.now;
        let queue = state.cluster.queues.get_mut("default").unwrap();
        queue.budget = Some(Budget { gpu_ms: 5, per, user_gpu_ms: None });
        queue.spending = Spending { gpu_ms: 5, as_of: now, over_in: Some(per.start(now)), ..Spending::default() };
        let victim = state.victim;
        state.attempt(victim).phase = AttemptPhase::Running { since: now };
    });
}

#[test]
fn rule_3_a_guarantee_that_is_nobodys() {
    breaks(3, |state| {
        // Of the claimant's class, and nothing is guaranteed to its queue.
        let victim = state.victim;
        spec_mut(&mut state.cluster, victim).priority = Priority::P0;
    });
    breaks(3, |state| {
        let victim = state.victim;
        let spec = spec_mut(&mut state.cluster, victim);
        (spec.firm, spec.preemptible) = (true, false);
        state.cluster.queues.get_mut("default").unwrap().guarantee.gpus = Some(99);
    });
}

#[test]
fn rule_6_a_job_in_no_queue() {
    breaks(6, |state| drop(state.cluster.queues.remove("lab/a")));
}

#[test]
fn rule_7_two_ranks_of_one_number() {
    breaks(7, |state| {
        let gang = state.gang;
        state.attempt(gang).workers[1].rank = Rank(0);
    });
}

#[test]
fn rule_7_a_worker_that_its_node_does_not_know() {
    breaks(7, |state| {
        let (gang, node) = (state.gang, state.node_of(state.gang, 1));
        state.node(node).tenants.remove(&(gang, Rank(1)));
    });
}

#[test]
fn rule_7_an_attempt_that_is_not_the_newest() {
    breaks(7, |state| {
        let gang = state.gang;
        state.job(gang).attempts = AttemptNo(2);
    });
    breaks(7, |state| {
        let gang = state.gang;
        let at = state.cluster.now;
        let checkpoint = Checkpoint { step: 5, path: "/ckpt/5".to_string(), attempt: AttemptNo(2), at };
        state.job(gang).checkpoint = Some(checkpoint);
    });
}

#[test]
fn rule_7_a_hard_constraint_broken() {
    for level in [Level::Node, Level::Socket, Level::Switch, Level::Island] {
        breaks(7, |state| spec_mut(&mut state.cluster, state.gang).topology.require = Some(level));
    }
    breaks(7, |state| {
        let node = state.node_of(state.gang, 1);
        let other =
            state.cluster.nodes.iter().map(|node| node.leaf).find(|leaf| *leaf != state.cluster.node(node).leaf);
        state.node(node).leaf = other.expect("two leaves");
    });
    breaks(7, |state| spec_mut(&mut state.cluster, state.gang).topology.ranks_per_island = Some(2));
    breaks(7, |state| spec_mut(&mut state.cluster, state.gang).topology.ranks_per_node = Some(2));
}

#[test]
fn rule_8_a_state_that_is_not_that_of_the_attempt() {
    breaks(8, |state| state.job(state.gang).state = JobState::Starting);
    breaks(8, |state| state.job(state.gang).state = JobState::Done);
    breaks(8, |state| state.job(state.patient).state = JobState::Running);
}

#[test]
fn rule_8_numbers_and_times_that_would_go_backwards() {
    breaks(8, |state| state.cluster.next_job = 2);
    breaks(8, |state| state.node(NodeId(0)).generation = 0);
    breaks(8, |state| state.cluster.now = Time(1));
}

#[test]
fn rule_8_a_node_under_another_name() {
    breaks(8, |state| state.node(NodeId(0)).name = "n1".to_string());
}

#[test]
fn rule_9_a_reason_for_one_that_does_not_wait() {
    for id in [JobId(77), JobId(1)] {
        breaks(9, |state| drop(state.cluster.blocked.insert(id, Blocker::NotReached)));
    }
}

#[test]
fn rule_9_numbers_that_do_not_add_up() {
    let (workers, free_gpus, short) = (4, 9, "GPUs".to_string());
    let wrong = [
        Blocker::Resources { workers, placeable: 4, needs_gpus: 32, free_gpus, short },
        Blocker::Topology {
            workers,
            level: Level::Leaf,
            best: 3,
            best_gpus: 24,
            placeable: 3,
            domain: "leaf0".to_string(),
        },
        Blocker::Health { workers, placeable: 5, out: 1 },
        Blocker::Health { workers, placeable: 1, out: 0 },
        Blocker::Group { name: "pair".to_string(), present: 2, size: 2 },
        Blocker::QueueLimit { queue: "lab".to_string(), resource: "gpus".to_string(), used: 1, asks: 2, limit: 3 },
    ];
    for blocker in wrong {
        breaks(9, |state| drop(state.cluster.blocked.insert(state.patient, blocker)));
    }
}

#[test]
fn rule_9_a_job_that_waits_without_a_reason() {
    let mut state = busy();
    state.cluster.blocked.remove(&state.patient);
    let found = check::unexplained(&state.cluster);
    assert_eq!(found.iter().map(|violation| violation.rule).collect::<Vec<_>>(), [9]);
}

#[test]
fn rule_10_waits_without_an_end() {
    let never = || Time::NEVER;
    breaks(10, |state| state.attempt(state.pair[0]).phase = AttemptPhase::Preparing { deadline: never() });
    breaks(10, |state| state.attempt(state.pair[0]).phase = AttemptPhase::Going { deadline: never() });
    breaks(10, |state| {
        let stop = Stop { why: StopWhy::TimeLimit, asked_at: state.cluster.now, deadline: never() };
        state.attempt(state.victim).phase = AttemptPhase::Stopping(stop);
    });
    breaks(10, |state| state.cluster.claims.get_mut(&state.urgent).unwrap().deadline = never());
    breaks(10, |state| state.node(NodeId(5)).health.state = HealthState::Probation);
}

#[test]
fn rule_10_work_on_nodes_that_take_none() {
    breaks(10, |state| {
        let node = state.node_of(state.gang, 0);
        state.node(node).health.state = HealthState::Fenced;
    });
    breaks(10, |state| {
        let node = state.node_of(state.gang, 0);
        state.node(node).draining = Some("ops".to_string());
    });
    breaks(10, |state| {
        let node = state.node_of(state.pair[0], 0);
        state.node(node).health.state = HealthState::Quarantined;
    });
    breaks(10, |state| {
        let node = state.node_of(state.victim, 0);
        state.node(node).cordoned = true;
    });
}

#[test]
fn sizes_outside_of_what_was_asked_break_rule_2() {
    breaks(2, |state| {
        let gang = state.gang;
        spec_mut(&mut state.cluster, gang).gang = Gang::rigid(1);
    });
}
