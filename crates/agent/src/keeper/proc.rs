//! Reads `/proc`: who lives, who descends from whom; and signals a process only if it still is the one that is meant.

use std::collections::BTreeMap;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::state::ProcessId;

/// The fields of `/proc/PID/stat` that a keeper needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat {
    pub id: ProcessId,
    pub parent: i32,
    pub session: i32,
    pub dead: bool,
}

/// One process, or `None` when it is gone.
pub(crate) fn stat(pid: i32) -> Option<Stat> {
    parse(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The name in the second field may hold spaces and brackets, so fields count from the last bracket.
fn parse(pid: i32, text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        id: ProcessId { pid, start_ticks: fields.get(19)?.parse().ok()? },
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        dead: matches!(*fields.first()?, "Z" | "X" | "x"),
    })
}

/// All processes that can be seen.
pub(crate) fn all() -> Vec<Stat> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter_map(stat).collect()
}

/// The living descendants of `root`, itself excluded.
pub(crate) fn descendants(root: i32) -> Vec<ProcessId> {
    let mut children: BTreeMap<i32, Vec<Stat>> = BTreeMap::new();
    for stat in all() {
        children.entry(stat.parent).or_default().push(stat);
    }
    let mut found = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            parents.push(child.id.pid);
            if !child.dead {
                found.push(child.id);
            }
        }
    }
    found
}

/// The calling process.
pub(crate) fn own() -> ProcessId {
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    stat(pid).map_or(ProcessId { pid, start_ticks: 0 }, |stat| stat.id)
}

/// Whether exactly this process lives (a zombie does not).
pub(crate) fn lives(id: ProcessId) -> bool {
    stat(id.pid).is_some_and(|stat| stat.id == id && !stat.dead)
}

/// Signals exactly this process, never a later one of the same number. False when it is gone or refuses.
pub(crate) fn signal(id: ProcessId, signal: Signal) -> bool {
    let Some(pid) = Pid::from_raw(id.pid) else { return false };
    // The descriptor is taken first and the start time compared after: from then on the number cannot be reused
    // unseen.
    let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    stat(id.pid).is_some_and(|stat| stat.id == id) && pidfd_send_signal(&descriptor, signal).is_ok()
}

/// The boot's own id; a stored one that differs means that every process of then is gone.
pub(crate) fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_brackets_do_not_shift_the_fields() {
        let text = "42 (a) b (c) S 7 42 41 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1";
        let stat = parse(42, text).unwrap();
        assert_eq!(stat.id, ProcessId { pid: 42, start_ticks: 98765 });
        assert_eq!((stat.parent, stat.session, stat.dead), (7, 41, false));
    }

    #[test]
    fn a_reused_number_is_another_process() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let real = stat(i32::try_from(child.id()).unwrap()).unwrap().id;
        let older = ProcessId { start_ticks: real.start_ticks - 1, ..real };
        assert!(lives(real) && !lives(older));
        assert!(!signal(older, Signal::KILL));
        assert!(lives(real));
        assert!(signal(real, Signal::KILL));
        child.wait().unwrap();
        assert!(!lives(real));
    }
}
