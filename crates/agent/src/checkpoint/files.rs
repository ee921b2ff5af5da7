//! File helpers that the checkpoint formats share: bounded listings, small reads, names of steps and of unfinished saves, durable
//! writes. Everything has a limit, because a checkpoint directory is written by others.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::Defect;

/// Entries of one directory: about 16,000 ranks with a dozen files each.
const MAX_ENTRIES: u64 = 200_000;
/// An index, tracker or metadata file that is read whole.
const MAX_SMALL_BYTES: u64 = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File(u64),
    Directory,
    Other,
}

/// The names in one directory with their kinds and sizes; symbolic links are followed.
#[derive(Debug)]
pub(super) struct Listing {
    pub dir: PathBuf,
    entries: BTreeMap<String, Kind>,
}

impl Listing {
    /// Reads a directory. Names that are not UTF-8 are left out: no format here writes any.
    pub fn read(dir: &Path) -> Result<Self, Defect> {
        let mut entries = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(|source| Defect::reading(dir, source))? {
            let entry = entry.map_err(|source| Defect::reading(dir, source))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if entries.len() as u64 >= MAX_ENTRIES {
                return Err(Defect::TooMany { path: dir.into(), limit: MAX_ENTRIES });
            }
            entries.insert(name, kind(&entry.path()));
        }
        Ok(Self { dir: dir.into(), entries })
    }

    /// The size of a regular file of this name, in bytes.
    pub fn file(&self, name: &str) -> Option<u64> {
        match self.entries.get(name) {
            Some(Kind::File(bytes)) => Some(*bytes),
            _ => None,
        }
    }

    pub fn has_directory(&self, name: &str) -> bool {
        self.entries.get(name) == Some(&Kind::Directory)
    }

    pub fn files(&self) -> impl Iterator<Item = (&str, u64)> {
        self.entries.iter().filter_map(|(name, kind)| match kind {
            Kind::File(bytes) => Some((name.as_str(), *bytes)),
            _ => None,
        })
    }

    pub fn directories(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().filter(|(_, kind)| **kind == Kind::Directory).map(|(name, _)| name.as_str())
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The step that the directory's own name states: `step_100`, not `llama-70b` or `run-2024`.
    pub fn step(&self) -> Option<u64> {
        let name = name(&self.dir);
        step_of(name).filter(|_| is_step_name(name))
    }
}

/// A file that vanishes between listing and `stat` is a kind of its own, not an error: savers rotate old checkpoints away.
fn kind(path: &Path) -> Kind {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => Kind::File(metadata.len()),
        Ok(metadata) if metadata.is_dir() => Kind::Directory,
        _ => Kind::Other,
    }
}

/// The last component, or "" where it is not UTF-8.
pub(super) fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Opens a regular file with its size. Non-blocking, so that a FIFO in a checkpoint cannot hang the caller.
pub(super) fn open(path: &Path) -> Result<(File, u64), Defect> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = file.map_err(|source| Defect::reading(path, source))?;
    let metadata = file.metadata().map_err(|source| Defect::reading(path, source))?;
    if !metadata.is_file() {
        return Err(Defect::malformed(path, "not a regular file"));
    }
    Ok((file, metadata.len()))
}

/// Reads a small file whole.
pub(super) fn read_small(path: &Path) -> Result<Vec<u8>, Defect> {
    let (file, bytes) = open(path)?;
    if bytes > MAX_SMALL_BYTES {
        return Err(Defect::malformed(path, format!("{bytes} bytes is too large for what it should be")));
    }
    let mut content = Vec::new();
    file.take(MAX_SMALL_BYTES).read_to_end(&mut content).map_err(|source| Defect::reading(path, source))?;
    Ok(content)
}

/// Reads a small JSON file.
pub(super) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Defect> {
    serde_json::from_slice(&read_small(path)?)
        .map_err(|error| Defect::malformed(path, format!("not the JSON it should be ({error})")))
}

/// Reads a one-line tracker file.
pub(super) fn read_line(path: &Path) -> Result<String, Defect> {
    let text = String::from_utf8(read_small(path)?).map_err(|_| Defect::malformed(path, "not text"))?;
    match text.trim() {
        "" => Err(Defect::malformed(path, "empty")),
        line if line.contains('\n') => Err(Defect::malformed(path, "more than one line")),
        line => Ok(line.to_owned()),
    }
}

/// Whether a name is that of an unfinished save: Orbax's, the Trainer's `tmp-checkpoint-N`, and the common suffixes.
pub(super) fn is_temporary(name: &str) -> bool {
    const ENDS: [&str; 7] = [".tmp", ".temp", ".partial", ".incomplete", "_tmp", "-tmp", "~"];
    const STARTS: [&str; 4] = ["tmp-", "tmp_", ".tmp", ".ganger-"];
    name.contains(".orbax-checkpoint-tmp")
        || name.contains(".tmp.")
        || name.contains(".tmp-")
        || ENDS.iter().any(|end| name.ends_with(end))
        || STARTS.iter().any(|start| name.starts_with(start))
}

/// The number that an attempt's directory carries: `attempt-3`.
pub(super) fn attempt_of(name: &str) -> Option<u64> {
    whole_number(name.strip_prefix("attempt-")?)
}

/// The step in a name: its last run of digits, `iter_0000100` and `epoch=3-step=100.ckpt` alike.
pub(super) fn step_of(name: &str) -> Option<u64> {
    if attempt_of(name).is_some() {
        return None;
    }
    let end = name.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = name[..end]
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |at| at + name[at..].chars().next().map_or(1, char::len_utf8));
    name[start..end].parse().ok()
}

/// A name that says by itself that it is a save of a step, even while nothing readable is in it.
pub(super) fn is_step_name(name: &str) -> bool {
    const STARTS: [&str; 7] = ["checkpoint", "ckpt", "step", "iter", "global_step", "epoch", "save"];
    whole_number(name).is_some() || (step_of(name).is_some() && STARTS.iter().any(|start| name.starts_with(start)))
}

/// Digits only, or nothing.
pub(super) fn whole_number(text: &str) -> Option<u64> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// 128 random bits in hex, for names that no other node may choose.
pub(super) fn random_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

pub(super) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Writes `dir/name` so that a reader sees the old content or all of the new, also after a power cut.
pub(super) fn replace(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = write_temporary(dir, content)?;
    let renamed = fs::rename(&temporary, dir.join(name)).and_then(|()| sync_directory(dir));
    if renamed.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    renamed
}

/// Writes `dir/name` unless it exists already; `Ok(false)` when it did. The name never appears with part of its content: a hard link is
/// atomic on every POSIX file system, NFS included, where `O_EXCL` alone would show an empty file first. Where links are not supported
/// (some FUSE file systems), a rename that refuses to replace does the same.
pub(super) fn create_new(dir: &Path, name: &str, content: &[u8]) -> io::Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let temporary = write_temporary(dir, content)?;
    let target = dir.join(name);
    let made = match fs::hard_link(&temporary, &target) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            renameat_with(CWD, &temporary, CWD, &target, RenameFlags::NOREPLACE).map_err(io::Error::from)
        }
        linked => linked,
    };
    let _ = fs::remove_file(&temporary);
    match made {
        Ok(()) => sync_directory(dir).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

fn write_temporary(dir: &Path, content: &[u8]) -> io::Result<PathBuf> {
    let path = dir.join(format!(".ganger-{}.tmp", random_id()?));
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = fs::remove_file(&path);
    }
    written.map(|()| path)
}
