//! Checkpoints: does this one count, which is the newest that counts, and may this attempt write here.
//!
//! A checkpoint counts only when it verifies: [`verify`] reads what the writer's own project defines as the mark of a finished save
//! (each format's module cites it) and checks sizes and structure; only our own manifest also proves content. [`newest_valid`] walks a
//! checkpoint directory newest first and says why each skipped one was skipped. [`Fence`] keeps a late write of an older attempt out.
//! [`announce`] reads what ranks announce, [`probe`] tells whether a node can use a directory before a gang starts there.
//!
//! All of it is synchronous file work: call it on a blocking thread. It never unpickles, never deletes a user's file and never trusts
//! a name that a file contains without checking that it stays inside the checkpoint.

pub mod announce;
mod dcp;
mod deepspeed;
mod defect;
mod fence;
mod files;
mod manifest;
mod megatron;
mod orbax;
mod plain;
mod probe;
mod safetensors;
mod scan;
mod seal;
mod torch_file;
mod trainer;

#[cfg(test)]
mod tests;

pub use defect::Defect;
pub use fence::{Fence, FenceError, OtherJob};
pub use manifest::{MANIFEST_NAME, ManifestError, seal as seal_directory, write_manifest};
pub use probe::{FileSystem, ProbeError, ProbeReport, probe};
pub use scan::{Scan, newest_valid};

use std::fmt;
use std::path::Path;

use files::Listing;

/// Who wrote a checkpoint, by the shape of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// Our own `ganger-checkpoint.json`: the only format whose content is proven by hashes.
    Manifest,
    /// A directory written by `torch.distributed.checkpoint`.
    TorchDcp,
    /// A step or an item of a step written by Orbax.
    Orbax,
    /// A tag directory written by `DeepSpeedEngine.save_checkpoint`.
    DeepSpeed,
    /// Megatron-LM, one folder per model-parallel rank.
    Megatron,
    /// Megatron-LM, `torch_dist` or another distributed format.
    MegatronDist,
    /// `checkpoint-N` of the Hugging Face Trainer.
    HfTrainer,
    /// A safetensors file, or a directory of them.
    Safetensors,
    /// A file of `torch.save`, or a directory of them.
    Torch,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Manifest => "Ganger manifest",
            Self::TorchDcp => "PyTorch DCP",
            Self::Orbax => "Orbax",
            Self::DeepSpeed => "DeepSpeed",
            Self::Megatron => "Megatron-LM",
            Self::MegatronDist => "Megatron-LM torch_dist",
            Self::HfTrainer => "Hugging Face Trainer",
            Self::Safetensors => "safetensors",
            Self::Torch => "torch.save",
        })
    }
}

/// What was checked of a checkpoint that counts.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Verified {
    pub format: Format,
    /// The training step, from the checkpoint itself where it says one, else from its name.
    pub step: Option<u64>,
    /// How many files were checked, and their bytes.
    pub files: u64,
    pub bytes: u64,
    /// BLAKE3 in hex over the manifest, which covers every file; `None` for formats that carry no hashes.
    pub digest: Option<String>,
}

impl Verified {
    fn new(format: Format, step: Option<u64>) -> Self {
        Self { format, step, files: 0, bytes: 0, digest: None }
    }

    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn add_all(&mut self, other: &Self) {
        self.files += other.files;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// Checks one checkpoint: a file, a checkpoint directory, or a root whose tracker file names the newest (DeepSpeed, Megatron-LM).
///
/// Costs one `stat` and a few small reads per file; only our own manifest reads every byte.
///
/// # Errors
/// The first [`Defect`] found, naming the file and what to do.
pub fn verify(path: &Path) -> Result<Verified, Defect> {
    let name = files::name(path);
    if files::is_temporary(name) {
        return Err(Defect::Temporary { path: path.into() });
    }
    let metadata = std::fs::metadata(path).map_err(|source| Defect::reading(path, source))?;
    if metadata.is_file() {
        return plain::verify_file(path);
    }
    if !metadata.is_dir() {
        return Err(Defect::UnknownFormat { path: path.into() });
    }
    // The manifest is asked for by name and before all else: a damaged manifest must never fall back to a weaker format.
    if std::fs::symlink_metadata(path.join(MANIFEST_NAME)).is_ok() {
        return manifest::verify(path);
    }
    let listing = Listing::read(path)?;
    match recognise(&listing) {
        Some(Format::Manifest) => manifest::verify(path),
        Some(Format::TorchDcp) => dcp::verify(&listing),
        Some(Format::Orbax) => orbax::verify(&listing),
        Some(Format::DeepSpeed) => deepspeed::verify(&listing),
        Some(Format::Megatron) => megatron::verify(&listing),
        Some(Format::MegatronDist) => megatron::verify_dist(&listing),
        Some(Format::HfTrainer) => trainer::verify(&listing),
        Some(Format::Safetensors) => plain::verify_safetensors(&listing),
        Some(Format::Torch) => plain::verify_torch(&listing),
        None if listing.is_empty() => Err(Defect::Empty { path: path.into() }),
        None => Err(Defect::UnknownFormat { path: path.into() }),
    }
}

/// Tells the format of a directory from the names in it. The order matters: a Trainer checkpoint may hold a DeepSpeed one, a
/// Megatron-LM `torch_dist` one always holds a DCP one, and nearly all hold torch or safetensors files.
fn recognise(listing: &Listing) -> Option<Format> {
    type Test = fn(&Listing) -> bool;
    let tests: [(Test, Format); 9] = [
        (|l| l.file(MANIFEST_NAME).is_some(), Format::Manifest),
        (orbax::matches, Format::Orbax),
        (trainer::matches, Format::HfTrainer),
        (megatron::matches_dist, Format::MegatronDist),
        (dcp::matches, Format::TorchDcp),
        (megatron::matches, Format::Megatron),
        (deepspeed::matches, Format::DeepSpeed),
        (plain::matches_safetensors, Format::Safetensors),
        (plain::matches_torch, Format::Torch),
    ];
    tests.into_iter().find(|(test, _)| test(listing)).map(|(_, format)| format)
}
