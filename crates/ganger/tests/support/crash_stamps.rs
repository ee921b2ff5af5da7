//! What ranks wrote about themselves, and what must never be found there: a rank that ran twice at once, a device with
//! two ranks.
//!
//! All ranks append to one file, a line at a time, so the order of lines is the order in which they were written. A
//! process lived at least from its first line to its last; two such spans of one rank, or on one device, must not overlap.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Shell words by which a rank stamps: `stamp EVENT`. `STAMPS` names the file.
pub const STAMP: &str = r#"stamp() { read -r up _ </proc/uptime; printf '%s %s %s %s %s %s %s %s\n' "$1" "$up" "$GANGER_JOB_ID" "$GANGER_ATTEMPT" "$RANK" "$GANGER_NODE" "${CUDA_VISIBLE_DEVICES:--}" "$$" >>"$STAMPS"; }; "#;

/// One process of a rank, from its own lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    pub job: u64,
    pub attempt: u32,
    pub rank: u32,
    pub node: String,
    pub devices: BTreeSet<String>,
    pub pid: u32,
    /// Number of its first and its last line.
    pub first: usize,
    pub last: usize,
    pub lines: usize,
    pub ended: bool,
}

pub fn read(path: &Path) -> Vec<Life> {
    parse(&std::fs::read_to_string(path).unwrap_or_default())
}

fn parse(text: &str) -> Vec<Life> {
    let mut lives: BTreeMap<(u64, u32, u32, u32), Life> = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let [event, _boottime, job, attempt, rank, node, devices, pid] = words[..] else {
            panic!("torn stamp in line {}: {line:?}", number + 1);
        };
        let (job, attempt) = (job.parse().unwrap(), attempt.parse().unwrap());
        let (rank, pid) = (rank.parse().unwrap(), pid.parse().unwrap());
        let life = lives.entry((job, attempt, rank, pid)).or_insert_with(|| Life {
            job,
            attempt,
            rank,
            node: node.to_string(),
            devices: devices.split(',').filter(|device| *device != "-").map(str::to_string).collect(),
            pid,
            first: number,
            last: number,
            lines: 0,
            ended: false,
        });
        life.last = number;
        life.lines += 1;
        life.ended |= event == "end";
    }
    lives.into_values().collect()
}

/// Every overlap that must not be, in words.
pub fn overlaps(lives: &[Life]) -> Vec<String> {
    let mut owners: BTreeMap<String, Vec<&Life>> = BTreeMap::new();
    for life in lives {
        owners.entry(format!("rank {} of job {}", life.rank, life.job)).or_default().push(life);
        for device in &life.devices {
            owners.entry(format!("device {device} of {}", life.node)).or_default().push(life);
        }
    }
    let mut found = Vec::new();
    for (what, mut lives) in owners {
        lives.sort_by_key(|life| life.first);
        // Beside the neighbour also whoever lasts longest so far: a long life may span several short ones.
        let mut longest: Option<&Life> = None;
        for life in lives {
            if let Some(before) = longest.filter(|before| before.last > life.first) {
                found.push(format!("{what}: {before:?} and {life:?}"));
            }
            longest = longest.filter(|before| before.last > life.last).or(Some(life));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_of_ranks_and_of_devices_are_found() {
        let text = "start 1.0 1 1 0 n0 a,b 10\nend 1.1 1 1 0 n0 a,b 10\nstart 1.2 2 1 0 n0 b 11\nstart 1.3 3 1 0 n1 b 12\nend 1.4 2 1 0 n0 b 11\n";
        assert_eq!(overlaps(&parse(text)), Vec::<String>::new());
        assert_eq!(parse(text).iter().filter(|life| life.ended).count(), 2);
        let shared = "start 1 1 1 0 n0 a 10\nstart 1 2 1 0 n0 - 11\nstart 1 3 1 0 n0 a 12\nend 1 1 1 0 n0 a 10\n";
        let found = overlaps(&parse(shared));
        assert!(found.len() == 1 && found[0].starts_with("device a of n0"), "{found:?}");
        let twice = "start 1 1 1 0 n0 a 10\nstart 1 1 2 0 n1 a 12\nalive 1 1 1 0 n0 a 10\n";
        let found = overlaps(&parse(twice));
        assert!(found.len() == 1 && found[0].starts_with("rank 0 of job 1"), "{found:?}");
    }
}
