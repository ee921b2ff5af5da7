//! Reads the trainer's loss log: the workload's own word on which steps were made, and with what loss to the last bit.
use std::collections::BTreeMap;
use std::path::Path;

/// The log's lines in order: step and the bits of the loss.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LossLog(Vec<(u64, String)>);

impl LossLog {
    /// A missing or half-written log is a shorter one.
    pub fn read(path: &Path) -> LossLog {
        LossLog::parse(&std::fs::read_to_string(path).unwrap_or_default())
    }

    fn parse(text: &str) -> LossLog {
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let words = whole.filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse().ok()?, words.next()?.to_string()))
        });
        LossLog(words.collect())
    }

    /// Steps that were made more than once.
    pub fn repeated(&self) -> usize {
        self.0.len() - self.by_step().len()
    }

    /// The first step from 1 to `last` that is missing.
    pub fn missing(&self, last: u64) -> Option<u64> {
        let made = self.by_step();
        (1..=last).find(|step| !made.contains_key(step))
    }

    /// Whether each repetition of a step gave the same loss, bit for bit.
    pub fn agrees_with_itself(&self) -> bool {
        let mut first: BTreeMap<u64, &str> = BTreeMap::new();
        self.0.iter().all(|(step, loss)| *first.entry(*step).or_insert(loss) == loss)
    }

    fn by_step(&self) -> BTreeMap<u64, &str> {
        self.0.iter().map(|(step, loss)| (*step, loss.as_str())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_repetitions_and_differences_are_seen() {
        let log = LossLog::parse("1 aa 0.5\n2 bb 0.4\n2 bb 0.4\n4 cc 0.3\n5 d");
        assert_eq!((log.repeated(), log.missing(2), log.missing(4)), (1, None, Some(3)));
        assert!(log.agrees_with_itself());
        assert!(!LossLog::parse("1 aa 0.5\n1 ab 0.5\n").agrees_with_itself());
        assert_eq!(LossLog::read(Path::new("/no/such/log")).missing(1), Some(1));
    }
}
