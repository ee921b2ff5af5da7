//! Arrays: one submission of many like tasks, each known by an index.
//!
//! The tasks stand in the order in which they were written, and the place of a task in it gives its number: of array 12 the
//! first task is job 13, the next one job 14, whether it was made into a job yet or not. So a task keeps its number for
//! ever, and what is not yet made costs the array a few runs of places.
use super::{Job, JobSpec, Owner};
use crate::model::ids::JobId;
use crate::model::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// Most tasks of one array that can be written at all; the setting `array.max` is lower.
pub const MAX_TASKS: u32 = 1_000_000;
/// So long a list is a list of single numbers, which ranges say shorter. The record is stored again with every start.
const MAX_TEXT: usize = 4_096;

/// Indices `first`, `first + step`, … up to `last`, which is one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Indices {
    pub first: u32,
    pub last: u32,
    pub step: u32,
}

impl Indices {
    pub fn count(&self) -> u32 {
        (self.last - self.first) / self.step + 1
    }

    fn iter(self) -> impl Iterator<Item = u32> {
        (0..self.count()).map(move |at| self.first + at * self.step)
    }
}

impl fmt::Display for Indices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.count(), self.step) {
            (1, _) => write!(f, "{}", self.first),
            (_, 1) => write!(f, "{}-{}", self.first, self.last),
            (_, step) => write!(f, "{}-{}:{step}", self.first, self.last),
        }
    }
}

/// What a user asked for: `0-9%2`, `1,3,5-7`, `0-15:4`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArraySpec {
    /// No index stands in two of them.
    pub indices: Vec<Indices>,
    /// So many tasks run at once at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Why a text is no array: where in it, counted in characters from 1, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayError {
    pub at: usize,
    pub why: String,
    pub fix: String,
}

impl fmt::Display for ArrayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}; {}", self.at, self.why, self.fix)
    }
}

impl ArraySpec {
    /// Reads Slurm's way to write it.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str) -> Result<ArraySpec, ArrayError> {
        if text.len() > MAX_TEXT {
            let why = format!("it is {} characters long, at most {MAX_TEXT} are taken", text.len());
            return Err(ArrayError {
                at: MAX_TEXT + 1,
                why,
                fix: "write neighbours as ranges, like 0-999".to_string(),
            });
        }
        let (list, limit) = match text.split_once('%') {
            Some((list, limit)) => (list, Some(parse_limit(limit, list.len() + 2)?)),
            None => (text, None),
        };
        let (mut indices, mut at) = (Vec::new(), 1);
        let mut seen = BTreeSet::new();
        let mut total = 0u32;
        for part in list.split(',') {
            let some = parse_range(part, at)?;
            total = total.saturating_add(some.count());
            if total > MAX_TASKS {
                let why = format!("with {part} it has more than {MAX_TASKS} tasks");
                return Err(ArrayError { at, why, fix: "submit several arrays".to_string() });
            }
            if let Some(twice) = some.iter().find(|index| !seen.insert(*index)) {
                let why = format!("index {twice} is named twice");
                return Err(ArrayError { at, why, fix: "name each index once".to_string() });
            }
            indices.push(some);
            at += part.chars().count() + 1;
        }
        Ok(ArraySpec { indices, limit })
    }

    pub fn count(&self) -> u32 {
        self.indices.iter().map(Indices::count).sum()
    }

    /// The index of the task at this place.
    pub fn index_at(&self, place: u32) -> Option<u32> {
        let mut left = place;
        for some in &self.indices {
            match left.checked_sub(some.count()) {
                Some(further) => left = further,
                None => return Some(some.first + left * some.step),
            }
        }
        None
    }

    /// The place of the task with this index.
    pub fn place_of(&self, index: u32) -> Option<u32> {
        let mut before = 0;
        for some in &self.indices {
            let inside = (some.first..=some.last).contains(&index) && (index - some.first).is_multiple_of(some.step);
            if inside {
                return Some(before + (index - some.first) / some.step);
            }
            before += some.count();
        }
        None
    }

    pub fn lowest(&self) -> u32 {
        self.indices.iter().map(|some| some.first).min().unwrap_or(0)
    }

    pub fn highest(&self) -> u32 {
        self.indices.iter().map(|some| some.last).max().unwrap_or(0)
    }

    /// The step of a single range; 1 of a list.
    pub fn step(&self) -> u32 {
        if let [one] = self.indices.as_slice() { one.step } else { 1 }
    }

    /// The tasks at these places, as a user would write them, with the limit behind.
    pub fn words(&self, places: &Places) -> String {
        let indices: Vec<u32> = places.iter().filter_map(|place| self.index_at(place)).collect();
        let parts: Vec<String> = runs(&indices).into_iter().map(|run| run.to_string()).collect();
        let limit = self.limit.map(|limit| format!("%{limit}")).unwrap_or_default();
        parts.join(",") + &limit
    }
}

