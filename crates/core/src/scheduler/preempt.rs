//! Who must yield: the cheapest legal set of whole gangs whose devices, once free, hold the claimant.
//!
//! Alternatives without eviction come first (the caller has tried them). A trial runs on the draft and leaves no trace
//! unless it ends in a placement. Victims are added by the work that is really lost per worker gained; then everyone who
//! turns out not to be needed is put back, most expensive first, so no victim of the final set could stay.
use super::claims::waits_for_devices;
use super::filter::Pick;
use super::fit::{self, Cell};
use super::{Session, Unit, within_node};
use crate::model::decision::{Blocker, Claim, Step};
use crate::model::ids::{AttemptNo, JobId, NodeId, Rank};
use crate::model::job::{Job, JobSpec, Level, Place, StopWhy, Worker};
use crate::model::time::{Span, Time};
use std::collections::{BTreeMap, BTreeSet};

/// At most so many domains are tried with real placements, cheapest estimate first.
const DOMAINS_TRIED: usize = 8;

/// A job, or all live jobs of a group, that would leave together; or a part of an elastic gang above its minimum.
struct Victim<'a> {
    jobs: Vec<&'a Job>,
    /// Of a part: its ranks, and the victim that is the whole gang.
    part: Option<(Vec<Rank>, usize)>,
    places: Vec<&'a Place>,
    /// Weighted work lost; see [`cost`].
    cost: u128,
    lost_gpu_ms: u64,
    /// Of equals the youngest leaves first.
    youngest: (Time, JobId),
    grace: Span,
}

/// Victims by index and where the unit's jobs then are.
struct Plan {
    victims: BTreeSet<usize>,
    places: Vec<Vec<Place>>,
    cost: u128,
}

/// Whether `claimant` has the right to stop `job`. By genuine class; age never gives this right.
pub fn may_evict(session: &Session<'_>, claimant: &JobSpec, job: &Job) -> bool {
    claimant.priority <= session.cluster.policy.preempt_from
        && job.spec.priority > claimant.priority
        && job.spec.preemptible
}

/// GPU-milliseconds of work that stopping `job` now would lose.
pub fn lost_gpu_ms(job: &Job, now: Time) -> u64 {
    lost_ms(job, now).saturating_mul(job.spec.total().gpus)
}

fn lost_ms(job: &Job, now: Time) -> u64 {
    let policy = &job.spec.checkpoint;
    let lost = if policy.on_demand { policy.write_time } else { now.since(job.unsaved_since(now)) };
    (lost + policy.restart_time).0
}

/// Lost work weighted by what the job holds; a job without GPUs weighs by its CPUs. A stop is never free (else a job that
/// just started would go instead of one spare worker), and being stopped again costs a minute more each time, so that
/// the same job is not always the one.
fn cost(job: &Job, now: Time) -> u128 {
    let again = u128::from(job.evictions) * u128::from(Span::minutes(1).0);
    let stop = u128::from(Span::seconds(1).0);
    weight(job) * (u128::from(lost_ms(job, now)) + again + stop)
}

fn weight(job: &Job) -> u128 {
    let total = job.spec.total();
    u128::from(total.gpus) * 64 + u128::from(total.cpus)
}

impl<'a> Session<'a> {
    /// Stops the cheapest victims and claims their devices for the unit; `None` if it may not or that would not help. Who
    /// would have to give up its claim for somebody ahead stops nobody either, also while only a limit keeps that one out of
    /// the way: the victims may be what fills the limit, and would come back and go again for ever.
    pub fn preempt(&mut self, unit: &Unit<'a>) -> Option<Blocker> {
        if self.outranked_by(unit, waits_or_is_limited).is_some() || self.frees_by_itself(unit) {
            return None;
        }
        let victims = self.victims_for(unit);
        let plan = self.plan(unit, &victims)?;
        Some(self.commit(unit, &victims, plan))
    }

    /// Whether the unit fits on what those free who leave anyway: then it waits for that, and nobody else has to go.
    fn frees_by_itself(&mut self, unit: &Unit<'a>) -> bool {
        let last = self.ends.iter().filter(|held| held.told).map(|held| held.end).max();
        last.is_some_and(|by| self.placed_at(unit, by).is_some())
    }

