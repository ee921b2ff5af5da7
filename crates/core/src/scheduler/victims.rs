//! Who could leave: every gang that holds devices and was not told to go, made once for a decision. Whom a claimant may
//! tell to leave is asked anew for each.
use super::preempt::may_free;
use super::protect;
use super::reclaim::{Claimant, Leaving};
use super::{Session, Unit};
use crate::model::amounts::Resources;
use crate::model::attained;
use crate::model::cluster::Cluster;
use crate::model::ids::{JobId, NodeId, Rank};
use crate::model::job::{Attempt, Job, Place, Priority, Shrink, Worker};
use crate::model::time::{Span, Time};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A job, or all live jobs of a group, that would leave together; or a part of an elastic gang above its minimum.
pub struct Victim<'a> {
    pub jobs: Vec<&'a Job>,
    /// Of a part: its ranks, and the victim that is the whole gang.
    pub part: Option<(Vec<Rank>, usize)>,
    /// The class that all of them yield to from above; none if one yields to no class.
    yields_above: Option<Priority>,
    pub places: Vec<&'a Place>,
    /// Weighted work lost; see [`cost`].
    pub cost: u128,
    pub lost_gpu_ms: u64,
    /// Of equals the youngest leaves first.
    pub youngest: (Time, JobId),
    pub grace: Span,
}

/// All of them, and who is on which node.
pub struct Pool<'a> {
    pub victims: Vec<Victim<'a>>,
    /// By node, ascending.
    pub on: Vec<Vec<usize>>,
    /// Ascending.
    by_job: Vec<(JobId, usize)>,
}

impl Pool<'_> {
    /// The victims that the job belongs to.
    fn of(&self, job: JobId) -> impl Iterator<Item = usize> {
        let first = self.by_job.partition_point(|(id, _)| *id < job);
        self.by_job[first..].iter().take_while(move |(id, _)| *id == job).map(|(_, victim)| *victim)
    }
}

/// GPU-milliseconds of work that stopping `job` now would lose.
pub fn lost_gpu_ms(job: &Job, now: Time) -> u64 {
    gpu_ms(lost_ms(job, now), job)
}

/// GPU time of a gang that passes in so many milliseconds.
fn gpu_ms(ms: u64, job: &Job) -> u64 {
    let whole = u128::from(ms) * u128::from(job.holds().all_gpus_milli()) / 1_000;
    u64::try_from(whole).unwrap_or(u64::MAX)
}

fn lost_ms(job: &Job, now: Time) -> u64 {
    let policy = &job.spec.checkpoint;
    let lost = if policy.on_demand { policy.write_time } else { now.since(job.unsaved_since(now)) };
    (lost + policy.restart_time).0
}

/// Lost work weighted by what the job holds; a job without GPUs weighs by its CPUs. A stop is never free (else a job that
/// just started would go instead of one spare worker), and being stopped again costs a minute more each time, so that
/// the same job is not always the one. In queues that rotate, who goes first there costs more than who goes last.
fn cost(cluster: &Cluster, job: &Job, now: Time) -> u128 {
    let again = u128::from(job.evictions) * u128::from(Span::minutes(1).0);
    let stop = u128::from(Span::seconds(1).0);
    let worth = u128::from(attained::worth_ms(cluster, job, now));
    let cost = weight(job) * (u128::from(lost_ms(job, now)) + again + stop + worth);
    protect::against_thrashing(job, now, cost)
}

fn weight(job: &Job) -> u128 {
    let total = job.holds();
    u128::from(total.all_gpus_milli()) * 64 / 1_000 + u128::from(total.cpus)
}

