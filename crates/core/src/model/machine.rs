//! Temporary shape; the real one is being merged.
use serde::{Deserialize, Serialize};
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    pub profile: String,
}
impl Machine {
    pub fn gpus(&self) -> &[u8] {
        &[]
    }
    pub fn total_cpus(&self) -> u32 {
        0
    }
    pub fn total_memory_bytes(&self) -> u64 {
        0
    }
}