    fn victims_for(&self, unit: &Unit<'a>) -> Vec<Victim<'a>> {
        let legal = |job: &Job| unit.iter().all(|claimant| may_evict(self, &claimant.spec, job));
        let live = |job: &Job| stays(self, job);
        let mut groups: BTreeMap<&str, Vec<&'a Job>> = BTreeMap::new();
        let mut gangs: Vec<Vec<&'a Job>> = Vec::new();
        for job in self.cluster.jobs.values().map(AsRef::as_ref).filter(|job| live(job)) {
            match &job.spec.group {
                Some(group) => groups.entry(&group.name).or_default().push(job),
                None => gangs.push(vec![job]),
            }
        }
        gangs.extend(groups.into_values());
        gangs.retain(|jobs| jobs.iter().all(|job| legal(job)));
        let mut victims: Vec<Victim<'a>> = gangs.into_iter().map(|jobs| self.victim(jobs)).collect();
        let parts: Vec<Victim<'a>> = victims.iter().enumerate().flat_map(|(i, whole)| self.parts(whole, i)).collect();
        victims.extend(parts);
        victims
    }

    /// The workers that an elastic gang can do without, highest ranks first, in its own steps. Giving them up loses no
    /// work but the time of a restart.
    fn parts(&self, whole: &Victim<'a>, index: usize) -> Vec<Victim<'a>> {
        let [job] = whole.jobs[..] else { return Vec::new() };
        let Some(attempt) = job.attempt.as_ref().filter(|_| job.is_running()) else { return Vec::new() };
        let gang = job.spec.gang;
        let mut staying: Vec<&Worker> = attempt.staying().collect();
        let surplus = (staying.len() as u32).saturating_sub(gang.min) / gang.step.max(1) * gang.step.max(1);
        let spare = staying.split_off(staying.len() - surplus as usize);
        let restart = u128::from(job.spec.checkpoint.restart_time.0);
        spare
            .chunks(gang.step.max(1) as usize)
            .map(|workers| Victim {
                part: Some((workers.iter().map(|worker| worker.rank).collect(), index)),
                places: workers.iter().map(|worker| &worker.place).collect(),
                cost: weight(job) * restart,
                lost_gpu_ms: job.spec.checkpoint.restart_time.0.saturating_mul(job.spec.total().gpus),
                ..self.victim(vec![job])
            })
            .collect()
    }

    fn victim(&self, jobs: Vec<&'a Job>) -> Victim<'a> {
        let attempts = jobs.iter().filter_map(|job| job.attempt.as_ref());
        Victim {
            places: attempts.flat_map(|attempt| attempt.live().map(|worker| &worker.place)).collect(),
            cost: jobs.iter().map(|job| cost(job, self.now)).sum(),
            lost_gpu_ms: jobs.iter().fold(0, |sum, job| sum.saturating_add(lost_gpu_ms(job, self.now))),
            youngest: jobs.iter().map(|job| (job.submitted_at, job.id)).max().unwrap_or_default(),
            grace: jobs.iter().map(|job| job.spec.checkpoint.grace).max().unwrap_or_default(),
            part: None,
            jobs,
        }
    }

    /// The cheapest plan over the domains that the unit may be in.
    fn plan(&mut self, unit: &Unit<'a>, victims: &[Victim<'a>]) -> Option<Plan> {
        let all: BTreeSet<usize> = (0..victims.len()).collect();
        if all.is_empty() || !self.fits_without(unit, victims, &all) {
            return None;
        }
        let by_node = by_node(victims);
        let mut starts: Vec<(u128, BTreeSet<usize>, Vec<NodeId>)> = self
            .domains(unit)
            .into_iter()
            .filter_map(|nodes| {
                let first = self.estimate(unit, victims, &by_node, &nodes)?;
                Some((first.iter().map(|i| victims[*i].cost).sum(), first, nodes))
            })
            .collect();
        starts.sort_by(|a, b| (a.0, a.2.first()).cmp(&(b.0, b.2.first())));
        let mut best: Option<Plan> = None;
        for (estimate, first, nodes) in starts.into_iter().take(DOMAINS_TRIED) {
            if best.as_ref().is_some_and(|plan| plan.cost <= estimate) {
                break;
            }
            if let Some(plan) = self.complete(unit, victims, first, &nodes) {
                best = Some(best.filter(|old| old.cost <= plan.cost).unwrap_or(plan));
            }
        }
        best.or_else(|| self.prune(unit, victims, all))
    }

    /// Sets of nodes of which one has to hold the unit: those of the required level.
    fn domains(&self, unit: &Unit<'a>) -> Vec<Vec<NodeId>> {
        let require = unit.iter().filter_map(|job| job.spec.topology.require).min();
        let nodes = || self.cluster.nodes.iter().map(|node| node.id);
        match require {
            None | Some(Level::Cluster) => vec![nodes().collect()],
            level if within_node(level) && level != Some(Level::Island) => nodes().map(|node| vec![node]).collect(),
            Some(Level::Spine) => {
                let of_leaf = |leaf: &crate::model::LeafId| self.tree.leaves[leaf.index()].clone();
                self.tree.spines.iter().map(|leaves| leaves.iter().flat_map(of_leaf).collect()).collect()
            }
            _ => self.tree.leaves.clone(),
        }
    }

    /// Victims that free enough workers in the domain when capacity is counted node by node; cheapest per worker first.
    fn estimate(
        &self,
        unit: &Unit<'a>,
        victims: &[Victim<'a>],
        by_node: &BTreeMap<NodeId, Vec<usize>>,
        nodes: &[NodeId],
    ) -> Option<BTreeSet<usize>> {
        let spec = &unit.iter().max_by_key(|job| job.spec.total().gpus)?.spec;
        let mut search = Estimate::new(self, spec, victims, by_node, nodes);
        while search.workers < u64::from(spec.gang.workers) {
            search.take_cheapest()?;
        }
        Some(search.chosen)
    }

    /// From a first guess to a minimal set: more victims while the unit does not fit, then all back who need not go.
    fn complete(
        &mut self,
        unit: &Unit<'a>,
        victims: &[Victim<'a>],
        mut chosen: BTreeSet<usize>,
        nodes: &[NodeId],
    ) -> Option<Plan> {
        let domain: BTreeSet<NodeId> = nodes.iter().copied().collect();
        let mut others: Vec<usize> = (0..victims.len())
            .filter(|i| !chosen.contains(i) && victims[*i].places.iter().any(|place| domain.contains(&place.node)))
            .collect();
        others.sort_by_key(|i| std::cmp::Reverse((victims[*i].cost, std::cmp::Reverse(victims[*i].youngest))));
        while !self.fits_without(unit, victims, &chosen) {
            chosen.insert(others.pop()?);
        }
        self.prune(unit, victims, chosen)
    }

    /// Puts back everyone without whom the unit still fits, the most expensive and the most senior first.
    fn prune(&mut self, unit: &Unit<'a>, victims: &[Victim<'a>], mut chosen: BTreeSet<usize>) -> Option<Plan> {
        let mut order: Vec<usize> = chosen.iter().copied().collect();
        order.sort_by_key(|i| (std::cmp::Reverse(victims[*i].cost), victims[*i].youngest, *i));
        for index in order {
            chosen.remove(&index);
            if !self.fits_without(unit, victims, &chosen) {
                chosen.insert(index);
            }
        }
        let mark = self.draft.mark();
        self.without(unit, victims, &chosen);
        let places = self.place_unit(unit).ok();
        self.draft.undo_to(mark);
        let cost = chosen.iter().map(|i| victims[*i].cost).sum();
        places.map(|places| Plan { victims: chosen, places, cost })
    }

    fn fits_without(&mut self, unit: &Unit<'a>, victims: &[Victim<'a>], gone: &BTreeSet<usize>) -> bool {
        let mark = self.draft.mark();
        self.without(unit, victims, gone);
        let fits = self.place_unit(unit).is_ok();
        self.draft.undo_to(mark);
        fits
    }

    /// The draft as it would be with `gone` away and earlier reservations kept.
    fn without(&mut self, unit: &Unit<'a>, victims: &[Victim<'a>], gone: &BTreeSet<usize>) {
        let inside_another = |i: &&usize| victims[**i].part.as_ref().is_some_and(|(_, whole)| gone.contains(whole));
        self.draft
            .give_all(gone.iter().filter(|i| !inside_another(i)).flat_map(|i| victims[*i].places.iter().copied()));
        self.hold_back_reservations(unit);
    }

    fn commit(&mut self, unit: &Unit<'a>, victims: &[Victim<'a>], plan: Plan) -> Blocker {
        let leaving: Vec<&Victim<'a>> = plan.victims.iter().map(|i| &victims[*i]).collect();
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
        for ((job, attempt), mut ranks) in shrunk {
            ranks.sort_unstable();
            self.add(Step::Shrink { job, attempt, ranks, claimant: unit[0].id });
            stopped.push((job, attempt));
        }
        let mut lost_gpu_ms = leaving.iter().fold(0u64, |sum, victim| sum.saturating_add(victim.lost_gpu_ms));
        for (job, places) in unit.iter().zip(plan.places) {
            let (claimant, victims, made_at) = (job.id, stopped.clone(), self.now);
            self.add(Step::Claim(Claim { claimant, places, victims, made_at, deadline, lost_gpu_ms }));
            lost_gpu_ms = 0;
        }
        Blocker::Yielding { victims: stopped.len() as u32, deadline }
    }

