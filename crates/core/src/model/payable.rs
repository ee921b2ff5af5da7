//! Whether a job can get on under the budgets that it draws on, if nobody else drew on them: what one period pays for
//! against the shortest run that leaves something behind. A job for which that is too little would run, lose all its work
//! when the budget is spent, and begin again with each period.
use super::amounts::GpuMilli;
use super::budget::{BudgetPolicy, GpuHours, Period, Purse};
use super::cluster::Cluster;
use super::job::JobSpec;
use super::queue::ancestry;
use super::time::Span;

/// A short run, grace apart, is worth a start.
const LITTLE_WORK: Span = Span::minutes(1);

/// The shortest run that leaves something behind.
struct Least {
    run: Span,
    /// In how many periods of a budget it may lie.
    periods: u64,
    /// What it is made of, for people.
    words: String,
    field: &'static str,
    fix: &'static str,
}

/// What speaks against the job: the field and the arithmetic. `None` also where it cannot be known.
pub fn never_gets_on(cluster: &Cluster, spec: &JobSpec, user: &str) -> Option<(&'static str, String)> {
    let least = least(spec, cluster.policy.budget_policy)?;
    let (purse, share) = tightest(cluster, spec, user)?;
    let most = share.times(least.periods);
    (least.run > most).then(|| {
        let ends = if least.periods > 1 { format!(", {most} over the end of one") } else { String::new() };
        let Least { words, field, fix, .. } = least;
        (field, format!("{}{ends}, but {words}: each run would lose all of its work; {fix}", pays(&purse, spec, share)))
    })
}

/// As [`never_gets_on`]; else that it may be so.
pub fn report(cluster: &Cluster, spec: &JobSpec, user: &str) -> Option<String> {
    if let Some((_, why)) = never_gets_on(cluster, spec, user) {
        return Some(why);
    }
    let known = cluster.policy.budget_policy == BudgetPolicy::None || can_end(spec, cluster.policy.budget_policy);
    let (purse, share) = tightest(cluster, spec, user).filter(|_| !known)?;
    let why = "what takes longer loses all of its work and begins again each time, for it neither saves in time nor has a time limit";
    Some(format!("{}: {why}", pays(&purse, spec, share)))
}

fn pays(purse: &Purse<'_>, spec: &JobSpec, share: Span) -> String {
    let gpus = GpuMilli(smallest_gpu_milli(spec)).words();
    let hours = GpuHours(purse.gpu_ms);
    format!("the {hours} of {} pay for {share} of {gpus} in a {}", purse.name(), purse.per)
}

/// Of the budgets that end before their period, the one that pays for the shortest run.
fn tightest<'c>(cluster: &'c Cluster, spec: &'c JobSpec, user: &'c str) -> Option<(Purse<'c>, Span)> {
    let gpu_milli = smallest_gpu_milli(spec);
    let share = |purse: &Purse<'_>| Some(Span(purse.gpu_ms.saturating_mul(1_000).checked_div(gpu_milli)?));
    let shares = cluster.purses_of(&spec.queue, user).filter_map(|purse| Some((purse, share(&purse)?)));
    shares.filter(|(purse, share)| *share < shortest(purse.per)).min_by_key(|(_, share)| *share)
}

/// An elastic gang may run with as few.
fn smallest_gpu_milli(spec: &JobSpec) -> u64 {
    spec.shape.resources().times(spec.gang.min.into()).all_gpus_milli()
}

fn shortest(per: Period) -> Span {
    Span::hours(24).times(match per {
        Period::Day => 1,
        Period::Week => 7,
        Period::Month => 28,
    })
}

/// Whether it can be known how long a run has to be.
fn can_end(spec: &JobSpec, policy: BudgetPolicy) -> bool {
    saves_when_told(spec, policy) || spec.checkpoint.every.is_some() || spec.time_limit.is_some()
}

/// When the budget is spent it is asked to save, and has the time.
fn saves_when_told(spec: &JobSpec, policy: BudgetPolicy) -> bool {
    let checkpoint = &spec.checkpoint;
    policy == BudgetPolicy::Drain && checkpoint.on_demand && checkpoint.write_time <= checkpoint.grace
}

fn least(spec: &JobSpec, policy: BudgetPolicy) -> Option<Least> {
    if policy == BudgetPolicy::None {
        return None;
    }
    let checkpoint = &spec.checkpoint;
    let (restart, write, grace) = (checkpoint.restart_time, checkpoint.write_time, checkpoint.grace);
    let (run, words) = if saves_when_told(spec, policy) {
        let run = restart + LITTLE_WORK + grace;
        (run, format!("it needs {run} to start ({restart}), work for {LITTLE_WORK}, save and leave ({grace})"))
    } else if let Some(every) = checkpoint.every {
        let run = restart + every + write;
        (run, format!("it saves first after {run} (start {restart}, work {every}, checkpoint {write})"))
    } else {
        let limit = spec.time_limit?;
        let words = format!("it does not save in time and may take up to {limit}");
        let fix = "save checkpoints, state a shorter time, ask for fewer GPUs, or for a larger budget";
        return Some(Least { run: limit, periods: 2, words, field: "time", fix });
    };
    // What ends by its limit needs not save.
    let run = spec.time_limit.map_or(run, |limit| limit.min(run));
    let fix = "save sooner, ask for fewer GPUs, or for a larger budget";
    Some(Least { run, periods: 1, words, field: "checkpoint", fix })
}

impl Cluster {
    /// The budgets that a job of this queue and user draws on: of the queue and those above, for all and for the user.
    pub fn purses_of<'c>(&'c self, queue: &'c str, user: &'c str) -> impl Iterator<Item = Purse<'c>> + use<'c> {
        let above = ancestry(queue).filter_map(|path| self.queues.get(path));
        above.flat_map(move |queue| queue.purse().into_iter().chain(queue.purse_of(user)))
    }
}
