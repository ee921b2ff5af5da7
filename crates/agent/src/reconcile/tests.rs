use super::*;
use crate::testing;
use ganger_core::model::ids::{AttemptNo, JobId, Rank};
use ganger_core::model::job::Launcher;

const RUNNING: Stage = Stage::Running { stop: None, stray_told: false };

fn wanted(action: Action) -> Vec<Unit> {
    crate::unit::units("n1", &testing::orders(Launcher::Torchrun, action), |_| None)
}

fn key() -> UnitKey {
    UnitKey { job: JobId(7), attempt: AttemptNo(1), lead: Rank(2) }
}

fn known(key: UnitKey, stage: Stage) -> BTreeMap<UnitKey, Known> {
    let members = wanted(Action::Prepare)[0].members.clone();
    BTreeMap::from([(key, Known { stage, members })])
}

fn go() -> Action {
    Action::Go { rendezvous_address: "10.0.0.1".into(), rendezvous_port: 2 }
}

fn stop(grace: bool, deadline: u64) -> Action {
    Action::Stop { grace, deadline: Time(deadline), why: "preempted".into() }
}

fn asked(grace: bool, deadline: u64) -> Stage {
    Stage::Running { stop: Some(StopAsked { grace, deadline: Time(deadline) }), stray_told: false }
}

#[test]
fn each_order_against_each_stage() {
    let ended = |acknowledged| Stage::Ended { acknowledged };
    let soft = |deadline| Some(Act::Stop { key: key(), deadline: Time(deadline) });
    let table = [
        (Action::Prepare, Stage::Preparing, None),
        (Action::Prepare, Stage::Prepared, None),
        (Action::Prepare, ended(true), None),
        (go(), Stage::Preparing, None),
        (go(), Stage::Prepared, Some(Act::Start(key()))),
        (go(), Stage::Launching, None),
        (go(), RUNNING, None),
        (go(), ended(false), None),
        (stop(true, 9), Stage::Preparing, Some(Act::EndUnstarted(key()))),
        (stop(true, 9), Stage::Prepared, Some(Act::EndUnstarted(key()))),
        (stop(false, 9), Stage::Launching, None),
        (stop(true, 9), RUNNING, soft(9)),
        (stop(false, 9), RUNNING, Some(Act::Kill(key()))),
        (stop(true, 9), asked(true, 9), None),
        (stop(true, 8), asked(true, 9), soft(8)),
        (stop(true, 10), asked(true, 9), None),
        (stop(false, 9), asked(true, 9), Some(Act::Kill(key()))),
        (stop(false, 9), asked(false, 9), None),
        (stop(true, 1), asked(false, 9), None),
        (stop(true, 9), ended(true), None),
    ];
    for (action, stage, expected) in table {
        let acts = plan(&wanted(action.clone()), &known(key(), stage), true);
        assert_eq!(acts, expected.into_iter().collect::<Vec<_>>(), "{action:?} {stage:?}");
    }
}

#[test]
fn absence_never_stops_what_runs() {
    let told = Stage::Running { stop: None, stray_told: true };
    let table = [
        (RUNNING, vec![Act::TellStray(key())]),
        (told, vec![]),
        (Stage::Launching, vec![]),
        (Stage::Preparing, vec![]),
        (Stage::Prepared, vec![Act::DropPreparation(key())]),
        (Stage::Ended { acknowledged: false }, vec![]),
        (Stage::Ended { acknowledged: true }, vec![Act::Forget(key())]),
    ];
    for (stage, expected) in table {
        assert_eq!(plan(&[], &known(key(), stage), true), expected, "{stage:?}");
    }
}

#[test]
fn without_a_record_only_a_preparation_is_done_until_old_leases_are_over() {
    let none = BTreeMap::new();
    assert_eq!(plan(&wanted(Action::Prepare), &none, false), [Act::Prepare(key())]);
    assert_eq!(plan(&wanted(go()), &none, false), []);
    assert_eq!(plan(&wanted(stop(true, 9)), &none, false), []);
    assert_eq!(plan(&wanted(stop(true, 9)), &none, true), [Act::EndUnstarted(key())]);
    let acts = plan(&wanted(go()), &none, true);
    assert!(matches!(&acts[..], [Act::Refuse { why, .. }] if why.contains("no record")), "{acts:?}");
}

#[test]
fn devices_that_a_living_unit_holds_are_refused_by_name() {
    let other = UnitKey { job: JobId(6), ..key() };
    for stage in [Stage::Preparing, Stage::Prepared, Stage::Launching, RUNNING, asked(true, 1)] {
        let acts = plan(&wanted(Action::Prepare), &known(other, stage), true);
        let refused = acts.iter().any(|act| {
            matches!(act, Act::Refuse { why, .. } if why == "GPU 0 is held by rank 2 of job 6 (attempt 1) on this node")
        });
        assert!(refused, "{stage:?}: {acts:?}");
    }
    let acts = plan(&wanted(Action::Prepare), &known(other, Stage::Ended { acknowledged: false }), true);
    assert_eq!(acts, [Act::Prepare(key())]);
}

#[test]
fn an_older_attempt_that_still_lives_keeps_the_next_from_starting() {
    let mut older = known(UnitKey { attempt: AttemptNo(0), ..key() }, RUNNING);
    older.values_mut().for_each(|record| record.members.clear());
    let acts = plan(&wanted(Action::Prepare), &older, true);
    assert!(acts.iter().any(|act| matches!(act, Act::Refuse { why, .. } if why.contains("still alive"))), "{acts:?}");
}

#[test]
fn two_orders_for_one_device_never_both_start() {
    let mut orders = testing::orders(Launcher::Ranks, Action::Prepare);
    orders[1].devices.gpus = vec![1];
    let acts = plan(&crate::unit::units("n1", &orders, |_| None), &BTreeMap::new(), true);
    assert!(matches!(&acts[..], [Act::Prepare(_), Act::Refuse { why, .. }] if why.starts_with("GPU 1")), "{acts:?}");
}
