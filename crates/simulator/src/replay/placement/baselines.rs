//! The published baselines: scores are whole numbers from 0 to 100, equal scores go to the first node by name.
use super::bid::{Bid, Scorer};
use super::room::{Ask, WHOLE_MILLI};
use super::site::{Site, class_of};

/// The largest node of the trace: what amounts are measured against.
const NODE_CPU_MILLI: u64 = 128_000;
const NODE_GPU_MILLI: u64 = 8_000;
const MAX: u64 = 100;

fn tightest(score: u64, site: &Site, ask: &Ask) -> Bid {
    Bid { score: score as i64, tie: 0, set: site.room.tightest(ask) }
}

/// The node on which the least is left over.
pub struct BestFit;

impl Scorer for BestFit {
    fn bid(&self, site: &Site, ask: &Ask) -> Bid {
        let left_cpu = u64::from(site.room.cpu_milli - ask.cpu_milli);
        let left_gpu = u64::from(site.room.total_milli() - ask.total_milli());
        // 100 (1 - cpu / 2 - gpu / 2), over one denominator, rounded down.
        let left = left_cpu * NODE_GPU_MILLI + left_gpu * NODE_CPU_MILLI;
        let all = 2 * NODE_GPU_MILLI * NODE_CPU_MILLI;
        tightest(MAX * all.saturating_sub(left) / all, site, ask)
    }
}

/// The node whose free amounts are most unlike the task's: what it has much of is not what the task takes.
pub struct DotProduct;

impl Scorer for DotProduct {
    fn bid(&self, site: &Site, ask: &Ask) -> Bid {
        let cpu = u64::from(site.room.cpu_milli) * u64::from(ask.cpu_milli) * NODE_GPU_MILLI * NODE_GPU_MILLI;
        let gpu = u64::from(site.room.total_milli()) * u64::from(ask.total_milli()) * NODE_CPU_MILLI * NODE_CPU_MILLI;
        let all = 2 * NODE_CPU_MILLI * NODE_CPU_MILLI * NODE_GPU_MILLI * NODE_GPU_MILLI;
        let product = u128::from(cpu) + u128::from(gpu);
        let score = u128::from(MAX) * u128::from(all).saturating_sub(product) / u128::from(all);
        tightest(score as u64, site, ask)
    }
}

/// Shared GPUs first, then free GPUs of nodes in use, then idle nodes.
pub struct Packing;

impl Scorer for Packing {
    fn bid(&self, site: &Site, ask: &Ask) -> Bid {
        let set = site.room.tightest(ask);
        let free_milli = site.room.free_milli().iter().enumerate().find(|(index, _)| set >> index & 1 == 1);
        let free_milli = free_milli.map_or(0, |(_, free)| *free);
        let score = match ask.gpus {
            0 => 0,
            _ if ask.is_share() && free_milli < WHOLE_MILLI => (MAX - u64::from(free_milli) / 100).max(50),
            gpus if site.used_milli() > 0 => 50_u64.saturating_sub(gpus.into()).max(33),
            _ => 33 - u64::from(site.room.gpus),
        };
        Bid { score: score as i64, tie: 0, set }
    }
}

/// Nodes that already hold the same class of tasks, and nothing else if possible.
pub struct Clustering;

impl Scorer for Clustering {
    fn bid(&self, site: &Site, ask: &Ask) -> Bid {
        let Some(class) = class_of(ask) else { return tightest(0, site, ask) };
        let others = site.classes.iter().enumerate().any(|(other, &count)| other != class && count > 0);
        let base = match (site.classes[class] > 0, others) {
            (true, false) => 75,
            (true, true) => 50,
            (false, false) => 25,
            (false, true) => 0,
        };
        // The less is free, whatever the size of the node, the better.
        let used = 25 - u64::from(site.room.total_milli()) * 25 / NODE_GPU_MILLI;
        tightest(base + used, site, ask)
    }
}

#[cfg(test)]
mod tests {
    use super::super::room::Room;
    use super::super::site::CLASSES;
    use super::*;

    fn site(gpus: u8) -> Site {
        let room = Room::empty(64_000, 1_000, 1, gpus);
        Site { name: "n".into(), room, capacity_milli: room.total_milli(), classes: [0; CLASSES], version: 0 }
    }

    fn ask(gpus: u8, gpu_milli: u16) -> Ask {
        Ask { cpu_milli: 32_000, memory_mib: 0, gpus, gpu_milli, models: 1 }
    }

    #[test]
    fn scores_by_hand() {
        let (idle, share) = (site(4), ask(1, 500));
        // 32 of 128 cores and 3.5 of 8 GPUs are left: 100 (1 - 0.125 - 0.21875).
        assert_eq!(BestFit.bid(&idle, &share).score, 65);
        // cores 0.5 x 0.25, GPUs 0.5 x 0.0625: 100 (1 - (0.125 + 0.03125) / 2).
        assert_eq!(DotProduct.bid(&idle, &share).score, 92);
        assert_eq!(Packing.bid(&idle, &share).score, 29);
        assert_eq!(Clustering.bid(&idle, &share).score, 25 + 13);
        let mut used = site(4);
        used.place(&share, 0b0010);
        assert_eq!((Packing.bid(&used, &share).score, Packing.bid(&used, &share).set), (95, 0b0010));
        assert_eq!(Packing.bid(&used, &ask(2, 1_000)).score, 48);
        assert_eq!(Clustering.bid(&used, &share).score, 75 + 15);
        assert_eq!(Clustering.bid(&used, &ask(2, 1_000)).score, 15);
        used.place(&ask(1, 1_000), 0b0001);
        assert_eq!(Clustering.bid(&used, &share).score, 50 + 18);
    }
}
