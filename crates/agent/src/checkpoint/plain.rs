//! Checkpoints without a layout of their own: a weights file, or a directory of them.
//!
//! Source: huggingface/safetensors, README.md ("Format"), for the files; huggingface/transformers, documentation page "Sharded
//! checkpoints" (big_models.md), for index files: `<name>.index.json` maps each tensor (`weight_map`) to its shard, and shards are named
//! `<stem>-00001-of-00002`. Such a save has no mark of its end: a safetensors file proves its own length, an index proves that every
//! shard and (for safetensors) every tensor is there, and the `-of-` count does so without an index. That the directory should hold
//! further files cannot be known; where that matters write our manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use super::files::{self, Listing};
use super::{Defect, Format, Verified};
use super::{safetensors, torch_file};

const TORCH_ENDS: [&str; 4] = [".pt", ".pth", ".bin", ".ckpt"];
const INDEX_END: &str = ".index.json";

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

pub(super) fn is_torch(name: &str) -> bool {
    TORCH_ENDS.iter().any(|end| name.ends_with(end))
}

pub(super) fn is_weights(name: &str) -> bool {
    name.ends_with(".safetensors") || is_torch(name)
}

/// Whether a name is one shard of several: `model-00001-of-00002.safetensors`.
pub(super) fn is_shard(name: &str) -> bool {
    shard(name).is_some()
}

pub(super) fn matches_safetensors(listing: &Listing) -> bool {
    listing.files().any(|(name, _)| name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"))
}

pub(super) fn matches_torch(listing: &Listing) -> bool {
    listing.files().any(|(name, _)| is_torch(name) || name.ends_with(".bin.index.json"))
}

/// Checks a checkpoint that is one file.
pub(super) fn verify_file(path: &Path) -> Result<Verified, Defect> {
    let name = files::name(path);
    if name.ends_with(".safetensors") {
        let header = safetensors::check(path)?;
        let mut verified = Verified::new(Format::Safetensors, header.step.or_else(|| files::step_of(name)));
        verified.add(header.bytes);
        return Ok(verified);
    }
    if !is_torch(name) {
        return Err(Defect::UnknownFormat { path: path.into() });
    }
    let mut verified = Verified::new(Format::Torch, files::step_of(name));
    verified.add(torch_file::check(path)?);
    Ok(verified)
}

pub(super) fn verify_safetensors(listing: &Listing) -> Result<Verified, Defect> {
    verify_directory(listing, Format::Safetensors)
}

pub(super) fn verify_torch(listing: &Listing) -> Result<Verified, Defect> {
    verify_directory(listing, Format::Torch)
}

fn verify_directory(listing: &Listing, format: Format) -> Result<Verified, Defect> {
    let mut verified = Verified::new(format, None);
    check_weights(listing, &mut verified)?;
    // Beside safetensors usually lie the optimizer's files, which must be whole too. A `.bin` may be anybody's.
    for (name, _) in listing.files().filter(|(name, _)| {
        is_torch(name) && !is_model(name) && !(name.ends_with(".bin") && format == Format::Safetensors)
    }) {
        verified.add(torch_file::check(&listing.path(name))?);
    }
    verified.step = verified.step.or_else(|| listing.step());
    Ok(verified)
}

/// The names under which models are saved in torch's own format.
fn is_model(name: &str) -> bool {
    name.ends_with(".bin") && (name.starts_with("pytorch_model") || name.starts_with("adapter_model"))
}

/// Checks every index, safetensors file and `pytorch_model*.bin` of a directory; says whether there was any.
pub(super) fn check_weights(listing: &Listing, verified: &mut Verified) -> Result<bool, Defect> {
    let mut tensors: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut found = false;
    for (name, _) in listing.files() {
        if files::is_temporary(name) {
            continue;
        }
        if name.ends_with(".safetensors") {
            let header = safetensors::check(&listing.path(name))?;
            verified.add(header.bytes);
            verified.step = verified.step.or(header.step);
            tensors.insert(name, header.tensors);
        } else if is_model(name) {
            verified.add(torch_file::check(&listing.path(name))?);
        } else {
            continue;
        }
        found = true;
        check_siblings(listing, name)?;
    }
    for (name, bytes) in listing.files().filter(|(name, _)| name.ends_with(INDEX_END)) {
        check_index(listing, name, &tensors)?;
        verified.add(bytes);
    }
    Ok(found)
}

fn check_index(listing: &Listing, index: &str, tensors: &BTreeMap<&str, BTreeSet<String>>) -> Result<(), Defect> {
    let path = listing.path(index);
    let content: Index = files::read_json(&path)?;
    for (tensor, shard) in &content.weight_map {
        if listing.file(shard).is_none() {
            return Err(Defect::MissingFile { file: listing.path(shard), named_by: index.into() });
        }
        if tensors.get(shard.as_str()).is_some_and(|held| !held.contains(tensor)) {
            return Err(Defect::malformed(
                &listing.path(shard),
                format!("does not hold tensor `{tensor}`, which {index} places in it"),
            ));
        }
    }
    Ok(())
}

/// A name like `stem-00001-of-00004.end`, taken apart.
struct Shard<'a> {
    stem: &'a str,
    number: u64,
    count: u64,
    digits: usize,
    end: &'a str,
}

fn shard(name: &str) -> Option<Shard<'_>> {
    let (before, after) = name.rsplit_once("-of-")?;
    let (stem, number) = before.rsplit_once('-')?;
    let (count, end) = after.split_once('.')?;
    Some(Shard {
        stem,
        number: files::whole_number(number)?,
        count: files::whole_number(count)?,
        digits: count.len(),
        end,
    })
}

/// Asks for all shards of the set that `name` belongs to, once per set: from its first shard, or from any when that one is missing.
fn check_siblings(listing: &Listing, name: &str) -> Result<(), Defect> {
    let Some(shard) = shard(name) else { return Ok(()) };
    let Shard { stem, digits, count, end, .. } = shard;
    let sibling = |number: u64| format!("{stem}-{number:0digits$}-of-{count:0digits$}.{end}");
    if shard.number != 1 && listing.file(&sibling(1)).is_some() {
        return Ok(());
    }
    match (1..=count).find(|number| listing.file(&sibling(*number)).is_none()) {
        Some(number) => Err(Defect::MissingFile { file: listing.path(&sibling(number)), named_by: name.into() }),
        None => Ok(()),
    }
}
