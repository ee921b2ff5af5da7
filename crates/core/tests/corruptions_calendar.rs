//! As `corruptions.rs`, for windows and maintenance: a healthy state, one planted fault in it, and `check` says that rule 10
//! broke.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, broken, job, limit, node_mut, spec_mut, window};
use ganger_core::lifecycle::Input;
use ganger_core::model::job::Priority;
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::node::Maintenance;
use ganger_core::model::{Cluster, JobId, NodeId, Span, Time};

/// One node; a job of one hour was placed on it at this moment. Maintenance is planned in two hours.
struct Placed {
    cluster: Cluster,
    job: JobId,
}

fn placed() -> Placed {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let from = lab.now + Span::hours(2);
    lab.apply(Input::Maintain { node: NodeId(0), from, until: from + Span::hours(1), by: "ops".to_string() });
    lab.pass(Span::minutes(1));
    let job = lab.submit(limit(job("short", 1, 8, Priority::P2), Span::hours(1)));
    lab.decide();
    Placed { cluster: lab.cluster, job }
}

impl Placed {
    fn now(&self) -> Time {
        self.cluster.now
    }

    fn planned(&mut self) -> &mut Maintenance {
        &mut node_mut(&mut self.cluster, NodeId(0)).maintenance[0]
    }

    /// Restricts the job to a window that opened so many minutes ago, for two hours.
    fn restrict(&mut self, minutes: u64) {
        let window = window(&self.cluster, minutes, 1_560 - minutes);
        spec_mut(&mut self.cluster, self.job).windows = vec![window];
    }
}

fn rules(plant: impl FnOnce(&mut Placed)) -> Vec<u8> {
    let mut state = placed();
    plant(&mut state);
    broken(&state.cluster)
}

#[test]
fn what_fits_is_clean() {
    assert_eq!(rules(|_| ()), [0; 0]);
    assert_eq!(rules(|state| state.restrict(10)), [0; 0]);
}

#[test]
fn rule_10_a_start_outside_its_windows_or_too_late_in_them() {
    for minutes in [121, 90, 1_400] {
        assert_eq!(rules(|state| state.restrict(minutes)), [10], "opened {minutes} minutes ago");
    }
}

#[test]
fn rule_10_a_start_that_maintenance_would_end() {
    assert_eq!(rules(|state| state.planned().from = state.now() + Span::minutes(59)), [10]);
}

#[test]
fn maintenance_that_was_planned_after_the_start_or_is_over_breaks_nothing() {
    let soon = |state: &mut Placed| state.planned().from = state.now() + Span::minutes(59);
    let later = rules(|state| {
        soon(state);
        state.planned().planned_at = state.now();
    });
    assert_eq!(later, [0; 0]);
    let over = rules(|state| {
        soon(state);
        state.planned().until = state.now();
    });
    assert_eq!(over, [0; 0]);
}

#[test]
fn rule_10_maintenance_that_has_begun_on_a_node_that_is_not_drained() {
    let begun = rules(|state| {
        state.planned().planned_at = state.now();
        state.planned().begun = true;
    });
    assert_eq!(begun, [10]);
}
