//! Wall time that never goes backwards: when somebody sets the date back, time stands still until it has caught up.
use ganger_core::model::Time;
use ganger_runtime::clock::unix_ms;

#[derive(Debug)]
pub(super) struct Clock {
    latest: Time,
}

impl Clock {
    /// Never earlier than `since`.
    pub(super) fn new(since: Time) -> Clock {
        Clock { latest: since }
    }

    pub(super) fn now(&mut self) -> Time {
        self.at(Time(unix_ms()))
    }

    fn at(&mut self, wall: Time) -> Time {
        self.latest = self.latest.max(wall);
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stands_still_rather_than_run_backwards() {
        let mut clock = Clock::new(Time(100));
        assert_eq!(clock.at(Time(50)), Time(100));
        assert_eq!(clock.at(Time(150)), Time(150));
        assert_eq!(clock.at(Time(120)), Time(150));
    }
}
