//! What can go wrong in the trainer, and the exit code that says which.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use super::EXIT_REQUEUE;

#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error("the environment says {name}={value:?}, which is not {expected}: correct it in the job's environment")]
    Setting { name: &'static str, value: String, expected: &'static str },
    #[error(
        "cannot resume from {path}: {what}; name another checkpoint in GANGER_RESUME_FROM, or unset it to start over"
    )]
    Resume { path: PathBuf, what: String },
    #[error(
        "the ranks resumed from different states (this one from step {step}): all must see the same GANGER_RESUME_FROM"
    )]
    ResumeDiffers { step: u64 },
    #[error("lost rank {rank}: {how}; restart the gang from its newest checkpoint")]
    PeerLost { rank: usize, how: String },
    #[error(
        "the gang did not form in time: {what}; check that all ranks started and that MASTER_ADDR:MASTER_PORT is reachable"
    )]
    NotFormed { what: String },
    #[error("refused by the gang: {what}")]
    Refused { what: String },
    #[error("told to stop before the gang had formed: nothing was trained, nothing is lost")]
    StoppedBeforeTraining,
    #[error("told to stop after step {step}, and nothing was saved: set GANGER_CHECKPOINT_DIR")]
    StoppedUnsaved { step: u64 },
    #[error("cannot {doing}: {source}")]
    Io { doing: String, source: io::Error },
}

impl TrainError {
    /// Wraps an I/O error with what was attempted: `map_err(TrainError::io(|| format!("open {path}")))`.
    pub fn io<D: Into<String>>(doing: impl FnOnce() -> D) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing: doing().into(), source }
    }

    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::StoppedUnsaved { .. } | Self::Io { .. } => 1,
            Self::Setting { .. } => 2,
            Self::Resume { .. } | Self::ResumeDiffers { .. } => 3,
            Self::PeerLost { .. } | Self::NotFormed { .. } => 4,
            Self::Refused { .. } => 5,
            Self::StoppedBeforeTraining => EXIT_REQUEUE,
        })
    }
}
