//! Rules 3, 5, 9 and 10 for promises: claims are backed by devices and by the right to evict, and no start moves a
//! reserved one.
use super::{Found, whole};
use crate::model::amounts::{Limit, Resources};
use crate::model::attained;
use crate::model::cluster::Cluster;
use crate::model::decision::{Blocker, Claim, Reservation};
use crate::model::future::Turn;
use crate::model::ids::{AttemptNo, JobId, NodeId};
use crate::model::job::{Attempt, Job, JobState, Place, Priority};
use crate::model::node::Device;
use crate::model::queue::{Queue, ancestry};
use crate::model::time::{Span, Time};
use crate::model::window::open_until;
use std::collections::{BTreeMap, BTreeSet};

/// The place of VRAM among the dimensions.
const VRAM: usize = 3;

pub fn claims(cluster: &Cluster, jobs: &BTreeSet<JobId>, found: &mut Found) {
    for claim in cluster.claims.values().filter(|claim| jobs.contains(&claim.claimant)) {
        backed(cluster, claim, found);
        rightful(cluster, claim, found);
        takers(cluster, claim, found);
        found.unless(claim.deadline < Time::NEVER, 10, || format!("the claim of job {} has no end", claim.claimant));
    }
}

/// Rule 3: everything claimed is free or becoming free for this claimant.
fn backed(cluster: &Cluster, claim: &Claim, found: &mut Found) {
    let id = claim.claimant;
    let waits = cluster.job(id).is_some_and(Job::may_claim);
    found.unless(waits, 3, || format!("job {id} has a claim but neither waits nor moves"));
    super::slices::claim(cluster, claim, found);
    for place in &claim.places {
        let node = cluster.node(place.node);
        let promised = node.mask(|device| match device {
            Device::Claimed(claimant) => claimant == id,
            Device::Draining { claimant, .. } | Device::Split { claimant } => claimant == Some(id),
            _ => false,
        });
        found.unless(place.gpus & !promised == 0, 3, || {
            format!("job {id} claims GPUs {:b} of {}, promised are {promised:b}", place.gpus, node.name)
        });
    }
    if let Some(job) = cluster.job(id) {
        let size = claim.places.len() as u32;
        let whole = size >= job.spec.gang.min && size <= job.spec.gang.workers;
        found.unless(whole, 3, || format!("job {id} claims places for {size} workers"));
    }
}

/// Rule 3: victims of the claim are of a lower class and said that they yield, or hold what is guaranteed to the claimant's
/// queue, or are guests in its pool; and they leave. Which classes may evict at all, and who is owed what, was settled when the claim was made: a
/// setting that changes later takes nothing back.
fn rightful(cluster: &Cluster, claim: &Claim, found: &mut Found) {
    let Some(claimant) = cluster.job(claim.claimant) else { return };
    let entitled = claimant.spec.priority <= cluster.policy.preempt_from || claim.made_at < cluster.now;
    found.unless(!claim.victims.is_empty(), 3, || format!("the claim of job {} frees nothing", claimant.id));
    for (id, number) in &claim.victims {
        let Some(victim) = cluster.job(*id) else { continue };
        let shielded = claimant.spec.priority > Priority::P0 && cluster.is_protected(victim, claim.made_at);
        let running = victim.attempt.as_ref().is_some_and(|attempt| attempt.number == *number);
        let by_class = victim.spec.preemptible && victim.spec.priority > claimant.spec.priority && entitled;
        let shielded = shielded && running && claim.made_at == cluster.now;
        let legal = match claim.moves {
            true if victim.id == claimant.id => true,
            true if claim.resizes => false,
            true => may_move(claim, claimant, victim),
            false => {
                let owed = by_class || may_reclaim(cluster, claim, claimant, victim);
                let rotated = victim.spec.preemptible && rotated(cluster, claim, claimant, victim);
                let asked_back = whole::may_ask_back(cluster, claim, claimant, victim);
                (owed && !shielded) || rotated || asked_back || may_take_back(cluster, claim, claimant, victim)
            }
        };
        let sheltered = claim.made_at == cluster.now && cluster.shelters(&claimant.spec, &victim.spec);
        found.unless(legal && (!sheltered || victim.id == claimant.id), 3, || {
            format!("job {} may not stop job {id}", claimant.id)
        });
        let whole = |attempt: &Attempt| attempt.staying().count() == attempt.workers.len();
        let stays = victim.attempt.as_ref().is_some_and(|a| a.number == *number && a.stopping().is_none() && whole(a));
        found.unless(!stays, 3, || format!("job {} claims what job {id} was not asked to leave", claimant.id));
    }
}

