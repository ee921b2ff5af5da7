//! Who must yield: the cheapest legal set of whole gangs whose devices, once free, hold the claimant.
//!
//! Alternatives without eviction come first (the caller has tried them). A trial runs on the draft and leaves no trace
//! unless it ends in a placement. Victims are added by the work that is really lost per worker gained; then everyone who
//! turns out not to be needed is put back, most expensive first, so no victim of the final set could stay.
use super::claims::waits_for_devices;
use super::draft::Stand;
use super::offers::{Scene, Search};
use super::reclaim::{Claimant, Leaving};
use super::victims::{Pool, Victim};
use super::{Session, Unit, within_node};
use crate::model::attained;
use crate::model::decision::{Blocker, Claim, Step};
use crate::model::ids::{AttemptNo, JobId, NodeId, Rank};
use crate::model::job::{Job, JobSpec, Level, Place, Priority, StopWhy};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// At most so many domains are tried with real placements, cheapest estimate first.
const DOMAINS_TRIED: usize = 8;

/// So many plans are made where the cheapest would stop more of a queue than is right.
pub const PLANS_TRIED: usize = 16;

/// Victims by index and where the unit's jobs then are.
pub struct Plan {
    victims: BTreeSet<usize>,
    places: Vec<Vec<Place>>,
    pub cost: u128,
}

/// What earlier reservations keep back from a claimant, by node, with what is free there without them.
pub type Kept = BTreeMap<NodeId, (Stand, Vec<Place>)>;

/// A first guess in one domain: what it would cost, who leaves, the nodes.
type Guess = (u128, BTreeSet<usize>, Vec<NodeId>);

/// What every trial for one claimant has in common.
pub struct Trial<'s, 'a> {
    pub unit: &'s Unit<'a>,
    pub pool: &'s Pool<'a>,
    pub legal: &'s [bool],
    pub kept: Kept,
}

/// Whether `claimant` has the right to stop `job`: by genuine class, or by rotation among peers. Age never gives this
/// right. Who earned protected run time yields by class to P0 only.
pub fn may_evict(session: &Session<'_>, claimant: &Job, job: &Job) -> bool {
    let by_class = outclasses(session, &claimant.spec, job);
    (by_class || attained::may_rotate(session.cluster, claimant, job, session.now))
        && !session.cluster.shelters(&claimant.spec, &job.spec)
}

/// Whether the unit may stop the job, by the right of each of its jobs; or, where somebody of its gang is a guest in the
/// kept pool whose own they are.
pub fn may_free(session: &Session<'_>, unit: &Unit<'_>, job: &Job, guests: bool) -> bool {
    let by_right = |one: &&Job| guests && session.cluster.may_host(&one.spec, &job.spec);
    unit.iter().all(|one| may_evict(session, one, job) || by_right(one)) || session.asks_back(unit, job)
}

fn outclasses(session: &Session<'_>, claimant: &JobSpec, job: &Job) -> bool {
    claimant.priority <= session.cluster.policy.preempt_from
        && job.spec.priority > claimant.priority
        && job.spec.preemptible
        && (claimant.priority == Priority::P0 || !session.cluster.is_protected(job, session.now))
}

impl<'a> Session<'a> {
    /// Stops the cheapest victims and claims their devices for the unit; `None` if it may not or that would not help. Who
    /// would have to give up its claim for somebody ahead stops nobody either, also while only a limit keeps that one out of
    /// the way: the victims may be what fills the limit, and would come back and go again for ever.
    pub fn preempt(&mut self, unit: &Unit<'a>) -> Option<Blocker> {
        let claimant = self.claimant(unit);
        let powerless = self.is_powerless(unit, claimant.as_ref());
        if powerless || self.stops_in_vain(unit) || self.frees_by_itself(unit) {
            return None;
        }
        let pool = self.pool();
        let legal = self.legal_for(unit, claimant.as_ref(), &pool);
        let mark = self.draft.mark();
        self.hold_back_wanted_pools(unit);
        let plan = self.rightful_plan(unit, claimant.as_ref(), &pool, legal);
        self.draft.undo_to(mark);
        // Where nobody has to go but starts that were taken back for it, these had a right to stay.
        let plan = plan.filter(|plan| !plan.victims.is_empty())?;
        Some(self.commit(unit, &pool, plan))
    }

