//! A fingerprint of a checkpoint from names, sizes and modification times: what a fence remembers to notice a late write.
//!
//! Every file is opened before its size is asked for: NFS promises fresh attributes on open only. A stale answer could only make a
//! good checkpoint look changed, which costs work, never trust. Content is not read: a rewrite to the same size within one tick of the
//! file system's clock (milliseconds, on some servers a second) is not seen, and modification times must survive a copy or restore.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Defect;
use super::files::{self, Listing};

const MAX_DEPTH: usize = 16;
const MAX_FILES: u64 = 200_000;

/// Fingerprints a checkpoint, in hex. `root` says that `path` also holds other checkpoints: numbered folders are then not part of it.
pub(super) fn fingerprint(path: &Path, root: bool) -> Result<String, Defect> {
    let mut seal = Seal { hasher: blake3::Hasher::new(), files: 0 };
    if fs::metadata(path).map_err(|source| Defect::reading(path, source))?.is_dir() {
        seal.add_directory(path, root, MAX_DEPTH)?;
    } else {
        seal.add_file(path)?;
    }
    Ok(seal.hasher.finalize().to_hex().to_string())
}

struct Seal {
    hasher: blake3::Hasher,
    files: u64,
}

impl Seal {
    fn add_directory(&mut self, dir: &Path, root: bool, depth: usize) -> Result<(), Defect> {
        let listing = Listing::read(dir)?;
        for (name, _) in listing.files() {
            if !(root && files::is_temporary(name)) {
                self.add_file(&listing.path(name))?;
            }
        }
        for name in listing.directories() {
            let other =
                files::attempt_of(name).is_some() || files::step_of(name).is_some() || files::is_temporary(name);
            if depth > 0 && !(root && other) {
                self.add_name(name);
                self.add_directory(&listing.path(name), false, depth - 1)?;
            }
        }
        // Closes the folder, so that moving a file up or down a level shows.
        self.hasher.update(b"/");
        Ok(())
    }

    fn add_file(&mut self, path: &Path) -> Result<(), Defect> {
        self.files += 1;
        if self.files > MAX_FILES {
            return Err(Defect::TooMany { path: path.into(), limit: MAX_FILES });
        }
        let (file, bytes) = files::open(path)?;
        let metadata = file.metadata().map_err(|source| Defect::reading(path, source))?;
        self.add_name(files::name(path));
        self.hasher.update(&bytes.to_le_bytes());
        self.hasher.update(&metadata.mtime().to_le_bytes());
        self.hasher.update(&metadata.mtime_nsec().to_le_bytes());
        Ok(())
    }

    fn add_name(&mut self, name: &str) {
        self.hasher.update(&(name.len() as u64).to_le_bytes());
        self.hasher.update(name.as_bytes());
    }
}
