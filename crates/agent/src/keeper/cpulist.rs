//! Reads the kernel's cpulist form (`0-3,8`) and splits it into CPUs that this machine has and those that it lacks.

use std::collections::BTreeSet;

/// Highest CPU number that an affinity mask can carry.
const HIGHEST: usize = rustix::thread::CpuSet::MAX_CPU - 1;

/// Parses `0-3,8`. The error says which part is wrong.
pub(crate) fn parse(list: &str) -> Result<BTreeSet<usize>, String> {
    list.trim().split(',').map(range).try_fold(BTreeSet::new(), |mut all, part| {
        all.extend(part?);
        Ok(all)
    })
}

fn range(part: &str) -> Result<std::ops::RangeInclusive<usize>, String> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let number = |text: &str| {
        text.parse::<usize>()
            .ok()
            .filter(|cpu| *cpu <= HIGHEST)
            .ok_or_else(|| format!("`{part}` is not a CPU or a range of CPUs up to {HIGHEST}; write it like 0-3,8"))
    };
    let (first, last) = (number(first)?, number(last)?);
    if first > last { Err(format!("`{part}` runs backwards")) } else { Ok(first..=last) }
}

/// The CPUs that are online on this machine; empty when the kernel does not say.
pub(crate) fn online() -> BTreeSet<usize> {
    std::fs::read_to_string("/sys/devices/system/cpu/online")
        .ok()
        .and_then(|text| parse(&text).ok())
        .unwrap_or_default()
}

/// Writes a set back as a cpulist.
pub(crate) fn format(cpus: &BTreeSet<usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last)| if first == last { format!("{first}") } else { format!("{first}-{last}") };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_lists() {
        let cpus = parse("8,0-3,2\n").unwrap();
        assert_eq!(cpus.iter().copied().collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
        assert_eq!(format(&cpus), "0-3,8");
    }

    #[test]
    fn refuses_what_is_no_list() {
        for bad in ["", "a", "3-1", "1,,2", "0-99999999", "-1"] {
            assert!(parse(bad).is_err(), "{bad:?} was taken");
        }
    }
}
