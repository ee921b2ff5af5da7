//! What is odd about a file that was applied, and may come true later: said, not refused.
use super::amounts::{DIMENSIONS, Resources, amount_words, count};
use super::cluster::Cluster;
use super::queue::Queue;
use super::time::Span;
use super::wire::cluster::ClusterPlan;
use std::collections::BTreeSet;

/// Below this an agent has a few seconds to be heard again.
const SHORT_LEASE: Span = Span::seconds(10);
/// So many names are told.
const NAMED: usize = 5;

/// Of one queue as it is now; `coverable` of its whole nodes there would be if nothing ran.
pub fn of_queue(cluster: &Cluster, queue: &Queue, coverable: Option<u32>) -> Vec<String> {
    let path = &queue.path;
    let capacity = cluster.listed_nodes().fold(Resources::ZERO, |sum, node| sum.plus(node.capacity()));
    let there = DIMENSIONS.into_iter().zip(capacity.amounts()).zip(queue.guarantee.bounds());
    let over = there.filter_map(|((name, there), asked)| Some((name, there, asked.filter(|asked| *asked > there)?)));
    let over = over.map(|(name, there, asked)| {
        let (asked, there) = (amount_words(name, asked), amount_words(name, there));
        format!("queue {path}: its guarantee of {asked} is more than the whole cluster has, {there}")
    });
    over.chain(promise(cluster, queue, coverable)).collect()
}

fn promise(cluster: &Cluster, queue: &Queue, coverable: Option<u32>) -> Option<String> {
    let (path, whole) = (&queue.path, queue.whole_nodes.as_ref()?);
    let large = cluster.listed_nodes().filter(|node| node.machine.gpus.len() >= whole.gpus as usize);
    let models: BTreeSet<&str> = large.map(|node| node.machine.gpu_model.as_str()).collect();
    let asked = whole.gpu_model.as_deref();
    let named = |model: &str| asked.is_none_or(|asked| model.eq_ignore_ascii_case(asked));
    if !models.iter().any(|model| named(model)) {
        let there = match models.is_empty() {
            true => format!("no node has {}", count(whole.gpus.into(), "GPU")),
            false => format!("nodes with so many GPUs have {}", models.into_iter().collect::<Vec<_>>().join(", ")),
        };
        return Some(format!("queue {path}: it is promised {}, but {there}", whole.words()));
    }
    let least = coverable.filter(|coverable| *coverable < whole.nodes)?;
    Some(format!("queue {path}: it is promised {}, but at most {least} could be had now", whole.words()))
}

/// Of a cluster file, once it is applied.
pub fn of_cluster(cluster: &Cluster, plan: &ClusterPlan) -> Vec<String> {
    let absent: Vec<&str> =
        plan.placements.keys().map(String::as_str).filter(|name| !cluster.node_names.contains_key(*name)).collect();
    let nodes = count(absent.len() as u64, "node");
    let absent = (!absent.is_empty()).then(|| format!("{nodes} not registered yet: {}", listed(&absent)));
    let lent = plan.pools.iter().filter_map(|(pool, lending)| Some((pool, lending.as_ref()?)));
    let strange = lent.flat_map(|(pool, lending)| lending.to.iter().map(move |to| (pool, to)));
    let strange = strange.filter(|(_, to)| !cluster.queues.contains_key(*to));
    let strange = strange.map(|(pool, to)| format!("pool {pool} is lent to queue {to}, which does not exist"));
    let lease = cluster.policy.lease;
    let short = (plan.settings.contains_key("lease") && lease < SHORT_LEASE)
        .then(|| format!("a lease of {lease} ends what runs at short troubles of the network; 60s is usual"));
    absent.into_iter().chain(strange).chain(short).collect()
}

fn listed(names: &[&str]) -> String {
    match names.len().saturating_sub(NAMED) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names[..NAMED].join(", ")),
    }
}
