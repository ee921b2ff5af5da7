//! What must be true of every eviction: the same decision places the claimant on what is freed, every victim was fair
//! game, and none of them could have stayed.
use crate::common::Lab;
use ganger_core::lifecycle::{self, Input};
use ganger_core::model::amounts::Limit;
use ganger_core::model::attained;
use ganger_core::model::decision::{Claim, Decision, Step};
use ganger_core::model::job::{Exit, Job, Place, Priority, StopWhy};
use ganger_core::model::node::Device;
use ganger_core::model::queue::ancestry;
use ganger_core::model::report::Report;
use ganger_core::model::whole::{Kept, is_inside};
use ganger_core::model::{AttemptNo, Cluster, JobId};
use ganger_core::scheduler::decide;
use std::collections::BTreeSet;

pub fn assert_just(lab: &Lab, decision: &Decision) {
    let claims: Vec<&Claim> = decision
        .steps
        .iter()
        .filter_map(|step| if let Step::Claim(claim) = step { Some(claim) } else { None })
        .collect();
    for step in &decision.steps {
        if let Step::Stop { job, attempt, why } = step {
            let claimant = match why {
                StopWhy::Preempted { claimant } | StopWhy::Moved { claimant } => claimant,
                StopWhy::Resized { .. } => job,
                _ => panic!("a decision stops job {job}: {why}"),
            };
            let claim = claims.iter().find(|claim| claim.claimant == *claimant).expect("the claimant has a claim");
            assert!(claim.victims.contains(&(*job, *attempt)), "job {job} is stopped for nobody");
            match why {
                StopWhy::Moved { .. } => assert_moves(lab, &claims, claim, *job),
                StopWhy::Resized { workers } => assert_grows(lab, claim, *job, *workers),
                _ => assert_fair(lab, claim, *job),
            }
        }
    }
    for claim in &claims {
        assert_placed_on_what_is_freed(lab, decision, claim);
    }
    // Who moves frees nothing for itself.
    let beneficiaries: Vec<&Claim> = claims.iter().copied().filter(|claim| !is_home(claim)).collect();
    for unit in units(&beneficiaries) {
        assert_minimal(lab, decision, &unit);
    }
}

fn is_home(claim: &Claim) -> bool {
    claim.victims.iter().any(|(job, _)| *job == claim.claimant)
}

/// It can bear it, rested since it was moved before, and has its new place in the same decision.
fn assert_moves(lab: &Lab, claims: &[&Claim], claim: &Claim, moved: JobId) {
    let (claimant, job) = (live(lab, claim.claimant), live(lab, moved));
    assert!(claim.moves && lab.cluster.policy.consolidate);
    assert!(job.spec.preemptible || job.spec.checkpoint.on_demand);
    assert!(claimant.spec.priority < Priority::P3 && job.spec.priority >= claimant.spec.priority);
    assert!(job.rests_until(lab.cluster.policy.consolidate_patience).is_none_or(|at| at <= lab.now));
    let home = claims.iter().find(|home| home.claimant == moved).expect("it has a new place");
    assert!(home.moves && home.victims == claim.victims && home.places.len() == job.spec.gang.workers as usize);
    let taken = |claim: &Claim| claim.places.clone();
    for (one, other) in
        taken(home).iter().flat_map(|one| taken(claim).into_iter().map(move |other| (one.clone(), other)))
    {
        assert!(one.node != other.node || one.gpus & other.gpus == 0, "two claims for the same GPUs");
    }
}

/// A gang that has nobody but itself to thank restarts with more workers, when it may, and loses nothing that it could save.
fn assert_grows(lab: &Lab, claim: &Claim, id: JobId, workers: u32) {
    let job = live(lab, id);
    assert!(lab.cluster.may_grow(job, lab.now), "{} grows too soon", job.spec.name);
    assert!(claim.moves && claim.victims.len() == 1 && claim.places.len() == workers as usize);
    assert!(workers > job.size() && workers <= job.spec.gang.workers && job.spec.can_save());
    assert!((job.spec.gang.workers - workers).is_multiple_of(job.spec.gang.step), "{workers} is no size of its");
}

