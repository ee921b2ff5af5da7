//! Sets of logical CPUs, as the kernel prints and reads them ("0-47,96-143").
//!
//! A fixed bitset of 1,024 CPUs: `Copy`, so that a scheduler can try and drop sets without allocating. The order is that
//! of the words and means nothing but "always the same". A CPU number that does not fit is refused, never dropped.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};

const WORDS: usize = 16;

/// A set of logical CPUs numbered 0 to [`CpuSet::CAPACITY`] − 1. In JSON: the kernel's cpulist, `"0-47,96-143"`, empty `""`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuSet([u64; WORDS]);

/// Why a cpulist was refused. `item` is the comma-separated part at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    #[error(
        "reading the CPU list {list:?}: {item:?} is not a CPU number or a range such as 0-47; separate items by single commas"
    )]
    NotANumber { list: String, item: String },
    #[error("reading the CPU list {list:?}: the range {item:?} runs backwards; write the lower CPU first")]
    Reversed { list: String, item: String },
    #[error("reading the CPU list {list:?}: {item:?} names a CPU above {}, the highest supported", CpuSet::CAPACITY - 1)]
    TooLarge { list: String, item: String },
}

impl CpuSet {
    /// How many CPUs a set can hold.
    pub const CAPACITY: u32 = 64 * WORDS as u32;
    /// The set without CPUs.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// The CPUs `first..end`; what lies above the capacity is an error of the caller and is not in the set.
    pub fn range(first: u32, end: u32) -> Self {
        (first..end.min(Self::CAPACITY)).collect()
    }

    /// Whether `cpu` is in the set; a number above the capacity is in no set.
    pub fn contains(&self, cpu: u32) -> bool {
        cpu < Self::CAPACITY && self.0[(cpu / 64) as usize] >> (cpu % 64) & 1 == 1
    }

    /// Adds `cpu`; returns whether it fits.
    pub fn insert(&mut self, cpu: u32) -> bool {
        let fits = cpu < Self::CAPACITY;
        if fits {
            self.0[(cpu / 64) as usize] |= 1 << (cpu % 64);
        }
        fits
    }

    /// Takes `cpu` out, if it was in.
    pub fn remove(&mut self, cpu: u32) {
        if cpu < Self::CAPACITY {
            self.0[(cpu / 64) as usize] &= !(1 << (cpu % 64));
        }
    }

    /// How many CPUs are in the set.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// CPUs in either set.
    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// CPUs in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// CPUs of this set that are not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// Whether every CPU of this set is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.difference(other).is_empty()
    }

    /// Whether the sets share no CPU.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.intersection(other).is_empty()
    }

    /// The `n` lowest CPUs, or all where there are fewer.
    pub fn first_n(&self, n: u32) -> Self {
        self.iter().take(n as usize).collect()
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> Iter {
        Iter { words: self.0, at: 0 }
    }

    /// The maximal runs of neighbouring CPUs as (first, last), ascending.
    pub fn ranges(&self) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        runs
    }

    fn zip(&self, other: &Self, join: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|at| join(self.0[at], other.0[at])))
    }
}

/// CPUs of a set in ascending order.
#[derive(Debug, Clone)]
pub struct Iter {
    words: [u64; WORDS],
    at: usize,
}

impl Iterator for Iter {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        while self.at < WORDS {
            let word = self.words[self.at];
            if word != 0 {
                self.words[self.at] &= word - 1;
                return Some(self.at as u32 * 64 + word.trailing_zeros());
            }
            self.at += 1;
        }
        None
    }
}

impl FromIterator<u32> for CpuSet {
    /// Numbers above the capacity are left out: check them where they come from.
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::EMPTY;
        for cpu in cpus {
            set.insert(cpu);
        }
        set
    }
}

impl FromStr for CpuSet {
    type Err = CpuListError;

    /// Reads a cpulist; white space around the list is ignored, the empty list is the empty set.
    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let list = text.trim();
        let mut set = Self::EMPTY;
        if list.is_empty() {
            return Ok(set);
        }
        for item in list.split(',') {
            let (first, last) = read_item(list, item)?;
            set = set.union(&Self::range(first, last + 1));
        }
        Ok(set)
    }
}

