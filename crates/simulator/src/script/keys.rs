//! The `key=value` tail of a statement: refuses unknown and doubled keys, reads values into types.
use super::error::{Problem, ScriptError};
use super::lexer::{Op, Word};
use ganger_core::model::amounts::{parse_bandwidth, parse_bytes};
use ganger_core::model::time::{Span, Time};
use std::collections::BTreeMap;

/// The keys of one statement, each known and there at most once.
pub struct Keys<'a> {
    pub line: u32,
    words: BTreeMap<&'a str, &'a str>,
}

impl<'a> Keys<'a> {
    /// `statement` names the statement in messages, such as `submit`.
    pub fn read(line: u32, statement: &str, words: &'a [Word], known: &[&str]) -> Result<Keys<'a>, ScriptError> {
        let mut found = BTreeMap::new();
        for word in words {
            if !known.contains(&word.key.as_str()) {
                return Err(ScriptError::unknown(line, format!("key of {statement}"), &word.key, known));
            }
            if word.op != Some(Op::Equal) {
                let why = "a key, = and a value are expected";
                return Err(ScriptError::value(line, format!("the key of {statement}"), &word.text, why));
            }
            if word.value.is_empty() {
                return Err(ScriptError::value(line, word.key.as_str(), &word.text, "the value is empty"));
            }
            if found.insert(word.key.as_str(), word.value.as_str()).is_some() {
                let what = format!("key of {statement}");
                return Err(ScriptError::new(line, Problem::Twice { what, word: word.key.clone(), first: None }));
            }
        }
        Ok(Keys { line, words: found })
    }

    pub fn text(&self, key: &str) -> Option<String> {
        self.words.get(key).map(|value| value.to_string())
    }

    /// Reads the value of `key` with `read`; its error becomes one with line, key and value.
    pub fn with<T, E: ToString>(
        &self,
        key: &str,
        read: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, ScriptError> {
        let Some(value) = self.words.get(key) else { return Ok(None) };
        read(value).map(Some).map_err(|why| ScriptError::value(self.line, key, value, why))
    }

    pub fn count(&self, key: &str) -> Result<Option<u32>, ScriptError> {
        self.with(key, count)
    }

    /// Like [`Keys::count`], but 0 is refused.
    pub fn positive(&self, key: &str) -> Result<Option<u32>, ScriptError> {
        self.with(key, |value| match count(value)? {
            0 => Err("at least 1 is expected".to_string()),
            n => Ok(n),
        })
    }

    pub fn span(&self, key: &str) -> Result<Option<Span>, ScriptError> {
        self.with(key, Span::parse)
    }

    /// A time since 0s.
    pub fn time(&self, key: &str) -> Result<Option<Time>, ScriptError> {
        Ok(self.span(key)?.map(|span| Time(span.0)))
    }

    pub fn bytes(&self, key: &str) -> Result<Option<u64>, ScriptError> {
        self.with(key, parse_bytes)
    }

    pub fn bandwidth(&self, key: &str) -> Result<Option<u64>, ScriptError> {
        self.with(key, parse_bandwidth)
    }

    pub fn flag(&self, key: &str) -> Result<Option<bool>, ScriptError> {
        self.with(key, |value| match value {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("true or false is expected"),
        })
    }

    /// `a:1,b:2`
    pub fn labels(&self, key: &str) -> Result<BTreeMap<String, String>, ScriptError> {
        Ok(self.with(key, labels)?.unwrap_or_default())
    }
}

/// A whole number that fits.
pub fn count(value: &str) -> Result<u32, String> {
    value.parse().map_err(|_| "a whole number is expected".to_string())
}

fn labels(value: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for part in value.split(',') {
        let (key, value) = part.split_once(':').ok_or("labels are written like zone:a,disk:ssd")?;
        if found.insert(key.to_string(), value.to_string()).is_some() {
            return Err(format!("the label {key:?} is given twice"));
        }
    }
    Ok(found)
}

/// A decimal number with up to six decimals, in millionths: exact, without floats.
pub fn millionths(value: &str) -> Result<u64, String> {
    let wrong = || "a number with at most six decimals is expected".to_string();
    let (whole, fraction) = value.split_once('.').unwrap_or((value, ""));
    let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 6 || !digits(whole) || !digits(fraction) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let fraction: u64 = format!("{fraction:0<6}").parse().map_err(|_| wrong())?;
    whole.checked_mul(1_000_000).and_then(|w| w.checked_add(fraction)).ok_or_else(wrong)
}
