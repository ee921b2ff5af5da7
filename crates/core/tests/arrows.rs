//! Who may know whom inside the core, read off the source: `use crate::…` and `crate::…` paths, folder by folder.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "a test of the source reads the source")]
use std::fs;
use std::path::{Path, PathBuf};

/// Folder → folders that it may name besides itself. Whoever may name something may also name `model`.
const ALLOWED: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("check", &["model"]),
    ("scheduler", &["model", "check"]),
    ("serving", &["model"]),
    ("engine", &["model"]),
    ("lifecycle", &["model", "scheduler", "check"]),
    ("planner", &["model", "check", "scheduler", "serving", "engine", "lifecycle"]),
];

/// Lints that keep decisions pure: an exception would have to be argued here, not beside the code.
const PURITY_LINTS: &[&str] = &["float_arithmetic", "disallowed_methods", "disallowed_types", "unsafe_code"];

#[test]
fn no_folder_names_one_that_it_may_not_know() {
    let mut wrong = Vec::new();
    for (file, number, line) in lines() {
        let folder = folder_of(&file);
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == folder) else {
            assert_eq!(folder, "lib.rs", "{} is in a folder without a place in the order", file.display());
            continue;
        };
        for named in named_folders(&line) {
            if named != folder && !allowed.contains(&named.as_str()) {
                wrong.push(format!("{}:{number}: {folder} may not know {named}: {}", file.display(), line.trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn purity_lints_are_not_allowed_away() {
    let excused: Vec<String> = lines()
        .filter(|(_, _, line)| excuses(line))
        .map(|(file, number, line)| format!("{}:{number}: {}", file.display(), line.trim()))
        .collect();
    assert!(excused.is_empty(), "{}", excused.join("\n"));
}

#[test]
fn integer_folders_deny_floats() {
    for folder in ["scheduler", "lifecycle", "check"] {
        let head = fs::read_to_string(source().join(folder).join("mod.rs")).unwrap();
        assert!(head.contains("#![deny(clippy::float_arithmetic)]"), "{folder}/mod.rs does not deny floats");
    }
}

#[test]
fn paths_are_found_in_all_their_forms() {
    assert_eq!(named_folders("use crate::model::job::Place;"), ["model"]);
    assert_eq!(named_folders("    x: &crate::model::Node, y: crate::check::Violation"), ["model", "check"]);
    assert_eq!(named_folders("use crate::{check, model::{Job, Node}, scheduler};"), ["check", "model", "scheduler"]);
    assert_eq!(named_folders("pub(crate) fn f() {} // no path"), [""; 0]);
    let broken = statements("use crate::{\n    check,\n    scheduler::decide,\n};\nfn f() {}");
    assert_eq!((broken.len(), named_folders(&broken[0].1)), (2, vec!["check".to_string(), "scheduler".to_string()]));
    assert!(excuses("#![allow(clippy::float_arithmetic)]") && excuses("  #[expect(unsafe_code, reason = \"…\")]"));
    assert!(!excuses("#[allow(dead_code)]"));
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Every line of code of the crate with its file (below `src`) and number. Unit tests may use what they like, but live
/// in the same file; they are held to the same order.
fn lines() -> impl Iterator<Item = (PathBuf, usize, String)> {
    let mut files = Vec::new();
    collect(&source(), &mut files);
    assert!(files.len() > 20, "only {} files found", files.len());
    files.into_iter().flat_map(|file| {
        let text = fs::read_to_string(&file).unwrap();
        let short = file.strip_prefix(source()).unwrap().to_path_buf();
        let numbered = statements(&text).into_iter().map(move |(number, line)| (short.clone(), number, line));
        numbered.filter(|(_, _, line)| !line.trim_start().starts_with("//")).collect::<Vec<_>>()
    })
}

/// Lines with their numbers; a list of imports over several lines is one.
fn statements(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        match found.last_mut().filter(|_| open) {
            Some((_, start)) => start.push_str(line.trim()),
            None => found.push((index + 1, line.to_string())),
        }
        let import = found.last().is_some_and(|(_, line)| line.contains("use crate::{"));
        open = import && !line.contains(';');
    }
    found
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn folder_of(file: &Path) -> String {
    let first = file.components().next().unwrap().as_os_str().to_string_lossy().to_string();
    first.strip_suffix(".rs").filter(|name| *name != "lib").map_or(first.clone(), str::to_string)
}

/// The first segment after each `crate::`; of a list in braces the first segment of every item.
fn named_folders(line: &str) -> Vec<String> {
    let mut named = Vec::new();
    for (at, _) in line.match_indices("crate::") {
        let rest = &line[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(list) => named.extend(top_items(list).iter().map(|item| word(item))),
            None => named.push(word(rest)),
        }
    }
    named
}

fn word(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// The items of a list in braces, its inner lists left whole.
fn top_items(list: &str) -> Vec<String> {
    let (mut items, mut depth) = (vec![String::new()], 0);
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                items.push(String::new());
                continue;
            }
            _ => {}
        }
        items.last_mut().unwrap().push(c);
    }
    items.retain(|item| !item.trim().is_empty());
    items
}

fn excuses(line: &str) -> bool {
    let line = line.trim_start();
    let attribute = ["#[allow(", "#![allow(", "#[expect(", "#![expect("].iter().any(|start| line.starts_with(start));
    attribute && PURITY_LINTS.iter().any(|lint| line.contains(lint))
}
