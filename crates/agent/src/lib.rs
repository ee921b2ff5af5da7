//! The node agent: reads the machine, and starts, watches and ends workers through keepers.
//!
//! It carries out steps that were decided elsewhere and reports facts that only a node can know. It never chooses
//! what runs where.

pub mod account;
mod agent;
pub mod checkpoint;
pub mod config;
pub mod contact;
pub mod env;
mod folders;
pub mod inventory;
pub mod journal;
pub mod keeper;
pub mod keepers;
mod link;
pub mod logs;
mod peers;
pub mod prepare;
pub mod reconcile;
pub mod record;
pub mod signals;
pub mod start;
mod states;
mod streams;
#[cfg(test)]
mod testing;
pub mod unit;
mod watch;

pub use agent::{AgentError, run, run_with};
pub use config::Config;
