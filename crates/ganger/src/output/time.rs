//! Times for people: how long ago, how soon, and the hour on this user's clock.
use ganger_core::model::time::Span;
use ganger_core::model::wire::job::parse_rfc3339;

/// `3m12s`: how long since an RFC 3339 moment. What cannot be read is shown as it is.
pub fn age(moment: &str, now_ms: u64) -> String {
    match parse_rfc3339(moment) {
        Some(at) => whole_seconds(now_ms.saturating_sub(at.0)).to_string(),
        None => moment.to_string(),
    }
}

/// How long between two moments.
pub fn between(from: &str, to: &str) -> Option<String> {
    let (from, to) = (parse_rfc3339(from)?, parse_rfc3339(to)?);
    Some(whole_seconds(to.since(from).0).to_string())
}

/// `in 2h05m`, `3m ago` or `now`.
pub fn relative(moment: &str, now_ms: u64) -> String {
    let Some(at) = parse_rfc3339(moment) else { return moment.to_string() };
    let (ahead, behind) = (whole_seconds(at.0.saturating_sub(now_ms)), whole_seconds(now_ms.saturating_sub(at.0)));
    match (ahead, behind) {
        (Span(0), Span(0)) => "now".to_string(),
        (Span(0), behind) => format!("{behind} ago"),
        (ahead, _) => format!("in {ahead}"),
    }
}

fn whole_seconds(ms: u64) -> Span {
    Span(ms / 1_000 * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_from_now() {
        let now = parse_rfc3339("2026-11-30T12:00:00Z").unwrap().0;
        assert_eq!(age("2026-11-30T11:56:47.9Z", now), "3m12s");
        assert_eq!(age("2026-11-30T12:00:09Z", now), "0s", "a server's clock may be ahead");
        assert_eq!(relative("2026-11-30T14:05:00Z", now), "in 2h05m");
        assert_eq!(relative("2026-11-30T11:59:00Z", now), "1m ago");
        assert_eq!(relative("2026-11-30T12:00:00Z", now), "now");
        assert_eq!(age("soon", now), "soon");
        assert_eq!(between("2026-11-30T11:00:00Z", "2026-11-30T11:00:05.5Z").unwrap(), "5s");
    }
}
