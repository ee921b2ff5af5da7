//! Fault storms: random events on a random small cluster, every rule checked after each.
//!
//! A storm follows from its seed alone. When it is over, all nodes come back, and every job that can run must come to its
//! end: what waits for ever is as much a failure as a broken rule.
pub(crate) mod dice;
mod make;
mod pools;
mod promises;

use crate::world::agent::{Key, Process};
use crate::world::{Broken, OPERATOR, TraceLine, World};
use dice::Dice;
use ganger_core::lifecycle::{Input, Refusal};
use ganger_core::model::decision::Reason;
use ganger_core::model::ids::{AttemptNo, JobId, NodeId};
use ganger_core::model::job::{Dependency, DependencyKind, EXIT_REQUEUE, Exit, Gang, Group, Job, JobSpec, JobState};
use ganger_core::model::queue::ancestry;
use ganger_core::model::report::Report;
use ganger_core::model::time::{Span, Time};
use ganger_core::model::window::Window;
use ganger_core::model::zone::Zone;
use serde::Serialize;
use std::sync::Arc;

/// Storms from this seed on also have windows, deadlines and maintenance. Those before keep the histories that once broke a
/// rule.
const CALENDAR_FROM: u64 = 10_000;
/// Storms from this seed on also have arrays.
const ARRAYS_FROM: u64 = 20_000;
/// Storms from this seed on also have a pool that is kept for its own jobs.
const POOLS_FROM: u64 = 30_000;
/// Storms from this seed on also have whole nodes that are promised to queues.
const PROMISES_FROM: u64 = 40_000;
/// After the storm everything has this long to come to its end.
const AFTERMATH: Span = Span::hours(90 * 24);
/// So many lines of the trace, up to the first broken rule, go into a failure.
const TRACE_KEPT: usize = 400;

/// What a storm that broke nothing was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Stats {
    pub events: usize,
    pub submitted: usize,
    pub done: usize,
    pub failed: usize,
    pub cancelled: usize,
    /// Tasks of arrays that ended, in whatever way.
    pub tasks: usize,
    /// Jobs that can never run here.
    pub left: usize,
    pub attempts: u64,
    pub evictions: u64,
    /// How many of these were moves to a place that was kept.
    pub moves: u64,
    /// Times that an elastic gang gave up workers.
    pub shrinks: u64,
    /// Times that one restarted with another size.
    pub resizes: u64,
    /// Runs that failed by themselves.
    pub failures: u64,
    pub lost_gpu_ms: u64,
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, other: Stats) {
        self.events += other.events;
        self.submitted += other.submitted;
        self.done += other.done;
        self.failed += other.failed;
        self.cancelled += other.cancelled;
        self.tasks += other.tasks;
        self.left += other.left;
        self.attempts += other.attempts;
        self.evictions += other.evictions;
        self.moves += other.moves;
        self.shrinks += other.shrinks;
        self.resizes += other.resizes;
        self.failures += other.failures;
        self.lost_gpu_ms += other.lost_gpu_ms;
    }
}

/// A storm that broke a rule. `storm(seed, step)` comes to the same point again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub seed: u64,
    pub step: usize,
    pub trace: Vec<TraceLine>,
    pub violations: Vec<Broken>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for line in &self.trace {
            writeln!(f, "{:>10}  {:<14} {}", Span(line.at_ms).to_string(), line.kind, line.text)?;
        }
        for broken in &self.violations {
            writeln!(f, "at {} rule {} was broken: {}", Span(broken.at_ms), broken.rule, broken.text)?;
        }
        write!(f, "seed {} after {} events", self.seed, self.step)
    }
}

/// Lets `events` random things happen to a random cluster.
///
/// # Errors
/// The first broken rule ends it, with the way there.
pub fn storm(seed: u64, events: usize) -> Result<Stats, Box<Failure>> {
    let dice = Dice::new(seed);
    let fail = |step, trace: &[TraceLine], violations: Vec<Broken>| {
        let end = trace.iter().position(|line| line.kind == "violation").map_or(trace.len(), |at| at + 1);
        let trace = trace[end.saturating_sub(TRACE_KEPT)..end].to_vec();
        Box::new(Failure { seed, step, trace, violations })
    };
    let world = make::world(&mut dice.child("cluster"))
        .map_err(|text| fail(0, &[], vec![Broken { at_ms: 0, rule: 0, text }]))?;
    let mut storm = Storm::new(world, seed, &dice);
    for step in 1..=events {
        storm.event();
        if !storm.world.broken().is_empty() {
            return Err(fail(step, storm.world.trace(), storm.world.broken().to_vec()));
        }
    }
    storm.aftermath();
    let mut broken = storm.world.broken().to_vec();
    broken.extend(storm.left_undone());
    if broken.is_empty() { Ok(storm.stats(events)) } else { Err(fail(events, storm.world.trace(), broken)) }
}

