//! Reads the files that users hand over, with bounds: too large a file is refused before it is read, and YAML that would
//! grow by aliases or nesting is refused while it is parsed. Errors carry file, line and column.
use crate::failure::Failure;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The server takes bodies up to 1 MiB; a file that says more than that can only be a mistake.
pub const FILE_BYTES_MAX: u64 = 1 << 20;
const QUOTED_CHARS: usize = 80;

/// A file's text and the name to call it by in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    pub name: String,
    pub text: String,
}

/// Reads `path`, or standard input for `-`, up to [`FILE_BYTES_MAX`].
pub fn read(path: &Path) -> Result<Text, Failure> {
    read_within(path, FILE_BYTES_MAX)
}

/// As [`read`], with another bound.
pub fn read_within(path: &Path, max: u64) -> Result<Text, Failure> {
    let (name, bytes) = (name(path), bytes_within(path, max)?);
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::wrong(format!("cannot read {name}: byte {at} is not UTF-8; save the file as UTF-8 text"))
    })?;
    Ok(Text { name, text })
}

/// What a file is called in messages.
pub fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_string() } else { path.display().to_string() }
}

/// The bytes of `path`, or of standard input for `-`; more than `max` are refused.
pub fn bytes_within(path: &Path, max: u64) -> Result<Vec<u8>, Failure> {
    let name = name(path);
    let fail = |error: std::io::Error| Failure::wrong(format!("cannot read {name}: {error}"));
    let bytes = if path == Path::new("-") {
        take(std::io::stdin().lock(), max).map_err(fail)?
    } else {
        let file = std::fs::File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if meta.is_dir() {
            return Err(Failure::wrong(format!("cannot read {name}: it is a directory; name the file in it")));
        }
        if meta.len() > max {
            return Err(too_large(&name, max));
        }
        take(file, max).map_err(fail)?
    };
    if bytes.len() as u64 > max { Err(too_large(&name, max)) } else { Ok(bytes) }
}

fn take(from: impl Read, max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn too_large(name: &str, max: u64) -> Failure {
    Failure::wrong(format!("cannot read {name}: it is larger than {} MiB; is it the right file?", max >> 20))
}

/// Parses YAML; unknown and doubled keys are errors, as is more nesting or aliasing than a person would write.
pub fn yaml<T: DeserializeOwned>(file: &Text) -> Result<T, Failure> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_events: 100_000,
            max_nodes: 50_000,
            max_aliases: 1_000,
            max_anchors: 200,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 20_000,
            max_replay_stack_depth: 8,
        },
    };
    serde_saphyr::from_str_with_options(&file.text, options).map_err(|error| {
        let reason = reason(&error);
        Failure::wrong(match error.location().filter(|at| at.line() > 0) {
            Some(at) => {
                let (line, column) = (at.line(), at.column());
                let own_words = reason.trim_end_matches(&format!(" at line {line}, column {column}"));
                format!("{}:{line}:{column}: {own_words}{}", file.name, quoted(&file.text, line))
            }
            None => format!("{}: {reason}", file.name),
        })
    })
}

/// The parser's words without its drawing of the place, which is already named.
fn reason(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("cannot be read").trim();
    let words = [
        ("invalid i64", "not a whole number that fits"),
        ("invalid boolean", "true or false is expected"),
        ("expected sequence start", "a list is expected, such as [a, b],"),
        ("expected mapping start", "names with values are expected, such as {key: value},"),
        ("expected string scalar", "one word or number is expected"),
    ];
    let said = first.trim_start_matches("error: ").to_string();
    words.into_iter().fold(said, |said, (jargon, plain)| said.replace(jargon, plain))
}

/// The line at fault, which names the field where the parser does not.
fn quoted(text: &str, line: u64) -> String {
    let found = usize::try_from(line).ok().and_then(|line| text.lines().nth(line.checked_sub(1)?));
    let start: String = found.unwrap_or_default().trim().chars().take(QUOTED_CHARS).collect();
    if start.is_empty() { start } else { format!(" in `{start}`") }
}

