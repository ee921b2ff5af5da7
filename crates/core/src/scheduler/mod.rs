//! `decide`: which pending job goes next, on which devices, and who must yield for it.
//!
//! A pure function of the cluster and the moment. The order of service is walked once. Each unit (a job, or a group that
//! starts as one) is placed whole on the draft, or gets a typed reason. A unit that cannot start now is told whether it
//! ever could; if it may evict, the cheapest legal set of victims is searched and its devices are claimed; else its
//! earliest start is reserved, and whoever comes after may not move it later.
#![deny(clippy::float_arithmetic)]

mod allowed;
mod attained;
mod book;
mod budget;
mod calendar;
mod claims;
mod consolidate;
mod counts;
mod displace;
mod draft;
mod elastic;
mod estimate;
mod filter;
mod fit;
pub mod fragment;
mod guest;
mod held;
mod later;
mod never;
mod offers;
mod order;
mod outlook;
mod place;
mod pools;
mod preempt;
mod protect;
mod reclaim;
mod reserve;
mod room;
mod share;
mod short;
mod slices;
mod together;
mod tree;
mod turns;
pub mod uplinks;
mod victims;
mod whole;
mod why;
mod why_arrays;
mod why_gates;
mod why_running;

pub use room::MAX_SOCKETS;
pub use why::{dry_run, never, why};

use crate::model::amounts::{Limit, Resources};
use crate::model::cluster::Cluster;
use crate::model::decision::{Blocker, Decision, Step};
use crate::model::ids::{AttemptNo, JobId, NodeId};
use crate::model::job::{Job, JobSpec, Level, Place, Priority, Shape, TopologyWish};
use crate::model::queue::ancestry;
use crate::model::time::{Span, Time};
use crate::model::window::Window;
use book::{Amounts, FreedKey};
use draft::Draft;
use elastic::Asking;
use filter::Pick;
pub(crate) use held::{Held, Hold};
use later::{Later, Timeline};
use offers::Offers;
use outlook::Outlook;
use place::Miss;
use reserve::Reserved;
use share::Ask;
use short::Shortfall;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use together::place_together;
use tree::Tree;
use turns::Turns;
use victims::Pool;

/// Decides for the cluster as it is at `now`.
pub fn decide(cluster: &Cluster, now: Time) -> Decision {
    let asking = Asking::of(cluster, now);
    let mut session = Session::new(cluster, &asking, now);
    let units = order::units(cluster, &asking, now, &session.started);
    session.walk(&units);
    session.finish()
}

/// All jobs of a unit: a gang alone, or the gangs of one group, most senior first.
pub(crate) type Unit<'a> = Vec<&'a Job>;