    /// Starts of this decision that the unit could stop at once are not made if that makes room for it.
    pub fn displace(&mut self, unit: &Unit<'a>) -> bool {
        let juniors = self.juniors(unit);
        if juniors.is_empty() {
            return false;
        }
        let mark = self.draft.mark();
        self.draft.give_all(juniors.values().flatten());
        let found = self.place_beside_reservations(unit);
        self.draft.undo_to(mark);
        let Ok(places) = found else { return false };
        self.take_back(|step| matches!(step, Step::Start { job, .. } if juniors.contains_key(job)));
        self.start(unit, places);
        true
    }

    /// As [`Session::preempt`], where starts of this decision have to make room as well.
    pub fn displace_and_preempt(&mut self, unit: &Unit<'a>) -> Option<Blocker> {
        let juniors = self.juniors(unit);
        if juniors.is_empty() || self.outranked_by(unit, waits_or_is_limited).is_some() {
            return None;
        }
        let victims = self.victims_for(unit);
        let mark = self.draft.mark();
        self.draft.give_all(juniors.values().flatten());
        let helps = self.fits_without(unit, &victims, &(0..victims.len()).collect());
        self.draft.undo_to(mark);
        if !helps {
            return None;
        }
        let before = self.steps.clone();
        self.take_back(|step| matches!(step, Step::Start { job, .. } if juniors.contains_key(job)));
        let yielding = self.preempt(unit);
        if yielding.is_none() {
            self.steps = before;
            self.renew();
            self.again = false;
        }
        yielding
    }
}

