//! The smallest pieces of the text: lines without escapes, links by grammar. Links are scanned and not split at white space,
//! because neighbouring cells can be glued together.

use super::Link;

/// Removes terminal escapes (`ESC [ … letter`), which some drivers print even into a file.
pub(super) fn strip_escapes(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, escape)) = rest.split_once('\u{1b}') {
        plain.push_str(before);
        let body = escape.strip_prefix('[').unwrap_or(escape);
        rest = body.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';' || c == '?');
        rest = rest.strip_prefix(|c: char| c.is_ascii_alphabetic()).unwrap_or(rest);
    }
    plain.push_str(rest);
    plain
}

/// The link that `text` begins with, and what follows it.
pub(super) fn take_link(text: &str) -> Option<(Link, &str)> {
    const CLASSES: [(&str, Link); 7] = [
        ("PIX", Link::Pix),
        ("PXB", Link::Pxb),
        ("PHB", Link::Phb),
        ("NODE", Link::Node),
        ("SYS", Link::Sys),
        ("SOC", Link::Sys),
        ("X", Link::Own),
    ];
    if let Some(after) = text.strip_prefix("NV") {
        let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        // More digits than any link count has: something is glued on, and where it starts is anybody's guess.
        let links = if digits <= 2 { after[..digits].parse().ok().filter(|&links| links > 0)? } else { return None };
        return Some((Link::NvLink(links), &after[digits..]));
    }
    CLASSES.into_iter().find_map(|(word, link)| Some((link, text.strip_prefix(word)?)))
}

/// Whether `text` begins with a link that ends there: at white space, at the end, or where another link begins.
pub(super) fn begins_with_link(text: &str) -> bool {
    match take_link(text) {
        Some((_, rest)) => rest.is_empty() || rest.starts_with(char::is_whitespace) || take_link(rest).is_some(),
        None => false,
    }
}

/// The first word of a line and what follows it.
pub(super) fn take_word(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    line.split_at(line.find(char::is_whitespace).unwrap_or(line.len()))
}

impl std::fmt::Display for Link {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Link::Own => out.write_str("X"),
            Link::NvLink(links) => write!(out, "NV{links}"),
            Link::Pix => out.write_str("PIX"),
            Link::Pxb => out.write_str("PXB"),
            Link::Phb => out.write_str("PHB"),
            Link::Node => out.write_str("NODE"),
            Link::Sys => out.write_str("SYS"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_go_and_text_stays() {
        assert_eq!(strip_escapes("\u{1b}[4m\tGPU0\tGPU NUMA ID\u{1b}[0m"), "\tGPU0\tGPU NUMA ID");
        assert_eq!(strip_escapes("\t\u{1b}[1;4mGPU0\u{1b}[0m"), "\tGPU0");
        assert_eq!(strip_escapes("plain"), "plain");
    }

    #[test]
    fn glued_links_come_apart_and_doubtful_ones_are_refused() {
        assert_eq!(take_link("NV18NV18 X"), Some((Link::NvLink(18), "NV18 X")));
        assert_eq!(take_link("SYSPIX"), Some((Link::Sys, "PIX")));
        assert_eq!(take_link("SOC\t"), Some((Link::Sys, "\t")));
        assert_eq!(take_link("NV180-23"), None);
        assert_eq!(take_link("NV0"), None);
        assert_eq!(take_link("OK"), None);
        assert!(begins_with_link("NV4"));
        assert!(!begins_with_link("SYSTEM is up"));
    }
}