fn assert_fair(lab: &Lab, claim: &Claim, victim: JobId) {
    let (claimant, victim) = (live(lab, claim.claimant), live(lab, victim));
    let shielded = claimant.spec.priority > Priority::P0 && lab.cluster.is_protected(victim, lab.now);
    let by_class = victim.spec.preemptible
        && victim.spec.priority > claimant.spec.priority
        && claimant.spec.priority <= lab.cluster.policy.preempt_from;
    let owed = (by_class || reclaims(lab, claimant, victim)) && !shielded;
    let rotates = victim.spec.preemptible && is_rotation(lab, claimant, victim);
    let asks_back = asks_back(lab, claimant, victim);
    assert!(owed || rotates || asks_back, "{} may not stop {}", claimant.spec.name, victim.spec.name);
    let mates =
        lab.cluster.jobs.values().filter(|job| victim.spec.group.is_some() && job.spec.group == victim.spec.group);
    for mate in mates.filter(|mate| is_live(mate)) {
        assert!(claim.victims.iter().any(|(job, _)| *job == mate.id), "half of a group stays");
    }
}

/// A peer that had more, or is junior, and ran for a while.
fn is_rotation(lab: &Lab, claimant: &Job, victim: &Job) -> bool {
    let ran_from = victim.attempt.as_ref().and_then(|attempt| attempt.ran_from);
    attained::are_peers(&lab.cluster, claimant, victim)
        && attained::rank(&lab.cluster, claimant, lab.now) < attained::rank(&lab.cluster, victim, lab.now)
        && ran_from.is_some_and(|from| lab.now.since(from) >= lab.cluster.policy.las.run)
}

/// Something is guaranteed to a queue of the claimant in which the victim is not, and the victim gave no firm no. That the
/// numbers are right is what the checker says.
fn reclaims(lab: &Lab, claimant: &Job, victim: &Job) -> bool {
    let owed = ancestry(&claimant.spec.queue)
        .take_while(|path| !ancestry(&victim.spec.queue).any(|above| above == *path))
        .any(|path| lab.cluster.queues[path].guaranteed() != Limit::default());
    owed && !victim.spec.firm && victim.spec.priority >= claimant.spec.priority
}

/// Whole nodes are promised to a queue of the claimant in which the victim is not, and the victim is there on loan. What the
/// queue holds on as many nodes already is no reason to stop anybody.
fn asks_back(lab: &Lab, claimant: &Job, victim: &Job) -> bool {
    let kept = lab.cluster.kept_nodes(lab.cluster.holds(), lab.now);
    let owed = |one: &Kept<'_>| is_inside(&claimant.spec.queue, one.path) && one.held < one.whole.nodes;
    let promised = kept.iter().any(|one| owed(one) && !is_inside(&victim.spec.queue, one.path));
    promised && victim.spec.is_on_loan() && claimant.spec.priority < victim.spec.priority
}

fn live(lab: &Lab, id: JobId) -> &Job {
    lab.cluster.job(id).expect("a live job")
}

fn is_live(job: &Job) -> bool {
    job.attempt.as_ref().is_some_and(|attempt| attempt.stopping().is_none())
}

/// Every GPU and core of the claim is free now, given up by this decision, or held by a victim.
fn assert_placed_on_what_is_freed(lab: &Lab, decision: &Decision, claim: &Claim) {
    let spec = &live(lab, claim.claimant).spec;
    let least = if spec.is_elastic() { spec.gang.least() } else { spec.gang.workers };
    assert!(is_home(claim) || claim.places.len() == least as usize, "{} claims for more than its least", spec.name);
    let given_up =
        |by: JobId| decision.steps.iter().any(|step| matches!(step, Step::Unclaim { claimant, .. } if *claimant == by));
    let freed: Vec<&Place> = claim
        .victims
        .iter()
        .filter_map(|(job, _)| lab.cluster.job(*job)?.attempt.as_ref())
        .flat_map(|attempt| attempt.live().map(|worker| &worker.place))
        .collect();
    for place in &claim.places {
        let node = lab.cluster.node(place.node);
        let here = || freed.iter().filter(|freed| freed.node == place.node);
        let free = node.mask(|device| match device {
            Device::Free => true,
            Device::Claimed(by) => given_up(by),
            _ => false,
        });
        let gpus = here().fold(free, |mask, freed| mask | freed.touched_gpus());
        assert_eq!(place.gpus & !gpus, 0, "GPUs of {} are neither free nor freed", node.name);
        let used = here().fold(node.cpus_used, |used, freed| used.difference(&freed.cpus));
        assert!(place.cpus.is_disjoint(&used), "cores of {} are neither free nor freed", node.name);
    }
}

/// Claims of one decision with the same victims belong to one group.
fn units<'a>(claims: &[&'a Claim]) -> Vec<Vec<&'a Claim>> {
    let mut units: Vec<Vec<&Claim>> = Vec::new();
    for claim in claims {
        match units.iter_mut().find(|unit| unit[0].victims == claim.victims) {
            Some(unit) => unit.push(claim),
            None => units.push(vec![claim]),
        }
    }
    units
}

