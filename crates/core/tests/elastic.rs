//! Elastic gangs: which size they start with, when they grow, and what a decision that makes them grow must not do.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job, limit, spec_mut};
use ganger_core::lifecycle::{self, Input};
use ganger_core::model::decision::{Claim, Decision, Reservation, Step};
use ganger_core::model::job::{JobSpec, JobState, Priority, Shrink, StopWhy};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::{JobId, Span};
use ganger_core::scheduler::decide;

fn elastic(workers: u32, min: u32, step: u32) -> JobSpec {
    let mut spec = job("elastic", workers, 1, Priority::P2);
    (spec.gang.min, spec.gang.step) = (min, step);
    (spec.checkpoint.on_demand, spec.checkpoint.grace) = (true, Span::seconds(30));
    spec
}

fn size(lab: &Lab, id: JobId) -> u32 {
    lab.cluster.job(id).map_or(0, |job| job.size())
}

/// A gang that runs with four of eight workers on a machine whose other four GPUs just came free.
fn short() -> (Lab, JobId) {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let other = lab.submit(job("other", 1, 4, Priority::P2));
    let gang = lab.submit(elastic(8, 2, 2));
    lab.settle();
    assert_eq!(size(&lab, gang), 4);
    lab.finish(other);
    (lab, gang)
}

/// The decision that makes it grow, and the claim in it.
fn grown(lab: &Lab) -> (Decision, Claim) {
    let decision = decide(&lab.cluster, lab.now);
    let claim = decision.steps.iter().find_map(|step| if let Step::Claim(claim) = step { Some(claim) } else { None });
    let claim = claim.cloned().unwrap();
    (decision, claim)
}

#[test]
fn it_starts_with_what_there_is_and_grows_when_its_time_has_come() {
    let (mut lab, gang) = short();
    lab.settle();
    assert_eq!(size(&lab, gang), 4, "it did not work long enough at its size");
    let due = lifecycle::next_wake_up(&lab.cluster, lab.now).unwrap();
    assert_eq!(due, lab.now + lab.cluster.policy.grow_after, "somebody has to look then");
    lab.pass(due.since(lab.now));
    lab.decide();
    assert_eq!(lab.state(gang), JobState::Stopping);
    let charged = lab.cluster.queues["default"].used.gpus;
    assert_eq!((charged, lab.cluster.claims[&gang].places.len()), (4, 8), "charged is what it holds");
    lab.settle();
    let job = lab.cluster.job(gang).unwrap();
    assert_eq!((size(&lab, gang), job.attempts.0, job.evictions), (8, 2, 0));
    assert_eq!(lab.cluster.queues["default"].used.gpus, 8);
}

#[test]
fn nobody_is_stopped_for_more_than_its_smallest_size() {
    let mut lab = Lab::new(1, &profile("dgx-h100").unwrap(), 1);
    let victims: Vec<JobId> = (0..4).map(|i| lab.submit(job(&format!("v{i}"), 1, 2, Priority::P3))).collect();
    lab.settle();
    let gang = lab.submit(JobSpec { priority: Priority::P0, ..elastic(8, 4, 2) });
    lab.settle();
    assert_eq!(size(&lab, gang), 4);
    let evicted = victims.iter().filter(|id| lab.cluster.job(**id).unwrap().evictions > 0).count();
    assert_eq!(evicted, 2);
}

#[test]
fn a_wanted_size_that_is_no_size_is_refused_and_changes_nothing() {
    let (mut lab, gang) = short();
    let rigid = lab.submit(job("rigid", 1, 1, Priority::P3));
    let before = lab.cluster.clone();
    let bounds = "allows 2 to 8 workers in steps of 2, not";
    let wrong = [(gang, 1, bounds), (gang, 3, bounds), (gang, 10, bounds), (gang, u32::MAX, bounds)];
    for (job, workers, why) in wrong.into_iter().chain([(rigid, 2, "gang.min")]) {
        let refused = lab.try_apply(Input::Resize { job, workers, by: "owner".to_string() }).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
        assert_eq!(lab.cluster, before);
    }
}

