//! What a rank writes about itself: log lines, the loss log, and stamps.
//!
//! Stamps let a crash test prove that no rank ran twice at once and that no device was shared. Each line is appended
//! with one write, so that even two copies of a rank, which must never be, would both leave legible lines.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use super::error::TrainError;
use super::flags::TrainArgs;
use super::settings::Settings;

pub struct Report {
    who: String,
    stamp_tail: String,
    stamps: Option<File>,
    losses: Option<File>,
}

impl Report {
    /// Opens the loss log (rank 0 only) and the stamps of this rank.
    pub fn open(args: &TrainArgs, settings: &Settings) -> Result<Self, TrainError> {
        let stamps = match &args.stamp_dir {
            Some(dir) => {
                fs::create_dir_all(dir).map_err(TrainError::io(|| format!("create {}", dir.display())))?;
                Some(append(&dir.join(format!("rank-{:05}.stamps", settings.rank)))?)
            }
            None => None,
        };
        let losses = args.loss_log.as_deref().filter(|_| settings.rank == 0).map(append).transpose()?;
        let Settings { rank, world, job, attempt, node, devices, .. } = settings;
        let pid = std::process::id();
        Ok(Self {
            who: format!("rank {rank}/{world}"),
            stamp_tail: format!("rank={rank} job={job} attempt={attempt} node={node} devices={devices} pid={pid}"),
            stamps,
            losses,
        })
    }

    /// Prints `rank R/W TEXT`. A reader that went away must not end the training.
    pub fn say(&self, text: &str) {
        line(&format!("{} {text}", self.who));
    }

    /// Appends `EVENT boottime_ns=… rank=… job=… attempt=… node=… devices=… pid=…`.
    pub fn stamp(&mut self, event: &str) -> Result<(), TrainError> {
        let Some(file) = &mut self.stamps else { return Ok(()) };
        let now = clock_gettime(ClockId::Boottime);
        let ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
        file.write_all(format!("{event} boottime_ns={ns} {}\n", self.stamp_tail).as_bytes())
            .map_err(TrainError::io(|| "append to the stamps of this rank"))
    }

    pub fn loss(&mut self, step: u64, loss: f64) -> Result<(), TrainError> {
        let Some(file) = &mut self.losses else { return Ok(()) };
        file.write_all(format!("{step} {:016x} {loss}\n", loss.to_bits()).as_bytes())
            .map_err(TrainError::io(|| "append to the loss log"))
    }
}

/// Prints one flushed line on stdout.
pub fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush());
}

/// Opens a file for appending, with its name in the error.
pub fn append(path: &Path) -> Result<File, TrainError> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(TrainError::io(|| format!("open {} for appending", path.display())))
}
