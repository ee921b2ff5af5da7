//! The wish to stop: SIGUSR1, SIGTERM, or the file GANGER_PREEMPT_FILE.
//!
//! Signals write to a socket pair that is never drained, so that a wish once uttered stays and also wakes a wait.
//! signal-hook is used because handlers need `unsafe` and neither std nor rustix offers a safe signalfd.

use std::cell::Cell;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGTERM, SIGUSR1};

use super::error::TrainError;

/// How often a wait looks for the preempt file: a file cannot wake a poll on every file system.
const FILE_CHECK: Duration = Duration::from_millis(100);

pub struct Stop {
    signals: UnixStream,
    preempt_file: Option<PathBuf>,
    since: Cell<Option<Instant>>,
}

impl Stop {
    /// Takes over SIGUSR1 and SIGTERM for the life of the process.
    pub fn watch(preempt_file: Option<PathBuf>) -> Result<Self, TrainError> {
        let catch = || {
            let (signals, handler_end) = UnixStream::pair()?;
            for signal in [SIGUSR1, SIGTERM] {
                signal_hook::low_level::pipe::register(signal, handler_end.try_clone()?)?;
            }
            Ok(signals)
        };
        let signals = catch().map_err(TrainError::io(|| "catch SIGUSR1 and SIGTERM"))?;
        Ok(Self { signals, preempt_file, since: Cell::new(None) })
    }

    pub fn requested(&self) -> bool {
        self.since().is_some()
    }

    /// When the wish to stop was first seen.
    pub fn since(&self) -> Option<Instant> {
        if self.since.get().is_none() && (self.signalled_within(Duration::ZERO) || self.file_appeared()) {
            self.since.set(Some(Instant::now()));
        }
        self.since.get()
    }

    /// Waits until `due` or until a stop is wished for, whichever is first.
    pub fn wait_until(&self, due: Instant) {
        while !self.requested() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            self.signalled_within(left.min(FILE_CHECK));
        }
    }

    fn signalled_within(&self, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(&self.signals, PollFlags::IN)];
        let timeout = timeout.try_into().ok();
        // An interrupted poll means that a signal has just come; the next look finds it.
        poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    fn file_appeared(&self) -> bool {
        self.preempt_file.as_ref().is_some_and(|path| path.exists())
    }
}
