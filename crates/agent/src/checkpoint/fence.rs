//! Keeps a late write of an older attempt from being taken for the newest checkpoint.
//!
//! An attempt that was declared lost may still run: its node was cut off, its disk hung, a save takes minutes. Leases and keepers end
//! it, but a write that is already under way can land after the next attempt began, and no file system lets one revoke it. So nothing
//! is prevented at the writer; what counts is decided at the reader:
//!
//! - **A folder of its own.** Attempt N is told to write to `<dir>/attempt-N`. Who wrote what is in the path.
//! - **A seal.** Before attempt N may start, [`Fence::raise`] records the checkpoints that older attempts have at that moment, each with a
//!   fingerprint (names, sizes, times). From then on an older attempt's checkpoint counts only if it is on the list and unchanged. A
//!   half-written one is on the list too, as it was: finished later, it has changed. Nothing is read or verified under the seal, so
//!   raising stays quick; only the newest few of each folder are listed, older ones no longer count.
//! - **Only upward.** The fence is the file `.ganger-attempt-<number>` with the highest number, each made once, whole and never
//!   replaced. A delayed raise of an older attempt can therefore not lower it, whatever the order of events, and needs no lock (locks on
//!   network file systems outlive or lose their owners). `.ganger-attempt` repeats the newest for people and scripts; it decides nothing.
//!
//! **Code that writes to `<dir>` itself** shares one folder over all attempts, so the path proves nothing. There a checkpoint that is on
//! the seal's list is good; a newer one is good when the running attempt announced it ([`Fence::accept`]; an old attempt's
//! announcement is refused, its agent holds an old fence). Once a job has announced, unannounced newer ones do not count. A job that
//! never announces must be believed: its newer checkpoints count, and the scan says that they are unproven; then only the lease rule
//! (an old attempt ends before a new one starts) stands between it and a late write.
//!
//! Rejected: one rename-replaced file (two raises race and the lower may land last); renaming the folder away under the old writer
//! (breaks paths that users hold); comparing times with the raise (clocks of nodes and file servers differ).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::{self, Listing};
use super::scan::{self, Candidate};
use super::{Defect, seal};

const POINTER: &str = ".ganger-attempt";
const FENCE_START: &str = ".ganger-attempt-";
const ACCEPTED_START: &str = ".ganger-accepted-";
const VERSION: u32 = 1;
/// Checkpoints of one folder that a raise seals.
const MAX_SEALED: usize = 8;
const MAX_RACES: usize = 4;

/// What to do when the directory belongs to another job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherJob {
    Refuse,
    /// Continue from its checkpoints. Only on a person's word, and only when the other job has ended.
    TakeOver,
}

/// Why a fence could not be read or raised, or why a checkpoint was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    #[error("cannot fence checkpoints in {}: {}: {source}; check that the directory is there and writable", dir.display(), path.display())]
    Io { dir: PathBuf, path: PathBuf, source: io::Error },
    #[error("cannot fence checkpoints in {}: {defect}", dir.display())]
    Unreadable { dir: PathBuf, defect: Box<Defect> },
    #[error("attempt {attempt} of job {job} may not write to {}: attempt {by} was let in since; end this attempt", dir.display())]
    Superseded { dir: PathBuf, job: String, attempt: u64, by: u64 },
    #[error("job {job} may not write to {}: it holds checkpoints of job {owner}; name another directory, or take this one over", dir.display())]
    OtherJob { dir: PathBuf, job: String, owner: String },
    #[error("cannot accept {} as a checkpoint: it is not inside {}; announce a path below the checkpoint directory", path.display(), dir.display())]
    Outside { dir: PathBuf, path: PathBuf },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: u32,
    /// Rises by attempts within a job and past all of them when another job takes over: `base + attempt`.
    number: u64,
    base: u64,
    job: String,
    attempt: u64,
    /// Whether this job has announced checkpoints outside its attempts' folders.
    announces: bool,
    /// Entry below the directory to fingerprint.
    sealed: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Accepted {
    entry: String,
    fingerprint: String,
}

