//! How and when a worker is to be ended, from stop and kill requests and the lease: no clock, no system calls.
//!
//! The lease warns with TERM 2 s before its deadline (sooner after a short lease) and kills at it, so that at the deadline
//! nothing lives that the server may give away. A warned lease cannot be renewed.

use std::collections::VecDeque;

use super::state::Why;

const LEASE_WARNING_MS: u64 = 2_000;
/// The warning takes no more than this part of what a lease had left when it was last moved: the agent asks its peers in
/// the last quarter, and needs the time for that.
const LEASE_WARNING_PART: u64 = 16;
const TERM_GRACE_MS: u64 = 5_000;
pub(crate) const SIGTERM: i32 = 15;

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Terminate,
    KillAll,
}

/// The plan of one worker's end. Times are boot-time milliseconds.
#[derive(Debug, Default)]
pub(crate) struct EndPlan {
    steps: VecDeque<(u64, Act)>,
    cause: Option<Why>,
    lease_ms: Option<u64>,
    /// When the warning is due.
    warning_ms: Option<u64>,
    lease_warned: bool,
}

impl EndPlan {
    pub(crate) fn new(now_ms: u64, lease_ms: Option<u64>) -> Self {
        Self { lease_ms, warning_ms: lease_ms.map(|deadline| warning_of(now_ms, deadline)), ..Self::default() }
    }

    pub(crate) fn lease_ms(&self) -> Option<u64> {
        self.lease_ms
    }

    /// Why the worker ended, if it ends now.
    pub(crate) fn cause(&self) -> Why {
        self.cause.clone().unwrap_or(Why::Exited)
    }

    /// The caller has sent `signal`; the rest follows. A later stop replaces an earlier one.
    pub(crate) fn stop(&mut self, now_ms: u64, signal: i32, grace_ms: u64) {
        let over = now_ms.saturating_add(grace_ms);
        self.steps.clear();
        if signal == SIGTERM {
            self.steps.push_back((over, Act::KillAll));
        } else {
            self.steps.push_back((over, Act::Terminate));
            self.steps.push_back((over.saturating_add(TERM_GRACE_MS), Act::KillAll));
        }
        if !self.lease_warned {
            self.cause = Some(Why::Stopped);
        }
    }

    pub(crate) fn kill(&mut self) {
        self.steps.clear();
        self.cause = Some(Why::Killed);
    }

    /// Moves the deadline forward. The error says why it is too late.
    pub(crate) fn renew(&mut self, now_ms: u64, deadline_ms: u64) -> Result<(), String> {
        if self.lease_warned || self.lease_ms.is_some_and(|deadline| deadline <= now_ms) {
            return Err("the lease is over and the worker is being ended; start a new attempt".into());
        }
        if self.lease_ms.is_none_or(|old| old < deadline_ms) {
            self.lease_ms = Some(deadline_ms);
            self.warning_ms = Some(warning_of(now_ms, deadline_ms));
        }
        Ok(())
    }

    /// The next thing that is due at `now_ms`; call until `None`.
    pub(crate) fn due(&mut self, now_ms: u64) -> Option<Act> {
        if self.lease_ms.is_some_and(|deadline| deadline <= now_ms) {
            self.steps.clear();
            self.cause = Some(Why::LeaseExpired);
            return Some(Act::KillAll);
        }
        if self.warning_ms().is_some_and(|warning| warning <= now_ms) {
            self.lease_warned = true;
            self.cause = Some(Why::LeaseExpired);
            return Some(Act::Terminate);
        }
        let (_, act) = self.steps.pop_front_if(|(at, _)| *at <= now_ms)?;
        if act == Act::KillAll && !self.lease_warned {
            self.cause = Some(Why::Killed);
        }
        Some(act)
    }

    /// When something is due next.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let step = self.steps.front().map(|(at, _)| *at);
        [step, self.warning_ms(), self.lease_ms].into_iter().flatten().min()
    }

    fn warning_ms(&self) -> Option<u64> {
        self.warning_ms.filter(|_| !self.lease_warned)
    }
}

fn warning_of(now_ms: u64, deadline_ms: u64) -> u64 {
    let ahead_ms = deadline_ms.saturating_sub(now_ms) / LEASE_WARNING_PART;
    deadline_ms.saturating_sub(ahead_ms.min(LEASE_WARNING_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_by_another_signal_terminates_and_then_kills() {
        let mut plan = EndPlan::new(0, None);
        plan.stop(1_000, 10, 30_000);
        assert_eq!((plan.next_ms(), plan.due(30_999), plan.cause()), (Some(31_000), None, Why::Stopped));
        assert_eq!((plan.due(31_000), plan.due(31_000), plan.cause()), (Some(Act::Terminate), None, Why::Stopped));
        assert_eq!((plan.due(36_000), plan.cause()), (Some(Act::KillAll), Why::Killed));
    }

    #[test]
    fn a_stop_by_term_kills_right_after_its_grace() {
        let mut plan = EndPlan::new(0, None);
        plan.stop(0, SIGTERM, 100);
        assert_eq!((plan.due(99), plan.due(100)), (None, Some(Act::KillAll)));
    }

    #[test]
    fn the_lease_warns_before_its_deadline_and_kills_at_it() {
        let mut plan = EndPlan::new(0, Some(60_000));
        assert_eq!((plan.next_ms(), plan.due(57_999)), (Some(58_000), None));
        assert_eq!((plan.due(58_000), plan.due(58_000)), (Some(Act::Terminate), None));
        assert!(plan.renew(58_001, 99_000).is_err(), "a warned worker must not live on");
        assert_eq!((plan.due(60_000), plan.cause()), (Some(Act::KillAll), Why::LeaseExpired));
    }

    #[test]
    fn a_short_lease_is_not_warned_in_its_middle() {
        let mut plan = EndPlan::new(100_000, Some(104_000));
        assert_eq!(plan.next_ms(), Some(103_750));
        plan.renew(100_500, 104_500).unwrap();
        assert_eq!((plan.due(104_249), plan.due(104_250)), (None, Some(Act::Terminate)));
    }

    #[test]
    fn a_lease_never_moves_backwards() {
        let mut plan = EndPlan::new(0, Some(60_000));
        plan.renew(1, 90_000).unwrap();
        plan.renew(2, 70_000).unwrap();
        assert_eq!((plan.lease_ms(), plan.due(80_000)), (Some(90_000), None));
        assert!(plan.renew(90_000, 120_000).is_err());
    }

    #[test]
    fn the_lease_cuts_a_long_grace_short() {
        let mut plan = EndPlan::new(0, Some(10_000));
        plan.stop(0, 10, 600_000);
        assert_eq!(plan.due(10_000), Some(Act::KillAll));
        assert_eq!(plan.cause(), Why::LeaseExpired);
    }
}
