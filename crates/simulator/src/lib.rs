//! The simulator: the real core under a virtual clock, with virtual agents and faults.
//!
//! A plain loop without sockets, threads or a second scheduler: what a scenario or a fault storm shows is shown by the
//! code that runs the cluster.
pub mod clock;
pub mod random;
pub mod replay;
pub mod run;
pub mod script;
pub mod world;

pub use random::{Failure, Stats, storm};
pub use run::{Outcome, run_file};
pub use script::ScriptError;
