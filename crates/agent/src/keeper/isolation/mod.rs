//! Holds a worker's tree together so that it can be ended whole: cgroup v2, else v1, else the process tree alone.
//!
//! A back end is chosen by the file-system type of the mount (statfs), never because a folder exists: an ordinary
//! folder under `/sys/fs/cgroup` looks the same and holds nothing.

mod memory;
mod tree;
mod v1;
mod v2;

use std::io;
use std::path::{Path, PathBuf};

use super::state::{IsolationKind, NotApplied};

/// Where Linux mounts cgroups.
pub(crate) const CGROUP_ROOT: &str = "/sys/fs/cgroup";
const CGROUP_V1_MAGIC: i64 = 0x0027_e0eb;
const CGROUP_V2_MAGIC: i64 = 0x6367_7270;

/// One way to hold a tree together.
pub(crate) trait Isolation {
    fn kind(&self) -> IsolationKind;
    /// The directory of the cgroup, if there is one.
    fn directory(&self) -> Option<&Path>;
    /// Process numbers inside, zombies possibly included.
    fn processes(&self) -> Vec<i32>;
    /// Kills everything inside; the caller repeats it until nothing is left.
    fn kill(&self) -> io::Result<()>;
}

/// Everything that holds and limits one worker.
pub(crate) struct Isolated {
    pub tree: Box<dyn Isolation>,
    memory: Option<PathBuf>,
    pub not_applied: Vec<NotApplied>,
}

impl Isolated {
    /// Makes the cgroups named `name` below the caller's own. What this machine cannot do is recorded, not an error.
    ///
    /// # Errors
    /// The cgroup holds processes already: another copy of the worker may live.
    pub(crate) fn create(name: &str, memory_bytes: Option<u64>) -> Result<Self, String> {
        let mut not_applied = Vec::new();
        let tree = choose(Path::new(CGROUP_ROOT), name).unwrap_or_else(|why| {
            not_applied.push(NotApplied { what: "cgroup".into(), why });
            Box::new(tree::ProcessTree)
        });
        if let (Some(dir), [_, ..]) = (tree.directory(), tree.processes().as_slice()) {
            return Err(format!("the cgroup {} already holds processes; end them first", dir.display()));
        }
        let v2 = tree.directory().filter(|_| tree.kind() == IsolationKind::CgroupV2);
        let memory = memory_bytes.and_then(|bytes| {
            memory::limit(Path::new(CGROUP_ROOT), name, bytes, v2).unwrap_or_else(|why| {
                not_applied.push(NotApplied { what: "memory".into(), why });
                None
            })
        });
        Ok(Self { tree, memory, not_applied })
    }

    /// The directories, the one that ends the tree first.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        self.tree.directory().map(Path::to_path_buf).into_iter().chain(self.memory.clone()).collect()
    }

    /// Removes the empty cgroups.
    pub(crate) fn remove(&self) {
        self.directories().iter().for_each(|dir| remove(dir));
    }
}

/// The back end for a cgroup that a keeper, dead since, had made.
pub(crate) fn reopen(dir: &Path) -> Option<Box<dyn Isolation>> {
    match mount_type(dir)? {
        CGROUP_V2_MAGIC => Some(Box::new(v2::CgroupV2::at(dir.to_path_buf()))),
        CGROUP_V1_MAGIC => Some(Box::new(v1::CgroupV1::at(dir.to_path_buf()))),
        _ => None,
    }
}

fn choose(root: &Path, name: &str) -> Result<Box<dyn Isolation>, String> {
    let v2 = match v2::CgroupV2::create(root, name) {
        Ok(group) => return Ok(Box::new(group)),
        Err(why) => why,
    };
    match v1::CgroupV1::create(root, name) {
        Ok(group) => Ok(Box::new(group)),
        Err(v1) => Err(format!("v2: {v2}; v1: {v1}")),
    }
}

fn mount_type(path: &Path) -> Option<i64> {
    #[allow(clippy::unnecessary_cast, reason = "the type differs between architectures")]
    rustix::fs::statfs(path).ok().map(|stat| stat.f_type as i64)
}

