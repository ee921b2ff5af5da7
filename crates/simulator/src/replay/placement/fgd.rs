//! Fragmentation gradient descent: the node whose fragmentation grows least. Two forms of the score: exact, and rounded
//! as in the published experiment, where the rounding makes near-equal nodes equal.
use super::bid::{Bid, Scorer};
use super::fragments::fragmented;
use super::mix::Mix;
use super::room::{Ask, WHOLE_MILLI};
use super::site::Site;

/// The gradient with real-valued comparison, kept exact.
pub struct Exact(pub Mix);

impl Scorer for Exact {
    fn bid(&self, site: &Site, ask: &Ask) -> Bid {
        steepest(&self.0, site, ask, |gain| gain)
    }
}

/// The gradient squeezed into the whole numbers from 0 to 100 by the logistic function.
pub struct Rounded(pub Mix);

impl Scorer for Rounded {
    fn bid(&self, site: &Site, ask: &Ask) -> Bid {
        let one_gpu = (self.0.count * u64::from(WHOLE_MILLI)) as f64;
        steepest(&self.0, site, ask, |gain| (100.0 / (1.0 + (-(gain as f64) / one_gpu).exp())).floor() as i64)
    }
}

/// The choice of GPUs with the best score, the first of equals.
fn steepest(mix: &Mix, site: &Site, ask: &Ask, score: impl Fn(i64) -> i64) -> Bid {
    let before = fragmented(mix, &site.room) as i64;
    let mut best = Bid { score: i64::MIN, tie: 0, set: 0 };
    for set in site.room.choices(ask) {
        let score = score(before - fragmented(mix, &site.room.after(ask, set)) as i64);
        if score > best.score {
            best = Bid { score, tie: 0, set };
        }
    }
    best
}
