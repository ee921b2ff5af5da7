//! The agent itself: one loop that owns all units, hears what happened and does what [`plan`] says.
//!
//! Everything slow runs in tasks that tell the loop when they are done, so leases are renewed whatever a disk does. What
//! is not yet written down is told to nobody: reports wait in an outbox until the journal has them.
mod acts;
mod restore;
mod startup;

pub use startup::{AgentError, run, run_with};

use crate::config::Config;
use crate::inventory::Inventory;
use crate::keepers::Keepers;
use crate::link::{Link, News};
use crate::prepare::{Preparation, Refusal};
use crate::reconcile::{Known, Stage, plan};
use crate::record::{Layout, Record};
use crate::streams::Streaming;
use crate::unit::{Unit, UnitKey, units};
use crate::watch::{Seen, Watch};
use crate::{logs, start};
use ganger_core::model::ids::{AttemptNo, JobId, Rank};
use ganger_core::model::job::Exit;
use ganger_core::model::report::Report;
use ganger_core::model::wire::agent::{Action, Order, StreamAsk};
use ganger_runtime::tasks::Tasks;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::watch as signal;

/// How often what has no event of its own is looked at: unsaved reports, old logs.
const TICK: Duration = Duration::from_secs(1);
const PRUNE_EVERY: Duration = Duration::from_secs(600);
/// A keeper is given a new deadline when it is later by this part of the lease: so little that it does not count beside
/// what is left to ask peers in.
const PUSHES_PER_LEASE: u64 = 128;

/// What a task tells the loop.
#[derive(Debug)]
enum Done {
    Prepared(UnitKey, Result<Preparation, Refusal>),
    Launched(UnitKey, Result<(), String>),
    /// The keeper did not take a stop; it is asked again.
    StopFailed(UnitKey),
}

/// What never changes while the agent runs.
struct Shared {
    config: Config,
    inventory: Inventory,
    layout: Layout,
    keepers: Arc<dyn Keepers>,
    link: Arc<Link>,
    tasks: Tasks,
    done: UnboundedSender<Done>,
    seen: UnboundedSender<(UnitKey, Seen)>,
}

impl Shared {
    /// Starts a task that ends with the agent. What it leaves half done the next agent finds in the records.
    fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        let shutdown = self.tasks.shutdown();
        self.tasks.spawn(name, async move {
            tokio::select! {
                () = work => {}
                () = shutdown.wait() => {}
            }
        });
    }
}

/// One unit in memory.
struct Entry {
    record: Record,
    stage: Stage,
    /// The preparation's port, until the start.
    listener: Option<TcpListener>,
    /// Set once it has ended and its log is complete.
    ended: signal::Sender<bool>,
    /// Journal number of its end; `None` until it is written.
    ended_number: Option<u64>,
    /// The deadline that its keeper was last given.
    lease: Option<u64>,
}

impl Entry {
    fn new(record: Record, stage: Stage) -> Entry {
        Entry { record, stage, listener: None, ended: signal::channel(false).0, ended_number: None, lease: None }
    }

    /// Whether its keeper, which is up, has to be told of leases.
    fn is_leased(&self) -> bool {
        matches!(self.stage, Stage::Running { .. }) && self.record.launch.leased
    }

    fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Launching | Stage::Running { .. })
    }
}

struct Agent {
    shared: Arc<Shared>,
    entries: BTreeMap<UnitKey, Entry>,
    /// As the server last sent them, and grouped into units. `None` until this agent has heard some: without them nothing
    /// is a stray.
    orders: Option<Vec<Order>>,
    wanted: Vec<Unit>,
    settled: bool,
    began: Instant,
    /// With the unit whose end a report is, to learn its number.
    outbox: Vec<(Option<UnitKey>, Report)>,
}

struct Inbox {
    done: UnboundedReceiver<Done>,
    seen: UnboundedReceiver<(UnitKey, Seen)>,
    news: UnboundedReceiver<News>,
}