    /// Whether somebody ahead could stop the unit at once. What is promised to its queue nobody else takes.
    pub fn stops_in_vain(&self, unit: &Unit<'a>) -> bool {
        !self.is_owed_nodes(unit) && self.outranked_by(unit, waits_or_is_limited).is_some()
    }

    /// Whether the unit may stop nobody at all, whoever that is.
    pub fn is_powerless(&self, unit: &Unit<'a>, claimant: Option<&Claimant<'a>>) -> bool {
        let policy = &self.cluster.policy;
        let alone = |job: &&'a Job| job.spec.priority > policy.preempt_from && !attained::is_las(self.cluster, job);
        claimant.is_none() && self.cluster.pools.is_empty() && unit.iter().any(alone) && !self.is_owed_nodes(unit)
    }

    fn rightful_plan(
        &mut self,
        unit: &Unit<'a>,
        claimant: Option<&Claimant<'a>>,
        pool: &Pool<'a>,
        mut legal: Vec<bool>,
    ) -> Option<Plan> {
        for _ in 0..PLANS_TRIED {
            let plan = self.plan(unit, pool, &legal)?;
            if self.over_limit_on(unit, &plan.places).is_some() {
                return None;
            }
            let wrong = self.wrong_victims(unit, claimant, pool, &plan);
            // Another plan without the one that is dearest to lose.
            match wrong.into_iter().max_by_key(|index| (pool.victims[*index].cost, *index)) {
                Some(stays) => legal[stays] = false,
                None => return Some(plan),
            }
        }
        None
    }

    /// The victims of a plan that may be stopped by themselves for a guarantee, but not all together.
    fn wrong_victims(
        &self,
        unit: &Unit<'a>,
        claimant: Option<&Claimant<'a>>,
        pool: &Pool<'a>,
        plan: &Plan,
    ) -> Vec<usize> {
        let Some(claimant) = claimant else { return Vec::new() };
        let inside = |i: &usize| pool.victims[*i].part.as_ref().is_some_and(|(_, whole)| plan.victims.contains(whole));
        let by_class = |i: &usize| {
            let victim = &pool.victims[*i];
            let guests = self.are_guests(unit, victim);
            victim.jobs.iter().all(|job| may_free(self, unit, job, guests))
        };
        let (by_class, reclaimed): (Vec<usize>, Vec<usize>) =
            plan.victims.iter().copied().filter(|i| !inside(i)).partition(by_class);
        if reclaimed.is_empty() {
            return Vec::new();
        }
        let leaving = |victims: &[usize]| -> Vec<Leaving<'_, 'a>> {
            victims.iter().map(|i| pool.victims[*i].leaving()).collect()
        };
        self.wrongly_stopped(claimant, &leaving(&reclaimed), &leaving(&by_class))
            .into_iter()
            .map(|at| reclaimed[at])
            .collect()
    }

    /// The cheapest plan over the domains that the unit may be in. Counting finds every domain that could hold it.
    fn plan(&mut self, unit: &Unit<'a>, pool: &Pool<'a>, legal: &[bool]) -> Option<Plan> {
        let guesses = self.guesses(unit, pool, legal);
        let about_parts = self.is_about_parts(unit);
        if guesses.is_empty() && !about_parts {
            return None;
        }
        let mark = self.draft.mark();
        let trial = Trial { unit, pool, legal, kept: self.keep_back(unit) };
        let whole = if guesses.is_empty() { None } else { self.best_plan(&trial, guesses) };
        let plan = if about_parts { cheaper(whole, self.plan_parts(&trial)) } else { whole };
        self.draft.undo_to(mark);
        plan
    }

    /// Cheapest first.
    fn guesses(&mut self, unit: &Unit<'a>, pool: &Pool<'a>, legal: &[bool]) -> Vec<Guess> {
        if !legal.contains(&true) {
            return Vec::new();
        }
        let domains = self.domains(unit);
        let Some((spec, offers)) = self.offers_to(unit, pool, legal) else { return Vec::new() };
        let scene = Scene { session: self, spec, pool };
        let guess = |domain: Vec<NodeId>| {
            let first = Search::first_guess(scene, &offers, &domain)?;
            Some((first.iter().map(|i| pool.victims[*i].cost).sum(), first, domain))
        };
        let mut guesses: Vec<Guess> = domains.into_iter().filter_map(guess).collect();
        guesses.sort_by(|a, b| (a.0, a.2.first()).cmp(&(b.0, b.2.first())));
        self.keep_offers(offers);
        guesses
    }