impl<'a> Session<'a> {
    /// Everyone who could leave; made when it is first asked for.
    pub fn pool(&mut self) -> Rc<Pool<'a>> {
        let made = self.pool.take().unwrap_or_else(|| Rc::new(self.make_pool()));
        self.pool = Some(Rc::clone(&made));
        made
    }

    /// Whether each of the pool may be told to leave for the unit.
    pub fn legal_for(&mut self, unit: &Unit<'a>, claimant: Option<&Claimant<'a>>, pool: &Pool<'a>) -> Vec<bool> {
        let plain = self.cluster.pools.is_empty() && !self.by_service && !self.is_owed_nodes(unit);
        if claimant.is_none() && plain {
            return self.legal_by_class(unit, pool);
        }
        let wanted = self.wanted_pools();
        let legal = |victim: &Victim<'a>| {
            let guests = self.are_guests(unit, victim);
            let legal = |job: &&Job| {
                self.may_stop(unit, claimant, (job, job.holds()), guests) && !self.leaving.contains(&job.id)
            };
            victim.jobs.iter().all(legal) && !self.are_lent_by(&wanted, unit, &victim.places)
        };
        pool.victims.iter().map(legal).collect()
    }

    /// The common case: where nothing gives a right but the class, claimants of one class have the same rights.
    fn legal_by_class(&mut self, unit: &Unit<'a>, pool: &Pool<'a>) -> Vec<bool> {
        let lowest = unit.iter().max_by_key(|job| job.spec.priority);
        let class = lowest.map_or(Priority::P3, |job| job.spec.priority);
        if !self.rights.contains_key(&class) {
            let may_leave = |victim: &Victim<'a>| {
                victim.yields_above.is_some_and(|above| above > class)
                    && victim.jobs.iter().all(|job| may_free(self, unit, job, false))
            };
            let rights = pool.victims.iter().map(may_leave).collect();
            self.rights.insert(class, rights);
        }
        let mut legal = self.rights[&class].clone();
        self.leaving.iter().flat_map(|job| pool.of(*job)).for_each(|victim| legal[victim] = false);
        legal
    }

    /// Whether the unit may stop this job by its class, because somebody of its gang is a guest of the unit's pool or, alone,
    /// for what is guaranteed to its queue.
    pub fn may_stop(
        &self,
        unit: &Unit<'a>,
        claimant: Option<&Claimant<'a>>,
        (job, holds): (&Job, Resources),
        guests: bool,
    ) -> bool {
        may_free(self, unit, job, guests) || claimant.is_some_and(|claimant| self.may_reclaim(claimant, job, holds))
    }

    /// Whether somebody of the gang is a guest in the kept pool whose own the unit is.
    pub fn are_guests(&self, unit: &Unit<'a>, victim: &Victim<'a>) -> bool {
        match victim.jobs[..] {
            _ if self.cluster.pools.is_empty() => false,
            [job] => self.is_guest(unit, job, victim.places.iter().copied()),
            _ => victim.jobs.iter().any(|job| self.is_guest(unit, job, places_of(job))),
        }
    }

    /// As [`Session::are_guests`], of a job on these places.
    pub fn is_guest<'p>(
        &self,
        unit: &Unit<'a>,
        job: &Job,
        places: impl IntoIterator<Item = &'p Place> + Clone,
    ) -> bool {
        unit.iter().any(|one| self.cluster.takes_back(&one.spec, &job.spec, places.clone()))
    }

    fn make_pool(&self) -> Pool<'a> {
        let mut groups: BTreeMap<&str, Vec<&'a Job>> = BTreeMap::new();
        let mut gangs: Vec<Vec<&'a Job>> = Vec::new();
        for job in self.cluster.jobs.values().map(AsRef::as_ref).filter(|job| stays(job)) {
            match &job.spec.group {
                Some(group) => groups.entry(&group.name).or_default().push(job),
                None => gangs.push(vec![job]),
            }
        }
        gangs.extend(groups.into_values());
        let mut victims: Vec<Victim<'a>> = gangs.into_iter().map(|jobs| whole(self.cluster, jobs, self.now)).collect();
        let parts: Vec<Victim<'a>> =
            victims.iter().enumerate().flat_map(|(i, gang)| parts(self.cluster, gang, i, self.now)).collect();
        victims.extend(parts);
        let on = on_nodes(&victims, self.cluster.nodes.len());
        let ids = |(index, victim): (usize, &Victim<'a>)| -> Vec<(JobId, usize)> {
            victim.jobs.iter().map(|job| (job.id, index)).collect()
        };
        let mut by_job: Vec<(JobId, usize)> = victims.iter().enumerate().flat_map(ids).collect();
        by_job.sort_unstable();
        Pool { victims, on, by_job }
    }
}

/// Whether the job holds devices and nobody told it, or a part of it, to leave before this decision: a gang that gives up
/// workers is let alone until they are gone.
pub fn stays(job: &Job) -> bool {
    job.attempt.as_ref().is_some_and(|attempt| attempt.leaving().next().is_none())
}

