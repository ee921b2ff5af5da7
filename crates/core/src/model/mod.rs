//! What the cluster is made of: ids, amounts, machines, nodes, queues, jobs, and what a decision looks like.
//!
//! Plain data with the few questions that data can answer about itself. Nothing here chooses anything.
pub mod amounts;
mod arrays;
pub mod attained;
pub mod budget;
pub mod cluster;
pub mod cpuset;
pub mod decision;
pub mod demand;
pub mod doubts;
pub mod elastic;
pub mod fabric;
pub mod future;
pub mod ids;
pub mod job;
pub mod machine;
pub mod node;
pub mod part;
pub mod past;
pub mod payable;
pub mod policy;
pub mod pool;
pub mod queue;
pub mod report;
pub mod split;
pub mod time;
pub mod whole;
pub mod window;
pub mod wire;
pub mod zone;

pub use amounts::Resources;
pub use cluster::Cluster;
pub use ids::{AttemptNo, JobId, LeafId, NodeId, Rank, SpineId};
pub use job::{Attempt, Job, JobSpec, Priority};
pub use node::Node;
pub use policy::Policy;
pub use time::{Span, Time};