    fn best_plan(&mut self, trial: &Trial<'_, 'a>, guesses: Vec<Guess>) -> Option<Plan> {
        let all: BTreeSet<usize> = (0..trial.legal.len()).filter(|i| trial.legal[*i]).collect();
        let mut best: Option<Plan> = None;
        for (estimate, first, domain) in guesses.into_iter().take(DOMAINS_TRIED) {
            if best.as_ref().is_some_and(|plan| plan.cost <= estimate) {
                break;
            }
            // Counting is by node and knows nothing of islands and reservations: it may be that nothing helps.
            if !self.fits_without(trial, &first) && !self.fits_without(trial, &all) {
                return None;
            }
            if let Some(plan) = self.complete(trial, first, &domain) {
                best = Some(best.filter(|old| old.cost <= plan.cost).unwrap_or(plan));
            }
        }
        if best.is_none() && self.fits_without(trial, &all) {
            return self.prune(trial, all);
        }
        best
    }

    /// Sets of nodes, ascending, of which one has to hold the unit: those of the required level.
    fn domains(&self, unit: &Unit<'a>) -> Vec<Vec<NodeId>> {
        let require = unit.iter().filter_map(|job| job.spec.topology.require).min();
        let nodes = || self.cluster.nodes.iter().map(|node| node.id);
        let mut domains: Vec<Vec<NodeId>> = match require {
            None | Some(Level::Cluster) => vec![nodes().collect()],
            level if within_node(level) && level != Some(Level::Island) => nodes().map(|node| vec![node]).collect(),
            Some(Level::Spine) => {
                let of_leaf = |leaf: &crate::model::LeafId| self.tree.leaves[leaf.index()].clone();
                self.tree.spines.iter().map(|leaves| leaves.iter().flat_map(of_leaf).collect()).collect()
            }
            _ => self.tree.leaves.clone(),
        };
        domains.iter_mut().for_each(|domain| domain.sort_unstable());
        domains
    }

    /// From a first guess to a minimal set: more victims while the unit does not fit, cheapest first, then all back who
    /// need not go. More gone never fits less, so how many more can be bisected.
    fn complete(&mut self, trial: &Trial<'_, 'a>, first: BTreeSet<usize>, nodes: &[NodeId]) -> Option<Plan> {
        let victims = &trial.pool.victims;
        let inside = |i: usize| victims[i].places.iter().any(|place| nodes.binary_search(&place.node).is_ok());
        let mut others: Vec<usize> =
            (0..victims.len()).filter(|i| trial.legal[*i] && !first.contains(i) && inside(*i)).collect();
        others.sort_by_key(|i| (victims[*i].cost, Reverse(victims[*i].youngest)));
        let with = |more: usize| -> BTreeSet<usize> { first.iter().chain(&others[..more]).copied().collect() };
        let (mut few, mut enough) = (0, 0);
        while !self.fits_without(trial, &with(enough)) {
            if enough == others.len() {
                return None;
            }
            (few, enough) = (enough + 1, (enough * 2 + 1).min(others.len()));
        }
        while few < enough {
            let middle = (few + enough) / 2;
            if self.fits_without(trial, &with(middle)) { enough = middle } else { few = middle + 1 }
        }
        self.prune(trial, with(enough))
    }

    /// Puts back everyone without whom the unit still fits, the most expensive and the most senior first.
    pub fn prune(&mut self, trial: &Trial<'_, 'a>, mut chosen: BTreeSet<usize>) -> Option<Plan> {
        let victims = &trial.pool.victims;
        let mut order: Vec<usize> = chosen.iter().copied().collect();
        order.sort_by_key(|i| (Reverse(victims[*i].cost), victims[*i].youngest, *i));
        self.put_back(trial, &mut chosen, &order);
        let mark = self.draft.mark();
        self.leave(trial, &chosen);
        let places = self.place_unit(trial.unit).ok();
        self.draft.undo_to(mark);
        let cost = chosen.iter().map(|i| victims[*i].cost).sum();
        places.map(|places| Plan { victims: chosen, places, cost })
    }

    /// As asking for each in turn; but those of a run that may all stay are asked together.
    fn put_back(&mut self, trial: &Trial<'_, 'a>, chosen: &mut BTreeSet<usize>, run: &[usize]) {
        chosen.retain(|index| !run.contains(index));
        if run.is_empty() || self.fits_without(trial, chosen) {
            return;
        }
        chosen.extend(run);
        if run.len() > 1 {
            let (senior, junior) = run.split_at(run.len() / 2);
            self.put_back(trial, chosen, senior);
            self.put_back(trial, chosen, junior);
        }
    }

