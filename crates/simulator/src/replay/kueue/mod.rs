//! Kueue's performance mixes through the whole lifecycle in virtual time: how much longer than any scheduler must take, and
//! apart from that what deciding costs.
mod mix;
mod outcome;

pub use mix::Mix;
pub use outcome::{Outcome, Waits};

use crate::world::training::WorkPlan;
use crate::world::{Care, World};
use ganger_core::lifecycle::input::{NodePlacement, NodeSpec, QueueSpec};
use ganger_core::model::amounts::Limit;
use ganger_core::model::ids::JobId;
use ganger_core::model::job::{JobSpec, Shape};
use ganger_core::model::machine::profiles::Custom;
use ganger_core::model::time::{Span, Time};
use mix::{Plan, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Virtual agents are never silent here, so their leases need not be renewed often.
const LEASE: &str = "8000h";

/// Nanoseconds of the processor since some moment: the simulator itself has no clock.
pub type Stopwatch = fn() -> u64;

/// A workload that is to come.
struct Arrival {
    at: Time,
    queue: u64,
    stream: &'static Stream,
}

/// Runs the mix to its end. `watch` hears how many workloads are over.
pub fn run(mix: Mix, stopwatch: Stopwatch, watch: &mut dyn FnMut(u64)) -> Result<Outcome, String> {
    run_plan(mix.plan(), stopwatch, watch).map_err(|why| format!("cannot run mix {} to its end: {why}", mix.name()))
}

fn run_plan(plan: Plan, stopwatch: Stopwatch, watch: &mut dyn FnMut(u64)) -> Result<Outcome, String> {
    let mut run = Run { world: cluster(&plan)?, live: BTreeMap::new(), found: Outcome::new(&plan) };
    run.world.time_decisions(stopwatch);
    for (index, arrival) in arrivals(&plan).iter().enumerate() {
        if arrival.at > run.world.now() {
            run.world.settle();
            run.go_on_to(arrival.at, watch);
        }
        run.submit(index, arrival, &plan)?;
    }
    run.world.settle();
    run.go_on_to(Time::NEVER, watch);
    match run.world.cluster().jobs.len() {
        0 => Ok(run.found.finished(run.world.deciding())),
        left => Err(format!("{left} workloads can never start")),
    }
}

/// All at one moment in the order of their queues.
fn arrivals(plan: &Plan) -> Vec<Arrival> {
    let of_queue = |queue: u64| {
        let of_stream = move |stream: &'static Stream| {
            (1..=stream.count).map(move |number| Arrival { at: Time(number * stream.every_ms), queue, stream })
        };
        plan.streams.iter().flat_map(of_stream)
    };
    let mut all: Vec<Arrival> = (0..plan.queues()).flat_map(of_queue).collect();
    all.sort_by_key(|arrival| arrival.at);
    all
}

fn queue_name(queue: u64, plan: &Plan) -> String {
    format!("cohort{}/queue{}", queue / plan.queues_each, queue % plan.queues_each)
}

fn cluster(plan: &Plan) -> Result<World, String> {
    let mut world = World::with_care(Care::Quick);
    world.set("lease", LEASE).map_err(|why| why.to_string())?;
    world.set_queues(queues(plan)).map_err(|why| why.to_string())?;
    let machine = Custom { gpus: 0, cpus: plan.node_cpus, ..Custom::default() }.build().map(Arc::new);
    let machine = machine.map_err(|why| why.to_string())?;
    for index in 0..plan.racks * plan.nodes_each {
        let name = format!("n{index}");
        let (address, boot_id) = (format!("{name}.sim"), format!("{name}-boot-1"));
        let leaf = Some(format!("rack{}", index / plan.nodes_each));
        let placement = NodePlacement { leaf, ..NodePlacement::default() };
        let spec = NodeSpec { name, machine: machine.clone(), placement, address, boot_id, agent: String::new() };
        world.add_node(spec).map_err(|why| why.to_string())?;
    }
    Ok(world)
}

