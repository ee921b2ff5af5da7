//! What to do next: the orders of the server against what this agent knows of its units. A pure function, run after
//! every event, so an order that came too early is simply looked at again.
//!
//! Absence is never a stop order: what runs and is not named is told as a stray and left alone. Nothing starts on
//! devices that a living unit holds, and nothing starts that this agent has no record of preparing.
use crate::unit::{Member, Unit, UnitKey};
use ganger_core::model::split::Slice;
use ganger_core::model::time::Time;
use ganger_core::model::wire::agent::{Action, Devices};
use std::collections::BTreeMap;

/// How far a unit is, as this agent knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Checks are being made.
    Preparing,
    Prepared,
    /// Its keeper is being started.
    Launching,
    /// Its keeper lives.
    Running {
        /// The stop that its keeper was asked for.
        stop: Option<StopAsked>,
        /// That no order names it has been told.
        stray_told: bool,
    },
    /// Nothing of it is left. `acknowledged`: the server knows.
    Ended {
        acknowledged: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopAsked {
    pub deadline: Time,
    pub grace: bool,
}

/// A unit that this agent has a record of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub stage: Stage,
    pub members: Vec<Member>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Prepare(UnitKey),
    /// Report that it cannot start here, and why.
    Refuse {
        key: UnitKey,
        why: String,
    },
    Start(UnitKey),
    /// Ask it to save and leave until `deadline`.
    Stop {
        key: UnitKey,
        deadline: Time,
    },
    Kill(UnitKey),
    /// It was stopped before it started: report it as over.
    EndUnstarted(UnitKey),
    /// Nobody wants what was prepared any more.
    DropPreparation(UnitKey),
    TellStray(UnitKey),
    /// The server knows that it is over and names it no more.
    Forget(UnitKey),
}

const STOPPED_EARLY: &str = "it was stopped before it started";

impl Act {
    /// What an unstarted unit is reported as.
    pub fn stopped_early() -> String {
        STOPPED_EARLY.to_string()
    }
}

/// `settled`: a unit that this agent has no record of cannot be running, because the records are those of the agents
/// before, or because every lease from before them is over.
pub fn plan(wanted: &[Unit], known: &BTreeMap<UnitKey, Known>, settled: bool) -> Vec<Act> {
    let mut acts = Vec::new();
    let mut starting: Vec<&Unit> = Vec::new();
    for unit in wanted {
        let act = match known.get(&unit.key) {
            Some(record) => with_record(unit, record),
            None => without_record(unit, known, &starting, settled),
        };
        if matches!(act, Some(Act::Prepare(_))) {
            starting.push(unit);
        }
        acts.extend(act);
    }
    let unnamed = known.iter().filter(|(key, _)| !wanted.iter().any(|unit| unit.key == **key));
    acts.extend(unnamed.filter_map(|(key, record)| unnamed_act(*key, record)));
    acts
}

fn with_record(unit: &Unit, record: &Known) -> Option<Act> {
    let key = unit.key;
    match (&unit.action, record.stage) {
        (Action::Go { .. }, Stage::Prepared) => Some(Act::Start(key)),
        (Action::Stop { .. }, Stage::Preparing | Stage::Prepared) => Some(Act::EndUnstarted(key)),
        (Action::Stop { grace, deadline, .. }, Stage::Running { stop, .. }) => stop_act(key, *grace, *deadline, stop),
        // A unit that is being launched is stopped as soon as its keeper answers.
        _ => None,
    }
}

fn stop_act(key: UnitKey, grace: bool, deadline: Time, asked: Option<StopAsked>) -> Option<Act> {
    match (grace, asked) {
        (false, Some(StopAsked { grace: false, .. })) => None,
        (false, _) => Some(Act::Kill(key)),
        (true, Some(asked)) if !asked.grace || asked.deadline <= deadline => None,
        (true, _) => Some(Act::Stop { key, deadline }),
    }
}

fn without_record(unit: &Unit, known: &BTreeMap<UnitKey, Known>, starting: &[&Unit], settled: bool) -> Option<Act> {
    let key = unit.key;
    match &unit.action {
        Action::Prepare => Some(match conflict(unit, known, starting) {
            Some(why) => Act::Refuse { key, why },
            None => Act::Prepare(key),
        }),
        _ if !settled => None,
        Action::Go { .. } => Some(Act::Refuse {
            key,
            why: "this agent has no record of preparing it; its data directory may have been lost".to_string(),
        }),
        Action::Stop { .. } => Some(Act::EndUnstarted(key)),
    }
}

fn unnamed_act(key: UnitKey, record: &Known) -> Option<Act> {
    match record.stage {
        Stage::Prepared => Some(Act::DropPreparation(key)),
        Stage::Running { stray_told: false, .. } => Some(Act::TellStray(key)),
        Stage::Ended { acknowledged: true } => Some(Act::Forget(key)),
        _ => None,
    }
}

/// Why `unit` cannot have its devices: who else on this node holds some of them.
fn conflict(unit: &Unit, known: &BTreeMap<UnitKey, Known>, starting: &[&Unit]) -> Option<String> {
    let living = known.iter().filter(|(_, record)| !matches!(record.stage, Stage::Ended { .. }));
    for (key, record) in living.clone() {
        if key.job == unit.key.job && key.attempt != unit.key.attempt {
            return Some(format!(
                "attempt {} of job {} (rank {}) is still alive on this node",
                key.attempt, key.job, key.lead
            ));
        }
        if let Some(what) = overlap(&unit.members, &record.members) {
            return Some(held_by(&what, *key));
        }
    }
    starting.iter().find_map(|other| Some(held_by(&overlap(&unit.members, &other.members)?, other.key)))
}

fn held_by(what: &str, key: UnitKey) -> String {
    format!("{what} is held by rank {} of job {} (attempt {}) on this node", key.lead, key.job, key.attempt)
}

fn overlap(ours: &[Member], theirs: &[Member]) -> Option<String> {
    for (our, their) in ours.iter().flat_map(|o| theirs.iter().map(move |t| (&o.devices, &t.devices))) {
        if let Some(gpu) = our.gpus.iter().find(|gpu| their.gpus.contains(gpu)) {
            return Some(format!("GPU {gpu}"));
        }
        if let Some(gpu) = parts_overlap(our, their) {
            return Some(format!("what it is to get of GPU {gpu}"));
        }
        if let Some(cpu) = our.cpus.intersection(&their.cpus).first() {
            return Some(format!("CPU {cpu}"));
        }
    }
    None
}

/// A GPU of which one has a part and the other all, or the same part.
fn parts_overlap(our: &Devices, their: &Devices) -> Option<u8> {
    let all = |slice: &Option<Slice>, whole: &Devices| slice.filter(|slice| whole.gpus.contains(&slice.gpu));
    let both = our.slice.zip(their.slice).filter(|(one, two)| one.excludes(two)).map(|(one, _)| one);
    let clash = all(&our.slice, their).or_else(|| all(&their.slice, our)).or(both);
    clash.map(|slice| slice.gpu)
}

#[cfg(test)]
mod tests;