/// With all victims gone the claimant starts; with all but one it does not. Judged by `decide` itself on a copy in which
/// the victims are really gone and nobody else waits; so only where no promise to others has to be kept.
fn assert_minimal(lab: &Lab, decision: &Decision, unit: &[&Claim]) {
    let claimants: BTreeSet<JobId> = unit.iter().map(|claim| claim.claimant).collect();
    let first = live(lab, unit[0].claimant);
    // Within a class only the order inside a queue is known here.
    let (now, cluster) = (lab.now, &lab.cluster);
    let class = |job: &Job| (cluster.turn(job, now).effective, cluster.turn(job, now).genuine);
    let goes_later = |job: &Job| match attained::are_peers(cluster, first, job) {
        true => attained::rank(cluster, job, now) > attained::rank(cluster, first, now),
        false => {
            let later = cluster.turn(job, now) > cluster.turn(first, now);
            class(job) > class(first) || (job.spec.queue == first.spec.queue && later)
        }
    };
    let behind = |id: JobId| cluster.job(id).is_some_and(goes_later);
    if !lab.cluster.claims.is_empty() || !decision.reservations.iter().all(|reserved| behind(reserved.job)) {
        return;
    }
    let victims = &unit[0].victims;
    let before_us = decision.steps.iter().position(|step| is_stop_of(step, victims)).expect("victims are stopped");
    let prefix = Decision { steps: decision.steps[..before_us].to_vec(), ..decision.clone() };
    if prefix.steps.iter().any(|step| matches!(step, Step::Claim(_))) {
        return;
    }
    let starts = |gone: &[(JobId, AttemptNo)]| {
        let cluster = without(&lab.cluster, &prefix, gone, &claimants, lab);
        let steps = decide(&cluster, lab.now).steps;
        steps.iter().any(|step| matches!(step, Step::Start { job, .. } if claimants.contains(job)))
    };
    assert!(starts(victims), "with its victims gone {claimants:?} does not start: {decision:#?}");
    for gang in gangs(&lab.cluster, victims) {
        let others: Vec<_> = victims.iter().filter(|victim| !gang.contains(&victim.0)).copied().collect();
        assert!(!starts(&others), "{gang:?} need not leave for {claimants:?}: {decision:#?}");
    }
}

fn is_stop_of(step: &Step, victims: &[(JobId, AttemptNo)]) -> bool {
    matches!(step, Step::Stop { job, .. } | Step::Shrink { job, .. } if victims.iter().any(|(victim, _)| victim == job))
}

/// Victims that leave together: single jobs, or those of one group.
fn gangs(cluster: &Cluster, victims: &[(JobId, AttemptNo)]) -> Vec<Vec<JobId>> {
    let group = |id: JobId| cluster.job(id).and_then(|job| job.spec.group.clone());
    let mut gangs: Vec<Vec<JobId>> = Vec::new();
    for (id, _) in victims {
        match gangs.iter_mut().find(|gang| group(*id).is_some() && group(gang[0]) == group(*id)) {
            Some(gang) => gang.push(*id),
            None => gangs.push(vec![*id]),
        }
    }
    gangs
}

/// The cluster after `prefix`, with the jobs of `gone` over and nobody waiting but `claimants`.
fn without(
    cluster: &Cluster,
    prefix: &Decision,
    gone: &[(JobId, AttemptNo)],
    claimants: &BTreeSet<JobId>,
    lab: &Lab,
) -> Cluster {
    let mut copy = cluster.clone();
    let mut apply = |input: Input| lifecycle::apply(&mut copy, input, lab.now).map(drop);
    apply(Input::Decided(Box::new(prefix.clone()))).expect("a part of the decision can be applied");
    for (job, attempt) in gone {
        apply(Input::Cancel { job: *job, by: "test".to_string() }).expect("a victim lives");
        let workers = cluster.job(*job).and_then(|job| job.attempt.as_ref()).expect("a victim lives");
        for worker in workers.live() {
            let report = Report::Ended { job: *job, attempt: *attempt, rank: worker.rank, exit: Exit::Signal(15) };
            apply(Input::Report { node: worker.place.node, report }).expect("a report");
        }
    }
    let waiting: Vec<JobId> = copy.jobs.values().filter(|job| job.attempt.is_none()).map(|job| job.id).collect();
    for job in waiting.into_iter().filter(|job| !claimants.contains(job)) {
        let _ = lifecycle::apply(&mut copy, Input::Cancel { job, by: "test".to_string() }, lab.now);
    }
    copy
}
