//! `launch.json`: the complete order to run one worker, written by the agent, read by its keeper.
//!
//! Everything is in it (environment, identity, limits), so that a keeper asks nobody. It is checked whole before
//! anything starts. It may hold secrets in `env`: mode 0600, never printed.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{KeeperError, cpulist};
use crate::states;

/// One worker to run. Amounts are in the unit of their name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchFile {
    pub job: u64,
    pub attempt: u32,
    pub rank: u32,
    /// The program (looked up in the `PATH` of `env`) and its arguments.
    pub command: Vec<String>,
    /// The complete environment: nothing is inherited.
    pub env: BTreeMap<String, String>,
    /// Absolute; entered as the worker's user.
    pub workdir: PathBuf,
    /// User to run as; `None` is the keeper's own. With `uid`, `gid` is needed too.
    #[serde(default)]
    pub uid: Option<u32>,
    #[serde(default)]
    pub gid: Option<u32>,
    /// Supplementary groups; `None` with a `uid` means no other than `gid`.
    #[serde(default)]
    pub groups: Option<Vec<u32>>,
    /// CPUs to pin to, as a cpulist (`0-3,8`). CPUs that the machine lacks are recorded as not applied.
    #[serde(default)]
    pub cpus: Option<String>,
    /// Memory limit of the whole tree, in bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// The file that stdout and stderr are appended to.
    pub log: PathBuf,
    /// Relative cgroup path below the keeper's own cgroup, unique to this worker, e.g. `ganger/7.0.3`.
    pub cgroup: String,
    /// When the worker must be gone, in milliseconds of `CLOCK_BOOTTIME`; `None` is no lease.
    #[serde(default)]
    pub lease_deadline_boottime_ms: Option<u64>,
    /// Give the worker a terminal instead of a pipe.
    #[serde(default)]
    pub pty: bool,
}

impl LaunchFile {
    /// Where the file lies in a worker's directory.
    #[must_use]
    pub fn path(dir: &Path) -> PathBuf {
        dir.join("launch.json")
    }

    /// Checks the order and writes it to `DIR/launch.json`, mode 0600. Not synced: a worker that a power cut stopped is
    /// never started from it.
    ///
    /// # Errors
    /// The field that is wrong, or the file that could not be written.
    pub fn write(&self, dir: &Path) -> Result<(), KeeperError> {
        self.check()?;
        let path = Self::path(dir);
        states::add(&path, self).map_err(KeeperError::file("write", &path))
    }

    /// Reads and checks `DIR/launch.json`.
    ///
    /// # Errors
    /// The file that could not be read, or the field that is wrong.
    pub fn read(dir: &Path) -> Result<Self, KeeperError> {
        let path = Self::path(dir);
        let file: Self = states::newest(&path).map_err(KeeperError::file("read", &path))?;
        file.check()?;
        Ok(file)
    }

    fn check(&self) -> Result<(), KeeperError> {
        let refuse = |field, problem: &str| Err(KeeperError::Launch { field, problem: problem.to_owned() });
        if self.command.first().is_none_or(String::is_empty) {
            return refuse("command", "is empty; name a program");
        }
        if self.command.iter().any(|word| word.contains('\0')) {
            return refuse("command", "holds a NUL character");
        }
        check_env(&self.env)?;
        if !self.workdir.is_absolute() {
            return refuse("workdir", "must be an absolute path");
        }
        if self.uid.is_some() != self.gid.is_some() {
            return refuse("gid", "and `uid` go together: give both or none");
        }
        if self.groups.is_some() && self.uid.is_none() {
            return refuse("groups", "needs `uid` and `gid`");
        }
        if self.cgroup.is_empty() || !Path::new(&self.cgroup).components().all(|c| matches!(c, Component::Normal(_))) {
            return refuse("cgroup", "must be a relative path without `..`");
        }
        if let Some(cpus) = &self.cpus {
            cpulist::parse(cpus).map_err(|problem| KeeperError::Launch { field: "cpus", problem })?;
        }
        Ok(())
    }
}

/// Refuses names and values that the kernel cannot carry.
pub(crate) fn check_env(env: &BTreeMap<String, String>) -> Result<(), KeeperError> {
    let bad =
        |(name, value): &(&String, &String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
    match env.iter().find(bad) {
        None => Ok(()),
        Some((name, _)) => {
            let problem = format!("has the entry {name:?}, whose name is empty or holds `=`, or which holds a NUL");
            Err(KeeperError::Launch { field: "env", problem })
        }
    }
}

#[cfg(test)]
impl LaunchFile {
    /// One that is accepted.
    pub(super) fn sample() -> LaunchFile {
        LaunchFile {
            job: 7,
            attempt: 0,
            rank: 3,
            command: vec!["true".into()],
            env: BTreeMap::new(),
            workdir: "/".into(),
            uid: None,
            gid: None,
            groups: None,
            cpus: Some("0-1".into()),
            memory_bytes: None,
            log: "/tmp/log".into(),
            cgroup: "ganger/7.0.3".into(),
            lease_deadline_boottime_ms: None,
            pty: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> LaunchFile {
        LaunchFile::sample()
    }

    fn refused_field(file: &LaunchFile) -> &'static str {
        match file.check() {
            Err(KeeperError::Launch { field, .. }) => field,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn refuses_the_field_that_is_wrong() {
        assert!(sample().check().is_ok());
        assert_eq!(refused_field(&LaunchFile { command: vec![], ..sample() }), "command");
        assert_eq!(refused_field(&LaunchFile { workdir: "run".into(), ..sample() }), "workdir");
        assert_eq!(refused_field(&LaunchFile { uid: Some(1), ..sample() }), "gid");
        assert_eq!(refused_field(&LaunchFile { cgroup: "../x".into(), ..sample() }), "cgroup");
        assert_eq!(refused_field(&LaunchFile { cgroup: "/x".into(), ..sample() }), "cgroup");
        assert_eq!(refused_field(&LaunchFile { cpus: Some("x".into()), ..sample() }), "cpus");
        assert_eq!(refused_field(&LaunchFile { env: [("A=B".into(), String::new())].into(), ..sample() }), "env");
    }
}
