//! Records: what this agent knows of a unit, on disk, so that it starts nothing twice over a restart.
//!
//! `unit.json` in the unit's directory is written before `Prepared` is reported, and again before its keeper is started.
//! It outlives any process; after a power cut nothing of before lives, and it is removed.
use crate::states;
use crate::unit::{Member, UnitKey};
use ganger_core::model::wire::agent::Launch;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub key: UnitKey,
    pub launch: Arc<Launch>,
    pub members: Vec<Member>,
    /// The rendezvous port that was found free.
    pub port: u16,
    /// A keeper was or is being started.
    pub started: bool,
}

impl Record {
    /// Where the file lies in a unit's directory.
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("unit.json")
    }

    /// Writes `DIR/unit.json`.
    ///
    /// # Errors
    /// Why it cannot be written, for people.
    pub fn save(&self, dir: &Path) -> Result<(), String> {
        let path = Record::path(dir);
        states::add(&path, self).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Reads `DIR/unit.json`.
    ///
    /// # Errors
    /// Why it cannot be read, for people.
    pub fn load(dir: &Path) -> Result<Record, String> {
        let path = Record::path(dir);
        states::newest(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    }
}

/// Where the files of an agent lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    pub fn new(root: &Path) -> Layout {
        Layout { root: root.to_path_buf() }
    }

    /// Makes the directories. Others may pass through them to files of their own, but not list them.
    ///
    /// # Errors
    /// A directory cannot be made.
    pub fn create(&self) -> std::io::Result<()> {
        [self.root.clone(), self.workers(), self.logs()].iter().try_for_each(|dir| pass(dir))
    }

    /// Removes all that is known of units; their logs stay.
    ///
    /// # Errors
    /// Something cannot be removed.
    pub fn forget_workers(&self) -> std::io::Result<()> {
        std::fs::remove_dir_all(self.workers())?;
        pass(&self.workers())
    }

    pub fn lock(&self) -> PathBuf {
        self.root.join("agent.lock")
    }

    pub fn journal(&self) -> PathBuf {
        self.root.join("journal")
    }

    pub fn contact(&self) -> PathBuf {
        self.root.join("contact.json")
    }

    pub fn workers(&self) -> PathBuf {
        self.root.join("workers")
    }

    pub fn worker(&self, key: UnitKey) -> PathBuf {
        self.workers().join(key.to_string())
    }

    /// A file that the rank and the agent write for each other. It lies beside the log and goes with it: a directory of its
    /// own for each would cost a node more than writing the file.
    pub fn exchange(&self, key: UnitKey, name: &str) -> PathBuf {
        self.log(key, key.lead.0).with_extension(name)
    }

    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// The log of a rank: `logs/<job>.<attempt>.<rank>.log`. No directory for each job: making those costs a node more than
    /// writing a short log.
    pub fn log(&self, key: UnitKey, rank: u32) -> PathBuf {
        self.logs().join(format!("{}.{}.{rank}.log", key.job, key.attempt))
    }
}

/// Makes a directory that others may pass but not list.
pub(crate) fn pass(dir: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
    std::fs::DirBuilder::new().recursive(true).mode(0o711).create(dir)?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o711))
}
