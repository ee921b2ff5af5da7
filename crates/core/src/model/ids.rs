//! Each kind of thing has its own id type, so that a rank is never taken for a node.
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A job's number. Given in order of submission, never reused.
    JobId(u64)
);
id!(
    /// Dense index of a node in [`crate::model::Cluster::nodes`]; names exist only at the border.
    NodeId(u32)
);
id!(
    /// Dense index of a leaf switch in [`crate::model::fabric::Fabric`].
    LeafId(u32)
);
id!(
    /// Dense index of a spine in [`crate::model::fabric::Fabric`].
    SpineId(u32)
);
id!(
    /// A worker's number within its gang; neighbours in rank are neighbours in the fabric.
    Rank(u32)
);
id!(
    /// One run of a gang, counted from 1. Reports carry it; stale ones are ignored.
    AttemptNo(u32)
);

impl NodeId {
    /// The place of this node in [`crate::model::Cluster::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl LeafId {
    /// The place of this leaf in the fabric.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
