//! What this machine allows: limits of processes, and directories that jobs would share.
use super::{Finding, Verdict};
use ganger_agent::checkpoint::{self, ProbeReport};
use ganger_core::model::amounts::HumanBytes;
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};

/// A server or agent of a large cluster holds a connection for each peer and stream.
const FILES_WANTED: u64 = 4_096;
/// Ranks of one node, with their threads.
const PROCESSES_WANTED: u64 = 4_096;

pub fn limits() -> Vec<Finding> {
    let limit = |resource| getrlimit(resource).current;
    vec![
        count("files", limit(Resource::Nofile), FILES_WANTED, "open files", "LimitNOFILE=1048576"),
        count("processes", limit(Resource::Nproc), PROCESSES_WANTED, "processes and threads", "LimitNPROC=infinity"),
        locked_memory(limit(Resource::Memlock)),
    ]
}

fn count(check: &'static str, limit: Option<u64>, wanted: u64, what: &str, unit: &str) -> Finding {
    match limit {
        None => Finding::new(check, Verdict::Ok, format!("no limit of {what}")),
        Some(limit) if limit >= wanted => Finding::new(check, Verdict::Ok, format!("{limit} {what} are allowed")),
        Some(limit) => Finding::new(check, Verdict::Note, format!("only {limit} {what} are allowed"))
            .fix(format!("raise it to {wanted} or more where agents start: `{unit}` in their unit")),
    }
}

fn locked_memory(limit: Option<u64>) -> Finding {
    match limit {
        None => Finding::new("memlock", Verdict::Ok, "memory may be locked: RDMA and pinned buffers work"),
        Some(limit) => Finding::new("memlock", Verdict::Note, format!("only {} may be locked", HumanBytes(limit)))
            .fix("RDMA and pinned buffers need more: `LimitMEMLOCK=infinity` in the agent's unit"),
    }
}

/// Tries each as a checkpoint directory, from here.
pub fn directories(dirs: &[PathBuf]) -> Vec<Finding> {
    if dirs.is_empty() {
        let text = "no directory was named: `ganger doctor DIR…` tries where checkpoints would go";
        return vec![Finding::new("shared", Verdict::Ok, text)];
    }
    dirs.iter().map(|dir| directory(dir)).collect()
}

fn directory(dir: &Path) -> Finding {
    let shown = dir.display();
    if !dir.is_dir() {
        return Finding::new("shared", Verdict::Bad, format!("{shown} is no directory here"))
            .fix("mount it or make it on every node");
    }
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let token = format!("doctor-{}", std::process::id());
    let report = checkpoint::probe(&dir, &token);
    // Left by the probe for other nodes, of which none is asked.
    let _ = std::fs::remove_file(dir.join(format!(".ganger-fs-{token}")));
    if let Some(problem) = report.problem {
        return Finding::new("shared", Verdict::Bad, problem.to_string());
    }
    seen_by_others(&report)
}

fn seen_by_others(report: &ProbeReport) -> Finding {
    let kind = report.file_system.as_ref().map_or("an unknown file system", |system| system.name.as_str());
    let free = report.free_bytes.map_or(String::new(), |free| format!(", {} free", HumanBytes(free)));
    let text = format!("{}: {kind}{free}, can be written", report.dir.display());
    match report.file_system.as_ref().and_then(|system| system.shared) {
        Some(true) => Finding::new("shared", Verdict::Ok, format!("{text}; other nodes can see it")),
        Some(false) => Finding::new("shared", Verdict::Note, format!("{text}; only this machine sees it"))
            .fix("a gang on several nodes, or one that moves, needs a directory that all nodes see"),
        None => Finding::new("shared", Verdict::Note, format!("{text}; its kind does not tell whether others see it"))
            .fix("write a file there on one node and look for it on another"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_limits_are_told_with_the_way_to_raise_them() {
        assert_eq!(count("files", None, 9, "open files", "L").verdict, Verdict::Ok);
        assert_eq!(count("files", Some(9), 9, "open files", "L").verdict, Verdict::Ok);
        let low = count("files", Some(8), 9, "open files", "L=1");
        assert_eq!((low.verdict, low.text.as_str()), (Verdict::Note, "only 8 open files are allowed"));
        assert!(low.fix.unwrap().contains("`L=1`"));
        assert!(locked_memory(Some(8 << 20)).text.contains("8MiB"));
    }

    #[test]
    fn a_directory_is_tried_and_left_as_it_was() {
        let dir = std::env::temp_dir().join(format!("ganger-doctor-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let found = directories(std::slice::from_ref(&dir));
        assert_ne!(found[0].verdict, Verdict::Bad, "{found:?}");
        assert!(found[0].text.contains("can be written"), "{found:?}");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::remove_dir(&dir).unwrap();
        assert_eq!(directories(&[dir])[0].verdict, Verdict::Bad);
    }
}
