//! The newest checkpoint of a directory that counts, and why each newer one does not.
//!
//! Candidates are found by name (cheap), ordered by step, then attempt, then time, and verified one by one until one is good, so fifty
//! old checkpoints are never read because of one good new one. Where a [`Fence`] stands it is asked before the bytes are.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::fence::{Fence, Judgement};
use super::files::{self, Listing};
use super::{Defect, Format, Verified, recognise, verify};
use super::{deepspeed, manifest, megatron, plain};

/// Bad candidates after which older ones are no longer read: so many in a row are a broken writer, not a crash.
const MAX_TRIES: usize = 64;
const MAX_CANDIDATES: usize = 20_000;

/// What a look at a checkpoint directory found.
#[derive(Debug, Default)]
pub struct Scan {
    /// The newest checkpoint that counts.
    pub best: Option<(PathBuf, Verified)>,
    /// True when nothing proves which attempt wrote `best`: see [`Fence`] on code that writes past its attempt's directory.
    pub unproven: bool,
    /// Newer ones that do not count, newest first, and what could not be looked at.
    pub skipped: Vec<(PathBuf, Defect)>,
}

/// Looks for the newest checkpoint below `dir`, the job's checkpoint directory (never one of its `attempt-N` folders: the fence that
/// guards them is in `dir`). A directory that does not exist holds none: an empty scan.
pub fn newest_valid(dir: &Path) -> Scan {
    let mut scan = Scan::default();
    let fence = match Fence::current(dir) {
        Ok(fence) => fence,
        Err(error) => {
            let defect = Defect::FenceUnreadable { path: dir.into(), reason: error.to_string() };
            scan.skipped.push((dir.into(), defect));
            return scan;
        }
    };
    match candidates(dir) {
        Ok(candidates) => try_each(&candidates, fence.as_ref(), &mut scan),
        Err(Defect::NotFound { .. }) => {}
        Err(defect) => scan.skipped.push((dir.into(), defect)),
    }
    scan
}

fn try_each(candidates: &[Candidate], fence: Option<&Fence>, scan: &mut Scan) {
    for candidate in candidates {
        let tried = scan.skipped.len();
        if tried >= MAX_TRIES {
            scan.skipped.push((candidate.path.clone(), Defect::NotTried { path: candidate.path.clone(), tried }));
            return;
        }
        let judged = fence.map_or(Ok(Judgement::Proven), |fence| fence.judge(candidate));
        match judged.and_then(|judgement| Ok((judgement, verify(&candidate.path)?))) {
            Ok((judgement, mut verified)) => {
                verified.step = verified.step.or(candidate.step);
                scan.unproven = judgement == Judgement::Unproven;
                scan.best = Some((candidate.path.clone(), verified));
                return;
            }
            Err(defect) => scan.skipped.push((candidate.path.clone(), defect)),
        }
    }
}

/// Something in a checkpoint directory that may be a checkpoint.
#[derive(Debug)]
pub(super) struct Candidate {
    pub path: PathBuf,
    /// Its path below the checkpoint directory; `.` for that directory itself.
    pub entry: String,
    /// The number of the `attempt-N` folder that it lies in.
    pub writer: Option<u64>,
    /// Whether other checkpoints may lie inside it.
    pub root: bool,
    step: Option<u64>,
    modified: Option<SystemTime>,
}

/// All candidates below a checkpoint directory, newest first.
pub(super) fn candidates(dir: &Path) -> Result<Vec<Candidate>, Defect> {
    let listing = Listing::read(dir)?;
    let mut found = Vec::new();
    collect(&listing, None, &mut found);
    for name in listing.directories() {
        if let Some(attempt) = files::attempt_of(name) {
            // A folder that cannot be listed must not hide those of the other attempts; its own checkpoints are lost either way.
            if let Ok(folder) = Listing::read(&listing.path(name)) {
                collect(&folder, Some(attempt), &mut found);
            }
        }
    }
    if found.len() > MAX_CANDIDATES {
        return Err(Defect::TooMany { path: dir.into(), limit: MAX_CANDIDATES as u64 });
    }
    found.sort_by(|a, b| (b.step, b.writer, b.modified, &b.entry).cmp(&(a.step, a.writer, a.modified, &a.entry)));
    Ok(found)
}

