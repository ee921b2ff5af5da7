//! `torch.distributed.checkpoint` (DCP): `.metadata` and shards `__<rank>_<file>.distcp`.
//!
//! Source: pytorch/pytorch, torch/distributed/checkpoint/filesystem.py (`_FileSystemWriter.write_data` and `finish`): each rank writes and
//! syncs its shards; when all have reported, the coordinator pickles `.metadata.tmp`, syncs it and renames it to `.metadata`. So a
//! `.metadata` says that every shard was written, unless `sync_files=False` and the machine lost power.
//! The pickle is never loaded: the shard names in it are plain text and are found by scanning, which shows a missing shard and one of
//! zero bytes (legal only for a shard that nothing refers to). Shards that begin as `torch.save` archives must end as such. A shard
//! of another inner format (a compressed or safetensors stream) is checked for presence only; damage inside a shard is not seen.

use std::collections::BTreeSet;
use std::path::Path;

use super::files::{self, Listing};
use super::torch_file;
use super::{Defect, Format, Verified};

const MARKER: &str = ".metadata";
const SHARD_END: &[u8] = b".distcp";

pub(super) fn matches(listing: &Listing) -> bool {
    listing.file(MARKER).is_some()
        || listing.file(".metadata.tmp").is_some()
        || listing.files().any(|(name, _)| name.ends_with(".distcp"))
}

pub(super) fn verify(listing: &Listing) -> Result<Verified, Defect> {
    let Some(bytes) = listing.file(MARKER) else {
        return Err(Defect::MissingMarker { path: listing.dir.clone(), format: Format::TorchDcp, marker: MARKER });
    };
    let mut verified = Verified::new(Format::TorchDcp, listing.step());
    verified.add(bytes);
    let path = listing.path(MARKER);
    let referenced = referenced(&path)?;
    if referenced.is_empty() && !listing.files().any(|(name, _)| name.ends_with(".distcp")) {
        return Err(Defect::malformed(&path, "names no shard and none is there"));
    }
    for shard in &referenced {
        if listing.file(shard).is_none() {
            return Err(Defect::MissingFile { file: listing.path(shard), named_by: MARKER.into() });
        }
        verified.add(torch_file::check_concatenated(&listing.path(shard))?);
    }
    if referenced.is_empty() {
        check_unnamed(listing, &mut verified)?;
    }
    Ok(verified)
}

/// Shards whose names the metadata does not spell out: an empty one is legal then (a writer thread that had nothing to write).
fn check_unnamed(listing: &Listing, verified: &mut Verified) -> Result<(), Defect> {
    for (name, bytes) in listing.files().filter(|(name, _)| name.ends_with(".distcp")) {
        if bytes > 0 {
            torch_file::check_concatenated(&listing.path(name))?;
        }
        verified.add(bytes);
    }
    Ok(())
}

/// The shard names in the pickle, after checking that it begins and ends as a pickle (protocol mark, STOP).
fn referenced(path: &Path) -> Result<BTreeSet<String>, Defect> {
    let content = files::read_small(path)?;
    if content.first() != Some(&0x80) || content.last() != Some(&b'.') {
        return Err(Defect::malformed(path, "is not a whole pickle"));
    }
    let ends = content.windows(SHARD_END.len()).enumerate().filter(|(_, window)| *window == SHARD_END);
    Ok(ends.filter_map(|(at, _)| shard_name(&content[..at])).collect())
}

/// The `__12_3` at the end of `bytes`, as a shard's name.
fn shard_name(bytes: &[u8]) -> Option<String> {
    let start = bytes.iter().rposition(|byte| !byte.is_ascii_digit() && *byte != b'_').map_or(0, |at| at + 1);
    let stem = std::str::from_utf8(&bytes[start..]).ok()?;
    let at = stem.rfind("__")?;
    let (rank, file) = stem[at + 2..].split_once('_')?;
    files::whole_number(rank).and(files::whole_number(file))?;
    Some(format!("{}.distcp", &stem[at..]))
}