#[derive(Serialize)]
struct Pointer<'a> {
    job: &'a str,
    attempt: u64,
    directory: &'a str,
}

/// Whether a candidate's writer is known to be one that may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Judgement {
    Proven,
    Unproven,
}

/// The fence of a checkpoint directory: which attempt may write, and what older ones had when it was let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    dir: PathBuf,
    record: Record,
}

impl Fence {
    /// The fence that stands in `dir`; `None` where no attempt was ever let in or the directory does not exist.
    ///
    /// # Errors
    /// [`FenceError::Unreadable`]: without its list nothing older can be trusted.
    pub fn current(dir: &Path) -> Result<Option<Self>, FenceError> {
        let unreadable = |defect| FenceError::Unreadable { dir: dir.into(), defect: Box::new(defect) };
        let mut last = None;
        for _ in 0..MAX_RACES {
            let listing = match Listing::read(dir) {
                Ok(listing) => listing,
                Err(Defect::NotFound { .. }) => return Ok(None),
                Err(defect) => return Err(unreadable(defect)),
            };
            let Some(number) = numbers(&listing).max() else { return Ok(None) };
            let path = dir.join(format!("{FENCE_START}{number}"));
            match files::read_json::<Record>(&path) {
                Ok(record) if record.version == VERSION && record.number == number => {
                    return Ok(Some(Self { dir: dir.into(), record }));
                }
                Ok(_) => return Err(unreadable(Defect::malformed(&path, "of another version or not its own number"))),
                // A raise that came between listing and reading removes the lower fences: look again.
                Err(gone @ Defect::NotFound { .. }) => last = Some(gone),
                Err(defect) => return Err(unreadable(defect)),
            }
        }
        Err(unreadable(last.unwrap_or(Defect::NotFound { path: dir.into() })))
    }

    /// Lets `attempt` of `job` in and shuts all earlier ones out. Call it before the attempt's first rank starts; repeating it is harmless.
    /// `dir` must exist.
    ///
    /// # Errors
    /// [`FenceError::Superseded`] when a later attempt was let in before, or during the call.
    pub fn raise(dir: &Path, job: &str, attempt: u64, other: OtherJob) -> Result<Self, FenceError> {
        for _ in 0..MAX_RACES {
            let before = Self::current(dir)?;
            let Some(base) = before.as_ref().map_or(Ok(Some(0)), |fence| fence.base_for(job, attempt, other))? else {
                if let Some(fence) = before {
                    fence.settle()?;
                    return Ok(fence);
                }
                continue;
            };
            let fence = Self { dir: dir.into(), record: next_record(dir, before.as_ref(), job, attempt, base)? };
            if fence.create()? {
                fence.check_newest()?;
                fence.settle()?;
                return Ok(fence);
            }
        }
        Err(FenceError::Superseded { dir: dir.into(), job: job.into(), attempt, by: attempt })
    }

    pub fn job(&self) -> &str {
        &self.record.job
    }

    pub fn attempt(&self) -> u64 {
        self.record.attempt
    }

    /// Where this attempt is to write: `<dir>/attempt-<N>`, N being the attempt, or past it where the job took over from another.
    pub fn checkpoint_dir(&self) -> PathBuf {
        self.dir.join(self.folder())
    }