impl fmt::Display for ArraySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, some) in self.indices.iter().enumerate() {
            write!(f, "{}{some}", if at > 0 { "," } else { "" })?;
        }
        self.limit.map_or(Ok(()), |limit| write!(f, "%{limit}"))
    }
}

const EXAMPLE: &str = "write it like 0-9, 1,3,5-7 or 0-15:4, with %2 behind it for two at once";

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // So that the next index after it can be counted.
    digits.then(|| text.parse().ok()).flatten().filter(|number| *number < u32::MAX)
}

fn parse_limit(text: &str, at: usize) -> Result<u32, ArrayError> {
    number(text).filter(|limit| *limit > 0).ok_or_else(|| ArrayError {
        at,
        why: format!("{text:?} is no number of tasks that run at once"),
        fix: "write a whole number from 1 behind the %, or nothing".to_string(),
    })
}

fn parse_range(text: &str, at: usize) -> Result<Indices, ArrayError> {
    let bad = |why: String| ArrayError { at, why, fix: EXAMPLE.to_string() };
    let (range, step) = match text.split_once(':') {
        Some((range, step)) => (range, number(step).filter(|step| *step > 0)),
        None => (text, Some(1)),
    };
    let step = step.ok_or_else(|| bad(format!("{text:?} has no step that is a whole number from 1")))?;
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (Some(first), Some(last)) = (number(first), number(last)) else {
        return Err(bad(format!("{text:?} is no index and no range of them")));
    };
    if last < first {
        return Err(bad(format!("{text:?} is empty: {last} comes before {first}")));
    }
    Ok(Indices { first, last: last - (last - first) % step, step })
}

/// Neighbours joined to ranges, three of one step at least; else singles.
fn runs(indices: &[u32]) -> Vec<Indices> {
    let mut found = Vec::new();
    let mut rest = indices;
    while let Some(first) = rest.first().copied() {
        let step = rest.get(1).and_then(|second| second.checked_sub(first)).filter(|step| *step > 0);
        let long = step.map_or(1, |step| {
            let in_step = rest.windows(2).take_while(|pair| pair[0].checked_add(step) == Some(pair[1]));
            in_step.count() + 1
        });
        let long = if long > 2 || step == Some(1) { long } else { 1 };
        found.push(Indices { first, last: rest[long - 1], step: step.filter(|_| long > 1).unwrap_or(1) });
        rest = &rest[long..];
    }
    found
}

/// A set of places, as runs from one to another inclusive, apart from each other and rising.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Places(Vec<(u32, u32)>);

impl Places {
    /// The first `count` places.
    pub fn first(count: u32) -> Places {
        Places(count.checked_sub(1).map(|last| (0, last)).into_iter().collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|(from, to)| u64::from(to - from) + 1).sum()
    }

