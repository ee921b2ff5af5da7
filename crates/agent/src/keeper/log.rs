//! Copies a worker's output into its log file on a thread of its own: a slow log disk must never hold up the loop
//! that keeps the lease.
//!
//! After the worker's end the pipe is drained to its last byte, but a process outside the tree that still holds it
//! open is not waited for. What the file does not take (disk full) is counted; the worker is never blocked by it.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::OFlags;

use super::KeeperError;

/// Output kept for attached clients that have not been served yet; older output is dropped beyond it.
const TAP_BYTES: usize = 1 << 20;

/// The keeper's handle on the copying thread.
pub(crate) struct LogCopier {
    shared: Arc<Shared>,
}

struct Shared {
    /// Wakes the thread: the worker has ended, drain and finish.
    finish: OwnedFd,
    /// Wakes the keeper: something for attached clients, or finished.
    wake: OwnedFd,
    finished: AtomicBool,
    lost_bytes: AtomicU64,
    tapped: AtomicBool,
    tap: Mutex<VecDeque<u8>>,
}

impl LogCopier {
    /// Starts copying from the non-blocking `source` to the end of the file at `path`.
    pub(crate) fn start(source: OwnedFd, path: &Path) -> Result<Self, KeeperError> {
        // Not through a symbolic link: the keeper may be root and the folder the user's.
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .custom_flags(i32::try_from((OFlags::NOFOLLOW | OFlags::NOCTTY).bits()).unwrap_or(0))
            .open(path)
            .map_err(KeeperError::file("open the log file", path))?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let shared = Arc::new(Shared {
            finish: event().map_err(KeeperError::system("make an event"))?,
            wake: event().map_err(KeeperError::system("make an event"))?,
            finished: AtomicBool::new(false),
            lost_bytes: AtomicU64::new(0),
            tapped: AtomicBool::new(false),
            tap: Mutex::new(VecDeque::new()),
        });
        let thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("log".into())
            .stack_size(128 << 10)
            .spawn(move || thread.copy(File::from(source), &file))
            .map_err(KeeperError::system("start the log thread"))?;
        Ok(Self { shared })
    }

    /// Readable when [`Self::take_tap`] or [`Self::finished`] has news.
    pub(crate) fn wake(&self) -> &OwnedFd {
        &self.shared.wake
    }

    /// Asks the thread to drain what is there and to finish.
    pub(crate) fn finish(&self) {
        let _ = rustix::io::write(&self.shared.finish, &1u64.to_ne_bytes());
    }

    pub(crate) fn finished(&self) -> bool {
        self.shared.finished.load(Ordering::Acquire)
    }

    pub(crate) fn lost_bytes(&self) -> u64 {
        self.shared.lost_bytes.load(Ordering::Relaxed)
    }

    /// Whether output is kept for attached clients from now on.
    pub(crate) fn tap(&self, on: bool) {
        self.shared.tapped.store(on, Ordering::Release);
    }

    /// The output since the last call, for attached clients.
    pub(crate) fn take_tap(&self) -> Vec<u8> {
        let mut counter = [0u8; 8];
        let _ = rustix::io::read(&self.shared.wake, &mut counter);
        let mut tap = self.shared.tap.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *tap).into()
    }
}

impl Shared {
    fn copy(&self, mut source: File, mut file: &File) {
        let mut buffer = vec![0; 64 << 10];
        let mut finishing = false;
        loop {
            match read_to_the_last(&mut source, &mut buffer) {
                Ok(0) => break,
                Ok(count) => self.keep(&mut file, &buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock && !finishing => {
                    finishing = self.wait(&source);
                }
                // Empty after the end of the worker; or a terminal whose last user is gone (EIO).
                Err(_) => break,
            }
        }
        let _ = file.sync_data();
        self.finished.store(true, Ordering::Release);
        self.wake_keeper();
    }

    /// Waits for output; true when the worker has ended.
    fn wait(&self, source: &File) -> bool {
        let mut watched = [
            PollFd::from_borrowed_fd(source.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.finish.as_fd(), PollFlags::IN),
        ];
        let _ = poll(&mut watched, None);
        watched[1].revents().contains(PollFlags::IN)
    }

    fn keep(&self, file: &mut &File, bytes: &[u8]) {
        if file.write_all(bytes).is_err() {
            self.lost_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        if self.tapped.load(Ordering::Acquire) {
            let mut tap = self.tap.lock().unwrap_or_else(PoisonError::into_inner);
            tap.extend(bytes);
            let excess = tap.len().saturating_sub(TAP_BYTES);
            tap.drain(..excess);
            drop(tap);
            self.wake_keeper();
        }
    }

    fn wake_keeper(&self) {
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

/// Reads as `read` does, but takes the end of a terminal for one only when it is said twice: the kernel looks for
/// output before it looks whether the last user of the terminal has gone, so what was written between these two looks
/// is there although the answer was EIO.
pub(crate) fn read_to_the_last(source: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    match source.read(buffer) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => source.read(buffer),
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A terminal whose user wrote and went between the kernel's two looks.
    struct Overtaken(VecDeque<std::io::Result<&'static [u8]>>);

    impl Read for Overtaken {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let bytes = self.0.pop_front().unwrap_or_else(|| Err(gone()))?;
            buffer[..bytes.len()].copy_from_slice(bytes);
            Ok(bytes.len())
        }
    }

    fn gone() -> std::io::Error {
        rustix::io::Errno::IO.into()
    }

    #[test]
    fn the_last_words_on_a_terminal_are_read_though_its_end_is_told_before_them() {
        let mut source = Overtaken([Err(gone()), Ok(&b"last words"[..])].into());
        let mut buffer = [0; 64];
        let count = read_to_the_last(&mut source, &mut buffer).unwrap();
        assert_eq!(&buffer[..count], b"last words");
        assert!(read_to_the_last(&mut source, &mut buffer).is_err(), "said twice, it is the end");
    }
}
