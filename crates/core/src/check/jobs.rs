//! Rules 2, 4, 6, 7, 8 and 10 for jobs: gangs are whole, counters are sums, one attempt at a time, constraints hold,
//! terminal states own nothing, every wait has an end.
use super::Found;
use crate::model::amounts::Resources;
use crate::model::budget::{BudgetPolicy, Purse};
use crate::model::cluster::Cluster;
use crate::model::ids::{JobId, NodeId};
use crate::model::job::{Attempt, AttemptPhase, Exit, Job, JobState, Level, Worker, WorkerPhase};
use crate::model::queue::{Queue, ancestry};
use crate::model::time::Time;
use crate::model::window::open_until;
use std::collections::{BTreeMap, BTreeSet};

pub fn job(cluster: &Cluster, job: &Job, found: &mut Found) {
    let expected = match job.attempt.as_ref().map(|attempt| &attempt.phase) {
        None => JobState::Pending,
        Some(AttemptPhase::Preparing { .. } | AttemptPhase::Going { .. }) => JobState::Starting,
        Some(AttemptPhase::Running { .. }) => JobState::Running,
        Some(AttemptPhase::Stopping(_)) => JobState::Stopping,
    };
    found.unless(job.state == expected, 8, || {
        format!("job {} is {} but its attempt says {expected}", job.id, job.state)
    });
    let ended = job.attempts.0.saturating_sub(u32::from(job.attempt.is_some()));
    found.unless(job.evictions.saturating_add(job.failures) <= ended, 4, || {
        let (id, evictions, failures) = (job.id, job.evictions, job.failures);
        format!("job {id} was evicted {evictions} times and failed {failures} times in {ended} ended attempts")
    });
    found.unless(job.submitted_at <= cluster.now, 8, || format!("job {} was submitted in the future", job.id));
    let checkpoint = job.checkpoint.as_ref().is_none_or(|checkpoint| checkpoint.attempt <= job.attempts);
    found.unless(checkpoint, 7, || format!("job {} has a checkpoint of an attempt that never was", job.id));
    found.unless(cluster.queues.contains_key(&job.spec.queue), 6, || format!("job {} is in no queue", job.id));
    if let Some(attempt) = &job.attempt {
        whole(job, attempt, found);
        one_copy(cluster, job, attempt, found);
        together(cluster, job, attempt, found);
        bounded(job, attempt, found);
        in_window(cluster, job, attempt, found);
    }
}

/// Rule 2: outside of stopping, all workers are there, or those missing have done their work.
fn whole(job: &Job, attempt: &Attempt, found: &mut Found) {
    let done = |worker: &&Worker| worker.phase == WorkerPhase::Ended(Exit::Code(0));
    let there = attempt.staying().count() + attempt.workers.iter().filter(done).count();
    let enough = attempt.stopping().is_some() || there >= job.spec.gang.min as usize;
    found.unless(enough, 2, || format!("job {} has {there} workers, needs {}", job.id, job.spec.gang.min));
    found.unless(attempt.live().next().is_some(), 2, || {
        format!("job {} has attempt {} without a live worker", job.id, attempt.number)
    });
    let size = attempt.workers.len() as u32;
    let most = job.spec.gang.workers.saturating_add(attempt.given_up);
    let fits = size >= job.spec.gang.min && (size <= most || attempt.stopping().is_some());
    found.unless(fits, 2, || format!("job {} was placed with {size} workers", job.id));
}

/// Rule 2: a group that never ran starts whole: no member starts while one that was there before waits for its first run.
pub fn groups(cluster: &Cluster, jobs: &BTreeSet<JobId>, found: &mut Found) {
    let starts = |job: &&Job| job.attempt.as_ref().is_some_and(|a| a.number.0 == 1 && a.placed_at == cluster.now);
    for job in jobs.iter().filter_map(|id| cluster.job(*id)).filter(starts) {
        let Some(group) = &job.spec.group else { continue };
        let mates = cluster.jobs.values().filter(|mate| mate.spec.group.as_ref().is_some_and(|g| g.name == group.name));
        for mate in mates.filter(|mate| mate.attempts.0 == 0 && mate.submitted_at < cluster.now) {
            found.unless(false, 2, || format!("job {} starts without job {} of its group", job.id, mate.id));
        }
    }
}