struct Storm {
    world: World,
    jobs: Dice,
    choice: Dice,
    time: Dice,
    sizes: Dice,
    calendar: Option<Dice>,
    arrays: Option<Dice>,
    pools: Option<Dice>,
    promises: Option<Dice>,
    submitted: usize,
    /// A group of two whose second job is not submitted yet.
    half_group: Option<String>,
}

impl Storm {
    fn new(mut world: World, seed: u64, dice: &Dice) -> Storm {
        let (jobs, choice, time) = (dice.child("jobs"), dice.child("choice"), dice.child("time"));
        let sizes = dice.child("sizes");
        let calendar = (seed >= CALENDAR_FROM).then(|| dice.child("calendar"));
        let mut arrays = (seed >= ARRAYS_FROM).then(|| dice.child("arrays"));
        let window = arrays.as_mut().map(|dice| dice.between(1, 8).to_string());
        if let Some(Err(why)) = window.map(|window| world.set("array.window", &window)) {
            world.note("refused", why.to_string());
        }
        let pools = (seed >= POOLS_FROM).then(|| dice.child("pools"));
        let promises = (seed >= PROMISES_FROM).then(|| dice.child("promises"));
        let (submitted, half_group) = (0, None);
        let mut storm =
            Storm { world, jobs, choice, time, sizes, calendar, arrays, pools, promises, submitted, half_group };
        storm.about_pools(pools::keep);
        storm.promise();
        storm.promise();
        storm
    }

    fn event(&mut self) {
        if self.time.one_in(2) {
            let longest = [1_000, 30_000, 120_000, 1_800_000][self.time.below(4) as usize];
            let pause = Span(self.time.below(longest));
            self.world.advance_to(self.world.now() + pause);
        }
        if self.sizes.one_in(12) {
            self.resize();
        }
        self.maintain();
        if self.pools.as_mut().is_some_and(|dice| dice.one_in(40)) {
            self.about_pools(pools::say);
        }
        if self.promises.as_mut().is_some_and(|dice| dice.one_in(25)) {
            self.promise();
        }
        let node = NodeId(self.choice.below(self.world.cluster().nodes.len() as u64) as u32);
        match self.choice.below(100) {
            0..37 => self.submit(),
            37..42 => self.crash(node),
            42..48 => self.ask(|job, by| Input::Cancel { job, by }),
            48..51 => self.ask(|job, by| Input::Hold { job, by }),
            51..55 => self.ask(|job, by| Input::Release { job, by }),
            55..57 => self.ask(|job, by| Input::Requeue { job, by }),
            57..61 => self.on_node("fail", node, World::fail),
            61..67 => self.on_node("recover", node, World::recover),
            67..72 => self.on_node("cut", node, World::cut),
            72..79 => self.on_node("heal", node, World::heal),
            79..82 => self.on_node("drain", node, World::drain),
            82..86 => self.on_node("uncordon", node, World::uncordon),
            86..88 => self.on_node("refuse-launch", node, |world, node| world.set_refusing(node, true)),
            88..92 => self.on_node("accept-launch", node, |world, node| world.set_refusing(node, false)),
            92..97 => self.late_report(node),
            _ => {
                self.world.note("statement", "restart control");
                self.world.restart_control();
            }
        }
    }

    fn submit(&mut self) {
        let group = match self.half_group.take() {
            Some(name) => Some(name),
            None if self.jobs.one_in(8) => {
                let name = format!("g{}", self.submitted);
                self.half_group = Some(name.clone());
                Some(name)
            }
            None => None,
        };
        let name = format!("j{}", self.submitted);
        let group = group.map(|name| Group { name, size: 2 });
        let (mut spec, plan) = make::job(&mut self.jobs, name, group);
        self.delay(&mut spec);
        if let Some(dice) = self.arrays.as_mut().filter(|_| spec.group.is_none()) {
            spec.array = make::array(dice);
        }
        self.submitted += 1;
        // A shape that the cluster refuses as it stands (ranks per island that do not divide) is no event.
        if let Err(why) = self.world.submit(Arc::new(spec), plan) {
            self.world.note("refused", why.to_string());
        }
    }

