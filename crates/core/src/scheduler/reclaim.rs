//! Reclaim: whoever stays within what is guaranteed to its queue may stop what others hold beyond theirs, in its own class
//! and below it.
//!
//! The test is the one of the order ([`stands`]), and it looks only at what is held afterwards:
//! 1. with its job the claimant's queue stays within every guarantee on its way up to the first queue that it shares with
//!    the victim;
//! 2. each victim, had it alone stayed, would put its queue beyond the guarantee: nobody is stopped below what is
//!    guaranteed for more than the rest of one gang;
//! 3. summed over all guarantees, as parts of what the cluster has, less is missing than before.
//!
//! So evictions are finite for a fixed set of jobs. Let use count for class c only by jobs of class c and above. Whatever
//! those of class c do, what is missing for class c never grows: a start takes nothing away, a victim of a lower class does
//! not count, and for a victim of class c it falls by (3). Only those of higher classes can raise it, and they are finite
//! by the same argument. (Rejected: comparing shares before and after. Then what a decision starts beside would change
//! what the next one may stop.)
use super::share::{Standing, stands};
use super::{Session, Unit};
use crate::model::amounts::{Limit, Resources};
use crate::model::job::{Job, JobSpec, Place, Priority};
use crate::model::queue::ancestry;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// The whole of a resource.
const WHOLE: u128 = 1 << 50;

/// What each queue and those below it hold and were promised, of what stays: by class, each with those above it.
pub type Holders<'a> = BTreeMap<&'a str, [Resources; 4]>;

/// Who asks for what is guaranteed to its queue.
pub struct Claimant<'a> {
    spec: &'a JobSpec,
    queue: &'a str,
    class: Priority,
    ask: Resources,
    /// Its queue and those above, with how it stands to the guarantee of each.
    levels: Vec<(&'a str, Standing)>,
    holders: Rc<Holders<'a>>,
}

/// One gang of a plan and what it would give up.
pub struct Leaving<'v, 'a> {
    pub jobs: &'v [&'a Job],
    pub places: &'v [&'v Place],
}

impl<'a> Session<'a> {
    /// The unit as a claimant of a guarantee; `None` if nothing that it asks for is guaranteed to its queue, or if it is
    /// beyond that. The jobs of a group ask together, and only if they are of one queue, class and kept pool.
    pub fn claimant(&mut self, unit: &Unit<'a>) -> Option<Claimant<'a>> {
        let first = &unit.first()?.spec;
        let of = |spec: &'a JobSpec| (&spec.queue, spec.priority, self.cluster.own_pool(spec));
        let one = |job: &&'a Job| of(&job.spec) == of(first);
        let guaranteed = |path: &str| self.guarantee(path).is_some();
        if !unit.iter().all(one) || !ancestry(&first.queue).any(guaranteed) {
            return None;
        }
        let ask = unit.iter().fold(Resources::ZERO, |sum, job| sum.plus(job.spec.total()));
        let holders = self.holders();
        let standing = |path: &'a str| {
            let after = held(&holders, path, Priority::P3).plus(ask);
            self.guarantee(path).map_or(Standing::Unnamed, |g| stands(&g.bounds(), after.amounts(), ask.amounts()))
        };
        let levels: Vec<(&str, Standing)> = ancestry(&first.queue).map(|path| (path, standing(path))).collect();
        let may = levels.iter().any(|(_, standing)| *standing == Standing::Within);
        may.then_some(Claimant { spec: first, queue: &first.queue, class: first.priority, ask, levels, holders })
    }

