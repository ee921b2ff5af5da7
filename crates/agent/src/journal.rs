//! The agent's reports, numbered and on disk until the server has committed them.
//!
//! One file of JSON lines: a report is appended before anybody is told of it, so that the end of a worker survives a kill
//! at any instant; numbers rise over restarts. It is rewritten when most of it is acknowledged. A line that a crash cut
//! short was never told to anybody and is dropped; any other damage is an error, never skipped.
//!
//! Only what is said of checkpoints is synced too. All else is about processes that a power cut ends, whatever they did
//! last: when the agent registers with the id of another boot, the server gives up all that ran there. So after a power
//! cut the file is good up to where it is damaged.
use ganger_core::model::report::Report;
use ganger_core::model::wire::agent::NumberedReport;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Acknowledged lines that may lie in the file before it is rewritten.
const SPENT_LINES: usize = 512;

/// Why the journal could not be read or written.
#[derive(Debug, Error)]
pub enum JournalError {
    #[error("cannot {action} the journal {path}: {source}; it holds the reports that the server does not have yet")]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error(
        "journal {path}, line {line}: {why}; move the file away to start a new one: reports that the server has not seen are lost with it, and living or ended workers are told again"
    )]
    Damaged { path: PathBuf, line: usize, why: String },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Report(NumberedReport),
    /// All up to this number are committed at the server.
    Acknowledged(u64),
    /// No report has had a number at or above this one; keeps numbers rising when all lines are spent.
    Next(u64),
}

/// The open journal. All calls do file work: keep them off the async threads.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    pending: VecDeque<NumberedReport>,
    next: u64,
    spent_lines: usize,
    /// Bytes of whole lines in the file: where a failed write is cut off again.
    whole_bytes: u64,
}

impl Journal {
    /// Opens or creates the journal and reads what is still to be acknowledged. `rebooted`: a power cut may have damaged it.
    ///
    /// # Errors
    /// The file cannot be used, or is damaged before its last line for no reason.
    pub fn open(path: &Path, rebooted: bool) -> Result<Journal, JournalError> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(JournalError::File { action: "read", path: path.into(), source }),
        };
        let (pending, next) = match read(path, &text) {
            (pending, next, Some(damage)) if rebooted => {
                tracing::warn!(%damage, "the journal ends there, as the power cut left it");
                (pending, next)
            }
            (_, _, Some(damage)) => return Err(damage),
            (pending, next, None) => (pending, next),
        };
        let file = rewrite(path, &pending, next)?;
        let whole_bytes = length(path, &file)?;
        Ok(Journal { path: path.into(), file, pending, next, spent_lines: 0, whole_bytes })
    }

    /// Numbers `reports` and writes them down. Returns the number of the last.
    ///
    /// # Errors
    /// They could not be written: then none of them may be told to anybody.
    pub fn append(&mut self, reports: Vec<Report>) -> Result<u64, JournalError> {
        let mut text = Vec::new();
        let mut added = Vec::new();
        let outlives_a_boot = reports.iter().any(outlives_a_boot);
        for (number, report) in (self.next..).zip(reports) {
            let numbered = NumberedReport { number, report };
            text.extend(line(&Line::Report(numbered.clone())));
            added.push(numbered);
        }
        self.write(&text, outlives_a_boot)?;
        self.next += added.len() as u64;
        self.pending.extend(added);
        Ok(self.next - 1)
    }

    /// The server has all up to `number`.
    ///
    /// # Errors
    /// The file could not be written; the reports would only be sent again.
    pub fn acknowledge(&mut self, number: u64) -> Result<(), JournalError> {
        if number >= self.next {
            return self.renumber(number);
        }
        let before = self.pending.len();
        while self.pending.front().is_some_and(|report| report.number <= number) {
            self.pending.pop_front();
        }
        let spent = before - self.pending.len();
        if spent == 0 {
            return Ok(());
        }
        self.spent_lines += spent + 1;
        if self.spent_lines > SPENT_LINES {
            return self.compact();
        }
        // Not synced: a lost acknowledgement only makes the agent send again.
        self.write(&line(&Line::Acknowledged(number)), false)
    }

    /// The server has heard higher numbers than this journal ever gave: an older journal was lost. What is pending was
    /// taken for a repetition, so it gets numbers above.
    fn renumber(&mut self, heard: u64) -> Result<(), JournalError> {
        for (number, report) in (heard + 1..).zip(&mut self.pending) {
            report.number = number;
        }
        self.next = heard + 1 + self.pending.len() as u64;
        self.compact()
    }

    fn compact(&mut self) -> Result<(), JournalError> {
        self.file = rewrite(&self.path, &self.pending, self.next)?;
        (self.spent_lines, self.whole_bytes) = (0, length(&self.path, &self.file)?);
        Ok(())
    }

    /// The oldest `most` reports that the server has not acknowledged.
    pub fn pending(&self, most: usize) -> Vec<NumberedReport> {
        self.pending.iter().take(most).cloned().collect()
    }

    /// Whether the report of this number is acknowledged.
    pub fn is_acknowledged(&self, number: u64) -> bool {
        number < self.next && self.pending.front().is_none_or(|first| number < first.number)
    }

    /// Appends all of `text` or nothing.
    fn write(&mut self, text: &[u8], sync: bool) -> Result<(), JournalError> {
        let written = self.file.write_all(text).and_then(|()| if sync { self.file.sync_data() } else { Ok(()) });
        if let Err(source) = written {
            // Half a line would spoil the next one.
            let cut = self.file.set_len(self.whole_bytes);
            let _ = cut.and_then(|()| self.file.seek(SeekFrom::Start(self.whole_bytes)).map(drop));
            return Err(self.error("append to", source));
        }
        self.whole_bytes += text.len() as u64;
        Ok(())
    }

    fn error(&self, action: &'static str, source: std::io::Error) -> JournalError {
        JournalError::File { action, path: self.path.clone(), source }
    }
}

