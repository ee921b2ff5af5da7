//! The parts of the public scheduler cases that no scenario file can say: all orders of submission (A2), the very
//! devices that a process gets (E8), every report doubled and out of order (F2).
#![allow(clippy::unwrap_used)]
use ganger_core::lifecycle::input::{NodePlacement, NodeSpec};
use ganger_core::lifecycle::{Input, orders};
use ganger_core::model::ids::NodeId;
use ganger_core::model::job::{Group, JobSpec, JobState, RunSpec, Shape};
use ganger_core::model::machine::Machine;
use ganger_core::model::machine::profiles::{Custom, profile};
use ganger_core::model::time::{Span, Time};
use ganger_simulator::world::World;
use ganger_simulator::world::training::WorkPlan;
use std::sync::Arc;

fn world(nodes: u32, machine: &Arc<Machine>) -> World {
    let mut world = World::default();
    for index in 0..nodes {
        let name = format!("n{index}");
        let placement = NodePlacement { leaf: Some("leaf0".to_string()), ..NodePlacement::default() };
        let (address, boot_id) = (format!("{name}.sim"), "boot-1".to_string());
        world
            .add_node(NodeSpec { name, machine: machine.clone(), placement, address, boot_id, agent: String::new() })
            .unwrap();
    }
    world
}

fn job(name: &str, workers: u32, gpus: u32, group: Option<&str>) -> JobSpec {
    JobSpec {
        group: group.map(|name| Group { name: name.to_string(), size: 2 }),
        run: RunSpec { command: vec!["simulated".to_string()], ..RunSpec::default() },
        ..JobSpec::new(name, workers, Shape { gpus, cpus: 1, ..Shape::default() })
    }
}

fn plan(minutes: u64) -> WorkPlan {
    WorkPlan {
        start_time: Span::ZERO,
        work: Span::minutes(minutes),
        ckpt_every: Some(Span::minutes(10)),
        ckpt_time: Span::ZERO,
        restart_time: Span::ZERO,
        on_demand_ckpt: false,
    }
}

fn state(world: &World, name: &str) -> JobState {
    world.job(world.job_id(name).unwrap()).unwrap().state
}

/// All orders of four things.
fn orders_of_four() -> Vec<[usize; 4]> {
    let mut found = Vec::new();
    for code in 0..256 {
        let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3];
        if (0..4).all(|which| order.contains(&which)) {
            found.push(order);
        }
    }
    found
}

/// A2, koordinator-sh/koordinator#872: {A,B} and {C,D} start in pairs; there is room for one pair.
#[test]
fn of_two_pairs_one_runs_whole_in_every_order_of_submission() {
    let machine = Arc::new(Custom { gpus: 1, ..Custom::default() }.build().unwrap());
    let all = orders_of_four();
    assert_eq!(all.len(), 24);
    for order in all {
        let mut world = world(2, &machine);
        for which in order {
            let (name, group) = [("A", "first"), ("B", "first"), ("C", "second"), ("D", "second")][which];
            world.submit(Arc::new(job(name, 1, 1, Some(group))), plan(60)).unwrap();
            let held = world.cluster().jobs.values().filter(|job| job.attempt.is_some()).count();
            assert!(held == 0 || held == 2, "half a pair runs in the order {order:?}");
        }
        let states: Vec<JobState> = ["A", "B", "C", "D"].iter().map(|name| state(&world, name)).collect();
        assert!(states[0] == states[1] && states[2] == states[3] && states[0] != states[2], "{order:?}: {states:?}");
        world.run_out(Time(Span::hours(9).0));
        assert!(["A", "B", "C", "D"].iter().all(|name| state(&world, name) == JobState::Done), "{order:?}");
        assert_eq!(world.broken(), [], "{order:?}");
    }
}

