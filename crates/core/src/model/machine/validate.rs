//! Refuses a machine description that contradicts itself, with the part at fault. Completeness is not asked for: an unknown
//! socket is fine, a wrong one is not.

use super::{Island, MAX_GPUS, Nic, Parts};

/// Why a description was refused. Numbers are indices into the lists of [`Parts`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    #[error("machine {profile:?} has {count} {what}; at most {most} are supported")]
    TooMany { profile: String, what: &'static str, count: usize, most: usize },
    #[error("machine {profile:?}: {at} points at {target} {index}, but there are only {count}; count from 0")]
    OutOfRange { profile: String, at: String, target: &'static str, index: u64, count: usize },
    #[error(
        "machine {profile:?}: {at} is on socket {own}, but its switch {switch} is on socket {other}; correct one of them"
    )]
    SocketConflict { profile: String, at: String, own: u8, switch: u8, other: u8 },
    #[error("machine {profile:?}: sockets {one} and {other} share {what}; give each its own")]
    SocketsOverlap { profile: String, one: usize, other: usize, what: String },
    #[error("machine {profile:?}: NIC name {name:?} is empty or used twice; name each device once")]
    NicName { profile: String, name: String },
    #[error(
        "machine {profile:?}: island {island} {what}; an island is a set of this machine's GPUs, each in one island at most"
    )]
    Island { profile: String, island: usize, what: String },
    #[error("machine {profile:?}: NVLink entry {a}-{b} with {links} links {what}")]
    NvLink { profile: String, a: u8, b: u8, links: u8, what: &'static str },
    #[error(
        "machine {profile:?}: GPU model {model:?} is not a family in capitals such as H100 (empty only without GPUs)"
    )]
    GpuModel { profile: String, model: String },
    #[error("machine {profile:?}: the sum of {what} does not fit 64 bits; check the unit")]
    SumTooLarge { profile: String, what: &'static str },
}

/// The whole check; the first fault found is returned.
pub(super) fn check(parts: &Parts) -> Result<(), MachineError> {
    check_counts(parts)?;
    check_gpu_model(parts)?;
    check_sockets(parts)?;
    check_devices(parts)?;
    check_nic_names(parts)?;
    check_islands(parts)?;
    check_links(parts)
}

fn check_counts(parts: &Parts) -> Result<(), MachineError> {
    let lists = [
        ("GPUs", parts.gpus.len(), MAX_GPUS),
        ("sockets", parts.sockets.len(), 255),
        ("switches", parts.switches.len(), 255),
        ("NICs", parts.nics.len(), 255),
        ("islands", parts.islands.len(), MAX_GPUS),
    ];
    match lists.into_iter().find(|(_, count, most)| count > most) {
        Some((what, count, most)) => Err(MachineError::TooMany { profile: parts.profile.clone(), what, count, most }),
        None => Ok(()),
    }
}

fn check_gpu_model(parts: &Parts) -> Result<(), MachineError> {
    let model = &parts.gpu_model;
    let legal = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-';
    if model.bytes().all(legal) && model.is_empty() == parts.gpus.is_empty() {
        return Ok(());
    }
    Err(MachineError::GpuModel { profile: parts.profile.clone(), model: model.clone() })
}

fn check_sockets(parts: &Parts) -> Result<(), MachineError> {
    for (other, socket) in parts.sockets.iter().enumerate() {
        for (one, earlier) in parts.sockets[..other].iter().enumerate() {
            let overlap = |what| MachineError::SocketsOverlap { profile: parts.profile.clone(), one, other, what };
            if socket.numa == earlier.numa {
                return Err(overlap(format!("the NUMA number {}", socket.numa)));
            }
            let shared = socket.cpus.intersection(&earlier.cpus);
            if !shared.is_empty() {
                return Err(overlap(format!("the CPUs {shared}")));
            }
        }
    }
    let total = parts.sockets.iter().try_fold(0u64, |sum, socket| sum.checked_add(socket.memory_bytes));
    total.map(|_| ()).ok_or(MachineError::SumTooLarge { profile: parts.profile.clone(), what: "host memory" })
}

fn check_devices(parts: &Parts) -> Result<(), MachineError> {
    for (at, switch) in parts.switches.iter().enumerate() {
        in_range(parts, || format!("switch {at}"), "socket", switch.socket, parts.sockets.len())?;
    }
    for (at, gpu) in parts.gpus.iter().enumerate() {
        check_place(parts, || format!("GPU {at}"), gpu.socket, Some(gpu.switch))?;
    }
    for Nic { name, socket, switch, .. } in &parts.nics {
        check_place(parts, || format!("NIC {name:?}"), *socket, *switch)?;
    }
    Ok(())
}

fn check_place(
    parts: &Parts,
    at: impl Fn() -> String,
    socket: Option<u8>,
    switch: Option<u8>,
) -> Result<(), MachineError> {
    in_range(parts, &at, "socket", socket, parts.sockets.len())?;
    in_range(parts, &at, "switch", switch, parts.switches.len())?;
    let above = switch.and_then(|index| parts.switches[usize::from(index)].socket);
    match (socket, switch, above) {
        (Some(own), Some(switch), Some(other)) if own != other => {
            Err(MachineError::SocketConflict { profile: parts.profile.clone(), at: at(), own, switch, other })
        }
        _ => Ok(()),
    }
}

fn in_range(
    parts: &Parts,
    at: impl Fn() -> String,
    target: &'static str,
    index: Option<u8>,
    count: usize,
) -> Result<(), MachineError> {
    match index {
        Some(index) if usize::from(index) >= count => {
            let (profile, index) = (parts.profile.clone(), u64::from(index));
            Err(MachineError::OutOfRange { profile, at: at(), target, index, count })
        }
        _ => Ok(()),
    }
}

fn check_nic_names(parts: &Parts) -> Result<(), MachineError> {
    for (at, nic) in parts.nics.iter().enumerate() {
        if nic.name.is_empty() || parts.nics[..at].iter().any(|earlier| earlier.name == nic.name) {
            return Err(MachineError::NicName { profile: parts.profile.clone(), name: nic.name.clone() });
        }
    }
    Ok(())
}

fn check_islands(parts: &Parts) -> Result<(), MachineError> {
    let all = super::derive::mask_of_first(parts.gpus.len());
    let mut seen = 0;
    for (island, &Island { gpus, .. }) in parts.islands.iter().enumerate() {
        let refuse =
            |what: &str| Err(MachineError::Island { profile: parts.profile.clone(), island, what: what.into() });
        if gpus == 0 {
            return refuse("is empty");
        }
        if gpus & !all != 0 {
            return refuse("has a GPU that does not exist");
        }
        if gpus & seen != 0 {
            return refuse("shares a GPU with an earlier one");
        }
        seen |= gpus;
    }
    Ok(())
}

fn check_links(parts: &Parts) -> Result<(), MachineError> {
    let mut before = None;
    for link in &parts.nvlink {
        let (a, b, links) = (link.a, link.b, link.links);
        let refuse = |what| Err(MachineError::NvLink { profile: parts.profile.clone(), a, b, links, what });
        if a >= b || usize::from(b) >= parts.gpus.len() {
            return refuse("does not name two GPUs of this machine, the lower first");
        }
        if before >= Some((a, b)) {
            return refuse("is out of order or given twice; list each pair once, ascending");
        }
        if links == 0 {
            return refuse("is empty; leave such pairs out");
        }
        let both = 1u64 << a | 1 << b;
        if !parts.islands.iter().any(|island| island.gpus & both == both) {
            return refuse("joins GPUs that are in no common island");
        }
        before = Some((a, b));
    }
    Ok(())
}
