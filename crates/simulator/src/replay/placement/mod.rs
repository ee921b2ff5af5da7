//! Where tasks go: arrivals on an empty cluster of nodes with shared GPUs, by the policy under test or a baseline.
pub mod arrivals;
mod baselines;
pub mod bid;
pub mod experiment;
mod fgd;
pub mod fragments;
pub mod mix;
pub mod ours;
pub mod policy;
pub mod room;
pub mod site;

pub use experiment::{Curves, PERCENT_MAX};
pub use policy::Policy;

use super::readers::openb::TraceNode;
use super::trace::Trace;

/// A workload on a cluster, ready to be run with any policy and seed.
pub struct Placement {
    sites: Vec<site::Site>,
    asks: Vec<room::Ask>,
    mix: mix::Mix,
    capacity_milli: u64,
}

impl Placement {
    /// Fails where nothing can be measured: no GPU, or nobody who asks for one.
    pub fn new(pods: &Trace, nodes: &[TraceNode]) -> Result<Placement, String> {
        let (sites, names) = site::sites(nodes);
        let asks = site::asks(pods, &names);
        let capacity_milli = sites.iter().map(|site| u64::from(site.capacity_milli)).sum();
        if capacity_milli == 0 {
            return Err("cannot place the pods: no node has a GPU; is it the right file of nodes?".to_string());
        }
        if asks.iter().all(|ask| ask.gpus == 0) {
            return Err(
                "cannot measure the placement: no pod asks for a GPU; is it the right file of pods?".to_string()
            );
        }
        Ok(Placement { mix: mix::Mix::of(&asks), sites, asks, capacity_milli })
    }

    pub fn run(&self, policy: Policy, seed: u64) -> Curves {
        let arrivals = arrivals::arrivals(&self.asks, self.capacity_milli, seed);
        let mut chooser = policy.chooser(self, seed);
        experiment::run(self.sites.clone(), &arrivals, &self.mix, &mut chooser)
    }
}