/// E8, Project-HAMi/HAMi#1741, #2622, #1491: the devices that were chosen are those that the process gets.
#[test]
fn a_process_holds_exactly_the_devices_that_were_chosen_for_it() {
    let mut world = world(2, &profile("dgx-h100").unwrap());
    for (name, workers, gpus) in [("a", 1, 3), ("b", 4, 1), ("c", 1, 5), ("d", 1, 2), ("e", 3, 0)] {
        world.submit(Arc::new(job(name, workers, gpus, None)), plan(60)).unwrap();
    }
    let mut seen = 0;
    for node in [NodeId(0), NodeId(1)] {
        let ordered = orders(world.cluster(), node);
        for ((job, _, rank), held) in world.processes(node).iter().filter(|(_, held)| held.is_alive()) {
            let job = world.cluster().job(*job).unwrap();
            let worker = &job.attempt.as_ref().unwrap().workers[rank.0 as usize];
            assert_eq!((worker.place.node, worker.place.gpus, worker.place.cpus), (node, held.gpus, held.cpus));
            assert_eq!(held.gpus.count_ones(), job.spec.shape.gpus, "{}", job.spec.name);
            let order = ordered.iter().find(|order| order.job == job.id && order.rank == *rank).unwrap();
            assert_eq!(order.devices.gpus.len() as u32, job.spec.shape.gpus);
            seen += 1;
        }
    }
    assert_eq!(seen, 10, "every rank of every job runs");
    assert_eq!(world.broken(), []);
}

/// Name, state, attempts, failures, start and end of a job.
type End = (String, JobState, u32, u32, Option<Time>, Option<Time>);

/// What is left of a run when all is over.
fn end_of(world: &World) -> Vec<End> {
    let jobs = world.all_jobs();
    jobs.map(|j| (j.spec.name.clone(), j.state, j.attempts.0, j.failures, j.started_at, j.ended_at)).collect()
}

/// Ten jobs, a node that fails and comes back, a node cut off for longer than its lease, a cancel. With `replay` every
/// report that was sent comes again after each of these, newest first and twice.
fn eventful(replay: bool) -> World {
    let machine = Arc::new(Custom { gpus: 4, ..Custom::default() }.build().unwrap());
    let mut world = world(5, &machine);
    let again = |world: &mut World| {
        for (node, report) in world.recent_reports().to_vec().into_iter().rev().filter(|_| replay) {
            world.stale_report(node, report.clone());
            world.stale_report(node, report);
        }
    };
    for index in 0..10 {
        let workers = 1 + index % 3;
        world.submit(Arc::new(job(&format!("j{index}"), workers, 2, None)), plan(25 + u64::from(index))).unwrap();
    }
    again(&mut world);
    world.advance_to(Time(Span::minutes(12).0));
    again(&mut world);
    world.fail(NodeId(0));
    again(&mut world);
    world.cut(NodeId(1));
    world.advance_to(Time(Span::minutes(15).0));
    again(&mut world);
    world.heal(NodeId(1));
    again(&mut world);
    let job = world.job_id("j2").unwrap();
    world.ask(Input::Cancel { job, by: "somebody".to_string() }).unwrap();
    world.recover(NodeId(0));
    again(&mut world);
    world.advance_to(Time(Span::minutes(40).0));
    again(&mut world);
    world.run_out(Time(Span::hours(24).0));
    again(&mut world);
    world
}

/// F2, ray-project/ray#19131, ROCm/spur#474: stale reports are ignored, and use is never counted twice or below zero.
#[test]
fn reports_that_come_twice_and_out_of_order_change_nothing() {
    let (once, replayed) = (eventful(false), eventful(true));
    assert_eq!(once.broken(), []);
    assert_eq!(replayed.broken(), []);
    assert_eq!(end_of(&once), end_of(&replayed));
    assert!(end_of(&once).iter().all(|job| job.1.is_terminal()) && end_of(&once).iter().any(|job| job.2 > 1));
    for queue in replayed.cluster().queues.values() {
        assert_eq!(queue.used, Default::default(), "{}", queue.path);
    }
}