/// A cohort may use what its queues are guaranteed together, a queue what it is guaranteed and may borrow.
fn queues(plan: &Plan) -> Vec<QueueSpec> {
    let cpus = |cpus: u64| Some(Limit { cpus: Some(cpus), ..Limit::default() });
    let mut specs = Vec::new();
    for cohort in 0..plan.cohorts {
        let limit = cpus(plan.guarantee * plan.queues_each);
        specs.push(QueueSpec { path: format!("cohort{cohort}"), limit, ..QueueSpec::default() });
    }
    for queue in 0..plan.queues() {
        let (guarantee, limit) = (cpus(plan.guarantee), cpus(plan.guarantee + plan.borrows));
        specs.push(QueueSpec { path: queue_name(queue, plan), guarantee, limit, ..QueueSpec::default() });
    }
    specs
}

struct Run {
    world: World,
    live: BTreeMap<JobId, &'static Stream>,
    found: Outcome,
}

impl Run {
    fn go_on_to(&mut self, target: Time, watch: &mut dyn FnMut(u64)) {
        while !self.world.cluster().jobs.is_empty() && self.world.step(target) {
            self.look(watch);
        }
        if target < Time::NEVER {
            self.world.advance_to(target);
            self.look(watch);
        }
    }

    fn submit(&mut self, index: usize, arrival: &Arrival, plan: &Plan) -> Result<(), String> {
        let stream = arrival.stream;
        let shape = Shape { cpus: stream.cpus_each, ..Shape::default() };
        let spec = JobSpec {
            queue: queue_name(arrival.queue, plan),
            priority: stream.priority,
            topology: stream.wish,
            ..JobSpec::new(&index.to_string(), stream.workers, shape)
        };
        let work = WorkPlan {
            work: Span(stream.run_ms),
            ckpt_every: None,
            ckpt_time: Span::ZERO,
            start_time: Span::ZERO,
            restart_time: Span::ZERO,
            on_demand_ckpt: false,
        };
        let id =
            self.world.enter(Arc::new(spec), work).map_err(|why| format!("cannot submit {}: {why}", stream.name))?;
        self.live.insert(id, stream);
        Ok(())
    }

    fn look(&mut self, watch: &mut dyn FnMut(u64)) {
        let over = self.world.take_finished();
        if over.is_empty() {
            return;
        }
        for job in over {
            if let Some(stream) = self.live.remove(&job.id) {
                self.found.note(stream, &job);
            }
        }
        watch(self.found.over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_core::model::job::{Priority, TopologyWish};

    static STREAMS: [Stream; 2] = [one("small", 4, 100, Priority::P3, 1), one("large", 2, 200, Priority::P1, 4)];

    const fn one(name: &'static str, count: u64, run_ms: u64, priority: Priority, cpus_each: u32) -> Stream {
        let wish = TopologyWish { require: None, prefer: None, ranks_per_island: None, ranks_per_node: None };
        Stream { name, count, every_ms: 100, run_ms, priority, workers: 1, cpus_each, wish }
    }

    /// Two cohorts of two queues of 4 CPUs: 2 s of CPU in each queue, 4 on the 8 CPUs of its cohort; the last workload
    /// comes at 400 ms and takes 100.
    #[test]
    fn all_of_a_small_mix_is_through_soon_after_the_bound_and_no_cohort_uses_more_than_its_own() {
        let (cohorts, queues_each, guarantee, borrows) = (2, 2, 4, 4);
        let (racks, nodes_each, node_cpus, streams) = (1, 2, 8, &STREAMS[..]);
        let plan = Plan { cohorts, queues_each, guarantee, borrows, racks, nodes_each, node_cpus, streams };
        let mut heard = 0;
        let found = run_plan(plan, || 0, &mut |over| heard = over).expect("it runs to its end");
        assert_eq!((found.workloads, found.over, heard, found.bound_s), (24, 24, 24, 0.5));
        assert!((1.0..=1.6).contains(&found.over_bound), "{found:?}");
        assert_eq!(found.waits["large"].count + found.waits["small"].count, 24);
        assert!(found.decisions > 0 && found.deciding_cpu_s == 0.0);
    }
}
