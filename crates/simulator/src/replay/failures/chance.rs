//! When which servers fail: exponential times between faults, servers by lot. The same seed gives every policy the same
//! faults.
use super::{DAY_MS, Setup};
use crate::random::dice::Dice;
use ganger_core::model::ids::NodeId;
use ganger_core::model::time::{Span, Time};

pub struct Faults {
    setup: Setup,
    times: Dice,
    servers: Dice,
}

impl Faults {
    pub fn new(setup: Setup) -> Faults {
        let dice = Dice::new(setup.seed);
        Faults { setup, times: dice.child("times"), servers: dice.child("servers") }
    }

    /// The cluster's next fault after `now`.
    pub fn next_after(&mut self, now: Time) -> Time {
        let together = self.setup.together.max(1) as f64;
        let per_day = self.setup.faults_per_day * self.setup.nodes as f64 / together;
        if per_day <= 0.0 {
            return Time::NEVER;
        }
        // Of (0, 1], so that the logarithm is finite.
        let even = (self.times.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        now + Span(((-even.ln() / per_day * DAY_MS) as u64).max(1))
    }

    /// Neighbours, where several fail together.
    pub fn struck_servers(&mut self) -> Vec<NodeId> {
        let nodes = self.setup.nodes as u64;
        let first = self.servers.below(nodes);
        let count = (self.setup.together.max(1) as u64).min(nodes);
        (0..count).map(|next| NodeId(((first + next) % nodes) as u32)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_faults_as_the_rate_says() {
        let setup = Setup { nodes: 100, gpus_each: 8, faults_per_day: 0.01, together: 1, seed: 1 };
        let (mut faults, mut now) = (Faults::new(setup), Time(0));
        (0..10_000).for_each(|_| now = faults.next_after(now));
        // One a day.
        let days = now.0 as f64 / DAY_MS;
        assert!((days - 10_000.0).abs() < 300.0, "{days}");
        assert_eq!(Faults::new(Setup { together: 4, ..setup }).struck_servers().len(), 4);
        assert_eq!(Faults::new(Setup { faults_per_day: 0.0, ..setup }).next_after(now), Time::NEVER);
    }
}