    /// In a storm with a kept pool.
    fn about_pools(&mut self, say: fn(&mut Dice, &mut World) -> Result<(), Refusal>) {
        let Some(dice) = &mut self.pools else { return };
        if let Err(why) = say(dice, &mut self.world) {
            self.world.note("refused", why.to_string());
        }
    }

    /// In a storm with promises.
    fn promise(&mut self) {
        let Some(dice) = &mut self.promises else { return };
        if let Err(why) = promises::say(dice, &mut self.world) {
            self.world.note("refused", why.to_string());
        }
    }

    /// Maintenance is planned, in a storm that has a calendar.
    fn maintain(&mut self) {
        let Some(dice) = &mut self.calendar else { return };
        if !dice.one_in(25) {
            return;
        }
        let node = NodeId(dice.below(self.world.cluster().nodes.len() as u64) as u32);
        let from = self.world.now() + Span::seconds(dice.below(4 * 3_600));
        let until = from + Span::seconds(dice.between(60, 2 * 3_600));
        let input = Input::Maintain { node, from, until, by: OPERATOR.to_string() };
        self.world.note("statement", format!("{input:?}"));
        if let Err(why) = self.world.ask(input) {
            self.world.note("refused", why.to_string());
        }
    }

    /// Some jobs wait for others, also for such as have ended, or for a time.
    fn delay(&mut self, spec: &mut JobSpec) {
        if self.jobs.one_in(8) {
            spec.begin = Some(self.world.now() + Span::seconds(self.jobs.below(2 * 3_600)));
        }
        if let Some(dice) = &mut self.calendar {
            date(dice, spec, self.world.now());
        }
        if let Some(dice) = &mut self.pools {
            pools::join(dice, spec);
        }
        while self.submitted > 0 && self.jobs.one_in(6) {
            let job = JobId(1 + self.jobs.below(self.submitted as u64));
            let kinds = [DependencyKind::AfterOk, DependencyKind::AfterNotOk, DependencyKind::AfterAny];
            let kind = kinds[self.jobs.below(3) as usize].clone();
            let ended = self.world.job(job).map(|job| job.state).filter(|state| state.is_terminal());
            let met = ended.is_some_and(|state| match kind {
                DependencyKind::AfterOk => state == JobState::Done,
                DependencyKind::AfterNotOk => state != JobState::Done,
                DependencyKind::AfterAny => true,
            });
            if spec.after.iter().all(|other| other.job != job) {
                spec.after.push(Dependency { job, kind, met });
            }
        }
    }

    /// A process on the node, if one runs there, ends by itself: it fails, is killed, or asks to run again.
    fn crash(&mut self, node: NodeId) {
        let runs = self.world.processes(node).iter().filter(|(_, held)| held.process == Process::Running);
        let running: Vec<Key> = runs.map(|(key, _)| *key).collect();
        let Some(key) = self.choice.pick(&running).copied() else { return };
        let exits = [Exit::Code(1), Exit::Signal(9), Exit::Signal(11), Exit::Code(EXIT_REQUEUE)];
        let exit = exits[self.choice.below(4) as usize].clone();
        self.world.note("statement", format!("job {} rank {} on node {node} ends: {exit:?}", key.0, key.2));
        self.world.crash(node, key, exit);
    }

    /// Something that a person asks of a random live job; a refusal for its state is an answer.
    fn ask(&mut self, input: impl Fn(JobId, String) -> Input) {
        let live: Vec<JobId> = self.world.cluster().jobs.keys().copied().collect();
        let one_of_an_array = self.of_an_array();
        let Some(job) = one_of_an_array.or_else(|| self.choice.pick(&live).copied()) else { return };
        let input = input(job, OPERATOR.to_string());
        self.world.note("statement", format!("{input:?}"));
        if let Err(why) = self.world.ask(input) {
            self.world.note("refused", why.to_string());
        }
    }

