//! What crosses a border: files that users write, the API, the agents' protocol. Kept apart from the model types, so
//! that neither has to change because the other does.
pub mod agent;
pub mod api;
pub mod cluster;
pub mod job;
pub mod pool;
pub mod sbatch;
pub mod shape;
