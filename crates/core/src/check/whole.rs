//! Rule 11: no decision takes from a queue a whole node that is promised to it. Rule 3: who is asked to leave for such a
//! promise is on loan.
use super::Found;
use crate::model::cluster::Cluster;
use crate::model::decision::Claim;
use crate::model::job::{Job, Priority};
use crate::model::queue::ancestry;
use crate::model::whole::is_inside;

/// Of each promise as many nodes are taken by the queue or open to it as before.
pub fn kept(before: &Cluster, after: &Cluster, found: &mut Found) {
    if !before.promises_nodes() {
        return;
    }
    let was = before.kept_nodes(before.holds(), after.now);
    for is in after.kept_nodes(after.holds(), after.now) {
        let counted = was.iter().find(|was| was.path == is.path).map_or(0, |was| was.taken + was.open);
        found.unless(is.taken + is.open >= counted, 11, || {
            let (path, words) = (is.path, is.whole.words());
            format!(
                "{words} are promised to queue {path}, and of {counted} that it had or could have {} are left",
                is.taken + is.open
            )
        });
    }
}

/// Whether something is promised to the claimant's queue, or to one above it, in which the victim is not. Looked at while
/// the claim is made: how many nodes the queue had then nobody can say later.
pub fn may_ask_back(cluster: &Cluster, claim: &Claim, claimant: &Job, victim: &Job) -> bool {
    let promised = |path: &str| cluster.queues.get(path).is_some_and(|queue| queue.whole_nodes.is_some());
    let strange = |path: &&str| promised(path) && !is_inside(&victim.spec.queue, path);
    claim.made_at == cluster.now
        && claimant.spec.priority < Priority::P3
        && victim.spec.is_on_loan()
        && ancestry(&claimant.spec.queue).any(|path| strange(&path))
}
