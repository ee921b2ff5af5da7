//! Checkpoints: written whole or not at all, verified before use, announced after they are durable.
//!
//! A directory `step-NNNNNN.tmp-ATTEMPT-PID` receives the files, then the manifest `ganger-checkpoint.json` with every
//! size and blake3, all fsynced; a rename makes it `step-NNNNNN`. A reader therefore never meets a half checkpoint
//! under a final name, and a torn file fails its hash. Never overwrites a checkpoint that verifies and says the same.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::TrainError;
use super::model::{Model, PARAMETERS};
use super::report;
use super::settings::Settings;

const MANIFEST: &str = "ganger-checkpoint.json";
const VERSION: u32 = 1;
const FILES: [&str; 3] = ["parameters.f64", "momentum.f64", "progress.f64"];

/// All that training needs to go on: the model after `step` steps and the loss of the last of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    pub step: u64,
    pub loss: f64,
    pub model: Model,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    step: u64,
    files: Vec<Entry>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    path: String,
    bytes: u64,
    blake3: String,
}

impl Progress {
    /// Values in little-endian f64, in the order of [`FILES`]; the last holds step and loss.
    fn contents(&self) -> [Vec<u8>; 3] {
        [bytes_of(&self.model.parameters), bytes_of(&self.model.momentum), bytes_of(&[self.step as f64, self.loss])]
    }

    fn manifest(&self) -> Manifest {
        let entry = |(path, content): (&str, Vec<u8>)| Entry {
            path: path.into(),
            bytes: content.len() as u64,
            blake3: blake3::hash(&content).to_hex().to_string(),
        };
        let files = FILES.into_iter().zip(self.contents()).map(entry).collect();
        Manifest { version: VERSION, step: self.step, files }
    }

    /// A number that differs when the states differ, small enough to be exact in f64.
    pub fn fingerprint(&self) -> f64 {
        let mut hasher = blake3::Hasher::new();
        for content in self.contents() {
            hasher.update(&content);
        }
        hasher.finalize().as_bytes()[..6].iter().fold(0.0, |sum, byte| sum * 256.0 + f64::from(*byte))
    }
}

/// Reads and verifies a checkpoint.
///
/// # Errors
/// [`TrainError::Resume`] with the file and what is wrong with it. There is no fallback to step 0.
pub fn load(path: &Path) -> Result<Progress, TrainError> {
    read(path).map_err(|what| TrainError::Resume { path: path.into(), what })
}

fn read(path: &Path) -> Result<Progress, String> {
    let text = fs::read(path.join(MANIFEST)).map_err(|error| format!("{MANIFEST} cannot be read: {error}"))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|error| format!("{MANIFEST} is malformed: {error}"))?;
    if manifest.version != VERSION {
        return Err(format!("{MANIFEST} has version {}, this trainer reads {VERSION}", manifest.version));
    }
    let [parameters, momentum, progress] = FILES.map(|name| read_file(path, name, &manifest));
    let progress = sized(FILES[2], progress?, 2)?;
    if progress[0] != manifest.step as f64 {
        return Err(format!("{MANIFEST} says step {}, {} says {}", manifest.step, FILES[2], progress[0]));
    }
    let model = Model {
        parameters: sized(FILES[0], parameters?, PARAMETERS)?,
        momentum: sized(FILES[1], momentum?, PARAMETERS)?,
    };
    Ok(Progress { step: manifest.step, loss: progress[1], model })
}

fn read_file(dir: &Path, name: &str, manifest: &Manifest) -> Result<Vec<f64>, String> {
    let entry =
        manifest.files.iter().find(|entry| entry.path == name).ok_or(format!("{MANIFEST} does not list {name}"))?;
    let content = fs::read(dir.join(name)).map_err(|error| format!("{name} cannot be read: {error}"))?;
    if content.len() as u64 != entry.bytes {
        return Err(format!("{name} has {} bytes, its manifest says {}", content.len(), entry.bytes));
    }
    if blake3::hash(&content).to_hex().as_str() != entry.blake3 {
        return Err(format!("{name} does not have the hash that its manifest says"));
    }
    Ok(content.chunks(8).map(|chunk| chunk.try_into().map_or(f64::NAN, f64::from_le_bytes)).collect())
}

fn sized(name: &str, values: Vec<f64>, expected: usize) -> Result<Vec<f64>, String> {
    if values.len() == expected && values.iter().all(|value| value.is_finite()) {
        return Ok(values);
    }
    Err(format!("{name} holds {} values, this model needs {expected} finite ones", values.len()))
}

/// Writes checkpoints of one attempt below one directory.
pub struct Writer {
    dir: PathBuf,
    ack: Option<PathBuf>,
    tag: String,
    newest: Option<u64>,
}

