//! A virtual agent: it obeys its orders, keeps reports while it is cut off, and ends its processes when its lease is over.
//! It knows nothing of jobs beyond its own ranks and decides nothing.
use ganger_core::model::cpuset::CpuSet;
use ganger_core::model::ids::{AttemptNo, JobId, NodeId, Rank};
use ganger_core::model::job::Exit;
use ganger_core::model::report::Report;
use ganger_core::model::split::Slice;
use ganger_core::model::time::Time;
use ganger_core::model::wire::agent::{Action, Order};
use std::collections::BTreeMap;

/// One rank of one attempt.
pub type Key = (JobId, AttemptNo, Rank);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Process {
    /// All is there to start it; nothing runs.
    Prepared,
    Running,
    /// It was asked to leave, and will be gone then.
    Leaving {
        ends_at: Time,
    },
    Over,
}

/// What one rank holds on the node, whatever the server believes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub process: Process,
    /// Whole ones.
    pub gpus: u64,
    /// A part of one.
    pub slice: Option<Slice>,
    pub cpus: CpuSet,
}

impl Held {
    /// Whether a process runs on its devices.
    pub fn is_alive(&self) -> bool {
        matches!(self.process, Process::Running | Process::Leaving { .. })
    }

    /// GPUs that it runs on, or on a part of.
    pub fn touched_gpus(&self) -> u64 {
        self.slice.map_or(self.gpus, |slice| self.gpus | slice.mask())
    }
}

/// What an order made a rank do that the rest of its gang must hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Started,
    /// Asked to save and leave by this time.
    AskedToLeave {
        deadline: Time,
    },
    /// It ended at once.
    Ended,
}

#[derive(Debug, Clone)]
pub struct Agent {
    pub node: NodeId,
    pub boots: u32,
    /// Hears and is heard.
    pub connected: bool,
    /// The machine is on.
    pub alive: bool,
    pub refuses: bool,
    pub generation_seen: u64,
    /// From here its lease counts: its last sending that the server answered with a lease.
    pub leased_from: Time,
    pub ranks: BTreeMap<Key, Held>,
    /// Oldest first; sent when it is connected.
    pub reports: Vec<Report>,
}

impl Agent {
    pub fn new(node: NodeId, now: Time) -> Agent {
        Agent {
            node,
            boots: 1,
            connected: true,
            alive: true,
            refuses: false,
            generation_seen: 0,
            leased_from: now,
            ranks: BTreeMap::new(),
            reports: Vec::new(),
        }
    }

    pub fn is_heard(&self) -> bool {
        self.connected && self.alive
    }

    /// Takes the whole desired set. Returns what changed for ranks that others depend on.
    pub fn obey(&mut self, orders: &[Order]) -> Vec<(Key, Change)> {
        let mut changes = Vec::new();
        for order in orders {
            let key = (order.job, order.attempt, order.rank);
            changes.extend(self.obey_one(key, order).map(|change| (key, change)));
        }
        self.look_at_unnamed(orders);
        changes
    }

    fn obey_one(&mut self, key: Key, order: &Order) -> Option<Change> {
        let process = self.ranks.get(&key).map(|held| held.process.clone());
        match (&order.action, process) {
            (Action::Prepare, None) => self.prepare(key, order),
            (Action::Go { .. }, Some(Process::Prepared)) => {
                self.set(key, Process::Running);
                self.reports.push(Report::Running { job: key.0, attempt: key.1, rank: key.2 });
                return Some(Change::Started);
            }
            // It lost what it had prepared, in a reboot: the server hears that it cannot start.
            (Action::Go { .. }, None) => self.report_end(key, Exit::Refused("was not prepared on this boot".into())),
            (Action::Stop { .. }, None) => self.report_end(key, Exit::Lost),
            (Action::Stop { .. }, Some(Process::Prepared)) => self.end(key, Exit::Signal(15)),
            (Action::Stop { grace: true, deadline, .. }, Some(Process::Running)) => {
                return Some(Change::AskedToLeave { deadline: *deadline });
            }
            (Action::Stop { grace: false, .. }, Some(Process::Running | Process::Leaving { .. })) => {
                self.end(key, Exit::Signal(9));
                return Some(Change::Ended);
            }
            _ => {}
        }
        None
    }

    fn prepare(&mut self, key: Key, order: &Order) {
        let gpus = order.devices.gpus.iter().fold(0, |mask, gpu| mask | 1u64 << gpu);
        let (cpus, slice) = (order.devices.cpus, order.devices.slice);
        if self.refuses {
            self.ranks.insert(key, Held { process: Process::Over, gpus, slice, cpus });
            return self.report_end(key, Exit::Refused("the node refuses to launch".into()));
        }
        self.ranks.insert(key, Held { process: Process::Prepared, gpus, slice, cpus });
        let port = 20_000 + (key.0.0 % 40_000) as u16;
        self.reports.push(Report::Prepared { job: key.0, attempt: key.1, rank: key.2, port });
    }

    /// What ended is forgotten once no order names it; what runs unnamed is reported and goes on.
    fn look_at_unnamed(&mut self, orders: &[Order]) {
        let named = |key: &Key| orders.iter().any(|order| (order.job, order.attempt, order.rank) == *key);
        self.ranks.retain(|key, held| held.is_alive() || named(key));
        for ((job, attempt, rank), held) in self.ranks.iter().filter(|(key, _)| !named(key)) {
            let (job, attempt, rank, gpus, cpus) = (*job, *attempt, *rank, held.touched_gpus(), held.cpus);
            self.reports.push(Report::Stray { job, attempt, rank, gpus, cpus });
        }
    }

    pub fn set(&mut self, key: Key, process: Process) {
        if let Some(held) = self.ranks.get_mut(&key) {
            held.process = process;
        }
    }

    /// Nothing is left of the rank; the server is told so.
    pub fn end(&mut self, key: Key, exit: Exit) {
        self.set(key, Process::Over);
        self.report_end(key, exit);
    }

    fn report_end(&mut self, (job, attempt, rank): Key, exit: Exit) {
        self.reports.push(Report::Ended { job, attempt, rank, exit });
    }

    /// Its lease is over: what runs ends, and what was prepared is dropped.
    pub fn end_all(&mut self) -> Vec<Key> {
        let keys: Vec<Key> =
            self.ranks.iter().filter(|(_, held)| held.process != Process::Over).map(|(key, _)| *key).collect();
        keys.iter().for_each(|key| self.end(*key, Exit::LeaseExpired));
        keys
    }
}
