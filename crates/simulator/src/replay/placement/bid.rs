//! What a policy offers for one task on one node, and how the best offer is chosen.
use super::room::{Ask, GpuSet};
use super::site::Site;

/// An offer: larger is better, first by `score`, then by `tie`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bid {
    pub score: i64,
    pub tie: i64,
    pub set: GpuSet,
}

/// How a policy values one node for one task. Pure: the same node and task, the same bid, until [`Scorer::epoch`] rises.
pub trait Scorer {
    /// The best that `site` offers; called only where the task fits.
    fn bid(&self, site: &Site, ask: &Ask) -> Bid;

    /// Scores this close to the best count as equal to it.
    fn band(&self) -> i64 {
        0
    }

    /// Told of each arrival before it is placed; policies that learn do it here.
    fn arrived(&mut self, _ask: &Ask, _sites: &[Site]) {}

    /// Bids of an earlier epoch no longer hold.
    fn epoch(&self) -> u32 {
        0
    }
}

/// The offer of the policy: within the band of the best score the best tie, then the first node.
pub fn best(bids: &[Option<Bid>], band: i64) -> Option<(usize, Bid)> {
    let top = bids.iter().flatten().map(|bid| bid.score).max()?;
    let near = bids.iter().enumerate().filter_map(|(index, bid)| bid.map(|bid| (index, bid)));
    let near = near.filter(|(_, bid)| bid.score >= top - band);
    near.min_by_key(|(_, bid)| std::cmp::Reverse(if band > 0 { (bid.tie, bid.score) } else { (bid.score, bid.tie) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_band_decides_whether_ties_come_before_scores() {
        let bid = |score, tie| Some(Bid { score, tie, set: 1 });
        let bids = [bid(98, 1), None, bid(100, 0), bid(99, 5), bid(99, 5)];
        assert_eq!(best(&bids, 0).unwrap().0, 2);
        assert_eq!(best(&bids, 1).unwrap().0, 3, "the first of equals");
        assert_eq!(best(&[None, None], 1), None);
    }
}
