//! Our own manifest, `ganger-checkpoint.json`: `{version, step, files: [{path, bytes, blake3}]}`, written last.
//!
//! It is the only format that proves content: every listed file must have its size and its BLAKE3 hash. The writer makes the data
//! durable before the manifest appears (fsync of each file and folder, then temporary name, fsync, rename), so a manifest never
//! outlives data that a power cut took. It ends in `}` without a line feed: cut anywhere, it is no longer JSON.
//! A listed path may not leave the directory, not by `..`, not by a symbolic link.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files;
use super::{Defect, Format, Verified};

/// The manifest's name inside its checkpoint directory.
pub const MANIFEST_NAME: &str = "ganger-checkpoint.json";
const VERSION: u32 = 1;
const MAX_FILES: usize = 200_000;
const MAX_DEPTH: usize = 16;
const CHUNK_BYTES: usize = 1 << 20;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    version: u32,
    step: u64,
    files: Vec<Entry>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    path: String,
    bytes: u64,
    blake3: String,
}

/// Why no manifest was written. The directory is as it was.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("cannot write the manifest of {}: {}: {source}; check permissions and free space, then announce again", dir.display(), path.display())]
    Io { dir: PathBuf, path: PathBuf, source: io::Error },
    #[error("cannot write the manifest of {}: {} {problem}", dir.display(), path.display())]
    Refused { dir: PathBuf, path: PathBuf, problem: &'static str },
    #[error("cannot write the manifest of {}: it holds no file; save the checkpoint first", dir.display())]
    Empty { dir: PathBuf },
    #[error("cannot seal {}: there is no such directory; save the checkpoint into it first", dir.display())]
    Missing { dir: PathBuf },
    #[error("cannot seal {}: it is no directory; save the checkpoint's files into one of their own and seal that", dir.display())]
    NoDirectory { dir: PathBuf },
    #[error("cannot seal {} for step {step}: it is sealed for step {sealed} already; save each step into a directory of its own", dir.display())]
    Sealed { dir: PathBuf, sealed: u64, step: u64 },
}

/// As [`write_manifest`], but refuses what a program that seals its own save cannot mean. Sealing again for the same step is fine: a
/// save that is repeated after a crash does that.
///
/// # Errors
/// [`ManifestError`]: as there, or `dir` is no directory or sealed for another step.
pub fn seal(dir: &Path, step: u64) -> Result<Verified, ManifestError> {
    let owned = || dir.to_path_buf();
    match fs::metadata(dir) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(ManifestError::NoDirectory { dir: owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(ManifestError::Missing { dir: owned() }),
        Err(source) => return Err(ManifestError::Io { dir: owned(), path: owned(), source }),
    }
    match peek_step(dir) {
        Some(sealed) if sealed != step => Err(ManifestError::Sealed { dir: owned(), sealed, step }),
        _ => write_manifest(dir, step),
    }
}

/// Hashes every file below `dir` and writes its manifest. Call it when the save is complete; unfinished names are left out.
///
/// # Errors
/// [`ManifestError`]: a file could not be read or made durable, is a symbolic link or no regular file, or has a name that is not UTF-8.
pub fn write_manifest(dir: &Path, step: u64) -> Result<Verified, ManifestError> {
    let mut paths = Vec::new();
    collect(dir, dir, MAX_DEPTH, &mut paths)?;
    if paths.is_empty() {
        return Err(ManifestError::Empty { dir: dir.into() });
    }
    paths.sort();
    let entries = paths.into_iter().map(|path| describe(dir, path)).collect::<Result<Vec<_>, _>>()?;
    let mut verified = Verified::new(Format::Manifest, Some(step));
    entries.iter().for_each(|entry| verified.add(entry.bytes));
    let manifest = Manifest { version: VERSION, step, files: entries };
    let io = |source| ManifestError::Io { dir: dir.into(), path: dir.join(MANIFEST_NAME), source };
    let content = serde_json::to_vec_pretty(&manifest).map_err(|error| io(error.into()))?;
    files::replace(dir, MANIFEST_NAME, &content).map_err(io)?;
    verified.digest = Some(blake3::hash(&content).to_hex().to_string());
    Ok(verified)
}

/// Collects relative paths depth first and makes each folder durable on the way.
fn collect(root: &Path, dir: &Path, depth: usize, paths: &mut Vec<String>) -> Result<(), ManifestError> {
    let io = |path: &Path, source| ManifestError::Io { dir: root.into(), path: path.into(), source };
    let refused = |path: &Path, problem| ManifestError::Refused { dir: root.into(), path: path.into(), problem };
    if depth == 0 {
        return Err(refused(dir, "is nested too deep; write a flatter checkpoint"));
    }
    for entry in fs::read_dir(dir).map_err(|source| io(dir, source))? {
        let path = entry.map_err(|source| io(dir, source))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            return Err(refused(&path, "has a name that is not UTF-8; rename it"));
        };
        if name == MANIFEST_NAME && dir == root || files::is_temporary(name) {
            continue;
        }
        let kind = fs::symlink_metadata(&path).map_err(|source| io(&path, source))?.file_type();
        if kind.is_dir() {
            collect(root, &path, depth - 1, paths)?;
        } else if !kind.is_file() {
            return Err(refused(&path, "is no regular file; store the file itself in the checkpoint"));
        } else if paths.len() >= MAX_FILES {
            return Err(refused(&path, "is one file too many for one checkpoint"));
        } else if let Some(relative) = path.strip_prefix(root).ok().and_then(Path::to_str) {
            paths.push(relative.to_owned());
        }
    }
    files::sync_directory(dir).map_err(|source| io(dir, source))
}