    /// An array, or a task of one that may be no job yet, or no more.
    fn of_an_array(&mut self) -> Option<JobId> {
        let dice = self.arrays.as_mut()?;
        let arrays: Vec<Arc<Job>> = self.world.cluster().arrays.values().cloned().collect();
        let array = dice.pick(&arrays).filter(|_| dice.one_in(2))?;
        let tasks = array.task_ids();
        Some(JobId(if dice.one_in(4) { array.id.0 } else { dice.between(tasks.start.0, tasks.end.0 - 1) }))
    }

    fn resize(&mut self) {
        let elastic =
            self.world.cluster().jobs.values().filter(|job| job.spec.is_elastic() || job.resized_at.is_some());
        let elastic: Vec<(JobId, Gang)> = elastic.map(|job| (job.id, job.filed.unwrap_or(job.spec.gang))).collect();
        let Some((job, gang)) = self.sizes.pick(&elastic).copied() else { return };
        // Now and then a size that is none.
        let workers = match self.sizes.between(1, 8) as u32 {
            8 => 8,
            nth => gang.size_below(nth % (gang.sizes_above(gang.least()) + 1)),
        };
        let input = Input::Resize { job, workers, by: OPERATOR.to_string() };
        self.world.note("statement", format!("{input:?}"));
        if let Err(why) = self.world.ask(input) {
            self.world.note("refused", why.to_string());
        }
    }

    fn on_node(&mut self, what: &str, node: NodeId, act: impl Fn(&mut World, NodeId)) {
        let name = self.world.cluster().node(node).name.clone();
        self.world.note("statement", format!("{what} {name}"));
        act(&mut self.world, node);
    }

    /// A report that came before comes again, or one that nobody can have sent.
    fn late_report(&mut self, node: NodeId) {
        let recent = self.world.recent_reports().to_vec();
        let (node, report) = match self.choice.pick(&recent).cloned() {
            Some(again) if !self.choice.one_in(4) => again,
            _ => (node, self.impossible_report()),
        };
        self.world.note("statement", format!("late report by node {node}: {report:?}"));
        self.world.stale_report(node, report);
    }

    fn impossible_report(&mut self) -> Report {
        let job = JobId(self.choice.below(self.submitted as u64 + 3));
        let newest = self.world.job(job).map_or(0, |job| job.attempts.0);
        let attempt = AttemptNo(newest + 1 + self.choice.below(2) as u32);
        let rank = ganger_core::model::ids::Rank(self.choice.below(8) as u32);
        match self.choice.below(4) {
            0 => Report::Prepared { job, attempt, rank, port: 1 },
            1 => Report::Running { job, attempt, rank },
            2 => Report::Ended { job, attempt, rank, exit: Exit::Code(0) },
            _ => Report::Checkpoint { job, attempt, step: u64::MAX, path: "/nowhere".to_string() },
        }
    }

    /// Everything is mended and everybody lets go; then what can end ends.
    fn aftermath(&mut self) {
        self.world.note("statement", "the storm is over");
        while self.half_group.is_some() {
            self.submit();
        }
        for index in 0..self.world.cluster().nodes.len() {
            let node = NodeId(index as u32);
            self.world.set_refusing(node, false);
            self.world.heal(node);
            self.world.recover(node);
            self.world.uncordon(node);
        }
        if let Some(Err(why)) = self.promises.as_ref().map(|_| promises::take_back(&mut self.world)) {
            self.world.note("refused", why.to_string());
        }
        let cluster = self.world.cluster();
        let held_tasks = |array: &Job| array.array.as_ref().is_some_and(|state| !state.held.is_empty());
        let held = |job: &&Arc<Job>| job.held_by.is_some() || held_tasks(job);
        let held: Vec<JobId> =
            cluster.arrays.values().chain(cluster.jobs.values()).filter(held).map(|job| job.id).collect();
        // With an array its tasks are released.
        for job in held {
            if let Err(why) = self.world.ask(Input::Release { job, by: OPERATOR.to_string() }) {
                self.world.note("refused", why.to_string());
            }
        }
        let until = self.world.now() + AFTERMATH;
        self.world.run_out(until);
    }

