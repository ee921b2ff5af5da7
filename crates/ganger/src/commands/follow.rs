//! Copies the logs of ranks to standard output as they grow. With several ranks each line has its rank in front; a line
//! is written whole, so ranks never cut into one another.
use crate::client::Api;
use crate::failure::Failure;
use crate::output::{emit_bytes, say};
use std::time::Duration;
use tokio::task::JoinSet;

/// So often is a broken log taken up again before it is given up.
const RESUMES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// Which logs to copy.
#[derive(Debug, Clone)]
pub struct Logs {
    pub job: String,
    pub attempt: Option<u32>,
    pub ranks: Vec<u32>,
    pub follow: bool,
}

/// Copies all; at once when they are followed, else one after the other.
pub async fn copy(api: &Api, logs: &Logs) -> Result<(), Failure> {
    let mut copies = start(api, logs);
    let mut worst = Ok(());
    while let Some(ended) = copies.join_next().await {
        let outcome =
            ended.unwrap_or_else(|error| Err(Failure::failed(format!("the copy of a log broke off: {error}"))));
        if worst.is_ok() {
            worst = outcome;
        }
    }
    worst
}

/// Starts to copy; the caller joins.
pub fn start(api: &Api, logs: &Logs) -> JoinSet<Result<(), Failure>> {
    let prefixed = logs.ranks.len() > 1;
    let width = logs.ranks.iter().max().map_or(1, |rank| rank.to_string().len());
    let mut copies = JoinSet::new();
    if logs.follow {
        for rank in logs.ranks.clone() {
            let (api, logs) = (api.clone(), logs.clone());
            copies.spawn(async move { copy_rank(&api, &logs, rank, prefixed.then_some(width)).await });
        }
    } else {
        let (api, logs) = (api.clone(), logs.clone());
        copies.spawn(async move {
            for rank in logs.ranks.clone() {
                copy_rank(&api, &logs, rank, prefixed.then_some(width)).await?;
            }
            Ok(())
        });
    }
    copies
}

async fn copy_rank(api: &Api, logs: &Logs, rank: u32, prefix_width: Option<usize>) -> Result<(), Failure> {
    let mut lines = Lines::new(prefix_width.map(|width| format!("[{rank:>width$}] ")));
    let (mut at, mut resumes) = (0u64, 0);
    loop {
        match copy_from(api, logs, rank, &mut at, &mut lines).await? {
            None => break,
            Some(why) if resumes == RESUMES || !logs.follow => {
                say(format!("the log of rank {rank} broke off at byte {at}: {why}"));
                break;
            }
            Some(_) => {
                resumes += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    emit_bytes(&lines.rest())
}

/// Copies from byte `at` until the end, or until it breaks off: then says why.
async fn copy_from(
    api: &Api,
    logs: &Logs,
    rank: u32,
    at: &mut u64,
    lines: &mut Lines,
) -> Result<Option<String>, Failure> {
    let mut stream = match api.logs(&logs.job, rank, logs.attempt, logs.follow, *at).await {
        Ok(stream) => stream,
        Err(failure) if *at > 0 && failure.code == 1 => return Ok(Some(failure.message)),
        Err(failure) => return Err(failure),
    };
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(bytes) => {
                *at += bytes.len() as u64;
                emit_bytes(&lines.push(&bytes))?;
            }
            Err(error) => return Ok(Some(error.to_string())),
        }
    }
    Ok(None)
}

/// Puts a prefix in front of each line; without one, bytes pass as they are.
struct Lines {
    prefix: Option<String>,
    unfinished: Vec<u8>,
}

/// A line longer than this is written in parts rather than kept.
const LINE_BYTES_MAX: usize = 64 * 1024;

impl Lines {
    fn new(prefix: Option<String>) -> Lines {
        Lines { prefix, unfinished: Vec::new() }
    }

    /// What can be written now.
    fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Some(prefix) = &self.prefix else { return bytes.to_vec() };
        self.unfinished.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some(end) = self.unfinished.iter().position(|byte| *byte == b'\n') {
            out.extend_from_slice(prefix.as_bytes());
            out.extend(self.unfinished.drain(..=end));
        }
        if self.unfinished.len() > LINE_BYTES_MAX {
            out.extend(self.rest());
        }
        out
    }

    /// What is left of a last line, ended as a line.
    fn rest(&mut self) -> Vec<u8> {
        let Some(prefix) = self.prefix.as_ref().filter(|_| !self.unfinished.is_empty()) else { return Vec::new() };
        let mut out = prefix.clone().into_bytes();
        out.append(&mut self.unfinished);
        out.push(b'\n');
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_whole_with_their_rank() {
        let mut lines = Lines::new(Some("[3] ".into()));
        assert_eq!(lines.push(b"a\nbc"), b"[3] a\n");
        assert_eq!(lines.push(b"d\n\nx"), b"[3] bcd\n[3] \n");
        assert_eq!(lines.rest(), b"[3] x\n");
        assert_eq!(lines.rest(), b"");
        let mut plain = Lines::new(None);
        assert_eq!(plain.push(b"a\nbc"), b"a\nbc");
        assert_eq!(plain.rest(), b"");
    }

    #[test]
    fn a_line_without_end_is_not_kept_for_ever() {
        let mut lines = Lines::new(Some("> ".into()));
        assert_eq!(lines.push(&vec![b'x'; LINE_BYTES_MAX + 1]).len(), LINE_BYTES_MAX + 4);
    }
}
