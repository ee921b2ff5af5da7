//! Consolidation: a job that only the shape of what is free keeps from starting is helped by moving a few others, each of
//! which has its new place in the same decision.
//!
//! Whoever is moved loses no more than the restart that it said it can bear: it saves when asked, or lost little since its
//! last checkpoint. Nobody is moved for P3, for a job that starts soon by itself, or again before it has run for a while,
//! twice as long each time. Every move lets one more job run and stops none for good, so moves come to an end.
//! Jobs of groups are left alone: where one goes the others would have to follow.
use super::book::held_by;
use super::filter::{self, Pick};
use super::fit::{self, Cell};
use super::preempt::waits_or_is_limited;
use super::room::Room;
use super::victims::lost_gpu_ms;
use super::{Session, Unit, within_node};
use crate::model::amounts::Resources;
use crate::model::decision::{Blocker, Claim, Step};
use crate::model::ids::{AttemptNo, NodeId};
use crate::model::job::{Attempt, Job, JobSpec, Level, Place, Priority, StopWhy};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// At most so many jobs are moved for one.
const MOVES: usize = 16;
/// At most so many domains are tried with real placements, and so often with others in the place of who finds none.
const DOMAINS_TRIED: usize = 8;
const TRIES: usize = 4;
/// In one decision at most so many searches are made: each looks at every node.
const SEARCHES: u32 = 8;

/// A job that could be moved, with where it is.
struct Mover<'a> {
    job: &'a Job,
    places: Vec<&'a Place>,
    lost_gpu_ms: u64,
}

/// Who is moved, where the claimant then is, and where each of them goes.
struct Moves<'a> {
    movers: Vec<&'a Job>,
    places: Vec<Place>,
    homes: Vec<Vec<Place>>,
}

impl<'a> Session<'a> {
    /// Moves others out of the way of the unit and claims what that frees; `None` if it may not or that would not help.
    pub fn consolidate(&mut self, unit: &Unit<'a>, blocker: &Blocker) -> Option<Blocker> {
        let [job] = unit[..] else { return None };
        if !only_the_shape_is_wrong(blocker) || !self.may_consolidate(unit, job) {
            return None;
        }
        self.searches += 1;
        if !self.is_enough_in_all(&job.spec) || self.starts_soon(unit) {
            return None;
        }
        let movers = self.movers(&job.spec);
        let mark = self.draft.mark();
        self.hold_back_wanted_pools(unit);
        let moves = self.find_moves(unit, job, &movers);
        self.draft.undo_to(mark);
        let yielding = self.commit_moves(job, moves?);
        // Reserved starts of those ahead may come sooner for it, and guests were let in by the later ones: they are asked again.
        self.take_back(|step| matches!(step, Step::Start { guest_of, .. } if !guest_of.is_empty()));
        Some(yielding)
    }

    fn may_consolidate(&self, unit: &Unit<'a>, job: &Job) -> bool {
        let policy = &self.cluster.policy;
        policy.consolidate
            && self.searches < SEARCHES
            && job.spec.group.is_none()
            && job.spec.priority < Priority::P3
            && job.spec.shape.gpus > 0
            && self.draft.work <= policy.budget
            && self.outranked_by(unit, waits_or_is_limited).is_none()
    }

    /// Whether what is free on the nodes that it may use would be enough, were it elsewhere.
    fn is_enough_in_all(&self, spec: &JobSpec) -> bool {
        let open = self
            .cluster
            .nodes
            .iter()
            .filter(|node| filter::accepts(self.cluster, node, spec, self.now, self.now).is_ok());
        let free = open.fold(Resources::ZERO, |sum, node| {
            let room = self.draft.room(node.id);
            let (gpus, cpus) = (room.gpus.count_ones().into(), room.cpus.count().into());
            sum.plus(Resources { gpus, cpus, memory_bytes: room.memory_total(), ..Resources::ZERO })
        });
        let needs = spec.total();
        free.gpus >= needs.gpus && free.cpus >= needs.cpus && free.memory_bytes >= needs.memory_bytes
    }

