//! Weekly windows: `Mon-Fri 22:00-06:00 Europe/Berlin`. When they are open, until when, and when they open next.
use super::time::{Span, Time};
use super::zone::Zone;
use serde::{Deserialize, Serialize};
use std::fmt;

const DAY_MIN: i64 = 1_440;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const ALL_DAYS: u8 = 0x7f;
/// The first of January 1970 was a Thursday.
const EPOCH_WEEKDAY: i64 = 3;
/// Windows that follow each other for longer have no end that anybody would plan for.
const LONGEST: Span = Span::hours(9 * 24);
/// An opening is looked for so many windows ahead.
const OPENINGS: usize = 16;

/// From a time of day to a later one, or over midnight to one of the next day.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Window {
    /// On which days it opens; bit 0 is Monday.
    pub days: u8,
    pub from_min: u16,
    pub until_min: u16,
    pub zone: Zone,
}

impl Window {
    /// `[DAYS ]HH:MM-HH:MM[ ZONE]`, DAYS like `Sat` or `Mon-Fri`; UTC where no zone is named.
    pub fn parse(text: &str) -> Result<Window, String> {
        let mut words = text.split_whitespace().peekable();
        let days = match words.next_if(|word| word.starts_with(|c: char| c.is_ascii_alphabetic())) {
            Some(word) => days(word).ok_or_else(|| format!("{word:?} is no day like Sat or Mon-Fri"))?,
            None => ALL_DAYS,
        };
        let times = words.next().ok_or("a time like 22:00-06:00 is missing")?;
        let (from, until) = times.split_once('-').ok_or_else(|| format!("{times:?} is not like 22:00-06:00"))?;
        let clock = |text: &str| clock(text).ok_or_else(|| format!("{text:?} is no time of day like 22:00"));
        let (from_min, until_min) = (clock(from)?, clock(until)?);
        if from_min == 1_440 || from_min == until_min {
            return Err(format!("{times:?} is empty; the whole day is 00:00-24:00"));
        }
        let zone = match words.next() {
            Some(name) => Zone::named(name).ok_or_else(|| format!("there is no time zone {name:?}"))?,
            None => Zone::default(),
        };
        match words.next() {
            Some(more) => Err(format!("{more:?} is too much after the time zone")),
            None => Ok(Window { days, from_min, until_min, zone }),
        }
    }

    /// How long it is open, but for clocks that jump.
    pub fn length(&self) -> Span {
        let until = if self.until_min > self.from_min { self.until_min } else { self.until_min + 1_440 };
        Span::minutes((until - self.from_min).into())
    }

    /// The same window for a clock that began on another day of the week.
    pub fn days_later(mut self, days: u32) -> Window {
        self.days = (u32::from(self.days) << days | u32::from(self.days) >> (7 - days)) as u8 & ALL_DAYS;
        self
    }

    /// The times in which it is open, from the day before `at` to a week after.
    fn around(&self, at: Time) -> impl Iterator<Item = (Time, Time)> {
        let today = self.zone.local_min(at).div_euclid(DAY_MIN);
        let opens = |day: &i64| self.days >> (day + EPOCH_WEEKDAY).rem_euclid(7) & 1 == 1;
        (today - 1..=today + 8).filter(opens).map(|day| {
            let from = day * DAY_MIN + i64::from(self.from_min);
            let length = self.length().0 / 60_000;
            (self.zone.moment_of(from), self.zone.moment_of(from + length as i64))
        })
    }
}

/// As it reads.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.days & ALL_DAYS != ALL_DAYS {
            write!(f, "{} ", day_words(self.days))?;
        }
        let clock = |minutes: u16| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        write!(f, "{}-{}", clock(self.from_min), clock(self.until_min))?;
        if self.zone == Zone::default() { Ok(()) } else { write!(f, " {}", self.zone.name) }
    }
}

/// `Mon-Fri` of a run of days, which may go over the end of the week.
fn day_words(days: u8) -> String {
    let on = |day: usize| days >> (day % 7) & 1 == 1;
    let first = (0..7).find(|day| on(*day) && !on(day + 6)).unwrap_or(0);
    let last = (first..first + 7).take_while(|day| on(*day)).last().unwrap_or(first);
    if last == first { DAYS[first].to_string() } else { format!("{}-{}", DAYS[first], DAYS[last % 7]) }
}

/// Until when they are open without a break; `None`: they are closed at `at`. No windows at all are always open.
pub fn open_until(windows: &[Window], at: Time) -> Option<Time> {
    if windows.is_empty() {
        return Some(Time::NEVER);
    }
    let further = |from: Time| {
        let all = windows.iter().flat_map(|window| window.around(from));
        all.filter(|(start, end)| *start <= from && from < *end).map(|(_, end)| end).max()
    };
    let mut until = further(at)?;
    while let Some(later) = further(until) {
        until = later;
        if until.since(at) >= LONGEST {
            return Some(Time::NEVER);
        }
    }
    Some(until)
}

/// The first moment after `at` at which they open.
pub fn next_opening(windows: &[Window], at: Time) -> Time {
    let closed_from = open_until(windows, at).unwrap_or(at);
    if closed_from == Time::NEVER {
        return Time::NEVER;
    }
    let all = windows.iter().flat_map(|window| window.around(closed_from));
    all.map(|(start, _)| start).filter(|start| *start > at && *start >= closed_from).min().unwrap_or(Time::NEVER)
}