    pub fn contains(&self, place: u32) -> bool {
        let after = self.0.partition_point(|(from, _)| *from <= place);
        after > 0 && self.0[after - 1].1 >= place
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|(from, to)| *from..=*to)
    }

    pub fn take_first(&mut self) -> Option<u32> {
        let place = self.0.first()?.0;
        self.remove(place);
        Some(place)
    }

    /// Whether it was there.
    pub fn remove(&mut self, place: u32) -> bool {
        if !self.contains(place) {
            return false;
        }
        let at = self.0.partition_point(|(from, _)| *from <= place) - 1;
        let (from, to) = self.0[at];
        let left = (from < place).then(|| (from, place - 1));
        let right = (place < to).then(|| (place + 1, to));
        self.0.splice(at..=at, left.into_iter().chain(right));
        true
    }

    pub fn insert(&mut self, place: u32) {
        if self.contains(place) {
            return;
        }
        let at = self.0.partition_point(|(from, _)| *from <= place);
        let joins_left = at > 0 && self.0[at - 1].1 + 1 == place;
        let joins_right = self.0.get(at).is_some_and(|(from, _)| *from == place + 1);
        match (joins_left, joins_right) {
            (true, true) => self.0[at - 1].1 = self.0.remove(at).1,
            (true, false) => self.0[at - 1].1 = place,
            (false, true) => self.0[at].0 = place,
            (false, false) => self.0.insert(at, (place, place)),
        }
    }

    /// Those of both.
    pub fn plus(&self, other: &Places) -> Places {
        let mut sum = self.clone();
        other.iter().for_each(|place| sum.insert(place));
        sum
    }

    /// Whether the runs rise and lie apart, below `count`.
    pub fn is_sound(&self, count: u32) -> bool {
        let each = self.0.iter().all(|(from, to)| from <= to && *to < count);
        each && self.0.windows(2).all(|pair| pair[0].1 < pair[1].0 && pair[1].0 - pair[0].1 > 1)
    }
}

/// What became of an array: its tasks that are not jobs, and how those ended that were.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ArrayState {
    /// Not yet made into jobs. Of a cancelled array those that never will be.
    pub waiting: Places,
    /// As `waiting`, but a person holds them back.
    #[serde(default)]
    pub held: Places,
    pub done: u32,
    pub failed: u32,
    pub cancelled: u32,
    /// Nothing more of it is made into jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<String>,
}

/// Which task of which array a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    pub array: JobId,
    pub index: u32,
}

impl Job {
    /// The record of an array that was just submitted, or a plain job.
    pub fn submitted(id: JobId, spec: Arc<JobSpec>, owner: Owner, now: Time) -> Job {
        let array = spec
            .array
            .as_ref()
            .map(|array| ArrayState { waiting: Places::first(array.count()), ..ArrayState::default() });
        Job { array, ..Job::new(id, spec, owner, now) }
    }

    /// The numbers of an array's tasks; none of a plain job.
    pub fn task_ids(&self) -> std::ops::Range<JobId> {
        let count = self.spec.array.as_ref().map_or(0, ArraySpec::count);
        JobId(self.id.0 + 1)..JobId(self.id.0 + 1 + u64::from(count))
    }

    /// The number of the task with this index.
    pub fn task_id(&self, index: u32) -> Option<JobId> {
        let place = self.spec.array.as_ref()?.place_of(index)?;
        Some(JobId(self.id.0 + 1 + u64::from(place)))
    }

    /// The place of one of its tasks, by number.
    pub fn place_of(&self, task: JobId) -> Option<u32> {
        let inside = self.task_ids().contains(&task);
        u32::try_from(task.0.checked_sub(self.id.0 + 1)?).ok().filter(|_| inside)
    }

    /// The task at a place of an array, as it is when it is made.
    pub fn task_at(&self, place: u32) -> Option<Job> {
        let index = self.spec.array.as_ref()?.index_at(place)?;
        let id = JobId(self.id.0 + 1 + u64::from(place));
        let task = Some(Task { array: self.id, index });
        let job = Job::new(id, Arc::new(self.spec.of_task(index)), self.owner.clone(), self.submitted_at);
        Some(Job { task, eligible_at: self.eligible_at, ..job })
    }

    /// What people call it: `train`, of a task `train_3`.
    pub fn title(&self) -> String {
        match &self.task {
            Some(task) => format!("{}_{}", self.spec.name, task.index),
            None => self.spec.name.clone(),
        }
    }

    /// Its number as people write it: `12`, of a task `12_3`.
    pub fn number(&self) -> String {
        self.task.map_or_else(|| self.id.to_string(), |task| format!("{}_{}", task.array, task.index))
    }
}