    /// Jobs that wait although they could run, and devices that nobody gave back.
    fn left_undone(&self) -> Vec<Broken> {
        let cluster = self.world.cluster();
        let at_ms = self.world.now().0;
        let hopeless = |id: &JobId| {
            let reason = cluster.blocked.get(id).map(|blocker| blocker.reason());
            let never = [
                Reason::Unsatisfiable,
                Reason::QueueLimit,
                Reason::Budget,
                Reason::NodeFilter,
                Reason::Dependency,
                Reason::Window,
            ];
            reason.is_some_and(|reason| never.contains(&reason))
        };
        // What a budget stops in every period, before it could save, runs for ever.
        let rationed = |job: &Job| {
            let above = ancestry(&job.spec.queue).filter_map(|path| cluster.queues.get(path));
            job.attempt.is_some() && above.into_iter().any(|queue| queue.budget.is_some())
        };
        let rations = cluster.jobs.values().any(|job| rationed(job));
        // Windows of its group and the times in which a pool is lent may never be open together for long enough.
        let apart = |job: &Job| {
            let lent = cluster.blocked.get(&job.id).is_some_and(|blocker| blocker.reason() == Reason::Lending);
            let mate = |other: &&Arc<Job>| {
                other.id == job.id || (other.spec.group == job.spec.group && job.spec.group.is_some())
            };
            // So may what a budget leaves of each period.
            let above = ancestry(&job.spec.queue).filter_map(|path| cluster.queues.get(path));
            let budget = above.into_iter().any(|queue| queue.budget.is_some());
            lent && (budget || cluster.jobs.values().filter(mate).any(|job| !job.spec.windows.is_empty()))
        };
        // Who waits for what such a job holds at this moment waits for its next pause.
        let waits = |job: &Job| job.attempt.is_none() && (hopeless(&job.id) || apart(job) || rations);
        let stuck = |job: &&Arc<Job>| !waits(job) && !rationed(job);
        let waiting = cluster.jobs.values().filter(stuck).map(|job| {
            let (name, shape, wish) = (&job.spec.name, &job.spec.shape, &job.spec.topology);
            let (blocker, group) = (cluster.blocked.get(&job.id), &job.spec.group);
            let text = format!("{name} is {} for ever: {blocker:?}; it asks {shape:?} {wish:?} {group:?}", job.state);
            Broken { at_ms, rule: 5, text }
        });
        let held = cluster.nodes.iter().filter(|node| node.used() != Default::default() && !rations).map(|node| {
            let text = format!("{} still holds {:?} when all is over", node.name, node.used());
            Broken { at_ms, rule: 6, text }
        });
        let idle = |array: &&Arc<Job>| {
            let waits = array.spec.after.iter().any(|one| !one.met);
            !waits && cluster.tasks_of(array).next().is_none()
        };
        let arrays = cluster.arrays.values().filter(idle).map(|array| {
            let text = format!("array {} waits for ever: {:?}", array.spec.name, array.array);
            Broken { at_ms, rule: 5, text }
        });
        waiting.chain(held).chain(arrays).collect()
    }

    fn stats(&self, events: usize) -> Stats {
        let count = |state| self.world.all_jobs().filter(|job| job.state == state).count();
        Stats {
            events,
            submitted: self.submitted,
            done: count(JobState::Done),
            failed: count(JobState::Failed),
            cancelled: count(JobState::Cancelled),
            tasks: self.world.all_jobs().filter(|job| job.task.is_some() && job.state.is_terminal()).count(),
            left: self.world.cluster().jobs.len(),
            attempts: self.world.all_jobs().map(|job| u64::from(job.attempts.0)).sum(),
            evictions: self.world.all_jobs().map(|job| u64::from(job.evictions)).sum(),
            moves: self.world.all_jobs().map(|job| u64::from(job.moves)).sum(),
            shrinks: self.world.trace().iter().filter(|line| line.kind == "shrinking").count() as u64,
            resizes: self.world.trace().iter().filter(|line| line.kind == "resizing").count() as u64,
            failures: self.world.all_jobs().map(|job| u64::from(job.failures)).sum(),
            lost_gpu_ms: self.world.lost_gpu_ms(),
        }
    }
}

/// Some jobs have a deadline, some run in windows only.
fn date(dice: &mut Dice, spec: &mut JobSpec, now: Time) {
    if let Some(limit) = spec.time_limit.filter(|_| dice.one_in(5)) {
        spec.deadline = Some(now + limit + Span::seconds(dice.below(3 * 3_600)));
    }
    if dice.one_in(6) {
        let from_min = dice.below(1_440) as u16;
        let until_min = (from_min + dice.between(30, 1_200) as u16) % 1_440;
        spec.windows = vec![Window { days: 0x7f, from_min, until_min, zone: Zone::default() }];
    }
}
