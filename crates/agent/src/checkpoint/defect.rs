//! Why a checkpoint does not count: one typed reason per way a save can be unfinished, damaged or not ours to trust.
//! Each names the file and says what to do next. A defect is about one checkpoint; it never stops a search for an older one.

use std::io;
use std::path::{Path, PathBuf};

use super::Format;

/// Why one checkpoint was refused.
#[derive(Debug, thiserror::Error)]
pub enum Defect {
    #[error("checkpoint {} does not exist; check the path, or resume from an older one", path.display())]
    NotFound { path: PathBuf },
    #[error("cannot read {}: {source}; check its permissions and its file system, or resume from an older checkpoint", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is empty: the save never began to write; resume from an older checkpoint", path.display())]
    Empty { path: PathBuf },
    #[error(
        "{} is no checkpoint of a format known here; write {} into it last, or name the right directory",
        path.display(), super::MANIFEST_NAME
    )]
    UnknownFormat { path: PathBuf },
    #[error("{} has the name of a save that was not finished; resume from an older checkpoint", path.display())]
    Temporary { path: PathBuf },
    #[error("{} has no {marker}, which {format} writes when a save is complete: the save was cut off; resume from an older one", path.display())]
    MissingMarker { path: PathBuf, format: Format, marker: &'static str },
    #[error("{} was not committed: {} says `{says}`; resume from what it names", path.display(), tracker.display())]
    Uncommitted { path: PathBuf, tracker: PathBuf, says: String },
    #[error("{} is missing, but {named_by} calls for it: the save was cut off or the file was removed; resume from an older one", file.display())]
    MissingFile { file: PathBuf, named_by: String },
    #[error("{} is {} bytes short of {reference}: the write was cut off; resume from an older one", file.display(), grouped(*missing_bytes))]
    Short { file: PathBuf, missing_bytes: u64, reference: &'static str },
    #[error("{} is {} bytes longer than {reference}: something else wrote to it; resume from an older one", file.display(), grouped(*extra_bytes))]
    Long { file: PathBuf, extra_bytes: u64, reference: &'static str },
    #[error("{} does not have the content that its manifest recorded (BLAKE3 differs): it was changed or damaged; resume from an older one", file.display())]
    HashMismatch { file: PathBuf },
    #[error("{}: {problem}: the write was cut off or the file is damaged; resume from an older one", file.display())]
    Malformed { file: PathBuf, problem: String },
    #[error("manifest {} lists `{listed}`, which {problem}: it cannot be trusted; write a new one, or resume from an older one", manifest.display())]
    BadListing { manifest: PathBuf, listed: String, problem: &'static str },
    #[error("{} holds more than {} entries; point `checkpoint.dir` at a directory of its own, or remove old files", path.display(), grouped(*limit))]
    TooMany { path: PathBuf, limit: u64 },
    #[error(
        "{} was written or changed after attempt {fence} had taken over: a late write of attempt {writer}; remove it, or resume from an older one",
        path.display()
    )]
    Late { path: PathBuf, writer: u64, fence: u64 },
    #[error("{} is of attempt {writer}, but only {fence} attempts were let in here; remove it, or requeue the job", path.display())]
    Stray { path: PathBuf, writer: u64, fence: u64 },
    #[error(
        "{} changed since attempt {fence} took over and that attempt never announced it: an older attempt may have written it; announce it, or resume from an older one",
        path.display()
    )]
    Unannounced { path: PathBuf, fence: u64 },
    #[error("the fence of {} cannot be read ({reason}), so no checkpoint in it can be trusted; repair or remove it", path.display())]
    FenceUnreadable { path: PathBuf, reason: String },
    #[error("{} was not looked at: {tried} newer ones were bad already; name an older checkpoint by hand", path.display())]
    NotTried { path: PathBuf, tried: usize },
}

impl Defect {
    /// An I/O error while reading a part of a checkpoint.
    pub(super) fn reading(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound { path: path.into() },
            _ => Self::Unreadable { path: path.into(), source },
        }
    }

    pub(super) fn malformed(file: &Path, problem: impl Into<String>) -> Self {
        Self::Malformed { file: file.into(), problem: problem.into() }
    }
}

/// `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}