impl Agent {
    async fn serve(&mut self, mut inbox: Inbox, shutdown: impl Future<Output = ()>) {
        tokio::pin!(shutdown);
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut prune = tokio::time::interval(PRUNE_EVERY);
        let shared = self.shared.clone();
        loop {
            tokio::select! {
                () = &mut shutdown => return,
                Some(done) = inbox.done.recv() => self.done(done),
                Some((key, seen)) = inbox.seen.recv() => self.seen(key, seen),
                Some(news) = inbox.news.recv() => self.news(news),
                () = shared.link.leases.notified() => self.push_leases(),
                _ = tick.tick() => self.settle(),
                _ = prune.tick() => self.prune_logs(),
            }
            self.flush().await;
            self.reconcile().await;
            self.flush().await;
        }
    }

    /// Without records of before, what a lost agent started is over once its leases are.
    fn settle(&mut self) {
        let lease_ms = self.shared.link.contact().lease_ms;
        self.settled |= lease_ms > 0 && self.began.elapsed() >= Duration::from_millis(lease_ms);
    }

    async fn reconcile(&mut self) {
        let Some(orders) = &self.orders else { return };
        self.wanted =
            units(&self.shared.config.node, orders, |order| self.holder(order.job, order.attempt, order.rank));
        for unit in &self.wanted {
            if let Some(Entry { stage: Stage::Running { stray_told, .. }, .. }) = self.entries.get_mut(&unit.key) {
                *stray_told = false;
            }
        }
        let known = self.entries.iter().map(|(key, entry)| (*key, self.known(entry))).collect();
        for act in plan(&self.wanted, &known, self.settled) {
            tracing::debug!(?act, "next");
            self.act(act).await;
        }
    }

    /// The unit that a rank is part of.
    fn holder(&self, job: JobId, attempt: AttemptNo, rank: Rank) -> Option<UnitKey> {
        let mut same = self.entries.iter().filter(|(key, _)| (key.job, key.attempt) == (job, attempt));
        let found = same.find(|(_, entry)| entry.record.members.iter().any(|member| member.rank == rank));
        found.map(|(key, _)| *key)
    }

    fn known(&self, entry: &Entry) -> Known {
        let stage = match entry.stage {
            Stage::Ended { .. } => Stage::Ended { acknowledged: self.is_acknowledged(entry) },
            other => other,
        };
        Known { stage, members: entry.record.members.clone() }
    }

    fn is_acknowledged(&self, entry: &Entry) -> bool {
        let journal = self.shared.link.journal.lock().unwrap_or_else(PoisonError::into_inner);
        entry.ended_number.is_some_and(|number| journal.is_acknowledged(number))
    }

    fn news(&mut self, news: News) {
        if let Some(orders) = news.orders {
            self.orders = Some(orders);
        }
        news.streams.into_iter().for_each(|ask| self.stream(ask));
    }