/// The walk through the order of service.
pub(crate) struct Session<'a> {
    pub cluster: &'a Cluster,
    pub asking: &'a Asking,
    pub now: Time,
    pub draft: Draft<'a>,
    /// What the machines hold with nothing on them; made when it is first asked for.
    empty: Option<Draft<'a>>,
    pub tree: Tree,
    pub steps: Vec<Step>,
    pub blocked: BTreeMap<JobId, Blocker>,
    pub reserved: Vec<Reserved>,
    /// When what is held now comes free, with the places: running work, starts of this decision, claims.
    pub ends: Vec<Held<'a>>,
    queue_used: BTreeMap<&'a str, Resources>,
    /// Of that, what was told to leave.
    leaving_use: BTreeMap<&'a str, Resources>,
    /// What the budgets have to be able to pay for what runs and was promised; see [`budget`].
    committed: BTreeMap<budget::PurseKey<'a>, budget::Committed>,
    /// For reclaiming; see [`reclaim`].
    holders: Option<std::rc::Rc<reclaim::Holders<'a>>>,
    groups: order::Groups<'a>,
    /// What the victims of claims free and nobody took yet, by victims.
    freed: BTreeMap<FreedKey, Amounts>,
    /// What of its memory and bandwidth each claim still waits for.
    awaited: BTreeMap<JobId, Amounts>,
    /// Some GPU is split, or is by what the walk before decided, so any start may have to wait for one.
    splits: bool,
    /// Whose entries in `ends` are claims: those in flight and those of this decision.
    promised: BTreeSet<JobId>,
    /// Claimants that start elsewhere: what was kept for them is free again.
    pub given_up: BTreeSet<JobId>,
    /// Told to stop by this decision: nobody can be told twice.
    pub leaving: BTreeSet<JobId>,
    /// Claimants of this decision.
    pub claiming: BTreeMap<JobId, Blocker>,
    /// Whose start is a step of this decision.
    pub started: BTreeSet<JobId>,
    /// How often this decision looked for jobs to move.
    searches: u32,
    /// The work units spent before this walk.
    walk_from: u64,
    /// A unit found places that only a limit on the memory of their GPUs forbids: when others start, it may find others.
    picky: bool,
    /// Something was taken back: the walk has to begin again.
    pub again: bool,
    /// Their start as guests was taken back: no use trying again.
    pub unwelcome: BTreeSet<JobId>,
    /// These were asked once more when all else was settled.
    pub asked_unwelcome: bool,
    /// Whose claim of this decision was taken back because a gate closed for it: nobody is told to leave for them again.
    vain: BTreeMap<JobId, Blocker>,
    /// Whose start was taken back for somebody who waits for what others leave, and could stop them at once.
    outdone: BTreeMap<JobId, Blocker>,
    /// Some node does not take work now, or will not at a time that is known.
    pub closings: bool,
    /// Some queue goes by attained service.
    pub by_service: bool,
    /// Whole nodes are promised to some queue.
    promises_nodes: bool,
    /// The nodes that are kept for these; made when they are first asked for, and again after the books changed.
    kept_nodes: RefCell<Option<Rc<whole::AllKept<'a>>>>,
    /// Some queue has a limit; some queue has a budget.
    limited: bool,
    budgeted: bool,
    /// Everyone who could leave; made when it is first asked for.
    pool: Option<Rc<Pool<'a>>>,
    /// Of them, whom a claimant may stop where only its class gives a right.
    rights: BTreeMap<Priority, Vec<bool>>,
    offers: Vec<Offers>,
    /// What is free at coming moments.
    later: Vec<Later<'a>>,
    timeline: Timeline,
    outlooks: Vec<Outlook>,
    /// By how much gangs of such workers miss.
    shortfalls: Vec<Shortfall>,
    /// Requests that failed already: equal ones fail for the same reason, and start no sooner than the last of them.
    failed: BTreeMap<ClassKey<'a>, (Blocker, Time)>,
    /// Whether an empty healthy cluster holds such a gang; if not, by how much it misses.
    satisfiable: BTreeMap<GangKey<'a>, Option<Miss>>,
}

/// What makes two pending jobs equal to the scheduler.
type ClassKey<'a> = (Priority, bool, &'a str, GangKey<'a>, Option<Span>, [Span; 2], &'a [Window]);
type GangKey<'a> = (&'a Shape, u32, TopologyWish, Option<&'a str>, bool, Vec<&'a str>);

fn gang_key<'a>(cluster: &'a Cluster, spec: &'a JobSpec) -> GangKey<'a> {
    let pool = spec.pool.as_deref();
    (&spec.shape, spec.gang.workers, spec.topology, pool, filter::yields(spec), cluster.lenders(spec))
}

/// Two jobs that save their work in other ways, or have other windows, differ in when they can leave again.
fn class_key<'a>(cluster: &'a Cluster, spec: &'a JobSpec) -> ClassKey<'a> {
    let policy = &cluster.policy;
    let least = if spec.can_save() { policy.least_stay(spec) } else { Span(u64::MAX) };
    let leaves = [least, policy.notice(spec)];
    (spec.priority, spec.preemptible, &spec.queue, gang_key(cluster, spec), spec.time_limit, leaves, &spec.windows)
}