/// Whether the victim, or somebody of its group, is a guest in the claimant's pool. Where their runs were is looked at while
/// the claim is made; of a run that is over already nobody can say.
fn may_take_back(cluster: &Cluster, claim: &Claim, claimant: &Job, victim: &Job) -> bool {
    let strange = claimant.spec.pool.is_some() && victim.spec.pool != claimant.spec.pool;
    let group = |job: &Job| job.spec.group.as_ref().map(|group| group.name.clone());
    let is_mate = |mate: &Job| mate.id == victim.id || (group(mate).is_some() && group(mate) == group(victim));
    let is_guest = |(id, number): &(JobId, AttemptNo)| {
        cluster.job(*id).filter(|mate| is_mate(mate)).is_some_and(|mate| {
            let attempt = mate.attempt.as_ref().filter(|attempt| attempt.number == *number);
            attempt.is_none_or(|attempt| {
                let places = attempt.workers.iter().map(|worker| &worker.place);
                cluster.takes_back(&claimant.spec, &mate.spec, places)
            })
        })
    };
    let settled = claim.made_at < cluster.now || claim.made_at <= cluster.fabric_since;
    strange && (settled || claim.victims.iter().any(is_guest))
}

/// Rule 3: whoever is moved said that it yields or saves when asked, and is moved for nobody of a lower class, nor of the
/// lowest. The claim for its own new place names all who are moved together.
fn may_move(claim: &Claim, claimant: &Job, victim: &Job) -> bool {
    let own = claim.victims.iter().any(|(job, _)| *job == claim.claimant);
    let entitled = own || (claimant.spec.priority < Priority::P3 && victim.spec.priority >= claimant.spec.priority);
    entitled && (victim.spec.preemptible || victim.spec.checkpoint.on_demand)
}

/// Rule 3 for a decision that was just applied: whoever it moves has a claim for its new place.
pub fn homes(cluster: &Cluster, jobs: &BTreeSet<JobId>, found: &mut Found) {
    let made = cluster.claims.values().filter(|claim| claim.moves && jobs.contains(&claim.claimant));
    for claim in made.filter(|claim| claim.made_at == cluster.now) {
        for (victim, _) in &claim.victims {
            let home = cluster.claims.get(victim).is_some_and(|home| home.moves && home.victims == claim.victims);
            found.unless(home, 3, || {
                format!("job {victim} is moved for job {} but no place is kept for it", claim.claimant)
            });
        }
    }
}

/// Whether the victim makes way as a peer. Ranks change with time: they are looked at when the claim is made.
fn rotated(cluster: &Cluster, claim: &Claim, claimant: &Job, victim: &Job) -> bool {
    let goes_first = || attained::rank(cluster, claimant, cluster.now) < attained::rank(cluster, victim, cluster.now);
    attained::are_peers(cluster, claimant, victim) && (claim.made_at < cluster.now || goes_first())
}

/// Whether something is guaranteed to the claimant's queue, or to one above it, in which the victim is not; and whether
/// these hold no more than that with what was promised, at the moment when it was.
fn may_reclaim(cluster: &Cluster, claim: &Claim, claimant: &Job, victim: &Job) -> bool {
    if victim.spec.firm || victim.spec.priority < claimant.spec.priority {
        return false;
    }
    let above: Vec<&str> = ancestry(&victim.spec.queue).collect();
    let own = ancestry(&claimant.spec.queue).take_while(|path| !above.contains(path));
    let named: Vec<&Queue> = own
        .filter_map(|path| cluster.queues.get(path))
        .filter(|queue| queue.guaranteed() != Limit::default())
        .collect();
    let within = |queue: &&Queue| within_guarantee(cluster, queue, claim, claimant.spec.total());
    claim.made_at < cluster.now || (!named.is_empty() && named.iter().all(within))
}

/// Of what the claimant asks for; what is told to leave does not count any more. Nor does what else starts at this moment: it
/// may have come after the claim, and may go beyond the guarantee.
fn within_guarantee(cluster: &Cluster, queue: &Queue, claim: &Claim, ask: Resources) -> bool {
    let inside = cluster.jobs.values().filter(|job| ancestry(&job.spec.queue).any(|path| path == queue.path));
    let held = inside.fold(Resources::ZERO, |sum, job| {
        let before = |attempt: &&Attempt| attempt.stopping().is_none() && attempt.placed_at < cluster.now;
        let staying = job.attempt.iter().filter(before).flat_map(Attempt::staying);
        let counts = |other: &&Claim| other.made_at < cluster.now || other.victims == claim.victims;
        let promised = cluster.claims.get(&job.id).filter(counts).into_iter().flat_map(|claim| claim.places.iter());
        let places = staying.map(|worker| &worker.place).chain(promised);
        places.fold(sum, |sum, place| sum.plus(place.resources()))
    });
    let (held, asked) = (held.amounts(), ask.amounts());
    let bounds = queue.guaranteed().bounds();
    // The GPUs that were found may have more memory than was asked for.
    (0..6).filter(|r| asked[*r] > 0 && *r != VRAM).all(|r| bounds[r].is_none_or(|bound| held[r] <= bound))
}

