//! Kept pools in a decision: guests come where there is no room elsewhere, make way for the pool's own jobs, and are never
//! the reason that somebody else is stopped there while one of those waits.
use super::preempt::waits_or_is_limited;
use super::{Session, Unit};
use crate::model::cluster::Cluster;
use crate::model::decision::Blocker;
use crate::model::ids::{JobId, NodeId};
use crate::model::job::{Job, JobSpec, Place, Priority};
use crate::model::node::Node;
use crate::model::time::{Time, rfc3339};
use std::collections::BTreeSet;

impl<'a> Session<'a> {
    /// Takes from the draft what is free on nodes that the unit would be a guest of, as `pick` says of their pools.
    pub fn hold_back_pools(&mut self, unit: &Unit<'a>, pick: impl Fn(&str) -> bool) {
        let cluster = self.cluster;
        let strange = |node: &&Node| {
            let lent = |job: &&Job| cluster.lending(node, &job.spec);
            unit.iter().find_map(lent).is_some_and(|(pool, _)| pick(pool))
        };
        let nodes: Vec<NodeId> = cluster.nodes.iter().map(AsRef::as_ref).filter(strange).map(|node| node.id).collect();
        for node in nodes {
            let room = self.draft.room(node);
            let free = Place::of_devices(node, room.gpus, room.cpus);
            self.draft.take(&free);
        }
    }

    /// Where the unit is no guest of a kept pool; `None` also where there is no such pool.
    pub fn place_at_home(&mut self, unit: &Unit<'a>) -> Option<Vec<Vec<Place>>> {
        if self.cluster.pools.is_empty() || unit.iter().all(|job| self.cluster.own_pool(&job.spec).is_some()) {
            return None;
        }
        let mark = self.draft.mark();
        self.hold_back_pools(unit, |_| true);
        let found = self.place_unit(unit).ok();
        self.draft.undo_to(mark);
        found
    }

    /// Keeps the unit off the pools whose own jobs wait: what it claimed there it would have to give up to them.
    pub fn hold_back_wanted_pools(&mut self, unit: &Unit<'a>) {
        let wanted = self.wanted_pools();
        if !wanted.is_empty() {
            self.hold_back_pools(unit, |pool| wanted.contains(pool));
        }
    }

    /// Whether the unit would be a guest of one of the pools on one of the places.
    pub fn are_lent_by(&self, pools: &BTreeSet<&str>, unit: &Unit<'a>, places: &[&Place]) -> bool {
        let lent = |place: &&Place| {
            let node = self.cluster.node(place.node);
            unit.iter().filter_map(|job| self.cluster.lending(node, &job.spec)).any(|(pool, _)| pools.contains(pool))
        };
        !pools.is_empty() && places.iter().any(lent)
    }

    /// The kept pools of which an own job waits for devices.
    pub fn wanted_pools(&self) -> BTreeSet<&'a str> {
        if self.cluster.pools.is_empty() {
            return BTreeSet::new();
        }
        let waiting = self.blocked.iter().filter(|(_, blocker)| waits_or_is_limited(blocker));
        let waiting = waiting.filter_map(|(id, _)| self.cluster.job(*id));
        waiting.filter_map(|job| self.cluster.own_pool(&job.spec)).collect()
    }

    /// Who waits in one of these ways and would take the places back as soon as the unit runs there as a guest.
    pub fn taken_back_by(
        &self,
        unit: &Unit<'a>,
        places: &[&[Place]],
        blocked: fn(&Blocker) -> bool,
    ) -> Option<(JobId, Priority)> {
        if self.cluster.pools.is_empty() {
            return None;
        }
        let waiting = self.blocked.iter().filter(|(_, blocker)| blocked(blocker));
        waiting.filter_map(|(id, _)| self.cluster.job(*id)).find_map(|ahead| {
            let takes = |(job, places): (&&Job, &&[Place])| self.cluster.takes_back(&ahead.spec, &job.spec, *places);
            unit.iter().zip(places).any(takes).then_some((ahead.id, ahead.spec.priority))
        })
    }
}

/// What free GPUs and workers such nodes would give that are not lent to the job now; when the first is lent again.
pub fn next_lending(cluster: &Cluster, spec: &JobSpec, now: Time) -> Time {
    let long_enough = |(from, until): &(Time, Time)| cluster.policy.fits_before(spec, *from, *until);
    let pools = cluster.lenders(spec).into_iter().filter_map(|name| cluster.pools.get(name));
    pools
        .filter_map(|lending| lending.when.times_from(now).find(long_enough))
        .map(|(from, _)| from)
        .min()
        .unwrap_or(Time::NEVER)
}

/// Of a job that runs: of which pools it is a guest, and until when.
pub fn report(cluster: &Cluster, job: &Job) -> Option<String> {
    let words = |(pool, until): (&str, Time)| match until {
        Time::NEVER => format!("lent by pool {pool} until its own jobs need it"),
        until => format!("lent by pool {pool} until {} or its own jobs need it", rfc3339(until)),
    };
    let pools: Vec<String> = cluster.guest_in(job).into_iter().map(words).collect();
    (!pools.is_empty()).then(|| pools.join("; "))
}
