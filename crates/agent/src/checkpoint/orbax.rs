//! Orbax: a step directory (with items inside) or a single item.
//!
//! Source: google/orbax, checkpoint/orbax/checkpoint/_src/path/atomicity.py and temporary_paths.py, and the documentation's page
//! "Checkpoint Format Guide": a save goes to `<name>.orbax-checkpoint-tmp…`; finishing it writes `commit_timestamp_nsecs` beside the
//! earlier `init_timestamp_nsecs` into `_CHECKPOINT_METADATA` and then renames the directory (file systems with an atomic rename) or
//! writes `commit_success.txt` into it (object stores). The newer API marks a checkpoint with a file `orbax.checkpoint`. Items hold
//! `_METADATA` (JSON) and array data, in an OCDBT store (`manifest.ocdbt`, one `ocdbt.process_N` per host, data under `d`) or as files.
//! Not seen: damage in the array data, and a save that an older Orbax without timestamps wrote into its final name.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::files::{self, Listing};
use super::{Defect, Format, Verified};

const STEP_METADATA: &str = "_CHECKPOINT_METADATA";
const ITEM_METADATA: &str = "_METADATA";
const COMMIT_FILE: &str = "commit_success.txt";
const V1_MARKER: &str = "orbax.checkpoint";
const STORE_MANIFEST: &str = "manifest.ocdbt";
const TEMPORARY: &str = ".orbax-checkpoint-tmp";
const MAX_DEPTH: usize = 4;

#[derive(Deserialize)]
struct StepMetadata {
    #[serde(default)]
    init_timestamp_nsecs: Option<u64>,
    #[serde(default)]
    commit_timestamp_nsecs: Option<u64>,
}

pub(super) fn matches(listing: &Listing) -> bool {
    [STEP_METADATA, COMMIT_FILE, V1_MARKER, STORE_MANIFEST].iter().any(|name| listing.file(name).is_some())
        || listing.file(ITEM_METADATA).is_some()
        || listing.directories().any(|name| is_item(listing, name))
}

/// A step of an older Orbax has no file of its own, only items, finished or not. A name with a number is a step, so `listing` is no step.
fn is_item(listing: &Listing, name: &str) -> bool {
    let (item, unfinished) = name.split_once(TEMPORARY).map_or((name, false), |(item, _)| (item, true));
    files::step_of(item).is_none() && (unfinished || has_item_files(&listing.path(name)))
}

fn has_item_files(dir: &Path) -> bool {
    dir.join(ITEM_METADATA).is_file() || dir.join(STORE_MANIFEST).is_file()
}

pub(super) fn verify(listing: &Listing) -> Result<Verified, Defect> {
    let mut verified = Verified::new(Format::Orbax, listing.step());
    if listing.file(STEP_METADATA).is_some() {
        check_committed(listing)?;
    }
    let data_bytes = check_tree(listing, MAX_DEPTH, &mut verified)?;
    if data_bytes == 0 {
        return Err(Defect::malformed(&listing.dir, "holds Orbax metadata but no data"));
    }
    Ok(verified)
}

fn check_committed(listing: &Listing) -> Result<(), Defect> {
    let metadata: StepMetadata = files::read_json(&listing.path(STEP_METADATA))?;
    if metadata.init_timestamp_nsecs.is_some() && metadata.commit_timestamp_nsecs.is_none() {
        let marker = "commit_timestamp_nsecs in _CHECKPOINT_METADATA";
        return Err(Defect::MissingMarker { path: listing.dir.clone(), format: Format::Orbax, marker });
    }
    Ok(())
}

/// Checks a directory and all below it; returns the bytes of its data files (all but the markers).
fn check_tree(listing: &Listing, depth: usize, verified: &mut Verified) -> Result<u64, Defect> {
    check_item(listing)?;
    let mut data_bytes = 0_u64;
    for (name, bytes) in listing.files() {
        verified.add(bytes);
        if ![STEP_METADATA, ITEM_METADATA, COMMIT_FILE, V1_MARKER].contains(&name) {
            data_bytes = data_bytes.saturating_add(bytes);
        }
    }
    // Where one item was committed by file, its siblings were too: an item without the file is one that was not finished.
    let by_file = listing.directories().any(|name| listing.path(name).join(COMMIT_FILE).is_file());
    for name in listing.directories() {
        let child = listing.path(name);
        if files::is_temporary(name) {
            return Err(Defect::Temporary { path: child });
        }
        if depth == 0 {
            continue;
        }
        let child = Listing::read(&child)?;
        if by_file && child.file(COMMIT_FILE).is_none() && has_item_files(&child.dir) {
            return Err(Defect::MissingMarker { path: child.dir, format: Format::Orbax, marker: COMMIT_FILE });
        }
        data_bytes = data_bytes.saturating_add(check_tree(&child, depth - 1, verified)?);
    }
    Ok(data_bytes)
}

fn check_item(listing: &Listing) -> Result<(), Defect> {
    let mut in_store = listing.directories().any(|name| name.starts_with("ocdbt.process_"));
    if listing.file(ITEM_METADATA).is_some() {
        let metadata: Value = files::read_json(&listing.path(ITEM_METADATA))?;
        in_store |= metadata.get("use_ocdbt").and_then(Value::as_bool) == Some(true);
    }
    match listing.file(STORE_MANIFEST) {
        Some(0) => Err(Defect::malformed(&listing.path(STORE_MANIFEST), "empty")),
        // Orbax merges the per-host stores into this one just before it finishes the item.
        None if in_store => {
            Err(Defect::MissingFile { file: listing.path(STORE_MANIFEST), named_by: "the OCDBT store".into() })
        }
        Some(_) if !listing.has_directory("d") && !in_store => {
            Err(Defect::MissingFile { file: listing.path("d"), named_by: STORE_MANIFEST.into() })
        }
        _ => Ok(()),
    }
}
