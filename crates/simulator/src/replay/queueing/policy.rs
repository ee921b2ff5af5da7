//! The policies by their names.
use super::job::Job;
use super::nodes::Nodes;
use super::order::{Backfill, Blocking, Order, Preemptive};
use super::place::Places;
use super::tiresias::Tiresias;

/// Who goes first. Those called oracle know how long each job will run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    Fifo,
    FifoBackfill,
    SjfOracle,
    SrtfOracle,
    SrsfOracle,
    Tiresias,
    /// The scheduler itself, through the whole lifecycle.
    Ours,
}

impl Policy {
    pub const ALL: [Policy; 7] = [
        Policy::Fifo,
        Policy::FifoBackfill,
        Policy::SjfOracle,
        Policy::SrtfOracle,
        Policy::SrsfOracle,
        Policy::Tiresias,
        Policy::Ours,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Policy::Fifo => "fifo",
            Policy::FifoBackfill => "fifo-backfill",
            Policy::SjfOracle => "sjf-oracle",
            Policy::SrtfOracle => "srtf-oracle",
            Policy::SrsfOracle => "srsf-oracle",
            Policy::Tiresias => "tiresias",
            Policy::Ours => "ours",
        }
    }

    /// None for ours, which is not played here.
    pub(super) fn order(self, nodes: Nodes) -> Option<Box<dyn Order>> {
        let line = Vec::new();
        Some(match self {
            Policy::Ours => return None,
            Policy::Fifo => Box::new(Blocking { line, places: Places::new(nodes), key: |job: &Job| job.submit_us }),
            Policy::SjfOracle => Box::new(Blocking { line, places: Places::new(nodes), key: |job: &Job| job.work_us }),
            Policy::FifoBackfill => Box::new(Backfill { line, places: Places::new(nodes) }),
            Policy::SrtfOracle => Box::new(Preemptive { line, nodes, key: |job: &Job| job.remaining_us }),
            Policy::SrsfOracle => {
                Box::new(Preemptive { line, nodes, key: |job: &Job| job.remaining_us * u64::from(job.gpus) })
            }
            Policy::Tiresias => Box::new(Tiresias::new(nodes.free_gpus())),
        })
    }
}
