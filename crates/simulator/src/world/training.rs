//! The work of one attempt in virtual time: it begins when all ranks run, pauses for checkpoints, and ends when all is
//! done or a rank is over. Pure: it is told when milestones pass and says when the next one comes.
use ganger_core::model::time::{Span, Time};

/// How a job's work goes on, as a scenario states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkPlan {
    /// The true amount at full size.
    pub work: Span,
    pub ckpt_every: Option<Span>,
    /// How long writing a checkpoint keeps training waiting.
    pub ckpt_time: Span,
    /// How long the first attempt takes until work begins.
    pub start_time: Span,
    /// How long a later attempt takes until its work goes on.
    pub restart_time: Span,
    pub on_demand_ckpt: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Restarting {
        until: Time,
    },
    Working,
    /// A checkpoint by the clock.
    Writing {
        until: Time,
    },
    /// A checkpoint that a stop asked for.
    Saving {
        until: Time,
    },
    /// A rank is over: nothing goes on in this attempt.
    Halted,
}

/// What happens next by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Milestone {
    WorkGoesOn,
    WritingBegins,
    /// A checkpoint with so much work in it is there.
    Saved(Span),
    /// The checkpoint that a stop asked for is there.
    SavedForStop(Span),
    Finished,
}

/// One attempt that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Training {
    plan: WorkPlan,
    began: Time,
    /// Work done at `mark`.
    done: Span,
    mark: Time,
    phase: Phase,
    /// Workers for which the work is stated, and those that are there.
    full: u32,
    size: u32,
}

impl Training {
    /// All `size` ranks run from `now`, where the work is stated for `full` of them. `done` is the work in the checkpoint
    /// that it resumes from; `again`: the job ran before.
    pub fn begin(plan: WorkPlan, (size, full): (u32, u32), done: Span, again: bool, now: Time) -> Training {
        let until = now + if again { plan.restart_time } else { plan.start_time };
        let phase = if until > now { Phase::Restarting { until } } else { Phase::Working };
        let (full, size) = (full.max(1), size.max(1));
        Training { plan, began: now, done: Span(done.0.min(plan.work.0)), mark: now, phase, full, size }
    }

    /// Work done by `now`.
    pub fn done_at(&self, now: Time) -> Span {
        match self.phase {
            Phase::Working => {
                let passed = u128::from(now.since(self.mark).0) * u128::from(self.size) / u128::from(self.full);
                let passed = u64::try_from(passed).unwrap_or(u64::MAX);
                Span(self.done.0.saturating_add(passed).min(self.plan.work.0))
            }
            _ => self.done,
        }
    }

    pub fn is_halted(&self) -> bool {
        self.phase == Phase::Halted
    }

    /// The next milestone, if nothing comes between. Work that is done at the moment of a checkpoint ends instead.
    pub fn next(&self) -> Option<(Time, Milestone)> {
        match self.phase {
            Phase::Halted => None,
            Phase::Restarting { until } => Some((until, Milestone::WorkGoesOn)),
            Phase::Writing { until } => Some((until, Milestone::Saved(self.done))),
            Phase::Saving { until } => Some((until, Milestone::SavedForStop(self.done))),
            Phase::Working => {
                let finish = self.mark + self.time_for(self.plan.work.0.saturating_sub(self.done.0));
                match self.next_checkpoint() {
                    Some(at) if at < finish => Some((at, Milestone::WritingBegins)),
                    _ => Some((finish, Milestone::Finished)),
                }
            }
        }
    }

    /// How long the workers that are left take for so much work at full size.
    fn time_for(&self, work_ms: u64) -> Span {
        let time = (u128::from(work_ms) * u128::from(self.full)).div_ceil(u128::from(self.size.max(1)));
        Span(u64::try_from(time).unwrap_or(u64::MAX))
    }

    /// Checkpoints come at whole multiples of the interval since the attempt began; one that falls into a pause is left
    /// out, because nothing new would be in it.
    fn next_checkpoint(&self) -> Option<Time> {
        let every = self.plan.ckpt_every.filter(|every| every.0 > 0)?;
        let passed = self.mark.since(self.began).0 / every.0;
        Some(self.began + every.times(passed + 1))
    }

    /// The milestone that [`Training::next`] named has come.
    pub fn pass(&mut self, milestone: Milestone, now: Time) {
        self.bank(now);
        self.phase = match milestone {
            Milestone::WritingBegins => Phase::Writing { until: now + self.plan.ckpt_time },
            Milestone::WorkGoesOn | Milestone::Saved(_) => Phase::Working,
            Milestone::SavedForStop(_) | Milestone::Finished => Phase::Halted,
        };
    }

    /// All ranks were asked to save and leave: training pauses for the checkpoint.
    pub fn save_for_stop(&mut self, now: Time) {
        self.bank(now);
        self.phase = Phase::Saving { until: now + self.plan.ckpt_time };
    }

