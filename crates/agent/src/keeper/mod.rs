//! A keeper: the parent process of one worker, a hidden role of the binary that outlives the agent.
//!
//! `launch.json` in the worker's directory says what to run; the keeper starts it through a second hidden role (the
//! shim), owns its log pipe and exit status, and writes `state.json`. The agent is a client of `keeper.sock`.
//! After one worker's end it may rest, and take the next one.
//! A keeper ends its worker by itself when the lease passes on the boot-time clock, and reports `ended` only when
//! nothing of the worker's tree is left. It must never wait for the agent, a client, or a slow log disk.

mod child;
pub mod client;
mod clock;
mod connection;
mod cpulist;
mod error;
mod exec;
mod frame;
mod isolation;
pub mod launch;
mod log;
mod plan;
mod proc;
pub mod protocol;
mod rest;
mod role;
pub mod scan;
mod serve;
mod shim;
mod socket;
pub mod spares;
mod spawn;
pub mod state;
mod sweep;
mod worker;

pub use clock::boottime_ms;
pub use error::KeeperError;
pub use frame::{Frame, FrameKind};
pub use launch::LaunchFile;
pub use role::main;
pub use scan::{Found, Standing, scan};
pub use shim::main as launch_main;
pub use spawn::{KeeperHandle, spawn};
