//! Physical cores out of CPU lists, and taking whole ones. CPUs are logical; which two share a core is told by the shape that
//! x86 kernels number in: a socket's first threads in one run, its second threads in another of the same length.

use crate::model::cpuset::CpuSet;

/// The cores of a socket. Two runs of equal length are the two threads of each core; any other shape (one run, several
/// runs, a stride) tells nothing, and each CPU stands alone.
pub(super) fn split(cpus: &CpuSet) -> Vec<CpuSet> {
    match cpus.ranges()[..] {
        [(first, first_end), (second, second_end)] if first_end - first == second_end - second => {
            (0..=first_end - first).map(|at| [first + at, second + at].into_iter().collect()).collect()
        }
        _ => cpus.iter().map(|cpu| [cpu].into_iter().collect()).collect(),
    }
}

/// `n` CPUs of `cores` out of `free`: whole free cores first, then CPUs of broken ones, and a whole core is broken last.
pub(super) fn take(cores: &[CpuSet], free: &CpuSet, n: u32) -> Option<CpuSet> {
    let mut left = n;
    let mut taken = CpuSet::EMPTY;
    for core in cores.iter().filter(|core| core.is_subset(free)) {
        if left == 0 {
            return Some(taken);
        }
        if core.count() <= left {
            taken = taken.union(core);
            left -= core.count();
        }
    }
    let broken = cores.iter().filter(|core| !core.is_subset(free));
    let whole = cores.iter().filter(|core| core.is_subset(free));
    for core in broken.chain(whole) {
        if left == 0 {
            return Some(taken);
        }
        let more = core.intersection(free).difference(&taken).first_n(left);
        left -= more.count();
        taken = taken.union(&more);
    }
    (left == 0).then_some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn two_equal_runs_are_threads_and_other_shapes_are_not() {
        assert_eq!(split(&set("0-1,8-9")), [set("0,8"), set("1,9")]);
        assert_eq!(split(&set("0,64")), [set("0,64")]);
        assert_eq!(split(&set("0-3")).len(), 4);
        assert_eq!(split(&set("6,14,22,30")).len(), 4);
        assert_eq!(split(&set("0-1,8-10")).len(), 5);
        assert!(split(&CpuSet::EMPTY).is_empty());
    }

    #[test]
    fn whole_cores_go_first_and_broken_ones_before_breaking_another() {
        let cores = split(&set("0-3,8-11"));
        assert_eq!(take(&cores, &set("0-3,8-11"), 4), Some(set("0-1,8-9")));
        // Core 0 lost a thread: it is passed over for whole cores and used for the odd one.
        assert_eq!(take(&cores, &set("1-3,8-11"), 4), Some(set("1-2,9-10")));
        assert_eq!(take(&cores, &set("1-3,8-11"), 5), Some(set("1-2,8-10")));
        assert_eq!(take(&cores, &set("0-3,8-11"), 1), Some(set("0")));
        assert_eq!(take(&cores, &set("0-3"), 4), Some(set("0-3")));
        assert_eq!(take(&cores, &set("0-3,40"), 5), None);
        assert_eq!(take(&cores, &CpuSet::EMPTY, 0), Some(CpuSet::EMPTY));
    }
}