    fn starts_soon(&mut self, unit: &Unit<'a>) -> bool {
        let patience = self.now + self.cluster.policy.consolidate_patience;
        self.placed_at(unit, patience).is_some()
    }

    /// Cheapest first, of equals the youngest.
    fn movers(&self, claimant: &JobSpec) -> Vec<Mover<'a>> {
        let patience = self.cluster.policy.consolidate_patience;
        let bound = claimant.total().gpus.saturating_mul(patience.0);
        let live = self.cluster.jobs.values().map(AsRef::as_ref);
        let mut movers: Vec<Mover<'a>> = live
            .filter(|job| self.may_move(claimant, job))
            .filter_map(|job| {
                let places = job.attempt.as_ref()?.staying().map(|worker| &worker.place).collect();
                Some(Mover { job, places, lost_gpu_ms: lost_gpu_ms(job, self.now) })
            })
            .filter(|mover| mover.lost_gpu_ms <= bound)
            .collect();
        movers.sort_by_key(|mover| (mover.lost_gpu_ms, Reverse((mover.job.submitted_at, mover.job.id))));
        movers
    }

    fn may_move(&self, claimant: &JobSpec, job: &Job) -> bool {
        let Some(attempt) = job.attempt.as_ref().filter(|_| job.is_running()) else { return false };
        let spec = &job.spec;
        let patience = self.cluster.policy.consolidate_patience;
        let rested = job.rests_until(patience).is_none_or(|at| at <= self.now);
        let whole = attempt.staying().count() == spec.gang.workers as usize && attempt.leaving().next().is_none();
        (spec.preemptible || spec.checkpoint.on_demand)
            && spec.shape.part.is_none()
            && spec.priority >= claimant.priority
            && spec.group.is_none()
            && spec.total().gpus <= claimant.total().gpus
            && lost_gpu_ms(job, self.now) <= spec.total().gpus.saturating_mul(patience.0)
            && whole
            && rested
            && attempt.guest_of.is_empty()
            && !self.cluster.is_protected(job, self.now)
            && !self.cluster.shelters(claimant, spec)
            && !self.leaving.contains(&job.id)
    }

    fn find_moves(&mut self, unit: &Unit<'a>, job: &'a Job, movers: &[Mover<'a>]) -> Option<Moves<'a>> {
        let mut barred = BTreeSet::new();
        for _ in 0..TRIES {
            let mut guesses = self.move_guesses(&job.spec, movers, &barred);
            guesses.sort();
            let known = barred.len();
            for (_, guess) in guesses.into_iter().take(DOMAINS_TRIED) {
                let Some(chosen) = self.needed_moves(unit, movers, guess) else { continue };
                match self.with_homes(unit, movers, &chosen) {
                    Ok(moves) => return Some(moves),
                    Err(homeless) => drop(barred.insert(homeless)),
                }
            }
            if barred.len() == known {
                return None;
            }
        }
        None
    }

    /// For each domain in which the job may be, the cheapest movers that make room there when counted node by node.
    fn move_guesses(
        &mut self,
        spec: &JobSpec,
        movers: &[Mover<'a>],
        barred: &BTreeSet<usize>,
    ) -> Vec<(u64, BTreeSet<usize>)> {
        let mut by_node: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
        for (index, mover) in movers.iter().enumerate().filter(|(index, _)| !barred.contains(index)) {
            let on: BTreeSet<NodeId> = mover.places.iter().map(|place| place.node).collect();
            on.into_iter().for_each(|node| by_node.entry(node).or_default().push(index));
        }
        self.draft.work += self.cluster.nodes.len() as u64;
        let domains = self.move_domains(spec);
        domains.iter().filter_map(|nodes| self.move_guess(spec, movers, &by_node, nodes)).collect()
    }

    fn move_domains(&self, spec: &JobSpec) -> Vec<Vec<NodeId>> {
        let nodes = || self.cluster.nodes.iter().map(|node| node.id);
        match spec.topology.require {
            level if spec.gang.workers == 1 || within_node(level) => nodes().map(|node| vec![node]).collect(),
            Some(Level::Leaf) => self.tree.leaves.clone(),
            Some(Level::Spine) => {
                let nodes = |leaf: &crate::model::LeafId| self.tree.leaves[leaf.index()].clone();
                self.tree.spines.iter().map(|leaves| leaves.iter().flat_map(nodes).collect()).collect()
            }
            _ => vec![nodes().collect()],
        }
    }

    fn move_guess(
        &self,
        spec: &JobSpec,
        movers: &[Mover<'a>],
        by_node: &BTreeMap<NodeId, Vec<usize>>,
        nodes: &[NodeId],
    ) -> Option<(u64, BTreeSet<usize>)> {
        let pick = Pick::Accepting(self.now);
        let usable = nodes.iter().filter(|node| pick.allows(self.cluster, self.cluster.node(**node), spec));
        let mut offers: Vec<(u64, u32, Vec<usize>)> = Vec::new();
        let mut workers = 0u32;
        for node in usable {
            let room = *self.draft.room(*node);
            let before = self.holds(spec, *node, &room);
            workers = workers.saturating_add(before);
            let here = by_node.get(node).map_or(&[][..], Vec::as_slice);
            offers.extend(self.move_offer(spec, movers, (*node, room, before), here));
        }
        // The least work lost for each worker gained.
        offers.sort_by(|a, b| {
            let (left, right) = (u128::from(a.0) * u128::from(b.1), u128::from(b.0) * u128::from(a.1));
            left.cmp(&right).then_with(|| a.2.cmp(&b.2))
        });
        let (mut cost, mut chosen) = (0u64, BTreeSet::new());
        for (lost, gain, taken) in offers {
            if workers >= spec.gang.workers {
                break;
            }
            (cost, workers) = (cost.saturating_add(lost), workers.saturating_add(gain));
            chosen.extend(taken);
        }
        (workers >= spec.gang.workers && !chosen.is_empty() && chosen.len() <= MOVES).then_some((cost, chosen))
    }

    fn holds(&self, spec: &JobSpec, node: NodeId, room: &Room) -> u32 {
        let machine = &self.cluster.node(node).machine;
        fit::capacity(machine, room, &spec.shape, Cell::whole(machine)).min(spec.gang.workers)
    }

    /// The first of the movers on a node, cheapest first, that make room there for at least one worker more. Where the
    /// parts of the node matter counting does not tell: then all of them, and the placement says who has to go.
    fn move_offer(
        &self,
        spec: &JobSpec,
        movers: &[Mover<'a>],
        (node, mut room, before): (NodeId, Room, u32),
        here: &[usize],
    ) -> Option<(u64, u32, Vec<usize>)> {
        let parts_matter = within_node(spec.topology.require);
        let (mut lost, mut taken) = (0u64, Vec::new());
        for index in here.iter().take(MOVES) {
            let mover = &movers[*index];
            mover.places.iter().filter(|place| place.node == node).for_each(|place| room.give(place));
            lost = lost.saturating_add(mover.lost_gpu_ms);
            taken.push(*index);
            let gain = self.holds(spec, node, &room).saturating_sub(before);
            if gain > 0 && !parts_matter {
                return Some((lost, gain, taken));
            }
        }
        (parts_matter && !taken.is_empty()).then_some((lost, spec.gang.workers, taken))
    }

    /// Of a guess those who really have to go; `None` if that is not enough.
    fn needed_moves(
        &mut self,
        unit: &Unit<'a>,
        movers: &[Mover<'a>],
        mut chosen: BTreeSet<usize>,
    ) -> Option<BTreeSet<usize>> {
        if !self.fits_beside_moves(unit, movers, &chosen) {
            return None;
        }
        // They are sorted by cost: the dearest are put back first.
        for index in chosen.clone().into_iter().rev() {
            chosen.remove(&index);
            if !self.fits_beside_moves(unit, movers, &chosen) {
                chosen.insert(index);
            }
        }
        Some(chosen)
    }

    fn fits_beside_moves(&mut self, unit: &Unit<'a>, movers: &[Mover<'a>], chosen: &BTreeSet<usize>) -> bool {
        let mark = self.draft.mark();
        self.draft.give_all(chosen.iter().flat_map(|index| movers[*index].places.iter().copied()));
        let fits = self.place_beside_reservations(unit).is_ok();
        self.draft.undo_to(mark);
        fits
    }

    /// Places the unit and then everyone who is moved, the largest first. Who finds no place is the error.
    fn with_homes(
        &mut self,
        unit: &Unit<'a>,
        movers: &[Mover<'a>],
        chosen: &BTreeSet<usize>,
    ) -> Result<Moves<'a>, usize> {
        let mark = self.draft.mark();
        self.draft.give_all(chosen.iter().flat_map(|index| movers[*index].places.iter().copied()));
        let moves = self.placed_with_homes(unit, movers, chosen);
        self.draft.undo_to(mark);
        moves
    }

    fn placed_with_homes(
        &mut self,
        unit: &Unit<'a>,
        movers: &[Mover<'a>],
        chosen: &BTreeSet<usize>,
    ) -> Result<Moves<'a>, usize> {
        let mut order: Vec<usize> = chosen.iter().copied().collect();
        order.sort_by_key(|index| (Reverse(movers[*index].job.spec.shape.gpus), *index));
        let first = order.first().copied().unwrap_or_default();
        let found = self.place_beside_reservations(unit).map_err(|_| first)?;
        if self.over_limit_on(unit, &found).is_some() {
            return Err(first);
        }
        let places = found.concat();
        self.draft.take_all(&places);
        let mut homes = Vec::with_capacity(order.len());
        for index in &order {
            let mover = vec![movers[*index].job];
            let home = self.place_beside_reservations(&mover).map_err(|_| *index)?.concat();
            // Its queue is charged no more there: larger GPUs could break a limit.
            let holds = mover[0].attempt.as_ref().map(Attempt::live_resources).unwrap_or_default();
            if held_by(&home).less(holds) != Resources::ZERO {
                return Err(*index);
            }
            self.draft.take_all(&home);
            homes.push(home);
        }
        let movers = order.iter().map(|index| movers[*index].job).collect();
        Ok(Moves { movers, places, homes })
    }

    fn commit_moves(&mut self, job: &'a Job, moves: Moves<'a>) -> Blocker {
        let grace = moves.movers.iter().map(|job| job.spec.checkpoint.grace).max().unwrap_or_default();
        let (made_at, deadline) = (self.now, self.now + grace + self.margins());
        let numbered = |job: &&Job| Some((job.id, job.attempt.as_ref()?.number));
        let victims: Vec<(_, AttemptNo)> = moves.movers.iter().filter_map(numbered).collect();
        let lost_gpu_ms = moves.movers.iter().fold(0u64, |sum, job| sum.saturating_add(lost_gpu_ms(job, self.now)));
        for (job_id, attempt) in &victims {
            let why = StopWhy::Moved { claimant: job.id };
            self.add(Step::Stop { job: *job_id, attempt: *attempt, why });
        }
        let claim = |claimant, places, lost_gpu_ms| {
            let victims = victims.clone();
            Step::Claim(Claim {
                claimant,
                places,
                victims,
                made_at,
                deadline,
                lost_gpu_ms,
                moves: true,
                resizes: false,
            })
        };
        let claims = moves.movers.iter().zip(moves.homes).map(|(mover, home)| claim(mover.id, home, 0));
        let steps: Vec<Step> = std::iter::once(claim(job.id, moves.places, lost_gpu_ms)).chain(claims).collect();
        steps.into_iter().for_each(|step| self.add(step));
        Blocker::Yielding { victims: victims.len() as u32, deadline }
    }
}

/// As far as the reason says: the GPUs would be enough in number.
fn only_the_shape_is_wrong(blocker: &Blocker) -> bool {
    match blocker {
        Blocker::Topology { .. } => true,
        Blocker::Resources { needs_gpus, free_gpus, .. } => free_gpus >= needs_gpus,
        _ => false,
    }
}