    pub fn fits_without(&mut self, trial: &Trial<'_, 'a>, gone: &BTreeSet<usize>) -> bool {
        let mark = self.draft.mark();
        self.leave(trial, gone);
        let fits = self.place_unit(trial.unit).is_ok();
        self.draft.undo_to(mark);
        fits
    }

    /// Lays what earlier reservations keep over the draft.
    pub fn keep_back(&mut self, unit: &Unit<'a>) -> Kept {
        let mut kept = Kept::new();
        for place in self.kept_from(unit).iter().flat_map(|places| places.iter()) {
            let stand = self.draft.stand(place.node);
            self.draft.take(place);
            kept.entry(place.node).or_insert((stand, Vec::new())).1.push(place.clone());
        }
        kept
    }

    /// The draft as it would be with `gone` away: what is kept stays kept, also of what they free.
    fn leave(&mut self, trial: &Trial<'_, 'a>, gone: &BTreeSet<usize>) {
        let victims = &trial.pool.victims;
        let inside_another = |i: &&usize| victims[**i].part.as_ref().is_some_and(|(_, whole)| gone.contains(whole));
        let mut again: BTreeMap<NodeId, Vec<&Place>> = BTreeMap::new();
        for place in gone.iter().filter(|i| !inside_another(i)).flat_map(|i| victims[*i].places.iter().copied()) {
            match trial.kept.contains_key(&place.node) {
                true => again.entry(place.node).or_default().push(place),
                false => self.draft.give_all([place]),
            }
        }
        for (node, freed) in again {
            let Some((before, kept)) = trial.kept.get(&node) else { continue };
            self.draft.put(node, before);
            self.draft.give_all(freed);
            self.draft.take_all(kept);
        }
    }

    fn commit(&mut self, unit: &Unit<'a>, pool: &Pool<'a>, plan: Plan) -> Blocker {
        let leaving: Vec<&Victim<'a>> = plan.victims.iter().map(|i| &pool.victims[*i]).collect();
        let grace = leaving.iter().map(|victim| victim.grace).max().unwrap_or_default();
        let deadline = self.now + grace + self.margins();
        let mut stopped = Vec::new();
        let mut shrunk: BTreeMap<(JobId, AttemptNo), Vec<Rank>> = BTreeMap::new();
        for (job, part) in leaving.iter().flat_map(|victim| victim.jobs.iter().map(|job| (job, &victim.part))) {
            let Some(attempt) = &job.attempt else { continue };
            match part {
                Some((ranks, _)) => shrunk.entry((job.id, attempt.number)).or_default().extend(ranks),
                None => {
                    let why = StopWhy::Preempted { claimant: unit[0].id };
                    self.add(Step::Stop { job: job.id, attempt: attempt.number, why });
                    stopped.push((job.id, attempt.number));
                }
            }
        }
        let mut restarting = Vec::new();
        for ((job, attempt), mut ranks) in shrunk {
            ranks.sort_unstable();
            restarting.push((job, ranks.clone()));
            self.add(Step::Shrink { job, attempt, ranks, claimant: unit[0].id });
            stopped.push((job, attempt));
        }
        let mut lost_gpu_ms = leaving.iter().fold(0u64, |sum, victim| sum.saturating_add(victim.lost_gpu_ms));
        for (job, places) in unit.iter().zip(plan.places) {
            let (claimant, victims, made_at) = (job.id, stopped.clone(), self.now);
            let (moves, resizes) = (false, false);
            self.add(Step::Claim(Claim { claimant, places, victims, made_at, deadline, lost_gpu_ms, moves, resizes }));
            lost_gpu_ms = 0;
        }
        for (job, ranks) in restarting {
            self.cluster.job(job).into_iter().for_each(|job| self.claim_rest(job, &ranks, deadline));
        }
        Blocker::Yielding { victims: stopped.len() as u32, deadline }
    }
}

/// The one that loses less work; of equals the first.
pub fn cheaper(one: Option<Plan>, other: Option<Plan>) -> Option<Plan> {
    match (one, other) {
        (Some(one), Some(other)) if other.cost < one.cost => Some(other),
        (one, other) => one.or(other),
    }
}

pub fn waits_or_is_limited(blocker: &Blocker) -> bool {
    waits_for_devices(blocker) || matches!(blocker, Blocker::QueueLimit { .. })
}