#[test]
fn a_person_need_not_wait_for_it_to_pay_and_may_change_their_mind_on_the_way() {
    let (mut lab, gang) = short();
    let resize = |workers| Input::Resize { job: gang, workers, by: "owner".to_string() };
    lab.apply(resize(6));
    lab.decide();
    assert_eq!(lab.cluster.claims[&gang].places.len(), 6);
    lab.apply(resize(2));
    assert_eq!(lab.cluster.claims[&gang].places.len(), 2);
    lab.assert_rules();
    lab.settle();
    assert_eq!((size(&lab, gang), lab.cluster.queues["default"].used.gpus), (2, 2));
    lab.apply(resize(8));
    lab.settle();
    assert_eq!((size(&lab, gang), lab.cluster.queues["default"].used.gpus), (8, 8));
}

/// The wish comes while the gang still stops for an earlier one, so its places were chosen for that.
#[test]
fn the_last_wish_holds_also_while_it_stops_for_an_earlier_one() {
    for (first, then) in [(2, 8), (4, 6), (8, 4)] {
        let (mut lab, gang) = short();
        spec_mut(&mut lab.cluster, gang).gang.shrink = Shrink::Restart;
        let resize = |workers| Input::Resize { job: gang, workers, by: "owner".to_string() };
        lab.apply(resize(6));
        lab.settle();
        lab.apply(resize(first));
        lab.decide();
        assert!(lab.cluster.job(gang).unwrap().is_resizing(), "{first}: it stops for the first wish");
        lab.pass(Span::seconds(5));
        lab.apply(resize(then));
        lab.pass(Span::seconds(5));
        lab.settle();
        assert_eq!(size(&lab, gang), then, "{first}, then {then}, with no time for it to pay");
        let due = lab.cluster.job(gang).and_then(|job| lab.cluster.grows_from(job));
        assert_eq!(due, None, "it has what it wanted");
    }
}

#[test]
fn a_size_of_its_file_can_be_asked_for_again_after_a_smaller_one() {
    let (mut lab, gang) = short();
    for workers in [2, 8, 4, 6, 8] {
        lab.apply(Input::Resize { job: gang, workers, by: "owner".to_string() });
        lab.settle();
        assert_eq!(size(&lab, gang), workers);
    }
}

#[test]
fn who_is_cancelled_while_it_grows_gives_all_back() {
    let (mut lab, gang) = short();
    lab.pass(lab.cluster.policy.grow_after);
    lab.decide();
    lab.apply(Input::Cancel { job: gang, by: "owner".to_string() });
    lab.settle();
    assert!(lab.cluster.jobs.is_empty() && lab.cluster.claims.is_empty());
    assert_eq!(lab.cluster.queues["default"].used, Default::default());
}

/// Each is one thing wrong with the decision that makes the gang grow.
#[test]
fn rules_3_and_5_a_gang_that_grows_at_the_cost_of_others() {
    type Plant = fn(&mut Decision, &mut Claim, JobId);
    let plants: [(u8, &str, Plant); 4] = [
        (3, "no place is kept", |_, claim, _| claim.places.clear()),
        (3, "but has 4", |_, claim, _| claim.places.truncate(4)),
        (3, "may not stop", |_, claim, patient| claim.victims.push((patient, Default::default()))),
        (5, "grows on devices reserved", |decision, claim, patient| {
            let (start, places) = (claim.made_at + Span::minutes(1), claim.places[..1].to_vec());
            let awaits = Vec::new();
            decision.reservations = vec![Reservation { job: patient, start, places, conditional: false, awaits }];
        }),
    ];
    for (rule, text, plant) in plants {
        let (mut lab, gang) = short();
        let patient = lab.submit(limit(job("patient", 1, 1, Priority::P2), Span::hours(1)));
        lab.apply(Input::Hold { job: patient, by: "ops".to_string() });
        lab.pass(lab.cluster.policy.grow_after);
        let (mut decision, mut claim) = grown(&lab);
        assert!(decision.steps.iter().any(|step| {
            matches!(step, Step::Stop { job, why: StopWhy::Resized { workers: 8 }, .. } if *job == gang)
        }));
        plant(&mut decision, &mut claim, patient);
        decision.steps.retain(|step| !matches!(step, Step::Claim(_)));
        if !claim.places.is_empty() {
            decision.steps.push(Step::Claim(claim));
        }
        let refused = lab.try_apply(Input::Decided(Box::new(decision))).unwrap_err().to_string();
        assert!(refused.contains(&format!("rule {rule}")) && refused.contains(text), "{refused}");
    }
}