fn length(path: &Path, file: &File) -> Result<u64, JournalError> {
    let metadata = file.metadata();
    metadata.map(|m| m.len()).map_err(|source| JournalError::File { action: "measure", path: path.into(), source })
}

fn line(line: &Line) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Checkpoints lie on storage that other nodes see.
fn outlives_a_boot(report: &Report) -> bool {
    match report {
        Report::Checkpoint { .. } | Report::CheckpointRejected { .. } => true,
        Report::Prepared { .. } | Report::Running { .. } | Report::Ended { .. } | Report::Stray { .. } => false,
    }
}

/// What is pending, the next number, and the first damage, if there is any: what follows it is left out.
fn read(path: &Path, text: &[u8]) -> (VecDeque<NumberedReport>, u64, Option<JournalError>) {
    let mut pending = VecDeque::new();
    let mut next = 1;
    // What follows the last newline was cut off by a crash.
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    for (at, line) in text[..whole].split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        let damaged = |why: String| Some(JournalError::Damaged { path: path.into(), line: at + 1, why });
        let line = match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(error) => return (pending, next, damaged(error.to_string())),
        };
        match line {
            Line::Report(report) if report.number < next => {
                let why = format!("report {} follows number {}", report.number, next - 1);
                return (pending, next, damaged(why));
            }
            Line::Report(report) => {
                next = report.number + 1;
                pending.push_back(report);
            }
            Line::Acknowledged(number) => {
                pending.retain(|report: &NumberedReport| report.number > number);
                next = next.max(number + 1);
            }
            Line::Next(number) => next = next.max(number),
        }
    }
    (pending, next, None)
}

