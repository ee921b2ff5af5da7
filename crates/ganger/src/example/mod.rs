//! `ganger example train`: a small data-parallel trainer that needs nothing but this binary.
//!
//! It is the workload of the demo and of the crash tests: real ranks that find one another by the names that every
//! framework uses, sum real gradients around a ring, write checkpoints that can be verified, and yield when told to.
//! It knows Ganger only through the environment, as any user's program does, and must never reach past it.

mod checkpoint;
mod error;
mod flags;
mod link;
mod model;
mod rendezvous;
mod report;
mod ring;
mod settings;
mod stop;
mod train;

use std::process::ExitCode;

pub use flags::ExampleCommand;

/// Exit code for "checkpointed (or nothing to lose), requeue me".
pub const EXIT_REQUEUE: u8 = 85;

/// Runs one parsed example command.
///
/// The code is 0 done, 85 checkpointed after a stop, 1 failed, 2 a setting is wrong, 3 the resume path is broken,
/// 4 a peer is lost, 5 this rank belongs to another attempt than its peers.
pub fn run(command: &ExampleCommand) -> ExitCode {
    match command {
        ExampleCommand::Train(args) => train::run(args),
    }
}
