//! Carrying out what was planned. Each act changes the unit's stage at once, so it is not planned twice, and leaves the
//! slow part to a task.
use super::{Agent, Done, Entry, Shared};
use crate::keeper::KeeperError;
use crate::keeper::protocol::Target;
use crate::prepare::{Preparation, Refusal, prepare};
use crate::reconcile::{Act, Stage, StopAsked};
use crate::record::Record;
use crate::signals::TERM;
use crate::start::{self, Ground, launch_file};
use crate::unit::{Unit, UnitKey};
use ganger_core::model::job::{Exit, Launcher};
use ganger_core::model::report::Report;
use ganger_core::model::time::Time;
use ganger_core::model::wire::agent::Action;
use ganger_runtime::clock::unix_ms;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often a keeper is asked to stop before the plan is made again.
const STOP_TRIES: u32 = 5;
const STOP_RETRY: Duration = Duration::from_millis(300);
/// How long a keeper that reported failure may still turn out to have started.
const KEEPER_FAILED: Duration = Duration::from_millis(500);
/// What a keeper adds to a grace whose signal is not SIGTERM, before it kills.
const TERM_GRACE_MS: u64 = 5_000;

impl Agent {
    pub(super) async fn act(&mut self, act: Act) {
        match act {
            Act::Prepare(key) => self.prepare(key),
            Act::Refuse { key, why } => self.refuse(key, why),
            Act::Start(key) => self.start(key),
            Act::Stop { key, deadline } => self.stop(key, StopAsked { deadline, grace: true }),
            Act::Kill(key) => self.stop(key, StopAsked { deadline: Time(0), grace: false }),
            Act::EndUnstarted(key) => {
                self.refuse(key, Act::stopped_early());
                self.clear_away(key).await;
            }
            Act::DropPreparation(key) | Act::Forget(key) => {
                self.entries.remove(&key);
                self.clear_away(key).await;
            }
            Act::TellStray(key) => self.tell_stray(key),
        }
    }

    fn wanted_unit(&self, key: UnitKey) -> Option<Unit> {
        self.wanted.iter().find(|unit| unit.key == key).cloned()
    }

    fn prepare(&mut self, key: UnitKey) {
        let Some(unit) = self.wanted_unit(key) else { return };
        self.entries.insert(key, Entry::new(record(&unit, 0), Stage::Preparing));
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || {
            let outcome = prepare(&unit, &shared.inventory);
            // The loop is gone only when the agent shuts down.
            let _ = shared.done.send(Done::Prepared(key, outcome));
        });
    }

    pub(super) fn prepared(&mut self, key: UnitKey, outcome: Result<Preparation, Refusal>) {
        let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.stage == Stage::Preparing) else { return };
        let kept = outcome.and_then(|preparation| {
            entry.record.port = preparation.port;
            let dir = self.shared.layout.worker(key);
            let made = self.shared.keepers.furnish(&dir);
            made.map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
            entry.record.save(&dir)?;
            Ok(preparation)
        });
        match kept {
            Ok(preparation) => {
                entry.stage = Stage::Prepared;
                entry.listener = Some(preparation.listener);
                self.outbox.extend(preparation.found.map(|report| (None, report)));
                self.tell_prepared(key);
            }
            Err(Refusal { why, told }) => {
                tracing::warn!(unit = %key, why, "refused");
                self.outbox.extend(told.into_iter().map(|report| (None, report)));
                self.ended(key, &Exit::Refused(why));
            }
        }
    }

    pub(super) fn tell_prepared(&mut self, key: UnitKey) {
        let Some(entry) = self.entries.get(&key) else { return };
        let port = entry.record.port;
        for member in &entry.record.members {
            let report = Report::Prepared { job: key.job, attempt: key.attempt, rank: member.rank, port };
            self.outbox.push((None, report));
        }
    }

    fn refuse(&mut self, key: UnitKey, why: String) {
        if let Some(unit) = self.wanted_unit(key) {
            self.entries.entry(key).or_insert_with(|| Entry::new(record(&unit, 0), Stage::Preparing));
        }
        self.ended(key, &Exit::Refused(why));
    }

    fn start(&mut self, key: UnitKey) {
        let Some(unit) = self.wanted_unit(key) else { return };
        let Action::Go { rendezvous_address, rendezvous_port } = unit.action.clone() else { return };
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.stage = Stage::Launching;
        // From here on the port is the job's.
        entry.listener = None;
        entry.record = Record { started: true, ..record(&unit, entry.record.port) };
        entry.lease = self.shared.link.contact().deadline;
        let (record, lease, shared) = (entry.record.clone(), entry.lease, self.shared.clone());
        self.shared.spawn("start", async move {
            let started = launch(&shared, unit, record, lease, (rendezvous_address, rendezvous_port)).await;
            let _ = shared.done.send(Done::Launched(key, started));
        });
    }

    fn stop(&mut self, key: UnitKey, asked: StopAsked) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let Stage::Running { stop, .. } = &mut entry.stage else { return };
        *stop = Some(asked);
        let stopping = Stopping {
            dir: self.shared.layout.worker(key),
            preempt: self.shared.layout.exchange(key, "preempt"),
            signal: start::stop_signal(&entry.record.launch),
            // A launcher ends its ranks when it is signalled itself; the ranks are the ones that save.
            target: match entry.record.launch.run.launcher {
                Launcher::Ranks => Target::Group,
                Launcher::Torchrun | Launcher::Mpi => Target::Descendants,
            },
            asked,
        };
        let shared = self.shared.clone();
        self.shared.spawn("stop", async move {
            for _ in 0..STOP_TRIES {
                match stopping.ask(&shared).await {
                    // A refusal says that it is over already.
                    Ok(()) | Err(KeeperError::Refused(_)) => return,
                    Err(error) => tracing::warn!(unit = %key, %error, "the keeper did not take the stop"),
                }
                tokio::time::sleep(STOP_RETRY).await;
            }
            let _ = shared.done.send(Done::StopFailed(key));
        });
    }

    fn tell_stray(&mut self, key: UnitKey) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        if let Stage::Running { stray_told, .. } = &mut entry.stage {
            *stray_told = true;
        }
        tracing::warn!(unit = %key, "it runs, but no order names it: it is left alone");
        for member in &entry.record.members {
            let whole =
                member.devices.gpus.iter().fold(0, |mask, gpu| mask | 1u64.checked_shl((*gpu).into()).unwrap_or(0));
            let gpus = member.devices.slice.map_or(whole, |slice| whole | slice.mask());
            let (job, attempt, rank, cpus) = (key.job, key.attempt, member.rank, member.devices.cpus);
            self.outbox.push((None, Report::Stray { job, attempt, rank, gpus, cpus }));
        }
    }

    /// Lets its keeper go and removes what it was told; its logs stay.
    async fn clear_away(&self, key: UnitKey) {
        if let Err(error) = self.shared.keepers.forget(&self.shared.layout.worker(key)).await {
            tracing::warn!(unit = %key, %error, "its directory cannot be removed");
        }
    }
}

