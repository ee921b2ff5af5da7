//! Files that hold the states of one thing as lines of JSON, newest last: the last whole line counts.
//!
//! A state is one append, so that whoever reads, also after the writer was killed, finds the state before or after it.
//! Replacing the file each time was rejected: file systems write a file out at once that takes another one's place, which
//! cost more than the start of a process. Nothing is synced: the kernel keeps what was written through any kill, and a
//! power cut ends the processes that these files are about; whoever reads after a boot goes by its id.
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::OpenOptions;
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Adds the newest state to the file at `path`, which is made with mode 0600.
///
/// # Errors
/// The file cannot be written; then the state before counts.
pub(crate) fn add<T: Serialize>(path: &Path, state: &T) -> Result<()> {
    // Also in front: what a full disk or a kill cut short spoils no line but its own.
    let mut line = b"\n".to_vec();
    serde_json::to_writer(&mut line, state)?;
    line.push(b'\n');
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(&line)
}

/// Takes all states out of the file at `path`; without one there is nothing to do.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn clear(path: &Path) -> Result<()> {
    match OpenOptions::new().write(true).open(path) {
        // The first byte stays, an empty line: what is written to an emptied file is written out at its closing, as if it
        // took another one's place.
        Ok(file) if file.metadata()?.len() > 1 => file.set_len(1),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Whether a state was ever written to the file at `path`, since it was last cleared.
pub(crate) fn is_any(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.len() > 1)
}

/// The newest state in the file at `path`.
///
/// # Errors
/// The file cannot be read, or holds no whole state.
pub(crate) fn newest<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read(path)?;
    let mut lines = text.rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let whole = lines.find_map(|line| serde_json::from_slice(line).ok());
    whole.ok_or_else(|| Error::new(ErrorKind::InvalidData, "it holds no whole state; only this program writes it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn the_last_whole_state_counts_wherever_a_write_was_cut_short() {
        let dir = TempDir::new();
        let path = dir.path().join("state.json");
        assert_eq!(newest::<u32>(&path).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::write(&path, "").unwrap();
        assert_eq!(newest::<Vec<u32>>(&path).unwrap_err().kind(), ErrorKind::InvalidData);
        add(&path, &[1, 10]).unwrap();
        let before = std::fs::read(&path).unwrap().len();
        add(&path, &[2, 20]).unwrap();
        let text = std::fs::read(&path).unwrap();
        for cut in before..=text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            let expected = if cut + 1 < text.len() { [1, 10] } else { [2, 20] };
            assert_eq!(newest::<[u32; 2]>(&path).unwrap(), expected, "cut at {cut}");
            add(&path, &[3, 30]).unwrap();
            assert_eq!(newest::<[u32; 2]>(&path).unwrap(), [3, 30], "after a cut at {cut}");
        }
        assert!(is_any(&path));
        clear(&path).unwrap();
        assert!(!is_any(&path));
        assert_eq!(newest::<[u32; 2]>(&path).unwrap_err().kind(), ErrorKind::InvalidData);
        add(&path, &[4, 40]).unwrap();
        assert_eq!(newest::<[u32; 2]>(&path).unwrap(), [4, 40]);
        clear(&dir.path().join("none")).unwrap();
    }
}
