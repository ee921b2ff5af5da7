//! The mixes of Kueue's performance tests, from their numbers (kubernetes-sigs/kueue, test/performance/scheduler/configs,
//! Apache-2.0): cohorts of queues, and in each queue streams of equal workloads at equal intervals.
//!
//! `baseline` is as published. `large-scale` is the edition with 1,000 queues of 50 workloads, in the shares of `baseline`.
//! `tas` has the seven streams as published, with as many more workloads in each as make 15,000 of them, at a quarter of the
//! intervals, so that capacity and not the generator is what bounds it.
use ganger_core::model::job::{Level, Priority, TopologyWish};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    Baseline,
    LargeScale,
    Tas,
}

/// Equal workloads, one every so often.
#[derive(Debug, Clone, Copy)]
pub struct Stream {
    pub name: &'static str,
    /// In each queue.
    pub count: u64,
    pub every_ms: u64,
    pub run_ms: u64,
    pub priority: Priority,
    pub workers: u32,
    pub cpus_each: u32,
    pub wish: TopologyWish,
}

/// Queues, and the nodes under them.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub cohorts: u64,
    pub queues_each: u64,
    /// Of each queue, in CPUs.
    pub guarantee: u64,
    /// What it may borrow of its cohort beyond that.
    pub borrows: u64,
    pub racks: u64,
    pub nodes_each: u64,
    pub node_cpus: u32,
    pub streams: &'static [Stream],
}

const ANYWHERE: TopologyWish =
    TopologyWish { require: None, prefer: None, ranks_per_island: None, ranks_per_node: None };
const ONE_RACK: TopologyWish = TopologyWish { require: Some(Level::Leaf), ..ANYWHERE };
const RATHER_ONE_RACK: TopologyWish = TopologyWish { prefer: Some(Level::Leaf), ..ANYWHERE };

const fn stream(name: &'static str, (count, every_ms): (u64, u64), run_ms: u64, priority: Priority) -> Stream {
    Stream { name, count, every_ms, run_ms, priority, workers: 1, cpus_each: 1, wish: ANYWHERE }
}

const fn gang(workers: u32, cpus_each: u32, wish: TopologyWish, of: Stream) -> Stream {
    Stream { workers, cpus_each, wish, ..of }
}

const BASELINE: [Stream; 3] = [
    stream("small", (350, 100), 200, Priority::P3),
    gang(1, 5, ANYWHERE, stream("medium", (100, 500), 500, Priority::P2)),
    gang(1, 20, ANYWHERE, stream("large", (50, 1_200), 1_000, Priority::P1)),
];

const LARGE_SCALE: [Stream; 3] = [
    stream("small", (35, 100), 200, Priority::P3),
    gang(1, 5, ANYWHERE, stream("medium", (10, 500), 500, Priority::P2)),
    gang(1, 20, ANYWHERE, stream("large", (5, 1_200), 1_000, Priority::P1)),
];

const TAS: [Stream; 7] = [
    gang(4, 2, ONE_RACK, stream("small-required", (714, 50), 10_000, Priority::P3)),
    gang(8, 4, ONE_RACK, stream("medium-required", (429, 125), 15_000, Priority::P2)),
    gang(16, 8, ONE_RACK, stream("large-required", (286, 250), 20_000, Priority::P1)),
    gang(4, 2, RATHER_ONE_RACK, stream("small-preferred", (428, 75), 12_000, Priority::P2)),
    gang(8, 4, ANYWHERE, stream("medium-anywhere", (286, 100), 16_000, Priority::P2)),
    gang(16, 4, RATHER_ONE_RACK, stream("medium-balanced", (214, 150), 18_000, Priority::P1)),
    gang(32, 8, RATHER_ONE_RACK, stream("large-balanced", (143, 200), 25_000, Priority::P1)),
];

impl Mix {
    pub const ALL: [Mix; 3] = [Mix::Baseline, Mix::LargeScale, Mix::Tas];

    pub fn name(self) -> &'static str {
        match self {
            Mix::Baseline => "baseline",
            Mix::LargeScale => "large-scale",
            Mix::Tas => "tas",
        }
    }

    pub fn workloads(self) -> u64 {
        self.plan().workloads()
    }

    /// Where quota alone bounds the published test, nodes are as large as a cohort's quota.
    pub fn plan(self) -> Plan {
        let quota = |cohorts, queues_each, node_cpus, streams| Plan {
            cohorts,
            queues_each,
            guarantee: 20,
            borrows: 100,
            racks: 1,
            nodes_each: cohorts * queues_each * 20 / u64::from(node_cpus),
            node_cpus,
            streams,
        };
        match self {
            Mix::Baseline => quota(5, 6, 120, &BASELINE),
            Mix::LargeScale => quota(10, 100, 200, &LARGE_SCALE),
            Mix::Tas => Plan {
                cohorts: 2,
                queues_each: 3,
                guarantee: 8_500,
                borrows: 17_000,
                racks: 10,
                nodes_each: 64,
                node_cpus: 96,
                streams: &TAS,
            },
        }
    }
}

impl Stream {
    pub fn cpus(&self) -> u64 {
        u64::from(self.workers) * u64::from(self.cpus_each)
    }

    /// When the last one could be over, if none ever waited.
    fn over_ms(&self) -> u64 {
        self.count * self.every_ms + self.run_ms
    }
}

impl Plan {
    pub fn workloads(&self) -> u64 {
        self.queues() * self.streams.iter().map(|stream| stream.count).sum::<u64>()
    }

    pub fn queues(&self) -> u64 {
        self.cohorts * self.queues_each
    }

    pub fn cpus(&self) -> u64 {
        self.racks * self.nodes_each * u64::from(self.node_cpus)
    }

    /// No scheduler is through before: the generator's last workload, and the work of a cohort on all that it may use.
    pub fn bound_ms(&self) -> u64 {
        let work = self.streams.iter().map(|stream| stream.count * stream.cpus() * stream.run_ms).sum::<u64>();
        let of_cohort = (self.guarantee * self.queues_each).min(self.cpus());
        let by_cohort = (work * self.queues_each).div_ceil(of_cohort);
        let by_cluster = (work * self.queues()).div_ceil(self.cpus());
        let last = self.streams.iter().map(Stream::over_ms).max().unwrap_or(0);
        last.max(by_cohort).max(by_cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mixes_have_as_many_workloads_as_published_and_their_bounds() {
        let figures =
            Mix::ALL.map(Mix::plan).map(|plan| (plan.workloads(), plan.queues(), plan.cpus(), plan.bound_ms()));
        assert_eq!(figures, [(15_000, 30, 600, 66_000), (50_000, 1_000, 20_000, 7_000), (15_000, 6, 61_440, 275_818),]);
    }
}