/// Creates `name` below the caller's own cgroup of the hierarchy mounted at `mount`. Each directory is checked to be
/// of the cgroup file system.
fn create_below_own(mount: &Path, magic: i64, controller: &str, name: &str) -> Result<PathBuf, String> {
    if mount_type(mount) != Some(magic) {
        return Err(format!("{} is no mount of that hierarchy", mount.display()));
    }
    let membership = std::fs::read_to_string("/proc/self/cgroup").map_err(|e| format!("/proc/self/cgroup: {e}"))?;
    let own = own_path(&membership, controller).ok_or("this process is in no cgroup of that hierarchy")?;
    let mut dir = mount.join(own.trim_start_matches('/'));
    for part in Path::new(name).components() {
        if mount_type(&dir) != Some(magic) {
            return Err(format!("{} is not visible here", dir.display()));
        }
        dir.push(part);
        match std::fs::create_dir(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(format!("{}: {error}", dir.display()));
            }
            _ => {}
        }
    }
    Ok(dir)
}

/// The caller's path in one hierarchy, from `/proc/self/cgroup`; the controller of v2 is the empty name.
fn own_path<'a>(membership: &'a str, controller: &str) -> Option<&'a str> {
    membership.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        (controllers.split(',').any(|name| name == controller) && !path.contains("..")).then_some(path)
    })
}

/// Process numbers in a cgroup and all those below it: a worker may have made its own.
fn processes_below(dir: &Path) -> Vec<i32> {
    let listed = std::fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<i32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
    subdirectories(dir).iter().for_each(|below| found.extend(processes_below(below)));
    found
}

fn remove(dir: &Path) {
    subdirectories(dir).iter().for_each(|below| remove(below));
    // Left behind when a stuck process is still inside; the state names it.
    let _ = std::fs::remove_dir(dir);
}

fn subdirectories(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_own_path_of_each_hierarchy() {
        let text = "9:name=systemd:/\n5:cpu,memory:/box/a:b\n3:pids:/../up\n0::/user.slice\n";
        assert_eq!(own_path(text, ""), Some("/user.slice"));
        assert_eq!(own_path(text, "memory"), Some("/box/a:b"));
        assert_eq!(own_path(text, "freezer"), None);
        assert_eq!(own_path(text, "pids"), None, "a path outside the namespace cannot be used");
    }

    #[test]
    fn ordinary_folders_are_never_taken_for_cgroups() {
        let root = std::env::temp_dir().join(format!("ganger-not-cgroup-{}", std::process::id()));
        for folder in ["unified", "freezer", "pids", "memory"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        assert!(choose(&root, "ganger/x").is_err());
        assert!(memory::limit(&root, "ganger/x", 1 << 20, None).is_err());
        assert!(!root.join("unified/ganger").exists() && !root.join("ganger").exists());
        std::fs::remove_dir_all(&root).unwrap();
    }

    fn sleeper_in(dir: &Path) -> std::process::Child {
        let child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        std::fs::write(dir.join("cgroup.procs"), child.id().to_string()).unwrap();
        child
    }

    /// Both back ends on the machine's own hierarchies, where it has them and lets us.
    #[test]
    fn each_available_back_end_ends_what_is_inside() {
        let name = format!("ganger-test-{}", std::process::id());
        let root = Path::new(CGROUP_ROOT);
        let v2 = v2::CgroupV2::create(root, &name).map(|g| Box::new(g) as Box<dyn Isolation>);
        let v1 = v1::CgroupV1::create(root, &name).map(|g| Box::new(g) as Box<dyn Isolation>);
        for group in [v2, v1] {
            match group {
                Err(why) => eprintln!("skipped: {why}"),
                Ok(group) => {
                    let dir = group.directory().unwrap().to_path_buf();
                    let mut child = sleeper_in(&dir);
                    assert_eq!(group.processes(), [i32::try_from(child.id()).unwrap()]);
                    group.kill().unwrap();
                    use std::os::unix::process::ExitStatusExt;
                    assert_eq!(child.wait().unwrap().signal(), Some(9));
                    assert!(reopen(&dir).is_some_and(|again| again.kind() == group.kind()));
                    remove(&dir);
                    assert!(!dir.exists());
                }
            }
        }
    }
}