    /// Some ranks were given up: the `size` that stay find together again, for as long as a restart takes, and go on at
    /// their part of the speed. A checkpoint that was being written is not finished then. They also go on if they stood
    /// still for those who went.
    pub fn resize(&mut self, size: u32, now: Time) {
        self.bank(now);
        self.size = size.max(1);
        let until = now + self.plan.restart_time;
        if until > now {
            self.phase = Phase::Restarting { until };
        } else if self.is_halted() {
            self.phase = Phase::Working;
        }
    }

    /// A rank is over or leaves unsaved.
    pub fn halt(&mut self, now: Time) {
        self.bank(now);
        self.phase = Phase::Halted;
    }

    fn bank(&mut self, now: Time) {
        self.done = self.done_at(now);
        self.mark = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(work: u64, every: u64, write: u64, restart: u64) -> WorkPlan {
        WorkPlan {
            work: Span::minutes(work),
            ckpt_every: (every > 0).then(|| Span::minutes(every)),
            ckpt_time: Span::minutes(write),
            start_time: Span::ZERO,
            restart_time: Span::minutes(restart),
            on_demand_ckpt: true,
        }
    }

    fn at(minute: u64) -> Time {
        Time(minute * 60_000)
    }

    /// Runs it undisturbed to its end: (minute, work in the checkpoint) of each, and the minute of the end.
    fn timeline(mut training: Training) -> (Vec<(u64, u64)>, u64) {
        let mut saved = Vec::new();
        loop {
            let (now, milestone) = training.next().unwrap();
            training.pass(milestone, now);
            match milestone {
                Milestone::Saved(done) => saved.push((now.0 / 60_000, done.0 / 60_000)),
                Milestone::Finished => return (saved, now.0 / 60_000),
                _ => {}
            }
        }
    }

    #[test]
    fn checkpoints_count_from_the_start_and_pause_training() {
        let first = Training::begin(plan(30, 10, 2, 5), (4, 4), Span::ZERO, false, at(0));
        // Works 0–10, writes 10–12, works 12–20, writes 20–22, works 22–30, writes 30–32, works 32–36.
        assert_eq!(timeline(first), (vec![(12, 10), (22, 18), (32, 26)], 36));
    }

    #[test]
    fn a_later_attempt_restarts_first_and_skips_a_checkpoint_with_nothing_new() {
        let again = Training::begin(plan(30, 5, 0, 5), (4, 4), Span::minutes(20), true, at(100));
        // Restarts 100–105; the checkpoint at 105 falls into the pause; works 105–115.
        assert_eq!(timeline(again), (vec![(110, 25)], 115));
    }

    #[test]
    fn a_checkpoint_that_takes_as_long_as_its_interval_does_not_stop_all_work() {
        let slow = Training::begin(plan(10, 5, 5, 0), (4, 4), Span::ZERO, false, at(0));
        assert_eq!(timeline(slow), (vec![(10, 5)], 15));
    }

    #[test]
    fn work_that_is_done_at_the_moment_of_a_checkpoint_ends() {
        assert_eq!(timeline(Training::begin(plan(10, 10, 1, 0), (4, 4), Span::ZERO, false, at(3))), (vec![], 13));
    }

    #[test]
    fn a_stop_pauses_and_saves_what_was_done() {
        let mut training = Training::begin(plan(60, 0, 2, 0), (4, 4), Span::ZERO, false, at(0));
        training.save_for_stop(at(7));
        assert_eq!(training.done_at(at(8)), Span::minutes(7));
        assert_eq!(training.next(), Some((at(9), Milestone::SavedForStop(Span::minutes(7)))));
        training.halt(at(8));
        assert_eq!((training.next(), training.is_halted()), (None, true));
    }

    #[test]
    fn those_who_stay_go_on_at_their_part_of_the_speed() {
        let mut training = Training::begin(plan(30, 0, 0, 0), (4, 4), Span::ZERO, false, at(0));
        training.resize(3, at(10));
        training.resize(1, at(14));
        // 10 minutes at 4/4, 4 at 3/4, the last 17 at 1/4.
        assert_eq!(training.done_at(at(14)), Span::minutes(13));
        assert_eq!(timeline(training), (vec![], 14 + 17 * 4));
    }

    #[test]
    fn giving_up_ranks_takes_a_restart_and_breaks_off_a_checkpoint() {
        let mut training = Training::begin(plan(30, 10, 4, 3), (2, 2), Span::ZERO, false, at(0));
        training.pass(Milestone::WritingBegins, at(10));
        training.resize(1, at(12));
        assert_eq!(training.next(), Some((at(15), Milestone::WorkGoesOn)));
        // Works 15–20 at half speed, writes 20–24 and so on.
        training.pass(Milestone::WorkGoesOn, at(15));
        assert_eq!(training.next(), Some((at(20), Milestone::WritingBegins)));
        assert_eq!(training.done_at(at(20)), Span(12 * 60_000 + 30_000));
    }
}
