//! The policies by their names.
use super::Placement;
use super::experiment::Chooser;
use super::{baselines, fgd, ours};
use crate::random::dice::Dice;

/// How a node is chosen for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Our score, told the mix of the workload.
    Ours,
    /// Our score, which learns the mix from what arrives.
    OursLearning,
    Random,
    DotProduct,
    Clustering,
    Packing,
    BestFit,
    FgdRounded,
    FgdExact,
}

impl Policy {
    pub const ALL: [Policy; 9] = [
        Policy::Random,
        Policy::DotProduct,
        Policy::Clustering,
        Policy::Packing,
        Policy::BestFit,
        Policy::FgdExact,
        Policy::FgdRounded,
        Policy::Ours,
        Policy::OursLearning,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Policy::Ours => "ours",
            Policy::OursLearning => "ours-learning",
            Policy::Random => "random",
            Policy::DotProduct => "dot-product",
            Policy::Clustering => "clustering",
            Policy::Packing => "packing",
            Policy::BestFit => "best-fit",
            Policy::FgdRounded => "fgd-rounded",
            Policy::FgdExact => "fgd-exact",
        }
    }

    pub(super) fn chooser(self, placement: &Placement, seed: u64) -> Chooser<'_> {
        Chooser::Scored(match self {
            Policy::Random => return Chooser::Random(Dice::new(seed).child("node")),
            Policy::DotProduct => Box::new(baselines::DotProduct),
            Policy::Clustering => Box::new(baselines::Clustering),
            Policy::Packing => Box::new(baselines::Packing),
            Policy::BestFit => Box::new(baselines::BestFit),
            Policy::FgdRounded => Box::new(fgd::Rounded(placement.mix.clone())),
            Policy::FgdExact => Box::new(fgd::Exact(placement.mix.clone())),
            Policy::Ours => Box::new(ours::Ours::given(placement.mix.clone())),
            Policy::OursLearning => Box::new(ours::Ours::learning()),
        })
    }
}
