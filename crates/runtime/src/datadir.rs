//! Files that must be private, whole and durable: directories with mode 0700, atomic replacement, exclusive locks.
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum DataDirError {
    #[error("cannot {action} {path}: {source}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("{path} is held by another process (pid {holder}): stop that one first, or choose another data directory")]
    Locked { path: PathBuf, holder: String },
}

fn fail(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DataDirError {
    let path = path.to_path_buf();
    move |source| DataDirError::Io { action, path, source }
}

/// Makes a directory (and those above it) that only its owner may enter; tightens one that exists.
pub fn create_private(path: &Path) -> Result<(), DataDirError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fail("create the directory", path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(fail("make private the directory", path))
}

/// Replaces a file so that a reader, also after a power cut, finds either the old content or the new, whole.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> Result<(), DataDirError> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(name);
    let write = || -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        sync_parent(path)
    };
    write().map_err(|source| {
        let _ = fs::remove_file(&temporary);
        fail("write", path)(source)
    })
}

/// Makes the entries of the directory that holds `path` durable.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let directory = rustix::fs::open(parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::fsync(directory)?)
}

/// An exclusive lock on a file, held until dropped or until the process ends, however it ends.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

impl FileLock {
    /// Takes the lock at once or says who holds it. The file keeps the holder's process id for that message only.
    pub fn take(path: &Path) -> Result<FileLock, DataDirError> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path).map_err(fail("open the lock", path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let holder = fs::read_to_string(path).unwrap_or_default();
                let holder = if holder.trim().is_empty() { "unknown" } else { holder.trim() }.to_string();
                return Err(DataDirError::Locked { path: path.to_path_buf(), holder });
            }
            Err(errno) => return Err(fail("lock", path)(errno.into())),
        }
        file.set_len(0).map_err(fail("write the lock", path))?;
        writeln!(file, "{}", std::process::id()).map_err(fail("write the lock", path))?;
        Ok(FileLock { _file: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ganger-datadir-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        create_private(&path).unwrap();
        path
    }

    #[test]
    fn a_replaced_file_is_whole_private_and_leaves_no_temporary() {
        let directory = scratch("atomic");
        let path = directory.join("state.json");
        write_atomic(&path, b"one", 0o600).unwrap();
        write_atomic(&path, b"two", 0o600).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_second_lock_is_refused_with_the_holder_until_the_first_is_dropped() {
        let directory = scratch("lock");
        let path = directory.join("lock");
        let first = FileLock::take(&path).unwrap();
        let error = FileLock::take(&path).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(first);
        FileLock::take(&path).unwrap();
        fs::remove_dir_all(directory).unwrap();
    }
}