fn waits_or_is_limited(blocker: &Blocker) -> bool {
    waits_for_devices(blocker) || matches!(blocker, Blocker::QueueLimit { .. })
}

/// Whether the job holds devices and nobody told it, or a part of it, to leave yet: a gang that gives up workers is let
/// alone until they are gone.
fn stays(session: &Session<'_>, job: &Job) -> bool {
    job.attempt.as_ref().is_some_and(|attempt| attempt.leaving().next().is_none()) && !session.leaving.contains(&job.id)
}

fn by_node(victims: &[Victim<'_>]) -> BTreeMap<NodeId, Vec<usize>> {
    let mut by_node: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    for (index, victim) in victims.iter().enumerate() {
        let on: BTreeSet<NodeId> = victim.places.iter().map(|place| place.node).collect();
        on.into_iter().for_each(|node| by_node.entry(node).or_default().push(index));
    }
    by_node
}

/// Counts workers node by node while victims leave, without placing anything.
struct Estimate<'s, 'a> {
    session: &'s Session<'a>,
    spec: &'s JobSpec,
    victims: &'s [Victim<'a>],
    /// Rooms and capacities of the domain's usable nodes.
    nodes: BTreeMap<NodeId, (super::room::Room, u32)>,
    by_node: &'s BTreeMap<NodeId, Vec<usize>>,
    /// The cheapest next step of each node, until something on it changes.
    offers: BTreeMap<NodeId, Option<Offer>>,
    chosen: BTreeSet<usize>,
    workers: u64,
}

#[derive(Clone)]
struct Offer {
    victims: Vec<usize>,
    gain: u32,
    cost: u128,
    youngest: (Time, JobId),
}

