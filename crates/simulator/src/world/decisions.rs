//! The scheduler's part of a moment: when it is asked, that it has nothing to add to its own result, and what becomes of the
//! claims that it makes.
use super::{Care, World};
use ganger_core::lifecycle::Input;
use ganger_core::model::cluster::Cluster;
use ganger_core::model::decision::{Decision, Step};
use ganger_core::model::ids::JobId;
use ganger_core::model::report::Report;
use ganger_core::scheduler;

/// After a change a careful world looks at so many quiet moments, to see that nobody finds more by the clock alone; then it
/// waits until something changes, or weeks of waiting for a budget would cost a decision at every beat.
const QUIET_LOOKS: u32 = 4;

impl World {
    pub(super) fn scheduler_acts(&mut self) -> bool {
        if std::mem::take(&mut self.stale) {
            self.quiet = 0;
        } else if !self.looks_closely() {
            return false;
        }
        let decision = self.decide();
        let (steps, blocked) = (decision.steps.clone(), decision.blocked.clone());
        let idle = steps.is_empty();
        if idle && self.is_known(&decision) {
            return false;
        }
        if let Err(refusal) = self.apply(Input::Decided(Box::new(decision))) {
            self.breaks(9, format!("a fresh decision was refused: {refusal}: {steps:?}"));
            return false;
        }
        self.follow_claims(&steps);
        if !idle && self.care == Care::Full {
            let again = scheduler::decide(&self.cluster, self.now).steps;
            if !again.is_empty() {
                let before: Vec<_> = blocked.iter().filter(|(job, _)| names(&again, **job)).collect();
                self.breaks(
                    9,
                    format!(
                        "decide on its own result changes something: after {steps:?} it wants {again:?}, \
                         of which it had said {before:?}"
                    ),
                );
            }
        }
        true
    }

    /// Whether it looks also where nothing called for it.
    pub(super) fn looks_closely(&self) -> bool {
        self.care == Care::Full && self.quiet < QUIET_LOOKS
    }

    fn decide(&mut self) -> Decision {
        let time = || self.stopwatch.map_or(0, |read| read());
        let before = time();
        let decision = scheduler::decide(&self.cluster, self.now);
        self.deciding = (self.deciding.0 + 1, self.deciding.1 + (time() - before));
        decision
    }

    /// Follows each claim to the start that it was made for.
    fn follow_claims(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Claim(claim) => {
                    self.claims.made += 1;
                    self.claimed.insert(claim.claimant, claim.places.clone());
                }
                Step::Start { job, places, .. } => {
                    let claimed = self.claimed.remove(job);
                    self.claims.kept += u64::from(claimed.as_ref() == Some(places));
                    self.claims.sooner += u64::from(claimed.is_some_and(|claimed| claimed != *places));
                }
                Step::Stop { .. } | Step::Shrink { .. } | Step::Unclaim { .. } | Step::Repartition { .. } => {}
            }
        }
    }
}

/// Whether the scheduler may find more than before. What follows from a decision of its own calls for none, as the rule that
/// it changes nothing on its own result says.
pub fn may_call_for_a_decision(cluster: &Cluster, input: &Input) -> bool {
    match input {
        Input::Heard { .. } | Input::Decided(_) => false,
        // An elastic gang grows best right after a checkpoint.
        Input::Report { report: Report::Checkpoint { job, .. }, .. } => {
            cluster.job(*job).is_some_and(|job| job.spec.is_elastic())
        }
        Input::Report { report, .. } => matches!(report, Report::Ended { .. } | Report::Stray { .. }),
        _ => true,
    }
}

/// Whether one of the steps starts the job or claims for it.
fn names(steps: &[Step], job: JobId) -> bool {
    steps.iter().any(|step| match step {
        Step::Start { job: started, .. } => *started == job,
        Step::Claim(claim) => claim.claimant == job,
        Step::Stop { .. } | Step::Shrink { .. } | Step::Unclaim { .. } | Step::Repartition { .. } => false,
    })
}