fn rewrite(path: &Path, pending: &VecDeque<NumberedReport>, next: u64) -> Result<File, JournalError> {
    let first = pending.front().map_or(next, |report| report.number);
    let mut text = line(&Line::Next(first));
    for report in pending {
        text.extend(line(&Line::Report(report.clone())));
    }
    let error = |action, at: &Path| {
        let path = at.to_path_buf();
        move |source| JournalError::File { action, path, source }
    };
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(error("create", &fresh))?;
    file.write_all(&text).and_then(|()| file.sync_all()).map_err(error("write", &fresh))?;
    std::fs::rename(&fresh, path).map_err(error("replace", path))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(error("sync", dir))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use ganger_core::model::ids::{AttemptNo, JobId, Rank};

    fn running(job: u64) -> Report {
        Report::Running { job: JobId(job), attempt: AttemptNo(1), rank: Rank(0) }
    }

    fn numbers(journal: &Journal) -> Vec<u64> {
        journal.pending(usize::MAX).iter().map(|report| report.number).collect()
    }

    #[test]
    fn reports_survive_and_numbers_rise_over_restarts() {
        let dir = TempDir::new();
        let path = dir.path().join("journal");
        let mut journal = Journal::open(&path, false).unwrap();
        assert_eq!(journal.append(vec![running(1), running(2)]).unwrap(), 2);
        drop(journal);
        let mut journal = Journal::open(&path, false).unwrap();
        assert_eq!(numbers(&journal), [1, 2]);
        journal.acknowledge(2).unwrap();
        assert!(journal.is_acknowledged(2) && !journal.is_acknowledged(3));
        drop(journal);
        let mut journal = Journal::open(&path, false).unwrap();
        assert_eq!(numbers(&journal), [] as [u64; 0]);
        assert_eq!(journal.append(vec![running(3)]).unwrap(), 3);
    }

    #[test]
    fn a_journal_that_was_lost_goes_on_above_what_the_server_has_heard() {
        let dir = TempDir::new();
        let path = dir.path().join("journal");
        let mut journal = Journal::open(&path, false).unwrap();
        journal.append(vec![running(1), running(2)]).unwrap();
        journal.acknowledge(500).unwrap();
        assert_eq!(numbers(&journal), [501, 502]);
        assert_eq!(numbers(&Journal::open(&path, false).unwrap()), [501, 502]);
        journal.acknowledge(502).unwrap();
        assert_eq!(journal.append(vec![running(3)]).unwrap(), 503);
    }

    #[test]
    fn a_line_cut_short_anywhere_is_dropped_and_the_rest_kept() {
        let dir = TempDir::new();
        let path = dir.path().join("journal");
        let mut journal = Journal::open(&path, false).unwrap();
        journal.append(vec![running(1)]).unwrap();
        let whole = std::fs::read(&path).unwrap().len();
        journal.append(vec![running(2)]).unwrap();
        let text = std::fs::read(&path).unwrap();
        for cut in whole..text.len() {
            std::fs::write(&path, &text[..cut]).unwrap();
            let mut journal = Journal::open(&path, false).unwrap();
            assert_eq!(numbers(&journal), [1], "cut at {cut}");
            assert_eq!(journal.append(vec![running(9)]).unwrap(), 2);
        }
    }

    #[test]
    fn damage_in_the_middle_is_refused_with_its_line() {
        let dir = TempDir::new();
        let path = dir.path().join("journal");
        Journal::open(&path, false).unwrap().append(vec![running(1), running(2)]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap().replacen("running", "runn", 1);
        std::fs::write(&path, text).unwrap();
        let error = Journal::open(&path, false).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn after_a_power_cut_the_journal_is_good_up_to_the_damage() {
        let dir = TempDir::new();
        let path = dir.path().join("journal");
        Journal::open(&path, false).unwrap().append(vec![running(1), running(2), running(3)]).unwrap();
        let mut text = std::fs::read(&path).unwrap();
        let second = text.windows(8).rposition(|word| word == b"\"job\":2,").unwrap();
        text[second..].fill(0);
        text.push(b'\n');
        std::fs::write(&path, text).unwrap();
        Journal::open(&path, false).unwrap_err();
        let mut journal = Journal::open(&path, true).unwrap();
        assert_eq!(numbers(&journal), [1]);
        assert_eq!(journal.append(vec![running(9)]).unwrap(), 2);
        assert_eq!(numbers(&Journal::open(&path, false).unwrap()), [1, 2]);
    }

    #[test]
    fn the_file_stays_small_however_many_reports_pass() {
        let dir = TempDir::new();
        let path = dir.path().join("journal");
        let mut journal = Journal::open(&path, false).unwrap();
        for job in 0..3_000 {
            let number = journal.append(vec![running(job)]).unwrap();
            journal.acknowledge(number).unwrap();
        }
        assert!(std::fs::metadata(&path).unwrap().len() < 100_000);
        assert_eq!(Journal::open(&path, false).unwrap().append(vec![running(1)]).unwrap(), 3_001);
    }
}