/// Rule 7: ranks are 0, 1, 2, …, each where its node says it is, and only the newest attempt lives.
fn one_copy(cluster: &Cluster, job: &Job, attempt: &Attempt, found: &mut Found) {
    found.unless(attempt.number == job.attempts, 7, || {
        format!("job {} runs attempt {} of {}", job.id, attempt.number, job.attempts)
    });
    found.unless(attempt.placed_at <= cluster.now, 8, || format!("job {} was placed in the future", job.id));
    let ranks = attempt.workers.iter().enumerate().all(|(index, worker)| worker.rank.0 as usize == index);
    found.unless(ranks, 7, || format!("ranks of job {} are not 0, 1, 2, …", job.id));
    for worker in attempt.live() {
        let node = cluster.node(worker.place.node);
        found.unless(node.tenants.contains(&(job.id, worker.rank)), 7, || {
            format!("job {} rank {} lives on {}, which does not know it", job.id, worker.rank, node.name)
        });
        // The GPUs may have more memory than was asked for. Places from before it was counted say 0.
        let (held, asked) = (worker.place.resources(), job.spec.shape.resources());
        let enough = held.vram_bytes >= asked.vram_bytes || held.vram_bytes == 0;
        found.unless(Resources { vram_bytes: asked.vram_bytes, ..held } == asked && enough, 1, || {
            format!("job {} rank {} holds {held:?}, asked {asked:?}", job.id, worker.rank)
        });
    }
}

/// Rule 7: a hard topology constraint holds for all workers that live.
fn together(cluster: &Cluster, job: &Job, attempt: &Attempt, found: &mut Found) {
    if let Some(level) = job.spec.topology.require {
        let domains: BTreeSet<Vec<u64>> = attempt.live().map(|worker| domain(cluster, worker, level)).collect();
        found.unless(domains.len() <= 1, 7, || {
            format!("job {} is spread over {} of level {level}", job.id, domains.len())
        });
    }
    if let Some(each) = job.spec.topology.ranks_per_node {
        let mut by_node: BTreeMap<NodeId, u32> = BTreeMap::new();
        attempt.workers.iter().for_each(|worker| *by_node.entry(worker.place.node).or_default() += 1);
        found.unless(by_node.values().all(|ranks| *ranks == each), 7, || {
            format!("job {} is on {} nodes, not {each} ranks on each", job.id, by_node.len())
        });
    }
    if let Some(slice) = job.spec.topology.ranks_per_island.filter(|slice| *slice > 0) {
        for ranks in attempt.workers.chunks(slice as usize) {
            let live = ranks.iter().filter(|worker| !worker.phase.ended());
            let islands: BTreeSet<Vec<u64>> = live.map(|worker| domain(cluster, worker, Level::Island)).collect();
            let first = ranks.first().map_or(0, |worker| worker.rank.0);
            found.unless(islands.len() <= 1, 7, || {
                format!("ranks {first}… of job {} are on {} islands", job.id, islands.len())
            });
        }
    }
}

/// What a worker's GPUs have in common at a level, as a path. GPUs that lie in several domains give a path of all.
fn domain(cluster: &Cluster, worker: &Worker, level: Level) -> Vec<u64> {
    let place = &worker.place;
    let node = cluster.node(place.node);
    let spine = u64::from(cluster.fabric.spine_of(node.leaf).0);
    let leaf = u64::from(node.leaf.0);
    let here = u64::from(node.id.0);
    let touched = place.touched_gpus();
    let gpus = (0..64u8).filter(|gpu| touched >> gpu & 1 == 1);
    match level {
        Level::Cluster => vec![],
        Level::Spine => vec![spine],
        Level::Leaf => vec![leaf],
        Level::Node => vec![here],
        Level::Gpu => path_of(here, gpus.map(Some)),
        Level::Socket if touched == 0 => {
            let mut path = vec![here];
            path.extend(place.memory.iter().map(|(socket, _)| u64::from(*socket)));
            path
        }
        Level::Socket => path_of(here, gpus.map(|gpu| node.machine.gpus[usize::from(gpu)].socket)),
        Level::Switch => path_of(here, gpus.map(|gpu| Some(node.machine.gpus[usize::from(gpu)].switch))),
        Level::Island => {
            let spans = node.machine.islands.iter().any(|island| island.spans_nodes && island.gpus & touched != 0);
            let root = if spans { leaf | 1 << 40 } else { here };
            let ids = gpus.map(|gpu| if spans { Some(0) } else { node.machine.island_of_gpu(gpu) });
            path_of(root, ids)
        }
    }
}

fn path_of(root: u64, parts: impl Iterator<Item = Option<u8>>) -> Vec<u64> {
    let parts: BTreeSet<u64> = parts.map(|part| part.map_or(u64::MAX, u64::from)).collect();
    std::iter::once(root).chain(parts).collect()
}

/// Rule 10: who starts in a window is through or has left when it ends.
fn in_window(cluster: &Cluster, job: &Job, attempt: &Attempt, found: &mut Found) {
    if attempt.placed_at != cluster.now || attempt.ran_from.is_some() {
        return;
    }
    let until = open_until(&job.spec.windows, attempt.placed_at);
    let fits = until.is_some_and(|until| cluster.policy.fits_before(&job.spec, attempt.placed_at, until));
    found.unless(fits || job.spec.windows.is_empty(), 10, || format!("job {} starts outside its windows", job.id));
}