fn record(unit: &Unit, port: u16) -> Record {
    Record { key: unit.key, launch: unit.launch.clone(), members: unit.members.clone(), port, started: false }
}

/// The record is written before the keeper is started, so that a restarted agent never starts it again.
async fn launch(
    shared: &Arc<Shared>,
    unit: Unit,
    record: Record,
    lease_deadline: Option<u64>,
    rendezvous: (String, u16),
) -> Result<(), String> {
    let dir = shared.layout.worker(unit.key);
    let ground = shared.clone();
    let describe = move || {
        record.save(&ground.layout.worker(record.key))?;
        let ground = Ground {
            config: &ground.config,
            inventory: &ground.inventory,
            layout: &ground.layout,
            rendezvous: (&rendezvous.0, rendezvous.1),
            lease_deadline,
            now: Time(unix_ms()),
        };
        launch_file(&unit, ground)
    };
    let described = tokio::task::spawn_blocking(describe).await;
    let file = described.map_err(|error| format!("describing the process failed: {error}"))??;
    match shared.keepers.start(&dir, &file).await {
        Ok(()) => Ok(()),
        Err(error) => super::restore::late_keeper(&dir, KEEPER_FAILED, error.to_string()).await,
    }
}

/// One stop, as it is asked of a keeper.
struct Stopping {
    dir: PathBuf,
    preempt: PathBuf,
    signal: i32,
    target: Target,
    asked: StopAsked,
}

impl Stopping {
    async fn ask(&self, shared: &Shared) -> Result<(), KeeperError> {
        if !self.asked.grace {
            return shared.keepers.kill(&self.dir).await;
        }
        let (preempt, deadline) = (self.preempt.clone(), self.asked.deadline);
        let written = tokio::task::spawn_blocking(move || start::write_preempt(&preempt, deadline)).await;
        if !matches!(written, Ok(Ok(()))) {
            tracing::warn!(file = %self.preempt.display(), ?written, "the ranks learn of the stop by its signal only");
        }
        let left_ms = deadline.0.saturating_sub(unix_ms());
        let grace_ms = match self.signal {
            TERM => left_ms,
            _ => left_ms.saturating_sub(TERM_GRACE_MS).max(left_ms / 2),
        };
        shared.keepers.stop(&self.dir, self.signal, grace_ms, self.target).await
    }
}
