//! What ranks announce: lines `CHECKPOINT <step> <path>` in the file that `GANGER_CHECKPOINT_ACK` names.
//!
//! The path is the rest of the line and may hold spaces. A rank writes while this is read, so a last line without its line feed is left
//! for the next look. An announcement is a claim: nothing counts before [`verify`](super::verify) has seen it.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const WORD: &[u8] = b"CHECKPOINT ";
/// Longer than any path the kernel takes; a line beyond it is not waited for.
const MAX_LINE_BYTES: usize = 8192;

/// One announced checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    pub step: u64,
    pub path: PathBuf,
}

/// What a look at the file found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Announcements {
    /// In file order; the last is not always the highest step.
    pub made: Vec<Announcement>,
    /// Complete lines that are no announcement, shortened, for the log. Blank lines and `#` comments are not among them.
    pub malformed: Vec<String>,
    /// Bytes read off: the next look starts there.
    pub consumed_bytes: usize,
}

/// Reads all complete lines of `text`, the file's content from the last look on.
pub fn parse(text: &[u8]) -> Announcements {
    let mut found = Announcements::default();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Some(complete) = line.strip_suffix(b"\n") else {
            if line.len() > MAX_LINE_BYTES {
                found.malformed.push(shortened(line));
                found.consumed_bytes += line.len();
            }
            break;
        };
        found.consumed_bytes += line.len();
        let complete = complete.trim_ascii();
        match parse_line(complete) {
            Some(announcement) => found.made.push(announcement),
            None if complete.is_empty() || complete.starts_with(b"#") => {}
            None => found.malformed.push(shortened(complete)),
        }
    }
    found
}

fn parse_line(line: &[u8]) -> Option<Announcement> {
    let rest = line.strip_prefix(WORD)?.trim_ascii_start();
    let space = rest.iter().position(|byte| *byte == b' ')?;
    let step = super::files::whole_number(std::str::from_utf8(&rest[..space]).ok()?)?;
    let path = rest[space..].trim_ascii_start();
    if path.is_empty() || path.len() > MAX_LINE_BYTES || path.contains(&0) {
        return None;
    }
    Some(Announcement { step, path: PathBuf::from(OsStr::from_bytes(path)) })
}

fn shortened(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned()
}

/// Appends an announcement to an ack file. One write, so that lines of several ranks do not mix.
///
/// # Errors
/// The path cannot be put on one line, or the file cannot be written.
pub fn append(ack: &Path, step: u64, path: &Path) -> io::Result<()> {
    let bytes = path.as_os_str().as_bytes();
    let whole = !bytes.is_empty() && bytes.trim_ascii() == bytes && !bytes.contains(&b'\n') && !bytes.contains(&0);
    if !whole || bytes.len() > MAX_LINE_BYTES {
        let problem = format!(
            "cannot announce {}: a path that begins or ends in a space or holds a line feed fits no line; rename it",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
    }
    let mut line = Vec::from(WORD);
    line.extend_from_slice(format!("{step} ").as_bytes());
    line.extend_from_slice(bytes);
    line.push(b'\n');
    OpenOptions::new().create(true).append(true).open(ack)?.write_all(&line)
}