impl JobSpec {
    /// What one task of this array asks for. Two tasks never save into one directory.
    fn of_task(&self, index: u32) -> JobSpec {
        let mut spec = JobSpec { array: None, after: Vec::new(), ..self.clone() };
        spec.checkpoint.dir = self.checkpoint.dir.as_ref().map(|dir| format!("{}/{index}", dir.trim_end_matches('/')));
        spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> ArraySpec {
        ArraySpec::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn slurms_ways_to_write_arrays_are_read_and_written() {
        for (text, written, count, limit) in [
            ("0-9%2", "0-9%2", 10, Some(2)),
            ("1,3,5-7", "1,3,5-7", 5, None),
            ("0-15:4", "0-12:4", 4, None),
            ("7", "7", 1, None),
            ("5,1-3", "5,1-3", 4, None),
            ("0-10:2,1-11:2", "0-10:2,1-11:2", 12, None),
            ("4-4", "4", 1, None),
        ] {
            let array = read(text);
            assert_eq!((array.to_string().as_str(), array.count(), array.limit), (written, count, limit));
            for place in 0..array.count() {
                assert_eq!(array.place_of(array.index_at(place).unwrap()), Some(place), "{text}");
            }
            assert_eq!(array.index_at(array.count()), None);
        }
        let array = read("5,1-3");
        assert_eq!((array.index_at(0), array.lowest(), array.highest(), array.step()), (Some(5), 1, 5, 1));
        assert_eq!((read("0-15:4").step(), read("0-15:4").place_of(6)), (4, None));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, at, why) in [
            ("", 1, "no index"),
            ("1,,2", 3, "no index"),
            ("1,5-3", 3, "5-3\" is empty: 3 comes before 5"),
            ("0-9,4", 5, "index 4 is named twice"),
            ("0-8:2,1-9:4,5", 13, "index 5 is named twice"),
            ("0-9:0", 1, "no step"),
            ("0-9%0", 5, "run at once"),
            ("0-9%", 5, "run at once"),
            ("a", 1, "no index"),
            ("-1", 1, "no index"),
            ("0-4294967295", 1, "no index"),
            ("0-1000000", 1, "more than 1000000 tasks"),
            ("1 ,2", 1, "no index"),
        ] {
            let error = ArraySpec::parse(text).unwrap_err();
            assert!(error.at == at && error.why.contains(why) && !error.fix.is_empty(), "{text}: {error}");
        }
        assert!(ArraySpec::parse(&vec!["1"; 3_000].join(",")).unwrap_err().why.contains("characters long"));
    }

    #[test]
    fn places_are_a_set() {
        let mut places = Places::first(10);
        assert!(places.remove(4) && !places.remove(4) && !places.contains(4) && places.contains(5));
        assert_eq!((places.take_first(), places.count(), places.is_sound(10)), (Some(0), 8, true));
        places.insert(4);
        assert_eq!(places, Places(vec![(1, 9)]));
        let mut other = Places::default();
        for place in [7, 5, 6, 1, 1] {
            other.insert(place);
        }
        assert_eq!(other, Places(vec![(1, 1), (5, 7)]));
        assert!(other.is_sound(8) && !other.is_sound(7) && !Places(vec![(1, 2), (3, 4)]).is_sound(9));
        assert_eq!(other.iter().collect::<Vec<_>>(), [1, 5, 6, 7]);
        assert_eq!(Places::default().plus(&other), other);
        assert_eq!((Places::first(0).take_first(), Places::first(0).count()), (None, 0));
    }

    #[test]
    fn what_is_left_is_written_as_ranges() {
        let array = read("0-9%2");
        let mut left = Places::first(10);
        assert_eq!(array.words(&left), "0-9%2");
        left.remove(3);
        assert_eq!(array.words(&left), "0-2,4-9%2");
        assert_eq!(read("0-40:10,7").words(&Places::first(5)), "0-40:10");
        assert_eq!(read("0-40:10,7").words(&Places(vec![(0, 1), (4, 5)])), "0,10,40,7");
    }
}
