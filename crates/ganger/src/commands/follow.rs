//! Copies the logs of ranks to standard output as they grow. With several ranks each line has its rank in front; a line
//! is written whole, so ranks never cut into one another.
use crate::client::Api;
use crate::client::patience::{Patience, patiently};
use crate::failure::Failure;
use crate::output::emit_bytes;
use ganger_core::model::wire::api::JobDetail;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;

/// A log that ended while its rank goes on is looked at again after this.
const PAUSE: Duration = Duration::from_millis(500);

/// Which logs to copy.
#[derive(Debug, Clone)]
pub struct Logs {
    pub job: String,
    pub attempt: Option<u32>,
    pub logs: Vec<Log>,
    pub follow: bool,
}

/// A log by the first rank that is in it, and what to call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    pub rank: u32,
    pub label: String,
}

impl Log {
    pub fn of_rank(rank: u32) -> Log {
        Log { rank, label: rank.to_string() }
    }
}

/// Every log of the job once: ranks that share their launcher's stand together, as `0-7`.
pub fn logs_of(detail: &JobDetail) -> Vec<Log> {
    let mut sharing: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let own = detail.ranks.iter().map(|view| (view.log_of.unwrap_or(view.rank), view.rank));
    own.for_each(|(log, rank)| sharing.entry(log).or_default().push(rank));
    if sharing.is_empty() {
        return (0..detail.view.workers).map(Log::of_rank).collect();
    }
    sharing.into_iter().map(|(rank, ranks)| Log { rank, label: runs(&ranks) }).collect()
}

/// `0-3,6` of ranks in order.
fn runs(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => runs.push((*rank, *rank)),
        }
    }
    let text = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.iter().map(text).collect::<Vec<_>>().join(",")
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
    let several = logs.logs.len() > 1;
    let width = logs.logs.iter().map(|log| log.label.len()).max().unwrap_or(1);
    let prefix = move |log: &Log| several.then(|| format!("[{:>width$}] ", log.label));
    let mut copies = JoinSet::new();
    if logs.follow {
        for log in logs.logs.clone() {
            let (api, logs) = (api.clone(), logs.clone());
            copies.spawn(async move { copy_log(&api, &logs, log.rank, prefix(&log)).await });
        }
    } else {
        let (api, logs) = (api.clone(), logs.clone());
        copies.spawn(async move {
            for log in &logs.logs {
                copy_log(&api, &logs, log.rank, prefix(log)).await?;
            }
            Ok(())
        });
    }
    copies
}

async fn copy_log(api: &Api, logs: &Logs, rank: u32, prefix: Option<String>) -> Result<(), Failure> {
    let mut lines = Lines::new(prefix);
    let mut copy = Copy { api, logs, rank, at: 0 };
    let mut patience = Patience::default();
    loop {
        let from = copy.at;
        match copy.on(&mut lines).await {
            // A stream also ends when the server stops; only the job itself says that its log is whole.
            Ok(()) if !logs.follow || copy.is_over().await? => break,
            Ok(()) if copy.at > from => patience.answered(),
            Ok(()) => tokio::time::sleep(PAUSE).await,
            Err(failure) if logs.follow => patience.wait(failure).await?,
            Err(failure) => return Err(failure),
        }
    }
    emit_bytes(&lines.rest())
}

/// The log of one rank, so far.
struct Copy<'a> {
    api: &'a Api,
    logs: &'a Logs,
    rank: u32,
    at: u64,
}

impl Copy<'_> {
    /// Goes on until the stream ends, or breaks off: then says why.
    async fn on(&mut self, lines: &mut Lines) -> Result<(), Failure> {
        let Logs { job, attempt, follow, .. } = self.logs;
        let mut stream = self.api.logs(job, self.rank, *attempt, *follow, self.at).await?;
        while let Some(piece) = stream.next().await {
            let bytes = piece.map_err(|error| self.broken(&error))?;
            self.at += bytes.len() as u64;
            emit_bytes(&lines.push(&bytes))?;
        }
        Ok(())
    }

    fn broken(&self, error: &impl std::fmt::Display) -> Failure {
        let text = format!("the log of rank {} broke off at byte {}: {error}", self.rank, self.at);
        Failure { transient: true, ..Failure::failed(text) }
    }

    /// Whether nothing more can come: the rank, its attempt or its job has ended.
    async fn is_over(&self) -> Result<bool, Failure> {
        let job = patiently(|| self.api.job(&self.logs.job)).await?;
        let newer = self.logs.attempt.is_some_and(|attempt| attempt != job.view.attempt);
        let ended = job.ranks.iter().any(|view| view.rank == self.rank && view.phase == "ended");
        Ok(newer || ended || job.view.state.is_terminal() || job.ranks.is_empty())
    }
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
    use ganger_core::model::wire::api::RankView;

    #[test]
    fn a_log_that_ranks_share_is_copied_once() {
        let mut detail = crate::output::samples::job_detail();
        let label =
            |detail: &JobDetail| logs_of(detail).into_iter().map(|log| (log.rank, log.label)).collect::<Vec<_>>();
        let named =
            |logs: &[(u32, &str)]| logs.iter().map(|(rank, label)| (*rank, label.to_string())).collect::<Vec<_>>();
        assert_eq!(label(&detail), named(&[(0, "0"), (1, "1")]));
        let view = detail.ranks[0].clone();
        let rank = |rank, log_of| RankView { rank, log_of, ..view.clone() };
        detail.ranks = vec![rank(0, None), rank(1, Some(0)), rank(2, None), rank(3, Some(2)), rank(4, Some(0))];
        assert_eq!(label(&detail), named(&[(0, "0-1,4"), (2, "2-3")]));
        detail.ranks.clear();
        assert_eq!(label(&detail), named(&[(0, "0"), (1, "1")]), "before it is placed nobody knows");
    }

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
