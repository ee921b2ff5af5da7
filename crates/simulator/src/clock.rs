//! The virtual clock's agenda: what is due when, in the order of time and then of entry.
use ganger_core::model::time::Time;
use std::collections::BTreeMap;

/// Things due at points in time. Those of one time come out in the order in which they went in.
#[derive(Debug, Clone)]
pub struct Agenda<T> {
    entries: BTreeMap<(Time, u64), T>,
    entered: u64,
}

impl<T> Default for Agenda<T> {
    fn default() -> Self {
        Agenda { entries: BTreeMap::new(), entered: 0 }
    }
}

impl<T> Agenda<T> {
    pub fn add(&mut self, at: Time, what: T) {
        self.entries.insert((at, self.entered), what);
        self.entered += 1;
    }

    /// When the next thing is due.
    pub fn next(&self) -> Option<Time> {
        self.entries.keys().next().map(|(at, _)| *at)
    }

    /// Takes out the next thing that is due by `now`.
    pub fn take_due(&mut self, now: Time) -> Option<T> {
        let key = *self.entries.keys().next().filter(|(at, _)| *at <= now)?;
        self.entries.remove(&key)
    }

    /// Drops what no longer counts.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.entries.retain(|_, what| keep(what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_things_come_in_order_of_time_then_entry() {
        let mut agenda = Agenda::default();
        for (at, what) in [(5, "late"), (1, "first"), (1, "second")] {
            agenda.add(Time(at), what);
        }
        assert_eq!(agenda.next(), Some(Time(1)));
        assert_eq!(agenda.take_due(Time(4)), Some("first"));
        assert_eq!(agenda.take_due(Time(4)), Some("second"));
        assert_eq!(agenda.take_due(Time(4)), None);
        assert_eq!(agenda.take_due(Time(5)), Some("late"));
        assert_eq!(agenda.next(), None);
    }
}
