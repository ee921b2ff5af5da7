//! Nodes: a machine, its place in the fabric, its health, and who holds what on it.
use super::amounts::Resources;
use super::cpuset::CpuSet;
use super::ids::{AttemptNo, JobId, LeafId, NodeId, Rank};
use super::machine::Machine;
use super::split::{Slice, Split};
use super::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The life of a node's trust: ready → suspect → fenced → quarantined → probation → ready, or dead until a person acts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    Ready,
    /// Silent, but its lease may still run: no new work, running work goes on.
    Suspect,
    /// Its ranks are known to be over: they may run elsewhere.
    Fenced,
    /// Taken out until `until` or until a person says otherwise.
    Quarantined,
    /// Back with P3 work only until `until`.
    Probation,
    Dead,
}

impl fmt::Display for HealthState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HealthState::Ready => "ready",
            HealthState::Suspect => "suspect",
            HealthState::Fenced => "fenced",
            HealthState::Quarantined => "quarantined",
            HealthState::Probation => "probation",
            HealthState::Dead => "dead",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    pub state: HealthState,
    pub since: Time,
    /// In words, with the evidence.
    pub cause: String,
    /// When the state ends by itself.
    pub until: Option<Time>,
}

/// Each GPU is in exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    Free,
    /// Free now, promised to this job.
    Claimed(JobId),
    Used(JobId),
    /// Its owner is being stopped; then it goes to the claimant, if there is one.
    Draining {
        owner: JobId,
        claimant: Option<JobId>,
    },
    /// In parts, each with its holder: see [`Node::splits`].
    Split {
        /// Who gets all of it when the last part is given back.
        claimant: Option<JobId>,
    },
    /// Health has taken it out; an owner may still have to leave.
    Sick {
        owner: Option<JobId>,
    },
}

impl Device {
    pub fn owner(self) -> Option<JobId> {
        match self {
            Device::Used(owner) | Device::Draining { owner, .. } | Device::Sick { owner: Some(owner) } => Some(owner),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub name: String,
    pub machine: Arc<Machine>,
    pub leaf: LeafId,
    pub pool: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// Where ranks reach this node, such as `10.0.0.7`.
    pub address: String,
    pub health: Health,
    pub cordoned: bool,
    /// Set while work is moved away: who asked.
    pub draining: Option<String>,
    /// Times in which nothing of ours may run there, the next first.
    #[serde(default)]
    pub maintenance: Vec<Maintenance>,
    /// When the server last heard from its agent. Never stored: after a restart it is the start of the server.
    pub last_heard: Time,
    pub boot_id: String,
    /// The agent that answers for it.
    #[serde(default)]
    pub agent: String,
    /// Rises with each change of the node's orders; agents ignore lower ones.
    pub generation: u64,
    /// One per GPU of the machine.
    pub devices: Vec<Device>,
    /// GPUs that are split or were last, by index. Any other is whole.
    #[serde(default)]
    pub splits: BTreeMap<u8, Split>,
    /// Live workers on this node.
    pub tenants: BTreeSet<(JobId, Rank)>,
    /// Processes of ours that no order names: their devices are sick until they are over.
    pub strays: Vec<Stray>,
    pub cpus_used: CpuSet,
    /// By socket of the machine.
    pub memory_used: Vec<u64>,
    /// By switch of the machine; those of which something is used.
    #[serde(default)]
    pub pcie_used_bps: BTreeMap<u8, u64>,
    #[serde(default)]
    pub network_used_bps: u64,
    /// Recent refusals to start something.
    pub refusals: Vec<Time>,
    pub cooldown_until: Time,
    /// Recent returns after silence.
    pub flaps: Vec<Time>,
    /// Since when its lease is no longer renewed: it did not confirm a stop in time.
    pub revoked_at: Option<Time>,
}

/// A time in which a node belongs to somebody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Maintenance {
    pub from: Time,
    /// [`Time::NEVER`]: until a person says so.
    pub until: Time,
    pub by: String,
    pub planned_at: Time,
    /// It has begun, and the node is drained for it.
    pub begun: bool,
}

/// A worker found running on a node that is not ordered there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stray {
    pub job: JobId,
    pub attempt: AttemptNo,
    pub rank: Rank,
    pub gpus: u64,
    pub cpus: CpuSet,
}

impl Node {
    /// Whether new work of class P3 (`probation` allowed) or above may be placed here at `now`.
    pub fn accepts(&self, yields: bool, now: Time) -> bool {
        let healthy = match self.health.state {
            HealthState::Ready => true,
            HealthState::Probation => yields,
            _ => false,
        };
        healthy && !self.cordoned && self.draining.is_none() && self.cooldown_until <= now
    }

    /// When it takes new work again, as far as that is known; `now` if it does now.
    pub fn opens_at(&self, yields: bool, now: Time, probation: Span) -> Option<Time> {
        let trusted = match (self.health.state, yields) {
            (HealthState::Ready, _) | (HealthState::Probation, true) => Some(now),
            (HealthState::Probation, false) | (HealthState::Quarantined, true) => self.health.until,
            (HealthState::Quarantined, false) => self.health.until.map(|until| until + probation),
            _ => None,
        };
        let drained = match (&self.draining, self.maintenance.iter().find(|maintenance| maintenance.begun)) {
            (None, _) => Some(now),
            // Even if that is over: it is drained until a tick has seen it.
            (Some(_), maintenance) => {
                let until = maintenance.map(|one| one.until).filter(|until| *until < Time::NEVER);
                until.map(|until| until.max(now + Span(1)))
            }
        };
        let opens = trusted?.max(drained?).max(self.cooldown_until).max(now);
        (!self.cordoned).then_some(opens)
    }

    /// The next time to come in which nothing may run there.
    pub fn next_maintenance(&self) -> Option<&Maintenance> {
        self.maintenance.iter().filter(|maintenance| !maintenance.begun).min_by_key(|maintenance| maintenance.from)
    }

    /// The devices for which `wanted` holds, as a mask.
    pub fn mask(&self, wanted: impl Fn(Device) -> bool) -> u64 {
        self.devices.iter().enumerate().fold(0, |mask, (i, d)| mask | (u64::from(wanted(*d)) << i))
    }

    pub fn used(&self) -> Resources {
        let sum = |amounts: &mut dyn Iterator<Item = &u64>| amounts.fold(0u64, |sum, one| sum.saturating_add(*one));
        let owned = self.mask(|device| device.owner().is_some());
        let in_parts = self.held_slices().fold(0, |sum, slice| slice.vram_bytes.saturating_add(sum));
        Resources {
            gpus: owned.count_ones().into(),
            cpus: self.cpus_used.count().into(),
            memory_bytes: sum(&mut self.memory_used.iter()),
            vram_bytes: self.machine.vram_bytes_of(owned).saturating_add(in_parts),
            pcie_bandwidth_bps: sum(&mut self.pcie_used_bps.values()),
            network_bandwidth_bps: self.network_used_bps,
            gpu_milli: self.held_slices().map(|slice| u64::from(slice.milli)).sum(),
        }
    }

    /// The parts of GPUs that are held.
    pub fn held_slices(&self) -> impl Iterator<Item = &Slice> {
        self.splits.values().flat_map(|split| split.held.iter().map(|held| &held.slice))
    }

    pub fn capacity(&self) -> Resources {
        self.machine.capacity()
    }
}