impl<'s, 'a> Estimate<'s, 'a> {
    fn new(
        session: &'s Session<'a>,
        spec: &'s JobSpec,
        victims: &'s [Victim<'a>],
        by_node: &'s BTreeMap<NodeId, Vec<usize>>,
        nodes: &[NodeId],
    ) -> Self {
        let pick = Pick::Accepting(session.now);
        let usable: BTreeMap<NodeId, (super::room::Room, u32)> = nodes
            .iter()
            .filter(|node| pick.allows(session.cluster, session.cluster.node(**node), spec))
            .map(|node| (*node, (*session.draft.room(*node), 0)))
            .collect();
        let mut search = Estimate {
            session,
            spec,
            victims,
            nodes: usable,
            by_node,
            offers: BTreeMap::new(),
            chosen: BTreeSet::new(),
            workers: 0,
        };
        let all: Vec<NodeId> = search.nodes.keys().copied().collect();
        all.into_iter().for_each(|node| search.recount(node));
        search
    }

    fn capacity(&self, node: NodeId, room: &super::room::Room) -> u32 {
        let machine = &self.session.cluster.node(node).machine;
        fit::capacity(machine, room, &self.spec.shape, Cell::whole(machine)).min(self.spec.gang.workers)
    }

    fn recount(&mut self, node: NodeId) {
        let Some((room, old)) = self.nodes.get(&node).copied() else { return };
        let new = self.capacity(node, &room);
        self.workers = self.workers - u64::from(old) + u64::from(new);
        self.nodes.insert(node, (room, new));
        let offer = self.offer(node);
        self.offers.insert(node, offer);
    }

    /// Takes the offer with the least cost per worker gained; of equals the one whose victims are youngest.
    fn take_cheapest(&mut self) -> Option<()> {
        let (_, offer) =
            self.offers.iter().filter_map(|(node, offer)| offer.as_ref().map(|offer| (*node, offer))).min_by(
                |(n, a), (m, b)| {
                    let (left, right) = (a.cost * u128::from(b.gain), b.cost * u128::from(a.gain));
                    left.cmp(&right).then(b.youngest.cmp(&a.youngest)).then(n.cmp(m))
                },
            )?;
        let leaving = offer.victims.clone();
        let mut touched = BTreeSet::new();
        for index in leaving {
            self.chosen.insert(index);
            for place in &self.victims[index].places {
                if let Some((room, _)) = self.nodes.get_mut(&place.node) {
                    room.give(place);
                    touched.insert(place.node);
                }
            }
        }
        touched.into_iter().for_each(|node| self.recount(node));
        Some(())
    }

    /// The fewest of the node's cheapest victims that make room for at least one worker more.
    fn offer(&self, node: NodeId) -> Option<Offer> {
        let (room, before) = self.nodes.get(&node)?;
        let mut order: Vec<usize> =
            self.by_node.get(&node)?.iter().copied().filter(|i| !self.chosen.contains(i)).collect();
        order.sort_by_key(|index| self.per_freed(*index, node));
        let mut room = *room;
        let mut taken = Vec::new();
        for index in order {
            self.places_on(index, node).for_each(|place| room.give(place));
            taken.push(index);
            if self.capacity(node, &room) > *before {
                return Some(self.trimmed(node, *before, taken));
            }
        }
        None
    }

    /// Cost for each GPU (or CPU) freed on the node, then the youngest first.
    fn per_freed(&self, index: usize, node: NodeId) -> (u128, std::cmp::Reverse<(Time, JobId)>, usize) {
        let freed: u64 = self
            .places_on(index, node)
            .map(|place| if self.spec.shape.gpus > 0 { place.gpus.count_ones() } else { place.cpus.count() })
            .map(u64::from)
            .sum();
        let victim = &self.victims[index];
        (victim.cost / u128::from(freed.max(1)), std::cmp::Reverse(victim.youngest), index)
    }

    fn places_on(&self, index: usize, node: NodeId) -> impl Iterator<Item = &Place> {
        self.victims[index].places.iter().copied().filter(move |place| place.node == node)
    }

    fn trimmed(&self, node: NodeId, before: u32, mut taken: Vec<usize>) -> Offer {
        let room_without = |taken: &[usize]| {
            let mut room = self.nodes[&node].0;
            taken.iter().flat_map(|i| self.places_on(*i, node)).for_each(|place| room.give(place));
            room
        };
        let mut at = 0;
        while at < taken.len() && taken.len() > 1 {
            let mut fewer = taken.clone();
            fewer.remove(at);
            if self.capacity(node, &room_without(&fewer)) > before { taken = fewer } else { at += 1 }
        }
        let gain = self.capacity(node, &room_without(&taken)) - before;
        let cost = taken.iter().map(|i| self.victims[*i].cost).sum();
        let youngest = taken.iter().map(|i| self.victims[*i].youngest).max().unwrap_or_default();
        Offer { victims: taken, gain, cost, youngest }
    }
}

/// The running jobs that the unit could legally stop, and whether stopping all of them would help; for `why`.
pub fn legal_victims(session: &Session<'_>, claimant: &JobSpec) -> (usize, u64) {
    let legal = session.cluster.jobs.values().filter(|job| stays(session, job) && may_evict(session, claimant, job));
    legal.fold((0, 0), |(count, gpus), job| (count + 1, gpus + job.spec.total().gpus))
}
