//! Whether a node can use a checkpoint directory, asked before a gang starts there.
//!
//! It makes the directory if it may, writes, syncs, renames and removes a file, asks for free space and the file system's type, and leaves
//! an identity: the first node to probe with a token creates `.ganger-fs-<token>` with a random number, every other node that sees the
//! same directory reads the same number. (`st_dev` is a local number and says nothing across nodes.) The token is the attempt's, so a
//! copy of the directory elsewhere cannot carry an old answer.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::files;

const IDENTITY_START: &str = ".ganger-fs-";
const PROBE_START: &str = ".ganger-probe-";
const CONTENT: &[u8] = b"probe\n";
/// Identities of earlier attempts are removed when they are this much older than the new one.
const KEEP_SECONDS: u64 = 24 * 3600;

/// A mounted file system's type.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileSystem {
    /// `ext4`, `nfs`, `lustre`, …, or the type's number in hex.
    pub name: String,
    /// Whether other nodes can see it; `None` where the type does not tell (FUSE, unknown types).
    pub shared: Option<bool>,
}

/// What a probe found. `identity` is equal on all nodes that see the same directory.
#[derive(Debug)]
pub struct ProbeReport {
    pub dir: PathBuf,
    /// Whether this probe made the directory.
    pub created: bool,
    pub file_system: Option<FileSystem>,
    /// For users without special rights.
    pub free_bytes: Option<u64>,
    pub identity: Option<String>,
    /// Why the directory cannot be used; `None` when it can.
    pub problem: Option<ProbeError>,
}

/// Why a node cannot use a checkpoint directory.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("cannot probe {} with token `{token}`: a token has 1 to 64 of A-Z a-z 0-9 _ -", dir.display())]
    BadToken { dir: PathBuf, token: String },
    #[error("checkpoint directory {} is no absolute path; give one that all nodes see", dir.display())]
    Relative { dir: PathBuf },
    #[error("checkpoint directory {} is not there and nothing above it is: {} seems not to be mounted on this node", dir.display(), top.display())]
    NotMounted { dir: PathBuf, top: PathBuf },
    #[error("checkpoint directory {} cannot be made: {source}; create it, or give the job's user the right to", dir.display())]
    CannotCreate { dir: PathBuf, source: io::Error },
    #[error("checkpoint directory {} is a file; name a directory", dir.display())]
    NotADirectory { dir: PathBuf },
    #[error("checkpoint directory {} cannot be used: {step} failed: {source}; check rights, quota and mount options", dir.display())]
    NotUsable { dir: PathBuf, step: &'static str, source: io::Error },
}

/// Probes `dir` (absolute) on this node. `token` names the attempt; the same one on all its nodes.
pub fn probe(dir: &Path, token: &str) -> ProbeReport {
    let mut report = ProbeReport {
        dir: dir.into(),
        created: false,
        file_system: None,
        free_bytes: None,
        identity: None,
        problem: None,
    };
    report.problem = fill(dir, token, &mut report).err();
    report
}

fn fill(dir: &Path, token: &str, report: &mut ProbeReport) -> Result<(), ProbeError> {
    let failed = |step| move |source| ProbeError::NotUsable { dir: dir.into(), step, source };
    let plain = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if token.is_empty() || token.len() > 64 || !plain {
        return Err(ProbeError::BadToken { dir: dir.into(), token: token.into() });
    }
    report.created = ensure_directory(dir)?;
    let statistics = rustix::fs::statvfs(dir).map_err(|error| failed("statvfs")(error.into()))?;
    report.free_bytes = Some(statistics.f_bavail.saturating_mul(statistics.f_frsize));
    report.file_system = Some(file_system(dir).map_err(failed("statfs"))?);
    write_and_remove(dir, token)?;
    report.identity = Some(identity(dir, token).map_err(failed("leaving an identity file"))?);
    Ok(())
}