    /// Records that this attempt announced a checkpoint (any path inside it), with its fingerprint of this moment. Verify it first.
    ///
    /// # Errors
    /// [`FenceError::Superseded`] when a later attempt was let in; [`FenceError::Outside`] for a path outside the directory.
    pub fn accept(&self, path: &Path) -> Result<(), FenceError> {
        let entry = self.entry_of(path)?;
        let target = if entry == "." { self.dir.clone() } else { self.dir.join(&entry) };
        let root = entry == "." || files::attempt_of(&entry).is_some();
        let fingerprint = seal::fingerprint(&target, root).map_err(|defect| self.unreadable(defect))?;
        let folder = self.accepted_dir();
        fs::create_dir_all(&folder).map_err(|source| self.io(&folder, source))?;
        let name = format!("{}.json", &blake3::hash(entry.as_bytes()).to_hex()[..32]);
        let content =
            serde_json::to_vec(&Accepted { entry, fingerprint }).map_err(|error| self.io(&folder, error.into()))?;
        // Asked last: a raise that comes after this has its list made, and from then on only that list speaks for this attempt.
        self.check_newest()?;
        files::replace(&folder, &name, &content).map_err(|source| self.io(&folder, source))
    }

    /// Whether a candidate may count, before anything of it is verified.
    pub(super) fn judge(&self, candidate: &Candidate) -> Result<Judgement, Defect> {
        let fence = self.record.number;
        if candidate.writer == Some(fence) {
            return Ok(Judgement::Proven);
        }
        if let Some(writer) = candidate.writer.filter(|writer| *writer > fence) {
            return Err(Defect::Stray { path: candidate.path.clone(), writer, fence });
        }
        let fingerprint = seal::fingerprint(&candidate.path, candidate.root)?;
        if self.record.sealed.get(&candidate.entry) == Some(&fingerprint) {
            return Ok(Judgement::Proven);
        }
        if let Some(writer) = candidate.writer {
            return Err(Defect::Late { path: candidate.path.clone(), writer, fence });
        }
        let accepted = self.accepted();
        if accepted.get(&candidate.entry) == Some(&fingerprint) {
            return Ok(Judgement::Proven);
        }
        if self.record.announces || !accepted.is_empty() {
            return Err(Defect::Unannounced { path: candidate.path.clone(), fence });
        }
        Ok(Judgement::Unproven)
    }

    /// The base to count `attempt` from; `None` when it is the one that is in already.
    fn base_for(&self, job: &str, attempt: u64, other: OtherJob) -> Result<Option<u64>, FenceError> {
        let record = &self.record;
        if record.job != job {
            return match other {
                OtherJob::TakeOver => Ok(Some(record.number)),
                OtherJob::Refuse => {
                    Err(FenceError::OtherJob { dir: self.dir.clone(), job: job.into(), owner: record.job.clone() })
                }
            };
        }
        match attempt.cmp(&record.attempt) {
            std::cmp::Ordering::Greater => Ok(Some(record.base)),
            std::cmp::Ordering::Equal => Ok(None),
            std::cmp::Ordering::Less => {
                Err(FenceError::Superseded { dir: self.dir.clone(), job: job.into(), attempt, by: record.attempt })
            }
        }
    }

    fn create(&self) -> Result<bool, FenceError> {
        let name = format!("{FENCE_START}{}", self.record.number);
        let content = serde_json::to_vec_pretty(&self.record).map_err(|error| self.io(&self.dir, error.into()))?;
        files::create_new(&self.dir, &name, &content).map_err(|source| self.io(&self.dir.join(&name), source))
    }

    fn check_newest(&self) -> Result<(), FenceError> {
        match Self::current(&self.dir)? {
            Some(newest) if newest.record.number > self.record.number => Err(FenceError::Superseded {
                dir: self.dir.clone(),
                job: self.record.job.clone(),
                attempt: self.record.attempt,
                by: newest.record.attempt,
            }),
            _ => Ok(()),
        }
    }

    /// Makes the attempt's folder and the pointer, and removes what lower fences left.
    fn settle(&self) -> Result<(), FenceError> {
        let folder = self.checkpoint_dir();
        fs::create_dir_all(&folder).map_err(|source| self.io(&folder, source))?;
        let pointer = Pointer { job: &self.record.job, attempt: self.record.attempt, directory: &self.folder() };
        let content = serde_json::to_vec(&pointer).map_err(|error| self.io(&self.dir, error.into()))?;
        files::replace(&self.dir, POINTER, &content).map_err(|source| self.io(&self.dir.join(POINTER), source))?;
        if let Ok(listing) = Listing::read(&self.dir) {
            for number in numbers(&listing).filter(|number| *number < self.record.number) {
                let _ = fs::remove_file(listing.path(&format!("{FENCE_START}{number}")));
                let _ = fs::remove_dir_all(listing.path(&format!("{ACCEPTED_START}{number}")));
            }
        }
        Ok(())
    }