/// Rule 10: no phase without an end.
fn bounded(job: &Job, attempt: &Attempt, found: &mut Found) {
    let deadline = match &attempt.phase {
        AttemptPhase::Preparing { deadline } | AttemptPhase::Going { deadline } => *deadline,
        AttemptPhase::Stopping(stop) => stop.deadline,
        AttemptPhase::Running { .. } => return,
    };
    found.unless(deadline < Time::NEVER, 10, || format!("job {} is {} without a deadline", job.id, job.state));
}

/// Rule 6: since a tick found a budget spent, nothing with GPUs stays in its queue, unless the policy lets it. (What is spent
/// between two ticks is an observation.)
pub fn budgets(cluster: &Cluster, jobs: &BTreeSet<JobId>, found: &mut Found) {
    if cluster.policy.budget_policy == BudgetPolicy::None {
        return;
    }
    let now = cluster.now;
    let spent = |purse: &Purse<'_>| purse.spending.over_in == Some(purse.per.start(now)) && purse.is_spent(now);
    for purse in cluster.queues.values().flat_map(Queue::purses).filter(spent) {
        let draws = |job: &&Job| ancestry(&job.spec.queue).any(|path| path == purse.queue) && purse.pays_for(job);
        for job in jobs.iter().filter_map(|id| cluster.job(*id)).filter(draws) {
            let stays = job.attempt.as_ref().is_some_and(|attempt| attempt.stopping().is_none());
            found.unless(!stays || job.spec.total().all_gpus_milli() == 0, 6, || {
                format!("job {} goes on although the budget of {} is spent", job.id, purse.name())
            });
        }
    }
}

/// Rule 6: what a queue says is used is what its jobs and those below it hold, and a start never goes over a limit.
pub fn queues(cluster: &Cluster, jobs: &BTreeSet<JobId>, found: &mut Found) {
    let mut used: BTreeMap<&str, Resources> = BTreeMap::new();
    for job in cluster.jobs.values() {
        let Some(attempt) = &job.attempt else { continue };
        let held = attempt.live_resources();
        for path in ancestry(&job.spec.queue) {
            let sum = used.entry(path).or_default();
            *sum = sum.plus(held);
        }
    }
    // What starts there at this moment, and whether it has GPUs.
    let mut started: BTreeMap<&str, (Resources, bool)> = BTreeMap::new();
    let starts = |job: &&Job| job.attempt.as_ref().is_some_and(|attempt| attempt.placed_at == cluster.now);
    for job in jobs.iter().filter_map(|id| cluster.job(*id)).filter(starts) {
        let counts = job.spec.total().all_gpus_milli() > 0
            && job.attempt.as_ref().is_some_and(|attempt| attempt.stopping().is_none());
        let held = job.holds();
        for path in ancestry(&job.spec.queue) {
            let (sum, with_gpus) = started.entry(path).or_default();
            (*sum, *with_gpus) = (sum.plus(held), *with_gpus || counts);
        }
    }
    for (path, queue) in &cluster.queues {
        let sum = used.get(path.as_str()).copied().unwrap_or_default();
        found.unless(sum == queue.used, 6, || {
            format!("queue {path} says {:?} is used, its jobs hold {sum:?}", queue.used)
        });
        if queue.budget.is_some_and(|budget| budget.user_gpu_ms.is_some()) {
            accounts(cluster, queue, found);
        }
        let (starting, with_gpus) = started.get(path.as_str()).copied().unwrap_or_default();
        if let Some((resource, value, limit)) = queue.limit.exceeded_by(sum, starting) {
            let text = format!("a start brings queue {path} to {value} {resource}, limit {limit}");
            found.unless(false, 6, || text);
        }
        found.unless(!(with_gpus && queue.purse().is_some_and(|purse| purse.is_spent(cluster.now))), 6, || {
            format!("a job with GPUs starts in queue {path}, whose budget is spent")
        });
    }
}

/// What each user holds by the books of a budget is what the user's jobs hold.
fn accounts(cluster: &Cluster, queue: &Queue, found: &mut Found) {
    let mut held: BTreeMap<&str, u64> = queue.accounts.keys().map(|user| (user.as_str(), 0)).collect();
    let inside = cluster.jobs.values().filter(|job| ancestry(&job.spec.queue).any(|path| path == queue.path));
    for job in inside.filter(|job| job.attempt.is_some() && job.spec.total().all_gpus_milli() > 0) {
        let gpus = job.attempt.as_ref().map_or(0, |attempt| attempt.live_resources().all_gpus_milli());
        *held.entry(&job.owner.user).or_default() += gpus;
    }
    for (user, gpus) in held {
        let said = queue.accounts.get(user).map_or(0, |account| account.gpu_milli);
        found.unless(said == gpus, 6, || {
            format!("queue {} says user {user} holds {said} thousandths of GPUs, but {gpus} are held", queue.path)
        });
    }
}