    fn seen(&mut self, key: UnitKey, seen: Seen) {
        match seen {
            Seen::Running => {
                let Some(entry) = self.entries.get(&key) else { return };
                let (job, attempt) = (key.job, key.attempt);
                let ranks: Vec<_> = entry.record.members.iter().map(|member| member.rank).collect();
                for rank in ranks {
                    self.outbox.push((None, Report::Running { job, attempt, rank }));
                }
            }
            Seen::Checkpoint(report) => self.outbox.push((None, report)),
            Seen::Ended(exit) => self.ended(key, &exit),
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Prepared(key, outcome) => self.prepared(key, outcome),
            Done::Launched(key, Ok(())) => {
                if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.stage == Stage::Launching) {
                    entry.stage = Stage::Running { stop: None, stray_told: false };
                    self.watch(key);
                }
                // The lease may have been renewed while its keeper was being started.
                self.push_leases();
            }
            Done::Launched(key, Err(why)) => {
                tracing::warn!(unit = %key, why, "cannot start");
                self.ended(key, &Exit::Refused(why));
            }
            Done::StopFailed(key) => {
                if let Some(Entry { stage: Stage::Running { stop, .. }, .. }) = self.entries.get_mut(&key) {
                    *stop = None;
                }
            }
        }
    }

    /// Nothing of the unit is left: told for all its ranks.
    fn ended(&mut self, key: UnitKey, exit: &Exit) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        if matches!(entry.stage, Stage::Ended { .. }) {
            return;
        }
        entry.stage = Stage::Ended { acknowledged: false };
        entry.listener = None;
        entry.ended.send_replace(true);
        let ranks: Vec<_> = entry.record.members.iter().map(|member| member.rank).collect();
        for rank in ranks {
            let exit = exit.clone();
            self.outbox.push((Some(key), Report::Ended { job: key.job, attempt: key.attempt, rank, exit }));
        }
    }

    /// Writes down what is in the outbox and sends it off. What cannot be written stays for the next tick.
    async fn flush(&mut self) {
        if self.outbox.is_empty() {
            return;
        }
        let (keys, reports): (Vec<_>, Vec<_>) = self.outbox.iter().cloned().unzip();
        let journal = self.shared.link.journal.clone();
        let work = move || journal.lock().unwrap_or_else(PoisonError::into_inner).append(reports);
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(last)) => {
                let first = last + 1 - keys.len() as u64;
                for (number, key) in (first..).zip(keys) {
                    if let Some(entry) = key.and_then(|key| self.entries.get_mut(&key)) {
                        entry.ended_number = Some(number);
                    }
                }
                self.outbox.clear();
                self.shared.link.reports.notify_one();
            }
            Ok(Err(error)) => tracing::error!(%error, "reports are kept back until they can be written"),
            Err(error) => tracing::error!(%error, "writing reports failed"),
        }
    }

    /// Not for every answer of the server: on a busy node reports are answered a hundred times as often as leases run down.
    fn push_leases(&mut self) {
        let (deadline, lease_ms) = {
            let contact = self.shared.link.contact();
            (contact.deadline, contact.lease_ms)
        };
        let Some(deadline) = deadline else { return };
        for (key, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.is_leased()) {
            if entry.lease.is_some_and(|given| deadline < given.saturating_add(lease_ms / PUSHES_PER_LEASE)) {
                continue;
            }
            entry.lease = Some(deadline);
            let (keepers, dir, key) = (self.shared.keepers.clone(), self.shared.layout.worker(*key), *key);
            self.shared.spawn("lease", async move {
                if let Err(error) = keepers.lease(&dir, deadline).await {
                    tracing::debug!(unit = %key, %error, "a keeper did not take its lease");
                }
            });
        }
    }

    fn watch(&self, key: UnitKey) {
        let Some(unit) = self.unit(key) else { return };
        let watch = Watch {
            keepers: self.shared.keepers.clone(),
            announce: start::announce_file(&self.shared.layout, &unit),
            unit,
            dir: self.shared.layout.worker(key),
            tell: self.shared.seen.clone(),
        };
        self.shared.spawn("watch", watch.run());
    }

    /// The unit as this agent has it on record.
    fn unit(&self, key: UnitKey) -> Option<Unit> {
        let record = &self.entries.get(&key)?.record;
        Some(Unit { key, action: Action::Prepare, launch: record.launch.clone(), members: record.members.clone() })
    }

    fn stream(&self, ask: StreamAsk) {
        let found = self.holder(ask.job, ask.attempt, ask.rank).and_then(|key| self.entries.get_key_value(&key));
        let key = UnitKey { job: ask.job, attempt: ask.attempt, lead: ask.rank };
        let (dir, ended): (Option<PathBuf>, _) = match found {
            Some((key, entry)) => (entry.is_live().then(|| self.shared.layout.worker(*key)), entry.ended.subscribe()),
            None => (None, signal::channel(true).1),
        };
        let streaming = Streaming {
            client: self.shared.link.client.clone(),
            keepers: self.shared.keepers.clone(),
            log: self.shared.layout.log(key, ask.rank.0),
            ask,
            dir,
            ended,
        };
        self.shared.spawn("stream", streaming.run());
    }

    fn prune_logs(&self) {
        let live: BTreeSet<_> = self.entries.keys().map(|key| key.job).collect();
        let (dir, policy) = (self.shared.layout.logs(), self.shared.config.logs);
        tokio::task::spawn_blocking(move || {
            for job in logs::prune(&dir, &live, policy, SystemTime::now()) {
                tracing::info!(%job, "its old logs are removed");
            }
        });
    }
}