/// Rule 10: nothing is promised on a node that takes no new work.
fn takers(cluster: &Cluster, claim: &Claim, found: &mut Found) {
    let yields = cluster.job(claim.claimant).is_some_and(|job| job.spec.priority == Priority::P3);
    for place in &claim.places {
        let node = cluster.node(place.node);
        found.unless(node.accepts(yields, cluster.now), 10, || {
            format!("job {} claims devices on {}, which takes no new work", claim.claimant, node.name)
        });
    }
}

/// Claims, reservations and reasons belong to jobs that wait.
pub fn orphans(cluster: &Cluster, found: &mut Found) {
    let waits = |id: &JobId| cluster.job(*id).is_some_and(|job| job.state == JobState::Pending);
    for id in cluster.claims.keys() {
        let may = cluster.job(*id).is_some_and(Job::may_claim);
        found.unless(may, 3, || format!("job {id} has a claim but does not wait"));
    }
    for id in cluster.blocked.keys() {
        found.unless(cluster.job(*id).is_some(), 9, || format!("a reason is kept for job {id}, which is gone"));
    }
    for id in cluster.reservations.keys() {
        found.unless(waits(id), 5, || format!("a start is reserved for job {id}, which does not wait"));
    }
}

/// Rule 5: two reserved starts do not need the same device at the same time. A job without a limit counts as over at
/// once, because what it is assumed to take is a setting.
pub fn overlaps(cluster: &Cluster, found: &mut Found) {
    let mut kept: BTreeMap<NodeId, Vec<(&Place, Time, Time, JobId)>> = BTreeMap::new();
    for reservation in cluster.reservations.values() {
        let (start, job) = (reservation.start, cluster.job(reservation.job));
        let end = start + job.and_then(|job| job.spec.time_limit).unwrap_or(Span(1));
        let closes = job.and_then(|job| open_until(&job.spec.windows, start)).unwrap_or(Time::NEVER);
        let end = end.min(closes);
        for place in &reservation.places {
            let here = kept.entry(place.node).or_default();
            let clash = here.iter().find(|(other, from, to, _)| other.excludes(place) && *from < end && start < *to);
            found.unless(clash.is_none(), 5, || {
                let other = clash.map_or(reservation.job, |clash| clash.3);
                format!("jobs {other} and {} are promised the same GPUs of {}", reservation.job, place.node)
            });
            here.push((place, start, end, reservation.job));
        }
    }
}

/// Rule 9: reasons are kept for jobs that wait, and their numbers add up.
pub fn reasons(cluster: &Cluster, jobs: &BTreeSet<JobId>, found: &mut Found) {
    for (id, blocker) in cluster.blocked.iter().filter(|(id, _)| jobs.contains(id)) {
        let Some(job) = cluster.job(*id) else { continue };
        found.unless(job.state == JobState::Pending, 9, || format!("job {id} is {} but blocked: {blocker}", job.state));
        found.unless(adds_up(blocker), 9, || format!("the numbers why job {id} waits do not add up: {blocker}"));
    }
}

fn adds_up(blocker: &Blocker) -> bool {
    match blocker {
        Blocker::Group { present, size, .. } => present < size,
        Blocker::QueueLimit { used, asks, limit, .. } => used.saturating_add(*asks) > *limit,
        Blocker::Budget { spent_gpu_ms, committed_gpu_ms, asks_gpu_ms, budget_gpu_ms, .. } => {
            spent_gpu_ms.saturating_add(*committed_gpu_ms).saturating_add(*asks_gpu_ms) > *budget_gpu_ms
        }
        Blocker::Health { workers, placeable, out } => placeable < workers && *out > 0,
        Blocker::Promised { nodes, gpus, taken, open, .. } => {
            *gpus > 0 && *nodes > 0 && taken.saturating_add(*open) <= *nodes
        }
        Blocker::Lending { workers, placeable, pools, .. } => placeable < workers && !pools.is_empty(),
        Blocker::Resources { workers, placeable, .. } => placeable < workers,
        Blocker::Topology { workers, best, placeable, .. } => best < workers && placeable >= workers,
        _ => true,
    }
}