fn collect(folder: &Listing, writer: Option<u64>, found: &mut Vec<Candidate>) {
    let format = recognise(folder);
    let files_apart = plain_files_apart(folder, format);
    let whole = format.is_some() && !files_apart && !is_tracker_only(folder, format);
    if whole {
        found.push(candidate(folder, None, writer));
    }
    for name in folder.directories() {
        let hidden = name.starts_with('.') || files::is_temporary(name) || files::attempt_of(name).is_some();
        if !hidden
            && (files::is_step_name(name)
                || (!whole && Listing::read(&folder.path(name)).is_ok_and(|child| recognise(&child).is_some())))
        {
            found.push(candidate(folder, Some(name), writer));
        }
    }
    if files_apart {
        let apart = folder
            .files()
            .filter(|(name, _)| plain::is_weights(name) && !files::is_temporary(name) && !name.starts_with('.'));
        found.extend(apart.map(|(name, _)| candidate(folder, Some(name), writer)));
    }
}

/// Files that carry steps in their names (`step_10.safetensors`, `step_20.safetensors`) are checkpoints each; others are one together.
fn plain_files_apart(folder: &Listing, format: Option<Format>) -> bool {
    matches!(format, Some(Format::Safetensors | Format::Torch))
        && folder
            .files()
            .any(|(name, _)| plain::is_weights(name) && !plain::is_shard(name) && files::step_of(name).is_some())
}

/// A DeepSpeed or Megatron-LM root: its tracker names the newest save, but the saves themselves are the candidates.
fn is_tracker_only(folder: &Listing, format: Option<Format>) -> bool {
    match format {
        Some(Format::DeepSpeed) => !folder.files().any(|(name, _)| name.ends_with("_states.pt")),
        Some(Format::Megatron) => !folder.directories().any(|name| name.starts_with("mp_rank_")),
        _ => false,
    }
}

fn candidate(folder: &Listing, name: Option<&str>, writer: Option<u64>) -> Candidate {
    let path = name.map_or_else(|| folder.dir.clone(), |name| folder.path(name));
    let prefix = writer.map(|writer| format!("attempt-{writer}"));
    let entry = match (prefix, name) {
        (Some(prefix), Some(name)) => format!("{prefix}/{name}"),
        (Some(prefix), None) => prefix,
        (None, name) => name.unwrap_or(".").to_owned(),
    };
    let step = name.and_then(files::step_of).or_else(|| manifest::peek_step(&path));
    let modified = fs::metadata(&path).and_then(|metadata| metadata.modified()).ok();
    Candidate { entry, writer, root: name.is_none(), step, modified, path }
}

/// The candidate that a path inside `dir` (its components) belongs to. A path to `dir` itself, where that is a DeepSpeed or Megatron-LM
/// root, means the save that its tracker names.
pub(super) fn entry_of(dir: &Path, parts: &[&str]) -> String {
    match parts {
        [folder, name, ..] if files::attempt_of(folder).is_some() => format!("{folder}/{name}"),
        [name, ..] if candidates(dir).is_ok_and(|found| found.iter().any(|candidate| candidate.entry == *name)) => {
            (*name).to_owned()
        }
        _ => tracked(dir).unwrap_or_else(|| ".".into()),
    }
}

fn tracked(dir: &Path) -> Option<String> {
    let root = Listing::read(dir).ok()?;
    let format = recognise(&root).filter(|format| is_tracker_only(&root, Some(*format)))?;
    if format == Format::DeepSpeed { deepspeed::tracked(&root).ok() } else { megatron::tracked(&root).ok() }
}
