//! Budgets at a start: what is left has to pay for what runs and for what starts.
use super::{Session, Unit};
use crate::model::budget::Purse;
use crate::model::decision::Blocker;
use crate::model::ids::JobId;
use crate::model::job::Job;
use crate::model::time::Time;
use std::collections::BTreeMap;

/// A queue, or one user in it.
pub type PurseKey<'a> = (&'a str, Option<&'a str>);

/// What was said that a budget pays for.
#[derive(Debug, Clone, Default)]
pub struct Committed {
    need_gpu_ms: u64,
    /// Promised or started by this decision: these are not held yet.
    gpu_milli: u64,
    /// The short runs, grace included, that everybody should have before being told to leave: how many of each length.
    runs_ms: BTreeMap<u64, u32>,
}

impl Committed {
    /// The longest of the short runs.
    fn run_ms(&self) -> u64 {
        self.runs_ms.last_key_value().map_or(0, |(run, _)| *run)
    }

    fn note_run(&mut self, job: &Job) {
        *self.runs_ms.entry(job.short_run().0).or_default() += 1;
    }

    fn forget_run(&mut self, job: &Job) {
        let run = job.short_run().0;
        let Some(many) = self.runs_ms.get_mut(&run) else { return };
        *many -= 1;
        if *many == 0 {
            self.runs_ms.remove(&run);
        }
    }
}

/// What was spent of a budget, what runs still needs of it, and what a unit asks.
pub struct Standing<'a> {
    pub purse: Purse<'a>,
    pub spent_gpu_ms: u64,
    pub others_gpu_ms: u64,
    pub asks_gpu_ms: u64,
}

impl Standing<'_> {
    pub fn is_over(&self) -> bool {
        let needed = self.spent_gpu_ms.saturating_add(self.others_gpu_ms).saturating_add(self.asks_gpu_ms);
        needed > self.purse.gpu_ms
    }

    fn blocker(&self, now: Time) -> Blocker {
        Blocker::Budget {
            queue: self.purse.queue.to_string(),
            user: self.purse.user.map(str::to_string),
            spent_gpu_ms: self.spent_gpu_ms,
            committed_gpu_ms: self.others_gpu_ms,
            asks_gpu_ms: self.asks_gpu_ms,
            budget_gpu_ms: self.purse.gpu_ms,
            per: self.purse.per,
            renews_at: self.purse.per.end(now),
        }
    }
}

impl<'a> Session<'a> {
    /// Keeps what the job has to be able to pay from the budgets that it draws on. It runs since then, or is to start.
    pub fn commit_budget(&mut self, job: &'a Job, since: Option<Time>, gpu_milli: u64) {
        for purse in purses(self, job).filter(|_| gpu_milli > 0) {
            let need = job.budget_need_ms(gpu_milli, since.unwrap_or(self.now), self.now, purse.per);
            let committed = self.committed.entry((purse.queue, purse.user)).or_default();
            committed.need_gpu_ms = committed.need_gpu_ms.saturating_add(need);
            committed.note_run(job);
            if since.is_none() {
                committed.gpu_milli = committed.gpu_milli.saturating_add(gpu_milli);
            }
        }
    }

    /// Who is told to leave by this decision has to be paid no more than who was told before.
    pub fn forget_budget_of(&mut self, id: JobId) {
        let running = self.cluster.job(id).and_then(|job| Some((job, job.attempt.as_ref()?)));
        let Some((job, attempt)) = running.filter(|_| self.claim_of(id).is_none()) else { return };
        let gpu_milli = attempt.live_resources().all_gpus_milli();
        for purse in purses(self, job).filter(|_| gpu_milli > 0) {
            let need = job.budget_need_ms(gpu_milli, attempt.placed_at, self.now, purse.per);
            let Some(committed) = self.committed.get_mut(&(purse.queue, purse.user)) else { continue };
            committed.need_gpu_ms = committed.need_gpu_ms.saturating_sub(need);
            committed.forget_run(job);
        }
    }

    /// The first budget that cannot pay for the unit. What it claims is kept for it already.
    pub fn over_budget(&self, unit: &Unit<'a>) -> Option<Blocker> {
        self.over_budget_of(unit.iter().map(|job| (*job, job.spec.total().all_gpus_milli())))
    }

    /// As [`Session::over_budget`], for a gang alone that would hold so many thousandths of GPUs more.
    pub fn over_budget_with(&self, unit: &Unit<'a>, gpu_milli: u64) -> Option<Blocker> {
        self.over_budget_of(unit.iter().map(|job| (*job, gpu_milli)))
    }

    fn over_budget_of(&self, asks: impl Iterator<Item = (&'a Job, u64)>) -> Option<Blocker> {
        if !self.budgeted {
            return None;
        }
        self.standings_of(asks).find(Standing::is_over).map(|standing| standing.blocker(self.now))
    }

    /// How each budget that the unit draws on stands to what it needs.
    pub fn budget_standings(&self, unit: &Unit<'a>) -> Vec<Standing<'a>> {
        self.standings_of(unit.iter().map(|job| (*job, job.spec.total().all_gpus_milli()))).collect()
    }

    fn standings_of(&self, asks: impl Iterator<Item = (&'a Job, u64)>) -> impl Iterator<Item = Standing<'a>> {
        let mut sums: BTreeMap<PurseKey<'_>, (Purse<'_>, Committed, u64)> = BTreeMap::new();
        for (job, gpu_milli) in asks.filter(|(_, gpu_milli)| *gpu_milli > 0) {
            for purse in purses(self, job) {
                let need = job.budget_need_ms(gpu_milli, self.now, self.now, purse.per);
                let (_, asks, own) = sums.entry((purse.queue, purse.user)).or_insert((purse, Committed::default(), 0));
                asks.need_gpu_ms = asks.need_gpu_ms.saturating_add(need);
                asks.note_run(job);
                match self.promised_to(job.id) {
                    Some(_) => *own = own.saturating_add(need),
                    None => asks.gpu_milli = asks.gpu_milli.saturating_add(gpu_milli),
                }
            }
        }
        sums.into_iter().map(|(key, (purse, asks, own))| {
            let nothing = Committed::default();
            let committed = self.committed.get(&key).unwrap_or(&nothing);
            let spent_gpu_ms = purse.spent_gpu_ms(self.now);
            let others_gpu_ms = committed.need_gpu_ms.saturating_sub(own).max(self.soon(&purse, committed, &asks));
            Standing { purse, spent_gpu_ms, others_gpu_ms, asks_gpu_ms: asks.need_gpu_ms }
        })
    }

    /// What goes away beside the unit's own need while everybody has a short run: else what starts is told to leave at once,
    /// and starts again.
    fn soon(&self, purse: &Purse<'_>, committed: &Committed, asks: &Committed) -> u64 {
        let run = committed.run_ms().max(asks.run_ms()).min(purse.per.end(self.now).since(self.now).0);
        let milli = purse.gpu_milli.saturating_add(committed.gpu_milli).saturating_add(asks.gpu_milli);
        (milli.saturating_mul(run) / 1_000).saturating_sub(asks.need_gpu_ms)
    }
}

/// The budgets that a job draws on.
fn purses<'a>(session: &Session<'a>, job: &'a Job) -> impl Iterator<Item = Purse<'a>> + use<'a> {
    session.cluster.purses_of(&job.spec.queue, &job.owner.user)
}
