//! The brain of Ganger: which job goes next, on which devices, who must yield, when a node is no longer trusted.
//!
//! Everything here is a pure function of its arguments. Time, randomness and observations come in; decisions go out as
//! data. The server drives it with real agents and a durable store, the simulator with a virtual clock and faults.
//!
//! Allowed arrows between the folders, kept by `tests/arrows.rs`: all → `model`; `scheduler` → `check`;
//! `lifecycle` → `scheduler`, `check`.
pub mod check;
pub mod lifecycle;
pub mod model;
pub mod scheduler;