/// `~` and `~/…` to the home directory, anything relative to below `base`.
pub fn absolute(path: &str, home: Option<&Path>, base: &Path) -> PathBuf {
    let tilde = match (path, home) {
        ("~", Some(home)) => Some(home.to_path_buf()),
        (path, Some(home)) => path.strip_prefix("~/").map(|rest| home.join(rest)),
        _ => None,
    };
    // `join` keeps an absolute path as it is.
    tilde.unwrap_or_else(|| base.join(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_core::model::wire::job::{Command, JobFile};

    fn parse(text: &str) -> Result<JobFile, Failure> {
        yaml(&Text { name: "job.yaml".into(), text: text.into() })
    }

    #[test]
    fn arguments_and_variables_are_taken_as_they_are_written() {
        let job = parse(
            "name: j\ncommand: [sleep, 007, 1.50, yes]\nenv: {A: 010, B: true, C: 1e3}\nresources: {memory: 1024}",
        )
        .unwrap();
        let Command::Arguments(arguments) = job.command else { panic!("a list") };
        assert_eq!(arguments, ["sleep", "007", "1.50", "yes"]);
        assert_eq!(job.env.values().collect::<Vec<_>>(), ["010", "true", "1e3"]);
        assert_eq!(job.resources.unwrap().memory.as_deref(), Some("1024"));
        assert_eq!(
            parse("name: j\ncommand: python train.py").unwrap().command,
            Command::Line("python train.py".into())
        );
    }

    #[test]
    fn errors_name_file_line_and_column() {
        let error = parse("name: j\ngpu: 4\ncommand: [x]\n").unwrap_err();
        assert_eq!(error.code, 2);
        assert!(error.message.starts_with("job.yaml:2:1: "), "{error}");
        assert!(error.message.contains("gpu"), "{error}");
        let error = parse("name: j\ngang: {workers: many}\n").unwrap_err();
        assert_eq!(error.message, "job.yaml:2:17: not a whole number that fits in `gang: {workers: many}`");
        assert!(parse("name: a\nname: b\ncommand: [x]\n").unwrap_err().message.contains("job.yaml:2:1"));
    }

    #[test]
    fn the_parsers_words_are_put_into_those_of_people() {
        for (text, expected) in [
            (
                "name: j\nenv: [a]\n",
                "job.yaml:2:6: names with values are expected, such as {key: value}, in `env: [a]`",
            ),
            ("name: [a]\n", "job.yaml:1:7: one word or number is expected in `name: [a]`"),
            ("name: j\npty: maybe\n", "job.yaml:2:6: true or false is expected in `pty: maybe`"),
            ("name: j\nretries: 1.5\n", "job.yaml:2:10: not a whole number that fits in `retries: 1.5`"),
        ] {
            assert_eq!(parse(text).unwrap_err().message, expected);
        }
        assert_eq!(parse("name: j\nafter: nojob\n").unwrap().after, ["nojob"]);
        assert_eq!(parse("name: j\nafter: 12\nwindows: 22:00-06:00\n").unwrap().windows, ["22:00-06:00"]);
        let list = yaml::<Vec<String>>(&Text { name: "list".into(), text: "a: b\n".into() }).unwrap_err();
        assert_eq!(list.message, "list:1:1: a list is expected, such as [a, b], in `a: b`");
    }

    #[test]
    fn bombs_are_refused() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for i in 1..10 {
            let uses = vec![format!("*a{}", i - 1); 9].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{uses}]\n"));
        }
        assert!(yaml::<serde_json::Value>(&Text { name: "b".into(), text: bomb }).is_err());
        let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
        assert!(yaml::<serde_json::Value>(&Text { name: "d".into(), text: deep }).is_err());
    }

    #[test]
    fn large_and_odd_files_are_refused_before_parsing() {
        let dir = std::env::temp_dir().join(format!("ganger-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let big = dir.join("big.yaml");
        std::fs::File::create(&big).unwrap().set_len(50 << 20).unwrap();
        assert!(read(&big).unwrap_err().message.contains("larger than 1 MiB"));
        let latin = dir.join("latin.yaml");
        std::fs::write(&latin, b"name: caf\xe9").unwrap();
        assert!(read(&latin).unwrap_err().message.contains("byte 9 is not UTF-8"));
        assert!(read(&dir).unwrap_err().message.contains("directory"));
        assert_eq!(read(&dir.join("none")).unwrap_err().code, 2);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn paths_are_the_users() {
        let (home, base) = (Path::new("/home/u"), Path::new("/srv/dir"));
        assert_eq!(absolute("~/run", Some(home), base), Path::new("/home/u/run"));
        assert_eq!(absolute("~", Some(home), base), Path::new("/home/u"));
        assert_eq!(absolute("ckpt", Some(home), base), Path::new("/srv/dir/ckpt"));
        assert_eq!(absolute("/x", None, base), Path::new("/x"));
    }
}
