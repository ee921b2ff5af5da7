//! Names `DIR/keeper.sock` in a way that fits the 108 bytes of a socket address, however deep DIR lies.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// An open directory whose socket can be named through `/proc`; it must live as long as the path is used.
pub(crate) struct SocketDir(File);

impl SocketDir {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let descriptor = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self(File::from(descriptor)))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.beside("keeper.sock")
    }

    /// A file of the directory, whatever the directory is called by now.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.0.as_raw_fd()))
    }
}
