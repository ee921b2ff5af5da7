//! The node agent: reads the machine, and starts, watches and ends workers through keepers.
//!
//! It carries out steps that were decided elsewhere and reports facts that only a node can know. It never chooses
//! what runs where.

pub mod checkpoint;
pub mod keeper;
