//! The order inside queues that go by attained service.
use crate::model::attained::{is_las, rank};
use crate::model::cluster::Cluster;
use crate::model::job::{Job, Priority};
use crate::model::queue::QueuePolicy;
use crate::model::time::Time;
use std::collections::BTreeMap;

/// Whether some queue goes by attained service.
pub fn is_used(cluster: &Cluster) -> bool {
    cluster.queues.values().any(|queue| queue.policy == QueuePolicy::LeastAttained)
}

/// The places that the jobs of such a queue and class have in the order of service stay theirs together; who of them takes
/// which is settled by rank. So a queue's policy moves nobody else's jobs.
pub fn reorder(cluster: &Cluster, pending: &mut [&Job], now: Time) {
    let mut places: BTreeMap<(&str, Priority, Option<&str>), Vec<usize>> = BTreeMap::new();
    for (index, job) in pending.iter().enumerate().filter(|(_, job)| job.attempt.is_none() && is_las(cluster, job)) {
        let peers = (job.spec.queue.as_str(), job.spec.priority, cluster.own_pool(&job.spec));
        places.entry(peers).or_default().push(index);
    }
    for places in places.values() {
        let mut peers: Vec<&Job> = places.iter().map(|index| pending[*index]).collect();
        peers.sort_by_cached_key(|job| rank(cluster, job, now));
        places.iter().zip(peers).for_each(|(index, job)| pending[*index] = job);
    }
}
