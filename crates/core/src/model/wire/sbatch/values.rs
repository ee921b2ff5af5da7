//! Slurm's ways to write words, times, memory and GPUs.

/// Splits a line into words as a shell would: quotes hold together, a `#` word begins a comment.
pub(super) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed".to_string());
    }
    words.extend(word);
    Ok(words)
}

/// `MM`, `MM:SS`, `HH:MM:SS`, `D-HH`, `D-HH:MM`, `D-HH:MM:SS` to seconds.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(number(days)?), rest),
        None => (None, text),
    };
    let parts: Vec<u64> = rest.split(':').map(number).collect::<Option<_>>()?;
    let (hours, minutes, seconds) = match (days, parts.as_slice()) {
        (None, [m]) => (0, *m, 0),
        (None, [m, s]) => (0, *m, *s),
        (Some(_), [h]) => (*h, 0, 0),
        (Some(_), [h, m]) => (*h, *m, 0),
        (_, [h, m, s]) => (*h, *m, *s),
        _ => return None,
    };
    let days = days.unwrap_or(0).checked_mul(86_400)?;
    let hours = hours.checked_mul(3_600)?;
    days.checked_add(hours)?.checked_add(minutes.checked_mul(60)?)?.checked_add(seconds)
}

/// `64G`, `512M`, `4096` (MiB by default) to bytes; units are binary.
pub(super) fn memory(text: &str) -> Option<u64> {
    let upper = text.to_ascii_uppercase();
    let text = upper.strip_suffix('B').unwrap_or(&upper);
    let (digits, shift) = match text.chars().last()? {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        'T' => (&text[..text.len() - 1], 40),
        _ => (text, 20),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// `4`, `h100:4` (of a `gpu` list) to model and count.
pub(super) fn gpus(text: &str) -> Option<(Option<String>, u64)> {
    match text.rsplit_once(':') {
        None => Some((None, text.parse().ok()?)),
        Some((model, count)) if !model.contains(':') && !model.is_empty() => {
            Some((Some(model.to_string()), count.parse().ok()?))
        }
        _ => None,
    }
}

/// The part of `gpu`, `gpu:4`, `gpu:h100:4` after `gpu`.
pub(super) fn gres(text: &str) -> Option<(Option<String>, u64)> {
    match text.strip_prefix("gpu")? {
        "" => Some((None, 1)),
        rest => {
            let rest = rest.strip_prefix(':')?;
            gpus(rest).or_else(|| (!rest.contains(':') && !rest.is_empty()).then(|| (Some(rest.to_string()), 1)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_slurms_six_forms() {
        for (text, expected) in [
            ("90", Some(5_400)),
            ("1:30", Some(90)),
            ("12:00:00", Some(43_200)),
            ("1-0", Some(86_400)),
            ("1-12:30", Some(131_400)),
            ("2-00:00:01", Some(172_801)),
            ("", None),
            ("1h", None),
            ("1-", None),
            ("1:2:3:4", None),
            ("99999999999999999-0", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
    }

    #[test]
    fn memory_is_binary_and_mebibytes_by_default() {
        assert_eq!(memory("64G"), Some(64 << 30));
        assert_eq!(memory("64GB"), Some(64 << 30));
        assert_eq!(memory("4096"), Some(4 << 30));
        assert_eq!(memory("-1"), None);
        assert_eq!(memory("99999999999999T"), None);
    }

    #[test]
    fn gpus_may_name_a_model() {
        assert_eq!(gres("gpu"), Some((None, 1)));
        assert_eq!(gres("gpu:4"), Some((None, 4)));
        assert_eq!(gres("gpu:h100:4"), Some((Some("h100".to_string()), 4)));
        assert_eq!(gres("gpu:h100"), Some((Some("h100".to_string()), 1)));
        assert_eq!(gres("gpux:4"), None);
        assert_eq!(gres("shard:1"), None);
    }

    #[test]
    fn words_keep_quotes_together_and_drop_comments() {
        assert_eq!(words(" -J 'my job' --time=1 # note").unwrap(), ["-J", "my job", "--time=1"]);
        assert!(words(" -J 'my").is_err());
    }
}
