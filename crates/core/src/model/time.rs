//! Points and lengths of time as integers. The core never asks what time it is.
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, Sub};
use thiserror::Error;

/// A point in time: milliseconds since the Unix epoch (in the simulator: since its own zero, a Monday).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

/// A length of time in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(pub u64);

impl Time {
    /// Later than everything that can happen.
    pub const NEVER: Time = Time(u64::MAX);

    /// How long ago `earlier` was; zero if it lies ahead.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    pub const ZERO: Span = Span(0);

    pub const fn millis(ms: u64) -> Span {
        Span(ms)
    }

    pub const fn seconds(s: u64) -> Span {
        Span(s.saturating_mul(1_000))
    }

    pub const fn minutes(m: u64) -> Span {
        Span::seconds(m.saturating_mul(60))
    }

    pub const fn hours(h: u64) -> Span {
        Span::minutes(h.saturating_mul(60))
    }

    /// Reads `90s`, `10m`, `2h`, `1d`, `250ms`, and sums such as `1h30m`. A bare `0` is zero; any other bare number
    /// is refused because its unit would be a guess.
    pub fn parse(text: &str) -> Result<Span, SpanError> {
        let fail = |why| SpanError { text: text.to_string(), why };
        let trimmed = text.trim();
        if trimmed == "0" {
            return Ok(Span::ZERO);
        }
        let mut rest = trimmed;
        let mut total: u64 = 0;
        if rest.is_empty() {
            return Err(fail("it is empty"));
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or(fail("the unit is missing"))?;
            let number: u64 = rest[..digits].parse().map_err(|_| fail("a number is expected before the unit"))?;
            let after = &rest[digits..];
            let unit_len = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
            let unit_ms: u64 = match &after[..unit_len] {
                "ms" => 1,
                "s" => 1_000,
                "m" | "min" => 60_000,
                "h" => 3_600_000,
                "d" => 86_400_000,
                _ => return Err(fail("the unit is not one of ms, s, m, h, d")),
            };
            let part = number.checked_mul(unit_ms).ok_or(fail("it is too long"))?;
            total = total.checked_add(part).ok_or(fail("it is too long"))?;
            rest = &after[unit_len..];
        }
        Ok(Span(total))
    }
}

/// A length of time that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot read {text:?} as a length of time: {why}; write it like 90s, 10m, 2h or 1h30m")]
pub struct SpanError {
    pub text: String,
    pub why: &'static str,
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl Span {
    /// `self` taken `n` times, saturating.
    pub fn times(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }
}

/// Prints the two largest units that are not zero: `2h05m`, `1m30s`, `250ms`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ms, s) = (self.0 % 1_000, self.0 / 1_000);
        let (days, hours, minutes, seconds) = (s / 86_400, s / 3_600 % 24, s / 60 % 60, s % 60);
        match (days, hours, minutes, seconds, ms) {
            (0, 0, 0, 0, ms) if ms > 0 => write!(f, "{ms}ms"),
            (0, 0, 0, s, 0) => write!(f, "{s}s"),
            (0, 0, 0, s, ms) => write!(f, "{s}.{}s", ms / 100),
            (0, 0, m, 0, _) => write!(f, "{m}m"),
            (0, 0, m, s, _) => write!(f, "{m}m{s:02}s"),
            (0, h, 0, _, _) => write!(f, "{h}h"),
            (0, h, m, _, _) => write!(f, "{h}h{m:02}m"),
            (d, 0, _, _, _) => write!(f, "{d}d"),
            (d, h, _, _, _) => write!(f, "{d}d{h:02}h"),
        }
    }
}

/// `2026-11-30T09:41:07Z`, with milliseconds only where there are some.
pub fn rfc3339(time: Time) -> String {
    let (days, in_day) = (time.0 / 86_400_000, time.0 % 86_400_000);
    let (year, month, day) = civil_from_days(days);
    let (hours, minutes) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (seconds, ms) = (in_day / 1_000 % 60, in_day % 1_000);
    let fraction = if ms == 0 { String::new() } else { format!(".{ms:03}") };
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}{fraction}Z")
}

/// The calendar year in UTC.
pub fn year_of(time: Time) -> u64 {
    civil_from_days(time.0 / 86_400_000).0
}

/// Days since 1970-01-01 of a date in the Gregorian calendar, which must not be before it.
pub fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a count of days since 1970-01-01 in the Gregorian calendar. Counts in 400-year eras that start
/// on a first of March, so that the leap day is the last of its year.
pub(super) fn civil_from_days(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_IN_ERA: u64 = 146_097;
    let day = days + DAYS_TO_1970;
    let (era, of_era) = (day / DAYS_IN_ERA, day % DAYS_IN_ERA);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_rfc3339() {
        assert_eq!(rfc3339(Time(0)), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(Time(951_782_400_000)), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(Time(1_796_031_667_089)), "2026-11-30T09:41:07.089Z");
    }

    #[test]
    fn days_and_dates_are_inverse() {
        for days in [0, 58, 59, 60, 10_956, 20_787, 47_540] {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days, "{year}-{month}-{day}");
        }
    }

    #[test]
    fn spans_read_and_print() {
        for (text, ms, printed) in [
            ("90s", 90_000, "1m30s"),
            ("10m", 600_000, "10m"),
            ("1h30m", 5_400_000, "1h30m"),
            ("250ms", 250, "250ms"),
            ("0", 0, "0s"),
            ("2d", 172_800_000, "2d"),
        ] {
            let span = Span::parse(text).unwrap();
            assert_eq!(span, Span(ms), "{text}");
            assert_eq!(span.to_string(), printed);
        }
    }

    #[test]
    fn spans_without_a_unit_or_beyond_the_range_are_refused() {
        for text in ["", "90", "h", "5 parsecs", "-3s", "99999999999999999999s", "18446744073709551615d"] {
            let error = Span::parse(text).unwrap_err();
            assert!(error.to_string().contains("write it like 90s"), "{text}: {error}");
        }
    }
}
