//! The memory limit of a worker's tree: `memory.max` where the v2 controller is free, else the v1 memory hierarchy.

use std::path::{Path, PathBuf};

use super::{CGROUP_V1_MAGIC, create_below_own};

/// Puts the limit in force. Returns the further cgroup to join, if one was needed; the error says why none is in force.
pub(super) fn limit(root: &Path, name: &str, bytes: u64, v2: Option<&Path>) -> Result<Option<PathBuf>, String> {
    let first = match v2.map(|dir| limit_v2(dir, name, bytes)) {
        Some(Ok(())) => return Ok(None),
        Some(Err(why)) => why,
        None => "no v2 cgroup".to_owned(),
    };
    limit_v1(root, name, bytes).map(Some).map_err(|why| format!("v2: {first}; v1: {why}"))
}

fn limit_v2(dir: &Path, name: &str, bytes: u64) -> Result<(), String> {
    // From the keeper's own cgroup down; where it is refused (processes inside, not delegated) the file below is
    // missing, and that is what counts.
    let depth = Path::new(name).components().count();
    let above: Vec<&Path> = dir.ancestors().skip(1).take(depth).collect();
    for parent in above.into_iter().rev() {
        let _ = std::fs::write(parent.join("cgroup.subtree_control"), "+memory");
    }
    let file = dir.join("memory.max");
    if !file.exists() {
        return Err(format!("the memory controller is not available in {}", dir.display()));
    }
    std::fs::write(&file, bytes.to_string()).map_err(|error| format!("{}: {error}", file.display()))?;
    // One process of a rank that lost memory is a broken rank: end all of it. Older kernels lack the file.
    let _ = std::fs::write(dir.join("memory.oom.group"), "1");
    Ok(())
}

fn limit_v1(root: &Path, name: &str, bytes: u64) -> Result<PathBuf, String> {
    let dir = create_below_own(&root.join("memory"), CGROUP_V1_MAGIC, "memory", name)?;
    let file = dir.join("memory.limit_in_bytes");
    match std::fs::write(&file, bytes.to_string()) {
        Ok(()) => Ok(dir),
        Err(error) => {
            super::remove(&dir);
            Err(format!("{}: {error}", file.display()))
        }
    }
}
