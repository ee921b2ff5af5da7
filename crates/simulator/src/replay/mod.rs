//! Replays of public traces: readers into one form, and the published experiments over it with honest baselines.
//!
//! Every policy of an experiment runs in the same loop with the same costs, order of events and ties.
pub mod csv;
pub mod error;
pub mod failures;
pub mod kueue;
pub mod lifecycle;
pub mod mixed;
pub mod placement;
pub mod queueing;
pub mod readers;
pub mod report;
pub mod source;
pub mod trace;

pub use error::ReadError;
