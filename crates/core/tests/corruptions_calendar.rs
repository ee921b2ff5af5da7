//! As `corruptions.rs`, for windows and maintenance: a healthy state, one planted fault in it, and `check` says that rule 10
//! broke.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job, limit};
use ganger_core::check;
use ganger_core::lifecycle::Input;
use ganger_core::model::job::{Job, Priority};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::node::{Maintenance, Node};
use ganger_core::model::window::Window;
use ganger_core::model::{Cluster, JobId, NodeId, Span, Time};
use std::sync::Arc;

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
    fn job(&mut self) -> &mut Job {
        Arc::make_mut(self.cluster.jobs.get_mut(&self.job).unwrap())
    }

    fn node(&mut self) -> &mut Node {
        Arc::make_mut(&mut self.cluster.nodes[0])
    }

    fn now(&self) -> Time {
        self.cluster.now
    }

    fn planned(&mut self) -> &mut Maintenance {
        &mut self.node().maintenance[0]
    }

    /// From `minutes` before this moment on, for two hours.
    fn window(&self, minutes: u64) -> Window {
        let opens = (self.cluster.now.0 / 60_000 + 1_440 - minutes) % 1_440;
        let (from_min, until_min) = (opens as u16, ((opens + 120) % 1_440) as u16);
        Window { days: 0x7f, from_min, until_min, zone: Default::default() }
    }

    fn restrict(&mut self, window: Window) {
        Arc::make_mut(&mut self.job().spec).windows = vec![window];
    }
}

fn rules(plant: impl FnOnce(&mut Placed)) -> Vec<u8> {
    let mut state = placed();
    plant(&mut state);
    check::full(&state.cluster).iter().map(|violation| violation.rule).collect()
}

#[test]
fn what_fits_is_clean() {
    assert_eq!(rules(|_| ()), [0; 0]);
    let opened = |state: &mut Placed| {
        let window = state.window(10);
        state.restrict(window);
    };
    assert_eq!(rules(opened), [0; 0]);
}

#[test]
fn rule_10_a_start_outside_its_windows_or_too_late_in_them() {
    for minutes in [121, 90, 1_400] {
        let found = rules(|state| {
            let window = state.window(minutes);
            state.restrict(window);
        });
        assert_eq!(found, [10], "opened {minutes} minutes ago");
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