fn whole<'a>(cluster: &Cluster, jobs: Vec<&'a Job>, now: Time) -> Victim<'a> {
    let attempts = jobs.iter().filter_map(|job| job.attempt.as_ref());
    Victim {
        places: attempts.flat_map(|attempt| attempt.live().map(|worker| &worker.place)).collect(),
        cost: jobs.iter().map(|job| cost(cluster, job, now)).sum(),
        lost_gpu_ms: jobs.iter().fold(0, |sum, job| sum.saturating_add(lost_gpu_ms(job, now))),
        youngest: jobs.iter().map(|job| (job.submitted_at, job.id)).max().unwrap_or_default(),
        grace: jobs.iter().map(|job| job.spec.checkpoint.grace).max().unwrap_or_default(),
        part: None,
        yields_above: jobs
            .iter()
            .all(|job| job.spec.preemptible)
            .then(|| jobs.iter().map(|job| job.spec.priority).min())
            .flatten(),
        jobs,
    }
}

/// The workers that an elastic gang can do without, highest ranks first, in its own steps. Giving them up in place
/// loses no work but the time of a restart. Each bears its part of that one loss: so for what it frees it is always cheaper than
/// the whole gang, which goes only where its parts are not enough.
fn parts<'a>(cluster: &Cluster, gang: &Victim<'a>, index: usize, now: Time) -> Vec<Victim<'a>> {
    let [job] = gang.jobs[..] else { return Vec::new() };
    let Some(attempt) = job.attempt.as_ref().filter(|_| job.is_running()) else { return Vec::new() };
    let (min, step) = (job.spec.gang.min, job.spec.gang.step.max(1));
    let mut staying: Vec<&Worker> = attempt.staying().collect();
    let size = (staying.len() as u128).max(1);
    let part_of = |workers: &[&Worker], lost_ms: u64| u128::from(lost_ms) * workers.len() as u128 / size;
    let surplus = (staying.len() as u32).saturating_sub(min) / step * step;
    let spare = staying.split_off(staying.len() - surplus as usize);
    let lost_ms = match job.spec.gang.shrink {
        Shrink::InPlace => job.spec.checkpoint.restart_time.0,
        Shrink::Restart => lost_ms(job, now),
    };
    spare
        .chunks(step as usize)
        .map(|workers| Victim {
            part: Some((workers.iter().map(|worker| worker.rank).collect(), index)),
            places: workers.iter().map(|worker| &worker.place).collect(),
            cost: weight(job) * part_of(workers, lost_ms),
            lost_gpu_ms: gpu_ms(u64::try_from(part_of(workers, lost_ms)).unwrap_or(u64::MAX), job),
            ..whole(cluster, vec![job], now)
        })
        .collect()
}

fn on_nodes(victims: &[Victim<'_>], nodes: usize) -> Vec<Vec<usize>> {
    let mut on = vec![Vec::new(); nodes];
    for (index, victim) in victims.iter().enumerate() {
        for place in &victim.places {
            let there: &mut Vec<usize> = &mut on[place.node.index()];
            if there.last() != Some(&index) {
                there.push(index);
            }
        }
    }
    on
}

impl<'a> Victim<'a> {
    pub fn leaving(&self) -> Leaving<'_, 'a> {
        Leaving { jobs: &self.jobs, places: &self.places }
    }

    pub fn places_on(&self, node: NodeId) -> impl Iterator<Item = &'a Place> {
        self.places.iter().copied().filter(move |place| place.node == node)
    }
}

fn places_of(job: &Job) -> Vec<&Place> {
    job.attempt.iter().flat_map(Attempt::live).map(|worker| &worker.place).collect()
}

/// The running jobs that the unit could legally stop, and their GPUs; for `why`.
pub fn legal_victims<'a>(session: &mut Session<'a>, unit: &Unit<'a>) -> (usize, u64) {
    let claimant = session.claimant(unit);
    let free_to_go = |job: &&Job| stays(job) && !session.leaving.contains(&job.id);
    let jobs = session.cluster.jobs.values().map(AsRef::as_ref);
    let legal = jobs.filter(free_to_go).filter(|job| {
        session.may_stop(unit, claimant.as_ref(), (job, job.holds()), session.is_guest(unit, job, places_of(job)))
    });
    legal.fold((0, 0), |(count, gpus), job| (count + 1, gpus + job.holds().all_gpus()))
}