impl Writer {
    /// `None` where GANGER_CHECKPOINT_DIR is unset.
    pub fn open(settings: &Settings) -> Result<Option<Self>, TrainError> {
        let Some(dir) = &settings.checkpoint_dir else { return Ok(None) };
        let prepare = || fs::create_dir_all(dir).and_then(|()| std::path::absolute(dir));
        let dir = prepare().map_err(TrainError::io(|| format!("create the checkpoint directory {}", dir.display())))?;
        let tag = format!("tmp-{}-{}", settings.attempt, std::process::id());
        Ok(Some(Self { dir, ack: settings.checkpoint_ack.clone(), tag, newest: None }))
    }

    /// Makes the checkpoint durable, then announces it. Writing the same step twice is one checkpoint.
    pub fn save(&mut self, progress: &Progress) -> Result<(), TrainError> {
        if self.newest == Some(progress.step) {
            return Ok(());
        }
        let path = self.dir.join(format!("step-{:06}", progress.step));
        self.write(progress, &path).map_err(TrainError::io(|| format!("write the checkpoint {}", path.display())))?;
        self.newest = Some(progress.step);
        self.announce(progress.step, &path)
    }

    fn write(&self, progress: &Progress, path: &Path) -> io::Result<()> {
        if read(path).is_ok_and(|found| found == *progress) {
            return Ok(());
        }
        let temporary = path.with_extension(&self.tag);
        // Of this attempt and process: only this rank in an earlier container can have left it.
        if temporary.exists() {
            fs::remove_dir_all(&temporary)?;
        }
        fs::create_dir(&temporary)?;
        for (name, content) in FILES.into_iter().zip(progress.contents()) {
            write_durably(&temporary.join(name), &content)?;
        }
        write_durably(&temporary.join(MANIFEST), &serde_json::to_vec(&progress.manifest())?)?;
        File::open(&temporary)?.sync_all()?;
        self.put_in_place(&temporary, path)?;
        File::open(&self.dir)?.sync_all()
    }

    /// Renames; what stood there before (a torn or a different checkpoint of that step) is moved out first, because a
    /// directory cannot be renamed onto one that is not empty.
    fn put_in_place(&self, temporary: &Path, path: &Path) -> io::Result<()> {
        if !path.exists() {
            return fs::rename(temporary, path);
        }
        let replaced = path.with_extension(format!("{}-replaced", self.tag));
        fs::rename(path, &replaced)?;
        fs::rename(temporary, path)?;
        fs::remove_dir_all(&replaced)
    }

    fn announce(&self, step: u64, path: &Path) -> Result<(), TrainError> {
        let Some(ack) = &self.ack else { return Ok(()) };
        let text = format!("CHECKPOINT {step} {}\n", path.display());
        report::append(ack)?
            .write_all(text.as_bytes())
            .map_err(TrainError::io(|| format!("announce the checkpoint in {}", ack.display())))
    }
}

fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn bytes_of(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(step: u64) -> Progress {
        Progress { step, loss: 0.25, model: Model::new(step) }
    }

    fn writer(name: &str) -> Writer {
        let dir = std::env::temp_dir().join(format!("ganger-example-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        Writer { ack: Some(dir.join("ack")), dir, tag: "tmp-1-1".into(), newest: None }
    }

    #[test]
    fn what_was_saved_is_loaded_and_announced_once() {
        let mut writer = writer("saved");
        let path = writer.dir.join("step-000007");
        writer.save(&progress(7)).unwrap();
        writer.save(&progress(7)).unwrap();
        assert_eq!(load(&path).unwrap(), progress(7));
        let announced = fs::read_to_string(writer.dir.join("ack")).unwrap();
        assert_eq!(announced, format!("CHECKPOINT 7 {}\n", path.display()));
        assert_eq!(fs::read_dir(&writer.dir).unwrap().count(), 2, "a temporary name is left");
        fs::remove_dir_all(&writer.dir).unwrap();
    }

    #[test]
    fn any_damage_is_refused_and_replaced_by_the_next_save() {
        let mut writer = writer("damage");
        let path = writer.dir.join("step-000007");
        for name in FILES.into_iter().chain([MANIFEST]) {
            writer.newest = None;
            writer.save(&progress(7)).unwrap();
            let whole = fs::read(path.join(name)).unwrap();
            fs::write(path.join(name), &whole[..whole.len() - 1]).unwrap();
            assert!(matches!(load(&path), Err(TrainError::Resume { .. })), "{name} cut short was taken");
            let mut flipped = whole.clone();
            flipped[whole.len() / 2] ^= 1;
            fs::write(path.join(name), &flipped).unwrap();
            assert!(matches!(load(&path), Err(TrainError::Resume { .. })), "a flipped bit in {name} was taken");
            fs::remove_file(path.join(name)).unwrap();
            assert!(matches!(load(&path), Err(TrainError::Resume { .. })), "a missing {name} was taken");
        }
        writer.newest = None;
        writer.save(&progress(7)).unwrap();
        assert_eq!(load(&path).unwrap(), progress(7));
        fs::remove_dir_all(&writer.dir).unwrap();
    }
}
