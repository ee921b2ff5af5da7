//! cgroup v1: the freezer holds all inside still while each is killed, so that none forks away. Where it is not
//! mounted, the pids hierarchy at least lists them.

use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::super::proc;
use super::{CGROUP_V1_MAGIC, Isolation, IsolationKind, create_below_own, processes_below};

pub(super) struct CgroupV1 {
    dir: PathBuf,
}

impl CgroupV1 {
    pub(super) fn create(root: &Path, name: &str) -> Result<Self, String> {
        let below = |controller: &str| create_below_own(&root.join(controller), CGROUP_V1_MAGIC, controller, name);
        below("freezer").or_else(|freezer| below("pids").map_err(|pids| format!("{freezer}; {pids}"))).map(Self::at)
    }

    pub(super) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn freeze(&self, state: &str) -> io::Result<()> {
        let file = self.dir.join("freezer.state");
        if file.exists() { std::fs::write(file, state) } else { Ok(()) }
    }
}

impl Isolation for CgroupV1 {
    fn kind(&self) -> IsolationKind {
        IsolationKind::CgroupV1
    }

    fn directory(&self) -> Option<&Path> {
        Some(&self.dir)
    }

    fn processes(&self) -> Vec<i32> {
        processes_below(&self.dir)
    }

    /// A frozen process takes its SIGKILL when it thaws, so the thaw must follow whatever happened before.
    fn kill(&self) -> io::Result<()> {
        let frozen = self.freeze("FROZEN");
        for stat in self.processes().into_iter().filter_map(proc::stat) {
            proc::signal(stat.id, Signal::KILL);
        }
        self.freeze("THAWED").and(frozen)
    }
}
