//! Words in lines: colours of states, wrapping with a hanging indent, columns of unicode text.
use comfy_table::Color;
pub use ganger_core::model::amounts::count;

/// The colour of a state's word; none for what is neither good, under way nor bad.
pub fn state_colour(state: &str) -> Option<Color> {
    match state {
        "running" | "done" | "ready" => Some(Color::Green),
        "pending" | "starting" | "stopping" | "suspect" | "probation" | "cordoned" | "draining" | "cooling down" => {
            Some(Color::Yellow)
        }
        "failed" | "fenced" | "quarantined" | "dead" => Some(Color::Red),
        "cancelled" => Some(Color::DarkGrey),
        _ => None,
    }
}

/// `text` in a colour, if colours are wanted.
pub fn paint(text: &str, colour: Option<Color>, wanted: bool) -> String {
    let code = match colour {
        Some(Color::Green) => 32,
        Some(Color::Yellow) => 33,
        Some(Color::Red) => 31,
        Some(Color::Cyan) => 36,
        Some(Color::DarkGrey) => 90,
        _ => return text.to_string(),
    };
    if wanted { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
}

pub fn state(word: &str, wanted: bool) -> String {
    paint(word, state_colour(word), wanted)
}

pub fn bold(text: &str, wanted: bool) -> String {
    if wanted { format!("\x1b[1m{text}\x1b[0m") } else { text.to_string() }
}

/// Breaks `text` at spaces into lines of at most `width` columns; a longer word stays whole.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if !line.is_empty() && columns(line) + 1 + columns(word) > width {
            lines.push(word.to_string());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// `head` in a field of `indent` columns, then `text` wrapped with that indent. `head_columns` is what of `head` is seen.
pub fn hang(head: &str, head_columns: usize, text: &str, indent: usize, width: usize) -> String {
    let mut out = String::new();
    for (i, line) in wrap(text, width.saturating_sub(indent).max(20)).iter().enumerate() {
        if i == 0 {
            out.push_str(head);
            out.push_str(&" ".repeat(indent.saturating_sub(head_columns)));
        } else {
            out.push_str(&" ".repeat(indent));
        }
        out.push_str(line);
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    }
    out
}

/// Columns on a terminal; every character that we print takes one.
pub fn columns(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_with_a_hanging_indent() {
        let out = hang("Nodes", 5, "four of them are busy with other work until noon", 8, 32);
        assert_eq!(out, "Nodes   four of them are busy\n        with other work until\n        noon\n");
    }

    #[test]
    fn colours_only_where_wanted() {
        assert_eq!(state("failed", false), "failed");
        assert_eq!(state("failed", true), "\x1b[31mfailed\x1b[0m");
        assert_eq!(state("odd", true), "odd");
    }
}