/// The longest time for which they are open without a break, but for clocks that jump.
pub fn longest(windows: &[Window]) -> Span {
    let some_week = Time(Span::hours(30 * 24).0);
    let starts = windows.iter().flat_map(|window| window.around(some_week)).map(|(start, _)| start);
    let lengths = starts.filter_map(|start| Some(open_until(windows, start)?.since(start)));
    lengths.max().unwrap_or_default()
}

/// The first moment from `at` on at which they are open and stay so long enough, as `enough` says of the moment and the
/// end.
pub fn first_open(windows: &[Window], at: Time, enough: impl Fn(Time, Time) -> bool) -> Option<Time> {
    let mut from = at;
    for _ in 0..OPENINGS {
        match open_until(windows, from) {
            Some(until) if enough(from, until) => return Some(from),
            _ => from = next_opening(windows, from),
        }
        if from == Time::NEVER {
            return None;
        }
    }
    None
}

fn days(word: &str) -> Option<u8> {
    let day = |text: &str| DAYS.iter().position(|day| day.eq_ignore_ascii_case(text));
    let (from, until) = word.split_once('-').unwrap_or((word, word));
    let (from, until) = (day(from)?, day(until)?);
    let length = (until + 7 - from) % 7;
    Some((0..=length).fold(0, |mask, more| mask | 1 << ((from + more) % 7)))
}

/// `HH:MM` in minutes, up to `24:00`.
pub fn clock(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let two = |part: &str| part.parse::<u16>().ok().filter(|_| part.len() == 2);
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (minutes < 60 && (hours < 24 || (hours == 24 && minutes == 0))).then_some(hours * 60 + minutes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]
    use super::*;
    use crate::model::time::rfc3339;

    fn at(text: &str) -> Time {
        let parts: Vec<u64> = text.split(['-', 'T', ':']).map(|part| part.parse().unwrap()).collect();
        let day = crate::model::time::days_from_civil(parts[0], parts[1], parts[2]);
        Time((day * 1_440 + parts[3] * 60 + parts[4]) * 60_000)
    }

    fn windows(texts: &[&str]) -> Vec<Window> {
        texts.iter().map(|text| Window::parse(text).unwrap()).collect()
    }

    #[test]
    fn a_night_window_over_the_change_of_clocks() {
        let nights = windows(&["22:00-06:00 Europe/Berlin"]);
        for (now, until) in [
            ("2026-03-28T20:59", "closed"),
            ("2026-03-28T21:00", "2026-03-29T04:00:00Z"),
            ("2026-03-29T03:59", "2026-03-29T04:00:00Z"),
            ("2026-03-29T04:00", "closed"),
            ("2026-10-24T20:00", "2026-10-25T05:00:00Z"),
        ] {
            let open = open_until(&nights, at(now)).map_or("closed".to_string(), rfc3339);
            assert_eq!(open, until, "{now}");
        }
        assert_eq!(rfc3339(next_opening(&nights, at("2026-03-29T12:00"))), "2026-03-29T20:00:00Z");
        assert_eq!(rfc3339(next_opening(&nights, at("2026-03-28T22:00"))), "2026-03-29T20:00:00Z");
    }

    #[test]
    fn windows_that_touch_are_one_and_a_whole_week_has_no_end() {
        let joined = windows(&["Fri 18:00-24:00", "Sat-Sun 00:00-24:00"]);
        // 2026-12-04 is a Friday.
        assert_eq!(rfc3339(open_until(&joined, at("2026-12-04T19:00")).unwrap()), "2026-12-07T00:00:00Z");
        assert_eq!(open_until(&joined, at("2026-12-04T17:59")), None);
        assert_eq!(rfc3339(next_opening(&joined, at("2026-12-05T10:00"))), "2026-12-11T18:00:00Z");
        assert_eq!(open_until(&windows(&["00:00-24:00"]), at("2026-12-04T19:00")), Some(Time::NEVER));
        assert_eq!(longest(&joined), Span::hours(54));
        assert_eq!(longest(&windows(&["Mon 22:00-06:00", "Wed 10:00-12:00"])), Span::hours(8));
    }

    #[test]
    fn a_start_needs_enough_of_a_window() {
        let nights = windows(&["22:00-06:00"]);
        let fits = |from: Time, until: Time| from + Span::hours(2) <= until;
        assert_eq!(first_open(&nights, at("2026-12-04T04:00"), fits), Some(at("2026-12-04T04:00")));
        assert_eq!(first_open(&nights, at("2026-12-04T04:01"), fits), Some(at("2026-12-04T22:00")));
        assert_eq!(first_open(&nights, at("2026-12-04T04:01"), |_, _| false), None);
    }

    #[test]
    fn a_window_reads_back_as_it_is_written() {
        for text in ["22:00-06:00", "Sat 00:00-24:00", "Mon-Fri 20:00-08:00 Europe/Berlin", "Sat-Mon 01:05-02:00"] {
            assert_eq!(Window::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Window::parse("Mon-Sun 22:00-06:00 UTC").unwrap().to_string(), "22:00-06:00");
    }

    #[test]
    fn what_is_no_window_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "is missing"),
            ("22:00", "not like"),
            ("22:00-22:00", "empty"),
            ("25:00-26:00", "no time of day"),
            ("Someday 22:00-06:00", "no day"),
            ("22:00-06:00 Mars/Olympus", "no time zone"),
            ("22:00-06:00 UTC please", "too much"),
        ] {
            assert!(Window::parse(text).unwrap_err().contains(why), "{text}");
        }
        assert_eq!(Window::parse("Sat-Mon 00:00-24:00").unwrap().days, 0b110_0001);
        assert_eq!(Window::parse("Mon 00:00-24:00").unwrap().days_later(3).days, 0b1000);
    }
}