impl<'a> Session<'a> {
    pub fn new(cluster: &'a Cluster, asking: &'a Asking, now: Time) -> Session<'a> {
        let mut session = Session {
            cluster,
            asking,
            now,
            draft: Draft::now(cluster),
            empty: None,
            tree: Tree::of(cluster),
            steps: Vec::new(),
            blocked: BTreeMap::new(),
            reserved: Vec::new(),
            ends: Vec::new(),
            queue_used: cluster.queues.iter().map(|(path, queue)| (path.as_str(), queue.used)).collect(),
            leaving_use: BTreeMap::new(),
            committed: BTreeMap::new(),
            holders: None,
            groups: order::groups(cluster),
            freed: BTreeMap::new(),
            awaited: BTreeMap::new(),
            splits: slices::leaves_splits(cluster, &[]),
            promised: BTreeSet::new(),
            given_up: BTreeSet::new(),
            leaving: BTreeSet::new(),
            claiming: BTreeMap::new(),
            started: BTreeSet::new(),
            searches: 0,
            walk_from: 0,
            picky: false,
            again: false,
            unwelcome: BTreeSet::new(),
            asked_unwelcome: false,
            vain: BTreeMap::new(),
            outdone: BTreeMap::new(),
            closings: calendar::may_change(cluster, now),
            by_service: attained::is_used(cluster),
            promises_nodes: cluster.promises_nodes(),
            kept_nodes: RefCell::default(),
            budgeted: cluster.queues.values().any(|queue| queue.budget.is_some()),
            limited: cluster.queues.values().any(|queue| queue.limit != Limit::default()),
            pool: None,
            rights: BTreeMap::new(),
            offers: Vec::new(),
            later: Vec::new(),
            timeline: Timeline::default(),
            outlooks: Vec::new(),
            shortfalls: Vec::new(),
            failed: BTreeMap::new(),
            satisfiable: BTreeMap::new(),
        };
        session.note_all();
        session
    }

    /// Rounded outward: never before the next millisecond. A job without a limit is assumed to take as long again
    /// whenever it outlives the assumption.
    fn expected_end(&self, job: &Job, from: Time) -> (Time, bool) {
        match job.spec.time_limit {
            Some(limit) => ((from + limit).max(self.now + Span(1)), false),
            None => {
                let assumed = self.cluster.policy.assumed_time;
                ((from + assumed).max(self.now + assumed.min(self.now.since(from))).max(self.now + Span(1)), true)
            }
        }
    }

    /// As [`Session::expected_end`] of one that starts at `from`, where its window may end sooner.
    fn end_of_start(&self, job: &Job, from: Time) -> (Time, bool) {
        self.end_on(job, (from, from), std::iter::empty())
    }

    /// The end where it was placed and runs from a moment on: its window may end before, or maintenance come.
    fn end_on(&self, job: &Job, (placed, from): (Time, Time), nodes: impl Iterator<Item = NodeId>) -> (Time, bool) {
        let (end, assumed) = self.expected_end(job, from);
        match self.cluster.gone_by(job, (placed, from), nodes) {
            Some(by) if by < end => (by.max(self.now + Span(1)), false),
            _ => (end, assumed),
        }
    }

    fn consider(&mut self, unit: &Unit<'a>) {
        if unit[0].attempt.is_some() {
            return self.grow(unit);
        }
        if let Some(unclaimed) = self.without_claim(unit) {
            return self.consider(&unclaimed);
        }
        let claimed = unit.iter().any(|job| self.claim_of(job.id).is_some());
        if let Some(blocker) = self.closed_gate(unit) {
            self.block(unit, blocker);
            if claimed {
                self.give_up(unit, "a gate has closed for it since");
            }
        } else if claimed {
            self.continue_claim(unit);
        } else if let Some(outdone) = self.outdone.get(&unit[0].id).cloned() {
            self.block(unit, outdone);
        } else if self.draft.work > self.cluster.policy.budget {
            self.block(unit, Blocker::NotReached);
        } else if unit.len() == 1
            && let Some((blocker, from)) = self.failed.get(&class_key(self.cluster, &unit[0].spec)).cloned()
        {
            self.fail(unit, blocker, from);
        } else {
            self.try_to_start(unit);
        }
    }

    /// Reserves a start for a unit that cannot start now, `from` which an equal one before it may be the first to start.
    fn fail(&mut self, unit: &Unit<'a>, blocker: Blocker, from: Time) {
        let next = self.reserve(unit, from).unwrap_or(from);
        if unit.len() == 1 && (next > from || !self.failed.contains_key(&class_key(self.cluster, &unit[0].spec))) {
            let from = next;
            self.failed.insert(class_key(self.cluster, &unit[0].spec), (blocker.clone(), from));
        }
        self.block(unit, blocker);
    }

    fn block(&mut self, unit: &Unit<'a>, blocker: Blocker) {
        for job in unit {
            self.blocked.insert(job.id, blocker.clone());
        }
    }

    /// Gates that have nothing to do with devices.
    fn closed_gate(&self, unit: &Unit<'a>) -> Option<Blocker> {
        let closed = unit.iter().find_map(|job| order::closed_gate(self, job));
        let spent = || self.over_limit(unit).or_else(|| self.over_budget(unit));
        closed.or_else(|| spent().map(|blocker| self.or_never(unit, blocker)))
    }

    fn is_open(&self, job: &Job) -> bool {
        order::closed_gate(self, job).is_none()
    }

    /// What the unit asks for; a claim is charged already.
    fn ask_of(&self, unit: &Unit<'a>) -> Ask {
        let wanted = unit.iter().fold(Resources::ZERO, |sum, job| sum.plus(job.spec.total()));
        Ask { wanted, charged: self.promised.contains(&unit[0].id) || self.started.contains(&unit[0].id) }
    }

    /// The first limit of the queue tree that the unit would break by what it asks, now or when a reserved start comes.
    fn over_limit(&self, unit: &Unit<'a>) -> Option<Blocker> {
        self.over_limit_with(unit, unit.iter().map(|job| job.spec.total()))
    }

    /// The first limit that it would break on these places: its GPUs may have more memory than it asked for.
    pub fn over_limit_on(&mut self, unit: &Unit<'a>, places: &[Vec<Place>]) -> Option<Blocker> {
        let blocker = self.over_limit_with(unit, places.iter().map(book::held_by));
        self.picky |= blocker.is_some();
        blocker
    }

    /// What the unit claims is charged already.
    pub fn over_limit_with(&self, unit: &Unit<'a>, holds: impl Iterator<Item = Resources>) -> Option<Blocker> {
        if !self.limited {
            return None;
        }
        let mut sums: BTreeMap<&str, (Resources, Resources)> = BTreeMap::new();
        for (job, holds) in unit.iter().zip(holds) {
            let charged = self.promised_to(job.id).map_or(Resources::ZERO, |claim| book::held_by(&claim.places));
            for path in ancestry(&job.spec.queue) {
                let (asks, claimed) = sums.entry(path).or_default();
                (*asks, *claimed) = (asks.plus(holds), claimed.plus(charged));
            }
        }
        sums.into_iter().find_map(|(path, (asks, claimed))| {
            let limit =
                &self.cluster.queues.get(path).map(|queue| queue.limit).filter(|limit| *limit != Limit::default())?;
            let used = self.queue_used.get(path).copied().unwrap_or_default().less(claimed);
            let used = used.plus(self.reserved_in(path, unit));
            let (resource, total, limit) = limit.exceeded_by(used.plus(asks), asks)?;
            let asks = asks.named(resource);
            let (queue, resource) = (path.to_string(), resource.to_string());
            Some(Blocker::QueueLimit { queue, resource, used: total.saturating_sub(asks), asks, limit })
        })
    }

    fn try_to_start(&mut self, unit: &Unit<'a>) {
        match self.place_beside_reservations(unit) {
            Ok(places) => match self.over_limit_on(unit, &places) {
                Some(blocker) => self.block(unit, blocker),
                None => self.start(unit, places),
            },
            Err(_) if self.displace(unit) || self.start_as_guest(unit) => {}
            Err(miss) => self.make_room(unit, &miss),
        }
    }

    /// Evicts if that is right and helps, else explains and reserves.
    fn make_room(&mut self, unit: &Unit<'a>, miss: &Miss) {
        if let Some(text) = self.unsatisfiable(unit) {
            return self.fail(unit, Blocker::Unsatisfiable { text }, Time(0));
        }
        if let Some(closed) = self.vain.get(&unit[0].id).cloned() {
            return self.block(unit, closed);
        }
        if let Some(yielding) = self.preempt(unit).or_else(|| self.displace_and_preempt(unit)) {
            return self.block(unit, yielding);
        }
        let blocker = self.explain_miss(unit, miss);
        if let Some(yielding) = self.consolidate(unit, &blocker) {
            return self.block(unit, yielding);
        }
        self.fail(unit, blocker, Time(0));
    }

    /// Places every job of the unit, or none; beside what is promised to other queues. The draft may be left as it was.
    pub fn place_unit(&mut self, unit: &Unit<'a>) -> Result<Vec<Vec<Place>>, Miss> {
        self.place_unit_at(unit, self.now)
    }

    /// As if it started at `at`.
    pub fn place_unit_at(&mut self, unit: &Unit<'a>, at: Time) -> Result<Vec<Vec<Place>>, Miss> {
        let now = self.now;
        let pick = if at > now && self.closings { Pick::Opening { now, at } } else { Pick::Accepting(now) };
        let fenced = self.fence_off(unit, at);
        let found = place_together(&mut self.draft, &self.tree, unit, pick);
        if let Some(mark) = fenced {
            self.draft.undo_to(mark);
        }
        found
    }

    fn start(&mut self, unit: &Unit<'a>, places: Vec<Vec<Place>>) {
        let places = self.widened(unit, places);
        for (job, places) in unit.iter().zip(places) {
            let attempt = AttemptNo(job.attempts.0 + 1);
            self.add(Step::Start { job: job.id, attempt, places, guest_of: Vec::new() });
        }
    }

    /// Asks every unit in the order of service. What is taken back (a claim, or a start that somebody ahead could stop as
    /// soon as it runs) leaves devices that those who were refused before may use, so the walk begins again there and
    /// then, with what is settled left as it is: whoever comes later must not take them first. Beside what starts now
    /// reservations may come to lie elsewhere, so then those who were refused are asked once more: the next decision has
    /// nothing to add. It ends: claims in flight are given up once, and starts make way only for a higher class.
    fn walk(&mut self, all: &[Unit<'a>]) {
        loop {
            let left = self.by_service.then(|| order::units(self.cluster, self.asking, self.now, &self.started));
            let units = left.as_deref().unwrap_or(all);
            let steps = self.steps.len();
            (self.again, self.picky, self.walk_from) = (false, false, self.draft.work);
            self.splits = slices::leaves_splits(self.cluster, &self.steps);
            self.blocked.clear();
            self.failed.clear();
            self.forget_reserved();
            let mut turns = Turns::new(self, units);
            while let Some(unit) = turns.next(self).map(|index| &units[index]) {
                match self.claiming.get(&unit[0].id) {
                    Some(yielding) if unit[0].attempt.is_none() => self.reconsider_claim(unit, yielding.clone()),
                    _ if self.started.contains(&unit[0].id) => {}
                    _ => self.consider(unit),
                }
                if self.again {
                    break;
                }
            }
            // What starts now also moves the shares, and with them who goes first among those who wait.
            let stale = turns.shared || self.picky || !self.reserved.is_empty() || self.gives_rights();
            let moved = self.steps.len() > steps && stale && self.draft.work <= self.cluster.policy.budget;
            if !self.again && !moved && !self.sends_guests_home(all) && !self.asks_unwelcome_again() {
                return;
            }
        }
    }

    /// What starts may put its queue beyond its guarantee: then somebody who waits may stop others of it.
    fn gives_rights(&self) -> bool {
        !self.blocked.is_empty() && self.cluster.queues.values().any(|queue| queue.guaranteed() != Limit::default())
    }

    pub fn place_unit_and_undo(&mut self, unit: &Unit<'a>) -> bool {
        let mark = self.draft.mark();
        let fits = self.place_unit(unit).is_ok();
        self.draft.undo_to(mark);
        fits
    }

    fn finish(self) -> Decision {
        Decision {
            at: self.now,
            based_on: self.cluster.version,
            steps: slices::with_repartitions(self.cluster, self.steps),
            reservations: self.reserved.into_iter().map(|reserved| reserved.reservation).collect(),
            blocked: self.blocked,
            work: self.draft.work,
        }
    }
}

/// Whether a requirement is about more than one node.
pub(crate) fn within_node(level: Option<Level>) -> bool {
    level.is_some_and(|level| level <= Level::Node)
}