/// Makes the directory, but never on the root file system in place of a mount that is missing: something above it must exist.
fn ensure_directory(dir: &Path) -> Result<bool, ProbeError> {
    if !dir.is_absolute() {
        return Err(ProbeError::Relative { dir: dir.into() });
    }
    match fs::metadata(dir) {
        Ok(metadata) if metadata.is_dir() => return Ok(false),
        Ok(_) => return Err(ProbeError::NotADirectory { dir: dir.into() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => return Err(ProbeError::CannotCreate { dir: dir.into(), source }),
    }
    let top: PathBuf = dir.components().take(2).collect();
    if fs::metadata(&top).is_err() {
        return Err(ProbeError::NotMounted { dir: dir.into(), top });
    }
    fs::create_dir_all(dir).map_err(|source| ProbeError::CannotCreate { dir: dir.into(), source })?;
    Ok(true)
}

fn write_and_remove(dir: &Path, token: &str) -> Result<(), ProbeError> {
    let failed = |step| move |source| ProbeError::NotUsable { dir: dir.into(), step, source };
    let id = files::random_id().map_err(failed("reading /dev/urandom"))?;
    let path = dir.join(format!("{PROBE_START}{token}-{id}"));
    let renamed = dir.join(format!("{PROBE_START}{token}-{id}-renamed"));
    let tried = (|| {
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed("creating a file"))?;
        file.write_all(CONTENT).map_err(failed("writing"))?;
        file.sync_all().map_err(failed("fsync"))?;
        fs::rename(&path, &renamed).map_err(failed("renaming"))?;
        files::sync_directory(dir).map_err(failed("fsync of the directory"))?;
        let read = fs::read(&renamed).map_err(failed("reading back"))?;
        if read != CONTENT {
            return Err(failed("reading back")(io::Error::other("other bytes than were written")));
        }
        fs::remove_file(&renamed).map_err(failed("removing a file"))
    })();
    if tried.is_err() {
        let _ = fs::remove_file(&path);
        let _ = fs::remove_file(&renamed);
    }
    tried
}

fn identity(dir: &Path, token: &str) -> io::Result<String> {
    let name = format!("{IDENTITY_START}{token}");
    files::create_new(dir, &name, files::random_id()?.as_bytes())?;
    let identity = fs::read_to_string(dir.join(&name))?;
    remove_old(dir, &name);
    Ok(identity)
}

/// Compares times of the same file server, never with this node's clock. Failing to tidy up is no reason to fail a probe.
fn remove_old(dir: &Path, newest: &str) {
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let Some(now) = modified(&dir.join(newest)) else { return };
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let ours = [IDENTITY_START, PROBE_START].iter().any(|start| files::name(&path).starts_with(start));
        let age = ours.then(|| modified(&path)).flatten().and_then(|then| now.duration_since(then).ok());
        if age.is_some_and(|age| age.as_secs() > KEEP_SECONDS) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Names from the kernel's `statfs` magic numbers (linux/magic.h and the file systems' own headers).
fn file_system(dir: &Path) -> io::Result<FileSystem> {
    const KNOWN: [(u64, &str, Option<bool>); 18] = [
        (0xEF53, "ext4", Some(false)),
        (0x5846_5342, "xfs", Some(false)),
        (0x9123_683E, "btrfs", Some(false)),
        (0x0102_1994, "tmpfs", Some(false)),
        (0x8584_58F6, "ramfs", Some(false)),
        (0x794C_7630, "overlayfs", Some(false)),
        (0x2FC1_2FC1, "zfs", Some(false)),
        (0xF2F5_2010, "f2fs", Some(false)),
        (0xCA45_1A4E, "bcachefs", Some(false)),
        (0x6969, "nfs", Some(true)),
        (0x0BD0_0BD0, "lustre", Some(true)),
        (0x4750_4653, "gpfs", Some(true)),
        (0x00C3_6400, "ceph", Some(true)),
        (0x1983_0326, "beegfs", Some(true)),
        (0xFF53_4D42, "cifs", Some(true)),
        (0xFE53_4D42, "smb2", Some(true)),
        (0x0102_1997, "9p", None),
        (0x6573_5546, "fuse", None),
    ];
    // Some kernels sign-extend the number: only its low 32 bits are the type.
    let magic = u64::from(rustix::fs::statfs(dir)?.f_type as u32);
    let known = KNOWN.iter().find(|(number, ..)| *number == magic);
    Ok(known.map_or_else(
        || FileSystem { name: format!("{magic:#x}"), shared: None },
        |(_, name, shared)| FileSystem { name: (*name).into(), shared: *shared },
    ))
}