fn describe(dir: &Path, path: String) -> Result<Entry, ManifestError> {
    let full = dir.join(&path);
    let described = File::open(&full).and_then(|mut file| {
        let hashed = hash(&mut file)?;
        file.sync_all()?;
        Ok(hashed)
    });
    let (bytes, blake3) = described.map_err(|source| ManifestError::Io { dir: dir.into(), path: full, source })?;
    Ok(Entry { path, bytes, blake3 })
}

fn hash(file: &mut File) -> io::Result<(u64, String)> {
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok((bytes, hasher.finalize().to_hex().to_string())),
            Ok(read) => {
                hasher.update(&chunk[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The step that a directory's manifest states, read without checking any file: for ordering only.
pub(super) fn peek_step(dir: &Path) -> Option<u64> {
    read(&dir.join(MANIFEST_NAME)).ok().map(|(manifest, _)| manifest.step)
}

fn read(path: &Path) -> Result<(Manifest, String), Defect> {
    let content = files::read_small(path)?;
    let manifest: Manifest = serde_json::from_slice(&content)
        .map_err(|error| Defect::malformed(path, format!("not a manifest ({error})")))?;
    if manifest.version != VERSION {
        return Err(Defect::malformed(
            path,
            format!("version {} is not {VERSION}, the one known here", manifest.version),
        ));
    }
    Ok((manifest, blake3::hash(&content).to_hex().to_string()))
}

/// Verifies a directory against its manifest: all names first, then all sizes, then all hashes, so that a cut-off file costs no reading.
pub(super) fn verify(dir: &Path) -> Result<Verified, Defect> {
    let path = dir.join(MANIFEST_NAME);
    let (manifest, digest) = read(&path)?;
    if manifest.files.is_empty() || manifest.files.len() > MAX_FILES {
        return Err(Defect::malformed(&path, format!("lists {} files", manifest.files.len())));
    }
    check_names(&path, &manifest.files)?;
    let root = fs::canonicalize(dir).map_err(|source| Defect::reading(dir, source))?;
    for entry in &manifest.files {
        check_place(&path, &root, entry)?;
        check_size(&dir.join(&entry.path), entry.bytes)?;
    }
    let mut verified = Verified::new(Format::Manifest, Some(manifest.step));
    for entry in &manifest.files {
        check_content(&dir.join(&entry.path), entry)?;
        verified.add(entry.bytes);
    }
    verified.digest = Some(digest);
    Ok(verified)
}

fn check_names(manifest: &Path, entries: &[Entry]) -> Result<(), Defect> {
    let mut seen = BTreeSet::new();
    for entry in entries {
        let listed = Path::new(&entry.path);
        let plain = listed.components().all(|part| matches!(part, Component::Normal(_)));
        // Comparing with the rebuilt path refuses `a//b`, `./a` and `a/`, which would let one file be listed under two names.
        let rebuilt: PathBuf = listed.components().collect();
        let problem = if entry.path.is_empty() || !plain || rebuilt.as_os_str() != listed.as_os_str() {
            "is not a plain relative path inside the directory"
        } else if !seen.insert(&entry.path) {
            "is listed twice"
        } else if entry.path == MANIFEST_NAME {
            "is the manifest itself"
        } else {
            continue;
        };
        return Err(Defect::BadListing { manifest: manifest.into(), listed: entry.path.clone(), problem });
    }
    Ok(())
}

fn check_place(manifest: &Path, root: &Path, entry: &Entry) -> Result<(), Defect> {
    let file = root.join(&entry.path);
    let real = fs::canonicalize(&file).map_err(|source| missing(&file, source))?;
    if real.starts_with(root) {
        return Ok(());
    }
    let problem = "is a symbolic link out of the directory";
    Err(Defect::BadListing { manifest: manifest.into(), listed: entry.path.clone(), problem })
}

fn missing(file: &Path, source: io::Error) -> Defect {
    match source.kind() {
        io::ErrorKind::NotFound => Defect::MissingFile { file: file.into(), named_by: MANIFEST_NAME.into() },
        _ => Defect::reading(file, source),
    }
}

fn check_size(file: &Path, expected: u64) -> Result<(), Defect> {
    let (_, bytes) = files::open(file)?;
    size_matches(file, bytes, expected)
}

fn size_matches(file: &Path, bytes: u64, expected: u64) -> Result<(), Defect> {
    let reference = "what its manifest lists";
    match bytes.cmp(&expected) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => {
            Err(Defect::Short { file: file.into(), missing_bytes: expected - bytes, reference })
        }
        std::cmp::Ordering::Greater => {
            Err(Defect::Long { file: file.into(), extra_bytes: bytes - expected, reference })
        }
    }
}

fn check_content(path: &Path, entry: &Entry) -> Result<(), Defect> {
    let (mut file, _) = files::open(path)?;
    let (bytes, blake3) = hash(&mut file).map_err(|source| Defect::reading(path, source))?;
    size_matches(path, bytes, entry.bytes)?;
    if blake3.eq_ignore_ascii_case(&entry.blake3) { Ok(()) } else { Err(Defect::HashMismatch { file: path.into() }) }
}