/// Rule 9: every job that waits has a reason.
pub fn answers(cluster: &Cluster, found: &mut Found) {
    for job in cluster.jobs.values().filter(|job| job.state == JobState::Pending) {
        found.unless(cluster.blocked.contains_key(&job.id), 9, || format!("job {} waits without a reason", job.id));
    }
}

/// Rule 5: a start of this moment, decided at `at`, that comes later in the order is over before every reserved start on its devices.
pub fn starts(cluster: &Cluster, jobs: &BTreeSet<JobId>, at: Time, found: &mut Found) {
    if cluster.reservations.is_empty() {
        return;
    }
    for job in jobs.iter().filter_map(|id| cluster.job(*id)) {
        let Some(attempt) = job.attempt.as_ref().filter(|a| a.placed_at == cluster.now) else {
            continue;
        };
        if attempt.ran_from.is_some() || attempt.stopping().is_some() {
            continue;
        }
        let end =
            at + attempt.ready_at.since(attempt.placed_at) + job.spec.time_limit.unwrap_or(cluster.policy.assumed_time);
        let nodes = attempt.staying().map(|worker| worker.place.node);
        let gone_by = cluster.gone_by(job, (at, attempt.ready_at), nodes).unwrap_or(Time::NEVER);
        for reservation in cluster.reservations.values() {
            let Some(reserved) = cluster.job(reservation.job) else { continue };
            let endless = job.spec.time_limit.is_none() && cluster.is_promoted(reserved, at);
            let stays = (reservation.start < end || endless) && reservation.start < gone_by;
            let in_the_way = stays && share_devices(attempt, reservation);
            let junior = in_the_way
                && goes_first(cluster, reserved, job)
                && !attained::makes_way_by(cluster, reserved, reservation.start, job, at);
            let guest = attempt.guest_of.contains(&reservation.job) && may_be_guest(job, at, reservation);
            found.unless(!junior || guest, 5, || {
                format!(
                    "job {} starts on devices reserved for job {} and would outlast its start",
                    job.id, reservation.job
                )
            });
        }
    }
}

/// Whether it can be gone before the reserved start. When it started that was further away; something that happened at the
/// same moment may have brought it nearer since.
fn may_be_guest(job: &Job, at: Time, reservation: &Reservation) -> bool {
    job.spec.may_be_guest() && at + job.spec.checkpoint.grace <= reservation.start
}

/// Rule 5: what is reserved on the devices of a guest can be free by then.
pub fn guests(cluster: &Cluster, at: Time, found: &mut Found) {
    let guests = cluster.jobs.values().filter_map(|job| Some((job, job.attempt.as_ref()?)));
    for (job, attempt) in guests.filter(|(_, attempt)| !attempt.guest_of.is_empty() && attempt.stopping().is_none()) {
        let notice = cluster.policy.notice(&job.spec);
        let Some((told_at, owner)) = cluster.guest_leaves_at(job, attempt) else { continue };
        found.unless(told_at + notice >= at + job.spec.checkpoint.grace, 5, || {
            format!("job {} cannot have left when the start that is reserved for job {owner} comes", job.id)
        });
    }
}

pub fn goes_first(cluster: &Cluster, one: &Job, other: &Job) -> bool {
    if attained::are_peers(cluster, one, other) {
        return attained::rank(cluster, one, cluster.now) < attained::rank(cluster, other, cluster.now);
    }
    place_in_order(cluster, one) < place_in_order(cluster, other)
}

/// The jobs of a group that wait or start together stand at the place of the most senior.
fn place_in_order(cluster: &Cluster, job: &Job) -> Turn {
    let own = cluster.turn(job, cluster.now);
    let Some(group) = &job.spec.group else { return own };
    let placed = |job: &Job| job.attempt.as_ref().map(|attempt| attempt.placed_at);
    let mates = cluster.jobs.values().filter(|mate| mate.spec.group.as_ref().is_some_and(|g| g.name == group.name));
    let together = mates.filter(|mate| placed(mate) == placed(job));
    together.map(|mate| cluster.turn(mate, cluster.now)).fold(own, Turn::min)
}

fn share_devices(attempt: &Attempt, reservation: &Reservation) -> bool {
    attempt.workers.iter().any(|worker| reservation.places.iter().any(|place| place.excludes(&worker.place)))
}