fn read_item(list: &str, item: &str) -> Result<(u32, u32), CpuListError> {
    let (low, high) = item.split_once('-').unwrap_or((item, item));
    let (first, last) = (read_cpu(list, item, low)?, read_cpu(list, item, high)?);
    if first > last {
        return Err(CpuListError::Reversed { list: list.into(), item: item.into() });
    }
    Ok((first, last))
}

fn read_cpu(list: &str, item: &str, digits: &str) -> Result<u32, CpuListError> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CpuListError::NotANumber { list: list.into(), item: item.into() });
    }
    // A number too long for u32 is too large as well.
    match digits.parse::<u32>() {
        Ok(cpu) if cpu < CpuSet::CAPACITY => Ok(cpu),
        _ => Err(CpuListError::TooLarge { list: list.into(), item: item.into() }),
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (first, last)) in self.ranges().into_iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last {
                write!(out, "{comma}{first}")?;
            } else {
                write!(out, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "CpuSet({self})")
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = Cow::<'de, str>::deserialize(deserializer)?;
        list.parse().map_err(serde::de::Error::custom)
    }
}

impl utoipa::PartialSchema for CpuSet {
    fn schema() -> RefOr<Schema> {
        let described = "Logical CPUs as a kernel cpulist, e.g. \"0-47,96-143\"; empty: \"\"";
        ObjectBuilder::new().schema_type(Type::String).description(Some(described)).into()
    }
}

impl utoipa::ToSchema for CpuSet {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn kernel_lists_are_read_and_printed_in_the_kernels_form() {
        for list in ["", "0", "0-47,96-143", "6,14,22,30", "0-1023", "63-64,1023"] {
            assert_eq!(set(list).to_string(), list);
        }
        assert_eq!(set(" 3,1,2,2\n").to_string(), "1-3");
        assert_eq!(set("0-47,96-143").count(), 96);
    }

    #[test]
    fn what_is_not_a_list_is_refused_with_the_part_at_fault() {
        let not_a_number = |item: &str| CpuListError::NotANumber { list: "1,x".into(), item: item.into() };
        assert_eq!("1,x".parse::<CpuSet>(), Err(not_a_number("x")));
        for list in ["1,,2", "1,", ",1", "-1", "1-", "1-2-3", "+1", "0x1", "1 2", "N/A"] {
            assert!(matches!(list.parse::<CpuSet>(), Err(CpuListError::NotANumber { .. })), "{list}");
        }
        assert!(matches!("9-3".parse::<CpuSet>(), Err(CpuListError::Reversed { .. })));
        for list in ["1024", "0-1024", "99999999999999999999"] {
            assert!(matches!(list.parse::<CpuSet>(), Err(CpuListError::TooLarge { .. })), "{list}");
        }
    }

    #[test]
    fn json_is_the_list() {
        assert_eq!(serde_json::to_string(&set("0-3,8")).unwrap(), "\"0-3,8\"");
        assert_eq!(serde_json::from_str::<CpuSet>("\"0-3,8\"").unwrap(), set("0-3,8"));
        assert!(serde_json::from_str::<CpuSet>("\"8-3\"").is_err());
    }

    #[test]
    fn first_n_takes_the_lowest_and_at_most_all() {
        assert_eq!(set("4-7,70").first_n(2), set("4-5"));
        assert_eq!(set("4-7,70").first_n(9), set("4-7,70"));
        assert_eq!(set("70").first(), Some(70));
    }

    proptest! {
        #[test]
        fn printing_and_reading_give_the_same_set(cpus in prop::collection::btree_set(0u32..1024, 0..200)) {
            let made: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(set(&made.to_string()), made);
            prop_assert_eq!(made.iter().collect::<Vec<_>>(), cpus.into_iter().collect::<Vec<_>>());
        }

        #[test]
        fn operations_agree_with_membership(a in any::<[u64; 16]>(), b in any::<[u64; 16]>(), cpu in 0u32..1100) {
            let (a, b) = (CpuSet(a), CpuSet(b));
            prop_assert_eq!(a.union(&b).contains(cpu), a.contains(cpu) || b.contains(cpu));
            prop_assert_eq!(a.intersection(&b).contains(cpu), a.contains(cpu) && b.contains(cpu));
            prop_assert_eq!(a.difference(&b).contains(cpu), a.contains(cpu) && !b.contains(cpu));
            prop_assert_eq!(a.union(&b).count() + a.intersection(&b).count(), a.count() + b.count());
        }
    }
}