    /// What this attempt announced outside its own folder, as entry to fingerprint. Unreadable records accept nothing.
    fn accepted(&self) -> BTreeMap<String, String> {
        let Ok(listing) = Listing::read(&self.accepted_dir()) else { return BTreeMap::new() };
        let records = listing.files().filter(|(name, _)| name.ends_with(".json"));
        let read = records.filter_map(|(name, _)| files::read_json::<Accepted>(&listing.path(name)).ok());
        read.filter(|accepted| !accepted.entry.starts_with("attempt-"))
            .map(|accepted| (accepted.entry, accepted.fingerprint))
            .collect()
    }

    /// The candidate's name that a path lies in: its first component below the directory, or the first two in an attempt's folder.
    fn entry_of(&self, path: &Path) -> Result<String, FenceError> {
        let outside = || FenceError::Outside { dir: self.dir.clone(), path: path.into() };
        let real = fs::canonicalize(path).map_err(|source| self.io(path, source))?;
        let root = fs::canonicalize(&self.dir).map_err(|source| self.io(&self.dir, source))?;
        let inside = real.strip_prefix(root).map_err(|_| outside())?;
        let parts = inside.iter().map(|part| part.to_str()).collect::<Option<Vec<_>>>().ok_or_else(outside)?;
        Ok(scan::entry_of(&self.dir, &parts))
    }

    fn folder(&self) -> String {
        format!("attempt-{}", self.record.number)
    }

    fn accepted_dir(&self) -> PathBuf {
        self.dir.join(format!("{ACCEPTED_START}{}", self.record.number))
    }

    fn io(&self, path: &Path, source: io::Error) -> FenceError {
        FenceError::Io { dir: self.dir.clone(), path: path.into(), source }
    }

    fn unreadable(&self, defect: Defect) -> FenceError {
        FenceError::Unreadable { dir: self.dir.clone(), defect: Box::new(defect) }
    }
}

fn numbers(listing: &Listing) -> impl Iterator<Item = u64> {
    listing.files().filter_map(|(name, _)| files::whole_number(name.strip_prefix(FENCE_START)?))
}

/// The record of a new fence: what the old fence would have let count, newest first, as it is now.
fn next_record(dir: &Path, before: Option<&Fence>, job: &str, attempt: u64, base: u64) -> Result<Record, FenceError> {
    let candidates = scan::candidates(dir).map_err(|defect| match defect {
        Defect::NotFound { path } => FenceError::Io { dir: dir.into(), path, source: io::ErrorKind::NotFound.into() },
        defect => FenceError::Unreadable { dir: dir.into(), defect: Box::new(defect) },
    })?;
    let mut sealed = BTreeMap::new();
    let mut per_folder: BTreeMap<Option<u64>, usize> = BTreeMap::new();
    for candidate in &candidates {
        let count = per_folder.entry(candidate.writer).or_default();
        if *count >= MAX_SEALED || before.is_some_and(|fence| fence.judge(candidate).is_err()) {
            continue;
        }
        if let Ok(fingerprint) = seal::fingerprint(&candidate.path, candidate.root) {
            *count += 1;
            sealed.insert(candidate.entry.clone(), fingerprint);
        }
    }
    let same_job = before.filter(|fence| fence.record.job == job);
    let announces = same_job.is_some_and(|fence| fence.record.announces || !fence.accepted().is_empty());
    let number = base.saturating_add(attempt.max(1));
    Ok(Record { version: VERSION, number, base, job: job.into(), attempt, announces, sealed })
}
