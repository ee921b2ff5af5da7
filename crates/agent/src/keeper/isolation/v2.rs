//! cgroup v2, also the one that a hybrid machine mounts beside v1: `cgroup.kill` ends all inside at once.

use std::io;
use std::path::{Path, PathBuf};

use super::{CGROUP_V2_MAGIC, Isolation, IsolationKind, create_below_own, processes_below};

pub(super) struct CgroupV2 {
    dir: PathBuf,
}

impl CgroupV2 {
    pub(super) fn create(root: &Path, name: &str) -> Result<Self, String> {
        let mount = [root.to_path_buf(), root.join("unified")]
            .into_iter()
            .find(|mount| super::mount_type(mount) == Some(CGROUP_V2_MAGIC))
            .ok_or_else(|| format!("not mounted under {}", root.display()))?;
        create_below_own(&mount, CGROUP_V2_MAGIC, "", name).map(Self::at)
    }

    pub(super) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }
}

impl Isolation for CgroupV2 {
    fn kind(&self) -> IsolationKind {
        IsolationKind::CgroupV2
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.dir)
    }

    fn processes(&self) -> Vec<i32> {
        processes_below(&self.dir)
    }

    /// Kernels before 5.14 lack the file; there the caller's kill of each process must do.
    fn kill(&self) -> io::Result<()> {
        std::fs::write(self.dir.join("cgroup.kill"), "1")
    }
}
