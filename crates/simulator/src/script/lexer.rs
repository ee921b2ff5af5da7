//! Cuts one line into words. A word is a bare name or a key, an operator and a value; quotes keep spaces together.
//!
//! `#` opens a comment where a word could begin, so that `a#b` stays a value. Inside quotes `\"` and `\\` are escapes and
//! operators mean nothing.
use super::error::ScriptError;
use serde::Serialize;
use std::cmp::Ordering;

/// How a key and its value are compared; in all statements but `expect` only `=` has a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Op {
    Equal,
    NotEqual,
    AtMost,
    AtLeast,
    Below,
    Above,
    Contains,
}

const OPS: [(&str, Op); 7] = [
    ("!=", Op::NotEqual),
    ("~=", Op::Contains),
    ("<=", Op::AtMost),
    (">=", Op::AtLeast),
    ("<", Op::Below),
    (">", Op::Above),
    ("=", Op::Equal),
];

impl Op {
    /// Whether a value that compares like this to the expected one is as expected.
    pub fn holds(self, actual_to_expected: Ordering) -> bool {
        match self {
            Op::Equal => actual_to_expected.is_eq(),
            Op::NotEqual => actual_to_expected.is_ne(),
            Op::AtMost => actual_to_expected.is_le(),
            Op::AtLeast => actual_to_expected.is_ge(),
            Op::Below => actual_to_expected.is_lt(),
            Op::Above => actual_to_expected.is_gt(),
            Op::Contains => false,
        }
    }

    /// As it is written.
    pub fn symbol(self) -> &'static str {
        OPS.iter().find(|(_, op)| *op == self).map_or("=", |(text, _)| text)
    }
}

/// One word of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// All of it, without the quotes: what error messages show.
    pub text: String,
    /// What stands before the operator; the whole word if there is none.
    pub key: String,
    pub op: Option<Op>,
    /// What stands behind the operator.
    pub value: String,
}

/// The words of one line, none if it is empty or a comment.
pub fn words(line: u32, text: &str) -> Result<Vec<Word>, ScriptError> {
    let mut found = Vec::new();
    let mut rest = text.chars().peekable();
    loop {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        match rest.peek() {
            None | Some('#') => return Ok(found),
            Some(_) => found.push(split(&one_word(line, &mut rest)?)),
        }
    }
}

/// The characters of one word, each with whether it was quoted.
fn one_word(line: u32, rest: &mut std::iter::Peekable<std::str::Chars>) -> Result<Vec<(char, bool)>, ScriptError> {
    let mut word = Vec::new();
    let mut quoted = false;
    while let Some(c) = rest.next_if(|c| quoted || !c.is_whitespace()) {
        match c {
            '"' => quoted = !quoted,
            '\\' if quoted && matches!(rest.peek(), Some('"' | '\\')) => {
                word.extend(rest.next().map(|escaped| (escaped, true)));
            }
            c => word.push((c, quoted)),
        }
    }
    if quoted {
        let text: String = word.iter().map(|(c, _)| c).collect();
        return Err(ScriptError::value(line, "the word", &text, "its closing quote is missing"));
    }
    Ok(word)
}

/// Splits at the first operator outside quotes.
fn split(chars: &[(char, bool)]) -> Word {
    let text = |part: &[(char, bool)]| part.iter().map(|(c, _)| *c).collect::<String>();
    let starts_with = |at: usize, op: &str| op.chars().enumerate().all(|(i, c)| chars.get(at + i) == Some(&(c, false)));
    for at in 0..chars.len() {
        if let Some((symbol, op)) = OPS.iter().find(|(symbol, _)| starts_with(at, symbol)) {
            let (key, value) = (text(&chars[..at]), text(&chars[at + symbol.len()..]));
            return Word { text: text(chars), key, op: Some(*op), value };
        }
    }
    Word { text: text(chars), key: text(chars), op: None, value: String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_split_at_spaces_and_operators_outside_quotes() {
        let found = words(1, "at 10s expect B text~=\"needs 32 = all\" used(lab)>=4 on=n0,n1 # tail").unwrap();
        let shown: Vec<_> = found.iter().map(|w| (w.key.as_str(), w.op, w.value.as_str())).collect();
        assert_eq!(
            shown,
            [
                ("at", None, ""),
                ("10s", None, ""),
                ("expect", None, ""),
                ("B", None, ""),
                ("text", Some(Op::Contains), "needs 32 = all"),
                ("used(lab)", Some(Op::AtLeast), "4"),
                ("on", Some(Op::Equal), "n0,n1"),
            ]
        );
    }

    #[test]
    fn comments_open_only_where_a_word_could_begin() {
        assert!(words(1, "   # all comment").unwrap().is_empty());
        assert_eq!(words(1, "label=a#b").unwrap()[0].value, "a#b");
        assert_eq!(words(1, "\"#x\"").unwrap()[0].key, "#x");
        assert_eq!(words(1, r#"text="say \"no\" \\""#).unwrap()[0].value, r#"say "no" \"#);
    }

    #[test]
    fn an_open_quote_is_an_error_with_its_line() {
        let error = words(7, "text~=\"needs 32").unwrap_err().to_string();
        assert!(error.contains("line 7") && error.contains("closing quote"), "{error}");
    }
}