    /// Made when it is first asked for, and again after the books changed.
    fn holders(&mut self) -> Rc<Holders<'a>> {
        let made = self.holders.take().unwrap_or_else(|| Rc::new(self.count_holders()));
        self.holders = Some(Rc::clone(&made));
        made
    }

    fn count_holders(&self) -> Holders<'a> {
        let mut holders = Holders::new();
        for entry in self.ends.iter().filter(|entry| !entry.told) {
            let Some(job) = self.cluster.job(entry.job) else { continue };
            let amount = super::book::held_by(entry.places.iter());
            for path in ancestry(&job.spec.queue) {
                let classes = holders.entry(path).or_default();
                classes[job.spec.priority as usize..].iter_mut().for_each(|sum| *sum = sum.plus(amount));
            }
        }
        holders
    }

    fn guarantee(&self, path: &str) -> Option<Limit> {
        let guarantee = self.cluster.queues.get(path)?.guaranteed();
        (guarantee != Limit::default()).then_some(guarantee)
    }

    /// Whether the claimant could stop this one by itself, that holds so much or starts to: its GPUs may have more memory than
    /// it asked for.
    pub fn may_reclaim(&self, claimant: &Claimant<'a>, job: &Job, holds: Resources) -> bool {
        let shielded = claimant.class > Priority::P0 && self.cluster.is_protected(job, self.now);
        let outside = claimant.reaches(job) && !shielded && !self.cluster.shelters(claimant.spec, &job.spec);
        let alone = |path: &str, bounds: &Limit| claimant.beyond(bounds, claimant.held(path, job), holds);
        outside && claimant.levels_of(job).all(|path| self.guarantee(path).is_none_or(|bounds| alone(path, &bounds)))
    }

    /// The gangs of a plan that have to stay, as things would be afterwards, when those have left as well who yield by their
    /// class; none if all of it is right. What these held stands against nobody: else a start could give the right to stop
    /// others of its queue together with itself.
    pub fn wrongly_stopped(
        &self,
        claimant: &Claimant<'a>,
        plan: &[Leaving<'_, 'a>],
        by_class: &[Leaving<'_, 'a>],
    ) -> Vec<usize> {
        let mut freed: BTreeMap<&str, [Resources; 4]> = BTreeMap::new();
        for (job, amount) in plan.iter().chain(by_class).flat_map(Leaving::by_job) {
            for path in ancestry(&job.spec.queue) {
                let classes = freed.entry(path).or_default();
                classes[job.spec.priority as usize..].iter_mut().for_each(|sum| *sum = sum.plus(amount));
            }
        }
        let after = |path: &str, class: Priority| {
            let gone = freed.get(path).map_or(Resources::ZERO, |classes| classes[class as usize]);
            held(&claimant.holders, path, class).less(gone)
        };
        let needed = |leaving: &Leaving<'_, 'a>| {
            leaving.by_job().any(|(job, amount)| {
                claimant.levels_of(job).any(|path| {
                    let with = after(path, claimant.counted(job)).plus(amount);
                    self.guarantee(path).is_some_and(|bounds| !claimant.beyond(&bounds, with, amount))
                })
            })
        };
        let wrong: Vec<usize> = (0..plan.len()).filter(|index| needed(&plan[*index])).collect();
        if wrong.is_empty() && !self.less_is_missing(claimant, &freed) { (0..plan.len()).collect() } else { wrong }
    }

    /// The third condition, over all queues that the plan touches.
    fn less_is_missing(&self, claimant: &Claimant<'a>, freed: &BTreeMap<&str, [Resources; 4]>) -> bool {
        let capacity = self.cluster.listed_nodes().fold(Resources::ZERO, |sum, node| sum.plus(node.capacity()));
        let own: BTreeSet<&str> = ancestry(claimant.queue).collect();
        let touched: BTreeSet<&str> = freed.keys().copied().chain(own.iter().copied()).collect();
        let (mut before, mut after) = (0u128, 0u128);
        for path in touched {
            let Some(bounds) = self.guarantee(path) else { continue };
            let now = held(&claimant.holders, path, claimant.class);
            let gone = freed.get(path).map_or(Resources::ZERO, |classes| classes[claimant.class as usize]);
            let comes = if own.contains(path) { claimant.ask } else { Resources::ZERO };
            before = before.saturating_add(missing(&bounds, now, capacity));
            after = after.saturating_add(missing(&bounds, now.less(gone).plus(comes), capacity));
        }
        after < before
    }
}

impl<'a> Claimant<'a> {
    /// The first condition, and what needs no numbers: class, and a `preemptible: false` that was said.
    fn reaches(&self, job: &Job) -> bool {
        let own = self.levels.iter().take_while(|(path, _)| !is_above(path, &job.spec.queue));
        let standing = own.fold(Standing::Unnamed, |all, (_, one)| all.and(*one));
        standing == Standing::Within && job.spec.priority >= self.class && !job.spec.firm
    }

    /// The victim's queue and those above it, up to the first that is the claimant's as well.
    fn levels_of<'j>(&self, job: &'j Job) -> impl Iterator<Item = &'j str> + use<'j, 'a> {
        let queue = self.queue;
        ancestry(&job.spec.queue).take_while(move |path| !is_above(path, queue))
    }

    /// Against a job of its own class only what that class and those above hold counts: lower classes yield first.
    fn counted(&self, job: &Job) -> Priority {
        if job.spec.priority == self.class { self.class } else { Priority::P3 }
    }

    fn held(&self, path: &str, job: &Job) -> Resources {
        held(&self.holders, path, self.counted(job))
    }

    /// Whether a queue that holds so much with the gang is beyond its guarantee, in what the gang has of what the claimant
    /// asks for; in all that the gang has, if that is nothing.
    fn beyond(&self, bounds: &Limit, with: Resources, gang: Resources) -> bool {
        let (with, gang, ask) = (with.amounts(), gang.amounts(), self.ask.amounts());
        let contested = (0..6).any(|r| gang[r] > 0 && ask[r] > 0);
        let counts = |r: &usize| gang[*r] > 0 && (ask[*r] > 0 || !contested);
        let bounds = bounds.bounds();
        (0..6).filter(counts).all(|r| bounds[r].is_none_or(|bound| with[r] > bound))
    }
}

impl<'a> Leaving<'_, 'a> {
    fn by_job(&self) -> impl Iterator<Item = (&'a Job, Resources)> {
        let all = super::book::held_by(self.places.iter().copied());
        let single = self.jobs.len() == 1;
        self.jobs.iter().map(move |job| {
            let own = job.attempt.as_ref().map_or(Resources::ZERO, |attempt| attempt.live_resources());
            (*job, if single { all } else { own })
        })
    }
}

fn held(holders: &Holders<'_>, path: &str, class: Priority) -> Resources {
    holders.get(path).map_or(Resources::ZERO, |classes| classes[class as usize])
}

/// Whether `path` is the queue or above it.
fn is_above(path: &str, queue: &str) -> bool {
    queue.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn missing(bounds: &Limit, held: Resources, capacity: Resources) -> u128 {
    let (held, capacity) = (held.amounts(), capacity.amounts());
    let part = |(r, bound): (usize, u64)| match capacity[r] {
        0 => 0,
        whole => u128::from(bound.saturating_sub(held[r])) * WHOLE / u128::from(whole),
    };
    let named = bounds.bounds().into_iter().enumerate().filter_map(|(r, bound)| bound.map(|bound| (r, bound)));
    named.map(part).fold(0, u128::saturating_add)
}
