//! As `corruptions.rs`, for pools that are kept for their own jobs: a healthy state, one planted fault in it, and `check`
//! says which rule broke.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, broken, job, limit, node_mut, spec_mut, window};
use ganger_core::lifecycle::Input;
use ganger_core::model::cluster::NodePlacement;
use ganger_core::model::job::{JobSpec, Priority};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::pool::{LendTime, Lending};
use ganger_core::model::{Cluster, JobId, NodeId, Span, Time};
use std::collections::BTreeMap;

const POOL: &str = "inference";

fn lending(when: LendTime) -> Lending {
    Lending { when, to: Vec::new(), classes: Vec::new(), since: Time(0) }
}

/// One node, in a pool that is lent at any time, or is open.
fn lab(kept: bool) -> Lab {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let placement = NodePlacement { pool: Some(POOL.to_string()), ..NodePlacement::default() };
    lab.apply(Input::Fabric {
        placements: BTreeMap::from([("n0".to_string(), placement)]),
        uplinks: BTreeMap::new(),
        pools: BTreeMap::from([(POOL.to_string(), kept.then(|| lending(LendTime::Always)))]),
        by: "ops".to_string(),
    });
    lab.pass(Span::minutes(1));
    lab
}

fn own(spec: JobSpec) -> JobSpec {
    JobSpec { pool: Some(POOL.to_string()), ..spec }
}

/// A job of one hour was placed at this moment, as a guest.
fn guest() -> (Cluster, JobId) {
    let mut lab = lab(true);
    let guest = lab.submit(limit(job("guest", 1, 8, Priority::P2), Span::hours(1)));
    lab.decide();
    (lab.cluster, guest)
}

/// A window that closes so many minutes from now.
fn closing_in(cluster: &Cluster, minutes: u64) -> LendTime {
    LendTime::in_windows(vec![window(cluster, 720, minutes)])
}

#[test]
fn rule_10_a_guest_starts_where_nothing_is_lent_to_it() {
    let (cluster, _) = guest();
    assert_eq!(broken(&cluster), [0; 0]);
    let with = |lending: Lending| {
        let mut cluster = cluster.clone();
        cluster.pools.insert(POOL.to_string(), lending);
        broken(&cluster)
    };
    assert_eq!(with(lending(LendTime::Never)), [10]);
    assert_eq!(with(lending(closing_in(&cluster, 59))), [10], "it stays for an hour");
    assert_eq!(with(lending(closing_in(&cluster, 62))), [0; 0]);
    let always = || lending(LendTime::Always);
    assert_eq!(with(Lending { to: vec!["research".to_string()], ..always() }), [10]);
    assert_eq!(with(Lending { classes: vec![Priority::P3], ..always() }), [10]);
    let said_now = Lending { since: cluster.now, ..lending(LendTime::Never) };
    assert_eq!(with(said_now), [0; 0], "what is said after the start is no fault of it");
}

#[test]
fn rule_10_a_guest_that_never_yields() {
    let (mut cluster, guest) = guest();
    spec_mut(&mut cluster, guest).firm = true;
    assert_eq!(broken(&cluster), [10]);
}

#[test]
fn rule_3_only_an_own_job_takes_back_and_only_from_guests() {
    let mut lab = lab(true);
    let guest = lab.submit(limit(job("guest", 1, 8, Priority::P0), Span::hours(1)));
    lab.settle();
    lab.pass(Span::minutes(1));
    let owner = lab.submit(own(limit(job("own", 1, 8, Priority::P3), Span::hours(1))));
    assert_eq!(lab.decide(), 2, "a stop and a claim");
    assert_eq!(broken(&lab.cluster), [0; 0]);
    let with = |plant: &dyn Fn(&mut Cluster)| {
        let mut cluster = lab.cluster.clone();
        plant(&mut cluster);
        broken(&cluster)
    };
    assert_eq!(with(&|cluster| drop(cluster.pools.remove(POOL))), [3], "an open pool has no guests");
    assert_eq!(with(&|cluster| spec_mut(cluster, owner).pool = None), [3]);
    assert_eq!(with(&|cluster| spec_mut(cluster, guest).pool = Some(POOL.to_string())), [3]);
    assert_eq!(with(&|cluster| node_mut(cluster, NodeId(0)).pool = None), [3], "it is not in the pool");
}

#[test]
fn rule_3_no_class_stops_an_own_job_for_a_guest() {
    let mut lab = lab(false);
    lab.submit(own(job("own", 1, 8, Priority::P3)));
    lab.settle();
    lab.pass(Span::minutes(1));
    lab.submit(job("urgent", 1, 8, Priority::P0));
    assert_eq!(lab.decide(), 2, "in an open pool classes say who yields");
    assert_eq!(broken(&lab.cluster), [0; 0]);
    lab.cluster.pools.insert(POOL.to_string(), lending(LendTime::Always));
    assert_eq!(broken(&lab.cluster), [3]);
}
