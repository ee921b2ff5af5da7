//! The guide of scenario files: its examples hold, and it names every statement, key, state and setting that there is.
#![allow(clippy::unwrap_used)]
use ganger_simulator::run_file;

const GUIDE: &str = include_str!("../../../docs/scenarios.md");

/// The blocks fenced as `scenario`, each with the line at which it begins.
fn examples() -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for (line, text) in GUIDE.lines().enumerate() {
        match (&mut open, text) {
            (None, "```scenario") => open = Some((line + 2, String::new())),
            (Some(_), "```") => found.extend(open.take()),
            (Some((_, example)), text) => *example += &format!("{text}\n"),
            (None, _) => {}
        }
    }
    assert!(open.is_none(), "the last block is not closed");
    found
}

#[test]
fn every_example_holds() {
    let examples = examples();
    assert!(examples.len() >= 5, "the guide has lost its examples");
    for (line, text) in examples {
        let name = format!("docs/scenarios.md from line {line}");
        let outcome = run_file(&text, &name).unwrap_or_else(|error| panic!("{error}"));
        assert!(outcome.passed(), "{}\n{}", outcome.trace_text(), outcome.report());
        assert!(!outcome.expectations.is_empty(), "{name} expects nothing");
    }
}

/// The words that an error names as known alternatives, asked for with one that there cannot be.
fn known_to(line: &str) -> Vec<String> {
    let file = format!("queue lab\n{line}");
    let file = if line.starts_with("at") { format!("nodes 1 pcie-4\nat 0s submit A\n{line}") } else { file };
    let message = run_file(&file, "").unwrap_err().to_string();
    let (_, known) = message.rsplit_once("known: ").unwrap_or_else(|| panic!("{line}: {message}"));
    known.split(", ").map(str::to_string).collect()
}

#[test]
fn the_guide_names_every_word_that_the_grammar_knows() {
    for line in [
        "frobnicate",
        "nodes 1 frobnicate",
        "nodes 1 custom frobnicate=1",
        "queue other frobnicate=1",
        "set frobnicate=1",
        "at 0s frobnicate",
        "at 0s submit B frobnicate=1",
        "at 0s expect A frobnicate",
        "at 0s expect A frobnicate=1",
        "at 0s expect A reason=frobnicate",
        "at 0s expect cluster frobnicate=1",
    ] {
        let known = known_to(line);
        assert!(known.len() > 1, "{line}: {known:?}");
        for word in known {
            let written = |c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == '.';
            let named = GUIDE.match_indices(&word).any(|(at, _)| {
                !GUIDE[..at].ends_with(written)
                    && !GUIDE[at + word.len()..].trim_start_matches('.').starts_with(written)
            });
            assert!(named, "docs/scenarios.md does not name {word:?}, which is known to {line:?}");
        }
    }
}
