//! Readers of the words in user files that have no type of their own elsewhere: names, signals, moments.
use crate::model::time::Time;

pub(super) const NAME_FIX: &str = "use letters, digits, dot, dash and underscore, start with a letter or digit, at most 63 characters, not only digits and not like 12_3";

/// Letters, digits, `.`, `-`, `_`; starts with a letter or digit; at most 63; not only digits, which would be an id, nor
/// `12_3`, which would be that of a task.
pub(crate) fn is_name(text: &str) -> bool {
    let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    is_label(text) && !digits(text) && !text.split_once('_').is_some_and(|(job, task)| digits(job) && digits(task))
}

/// As a name, but only digits are fine.
pub(crate) fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (1..=63).contains(&text.len()) && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(inner)
}

/// `research/nlp`: names joined by slashes, at most eight deep.
pub(crate) fn is_queue_path(text: &str) -> bool {
    text.split('/').count() <= 8 && text.split('/').all(is_label)
}

pub(crate) fn is_env_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A signal that a process can catch, as `SIGUSR1` or `USR1`, to its full name.
pub fn parse_signal(text: &str) -> Option<String> {
    let upper = text.to_ascii_uppercase();
    let short = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known = ["HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "CONT", "WINCH"];
    known.contains(&short).then(|| format!("SIG{short}"))
}

/// Reads `2026-12-01T08:00:00Z` or `…+01:00`, with or without a fraction of seconds.
pub fn parse_rfc3339(text: &str) -> Option<Time> {
    let text = text.trim();
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = fields(date, '-', [4, 2, 2])?;
    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone_at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let [hour, minute, second] = fields(clock, ':', [2, 2, 2])?;
    let in_range = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = days_from_epoch(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - offset(zone)?;
    let ms = seconds.checked_mul(1_000)? + millis(fraction)?;
    u64::try_from(ms).ok().map(Time)
}

fn fields(text: &str, separator: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut values = [0; 3];
    for (value, width) in values.iter_mut().zip(widths) {
        let part = parts.next()?;
        if part.len() != width || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        *value = part.parse().ok()?;
    }
    parts.next().is_none().then_some(values)
}

/// Seconds east of UTC.
fn offset(zone: &str) -> Option<i64> {
    if zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let [hours, minutes, _] = fields(&format!("{}:00", zone.get(1..)?), ':', [2, 2, 2])?;
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn millis(fraction: &str) -> Option<i64> {
    if fraction.is_empty() {
        return Some(0);
    }
    if fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    format!("{fraction:0<3}")[..3].parse().ok()
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days since 1970-01-01 in the Gregorian calendar, counted with the year turned to begin in March.
fn days_from_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_read_in_any_zone_and_nonsense_does_not() {
        assert_eq!(parse_rfc3339("1970-01-01T00:00:00Z"), Some(Time(0)));
        assert_eq!(parse_rfc3339("2026-11-30T09:48:02.25Z"), Some(Time(1_796_032_082_250)));
        assert_eq!(parse_rfc3339("2026-11-30T10:48:02.250+01:00"), parse_rfc3339("2026-11-30T09:48:02.25Z"));
        assert!(parse_rfc3339("2028-02-29T00:00:00Z").is_some());
        for text in
            ["", "tomorrow", "2026-11-30", "2026-02-29T00:00:00Z", "2026-11-30T25:00:00Z", "2026-11-30T09:48:02"]
        {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn signals_have_one_spelling_and_those_nobody_can_catch_are_unknown() {
        assert_eq!(parse_signal("usr1").as_deref(), Some("SIGUSR1"));
        assert_eq!(parse_signal("SIGTERM").as_deref(), Some("SIGTERM"));
        assert_eq!(parse_signal("SIGKILL"), None);
        assert_eq!(parse_signal("12"), None);
    }

    #[test]
    fn names_never_look_like_ids() {
        assert!(is_name("llama-ft.v2") && is_name("7b") && !is_name("42") && !is_name("-x") && !is_name("a b"));
        assert!(is_name("v_1") && !is_name("12_3"));
        assert!(is_queue_path("research/nlp") && !is_queue_path("research//nlp") && !is_queue_path("/x"));
    }
}
