//! Coming back: what an agent before this one left is adopted from its records and its living keepers.
use super::{Agent, Done, Entry};
use crate::keeper::state::State;
use crate::keeper::{Found, Standing};
use crate::reconcile::Stage;
use crate::record::Record;
use crate::unit::UnitKey;
use ganger_core::model::report::Report;
use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// A keeper that was being started when the agent died writes its first state well within this.
const KEEPER_COMES: Duration = Duration::from_secs(5);

impl Agent {
    /// Takes over every unit that has a record. One whose end is in the journal is not told again.
    pub(super) fn restore(&mut self, found: Vec<Found>) {
        let told = self.ends_in_journal();
        for worker in found {
            match Record::load(&worker.dir) {
                Ok(record) => self.adopt(record, &worker, &told),
                Err(why) => tracing::error!(dir = %worker.dir.display(), why, "a worker's directory is left alone"),
            }
        }
    }

    fn adopt(&mut self, record: Record, worker: &Found, told: &BTreeSet<UnitKey>) {
        let key = record.key;
        tracing::info!(unit = %key, standing = ?worker.standing, "found again");
        let running = Stage::Running { stop: None, stray_told: false };
        match (worker.standing, record.started) {
            // Its end waits in the journal already, and its keeper for being told to go.
            _ if told.contains(&key) => self.adopt_ended(record, told),
            (Standing::Kept | Standing::Orphaned, _) => {
                self.entries.insert(key, Entry::new(record, running));
                self.watch(key);
            }
            (Standing::Ended, _) => self.adopt_ended(record, told),
            (Standing::NotStarted, true) => {
                self.entries.insert(key, Entry::new(record, Stage::Launching));
                let shared = self.shared.clone();
                self.shared.spawn("adopt", async move {
                    let why = "the agent was restarted while it was starting this".to_string();
                    let outcome = late_keeper(&shared.layout.worker(key), KEEPER_COMES, why).await;
                    let _ = shared.done.send(Done::Launched(key, outcome));
                });
            }
            (Standing::NotStarted, false) => self.adopt_prepared(record),
        }
    }

    fn adopt_ended(&mut self, record: Record, told: &BTreeSet<UnitKey>) {
        let key = record.key;
        self.entries.insert(key, Entry::new(record, Stage::Running { stop: None, stray_told: false }));
        if told.contains(&key) {
            // The journal sends it; only its number has to be known.
            let number = self.number_of_end(key);
            if let Some(entry) = self.entries.get_mut(&key) {
                entry.stage = Stage::Ended { acknowledged: false };
                entry.ended.send_replace(true);
                entry.ended_number = number;
            }
        } else {
            // The watch tells it, after the last checkpoints.
            self.watch(key);
        }
    }

    fn adopt_prepared(&mut self, record: Record) {
        let key = record.key;
        let mut entry = Entry::new(record, Stage::Prepared);
        entry.listener = TcpListener::bind(("0.0.0.0", entry.record.port)).ok();
        self.entries.insert(key, entry);
        // The report may not have been written before the agent died.
        self.tell_prepared(key);
    }

    fn ends_in_journal(&self) -> BTreeSet<UnitKey> {
        self.pending_ends().into_iter().map(|(key, _)| key).collect()
    }

    fn number_of_end(&self, key: UnitKey) -> Option<u64> {
        self.pending_ends().into_iter().filter(|(other, _)| *other == key).map(|(_, number)| number).max()
    }

    /// The units whose end waits in the journal; ranks without a process of their own name no unit here.
    fn pending_ends(&self) -> Vec<(UnitKey, u64)> {
        let journal = self.shared.link.journal.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let end = |report: &Report| match report {
            Report::Ended { job, attempt, rank, .. } => Some(UnitKey { job: *job, attempt: *attempt, lead: *rank }),
            _ => None,
        };
        journal.pending(usize::MAX).iter().filter_map(|r| Some((end(&r.report)?, r.number))).collect()
    }
}

/// Waits for a keeper that may be starting at this moment; without one the start has failed. The launch file is taken
/// away first, so that a keeper that comes even later finds nothing to start.
pub(super) async fn late_keeper(dir: &Path, patience: Duration, why: String) -> Result<(), String> {
    let until = Instant::now() + patience;
    while Instant::now() < until && !came(dir) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    if !came(dir) {
        take_away(dir);
    }
    if came(dir) { Ok(()) } else { Err(why) }
}

fn came(dir: &Path) -> bool {
    State::is_there(dir)
}

fn take_away(dir: &Path) {
    let removed = std::fs::remove_file(crate::keeper::LaunchFile::path(dir));
    if let Err(error) = removed {
        tracing::debug!(dir = %dir.display(), %error, "no launch file");
    }
}
