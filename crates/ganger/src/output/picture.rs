//! What one node is made of, drawn: sockets, PCIe switches and what hangs on them, NVLink islands, and who uses what.
use super::Look;
use super::text::{bold, count, state};
use ganger_core::model::amounts::{GpuMilli, HumanBytes};
use ganger_core::model::machine::{Machine, Nic, NicRole, Source};
use ganger_core::model::wire::api::NodeView;
use std::fmt::Write;

/// Draws `machine`; with the node's view also its state and the owner of each GPU.
pub fn node(machine: &Machine, view: Option<&NodeView>, look: &Look) -> String {
    let mut out = head(machine, view, look);
    let sockets = machine.sockets.len();
    for index in 0..sockets {
        let socket = &machine.sockets[index];
        let title =
            format!("socket {index}  NUMA {}  CPUs {}  {}", socket.numa, cpus(socket), HumanBytes(socket.memory_bytes));
        let _ = writeln!(out, "\n{}", bold(&title, look.colour));
        branches(&mut out, &hanging(machine, view, u8::try_from(index).ok()));
    }
    let unplaced = hanging(machine, view, None);
    if !unplaced.is_empty() {
        let title = if sockets == 0 { "devices" } else { "socket unknown" };
        let _ = writeln!(out, "\n{}", bold(title, look.colour));
        branches(&mut out, &unplaced);
    }
    out.push_str(&islands(machine));
    out.push_str(&rails(machine));
    if view.is_some() && !machine.gpus.is_empty() {
        out.push_str(
            "\n. free  C claimed  U used  D draining  P in parts  X sick; the number behind the letter is the job, behind P what is held of it\n",
        );
    }
    out
}

fn cpus(socket: &ganger_core::model::machine::Socket) -> String {
    if socket.cpus.is_empty() { "unknown".to_string() } else { socket.cpus.to_string() }
}

fn head(machine: &Machine, view: Option<&NodeView>, look: &Look) -> String {
    let gpus = match machine.gpus.first() {
        None => "no GPUs".to_string(),
        Some(first) => {
            let each = if first.vram_bytes > 0 {
                format!(" with {} each", HumanBytes(first.vram_bytes))
            } else {
                String::new()
            };
            let model = if machine.gpu_model.is_empty() { "GPUs" } else { machine.gpu_model.as_str() };
            format!("{} × {model}{each}", machine.gpus.len())
        }
    };
    let name = view.map_or(machine.profile.as_str(), |view| view.name.as_str());
    let mut out = format!("{}  {gpus}  {}\n", bold(name, look.colour), source(&machine.source));
    if let Some(view) = view {
        let pool = view.pool.as_ref().map(|pool| format!(", pool {pool}")).unwrap_or_default();
        let _ = writeln!(
            out,
            "{}, {}/{}{pool}, profile {}",
            state(&view.state, look.colour),
            view.spine,
            view.leaf,
            view.profile
        );
        let (used, all) = (&view.used, &view.capacity);
        let memory = format!("{} of {}", HumanBytes(used.memory_bytes), HumanBytes(all.memory_bytes));
        let _ = writeln!(
            out,
            "in use: {} of {}, {} of {}, {memory}",
            GpuMilli(used.all_gpus_milli()),
            count(all.gpus, "GPU"),
            used.cpus,
            count(all.cpus, "CPU")
        );
    }
    out
}

fn source(source: &Source) -> String {
    match source {
        Source::Captured { sample, .. } => format!("(captured: {sample})"),
        Source::Derived { why } => format!("(derived: {why})"),
        Source::Discovered => "(as found on the node)".to_string(),
        Source::Declared => "(as declared)".to_string(),
    }
}

/// One line for each switch of a socket, and one for NICs on none of them.
fn hanging(machine: &Machine, view: Option<&NodeView>, socket: Option<u8>) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, switch) in machine.switches.iter().enumerate().filter(|(_, switch)| switch.socket == socket) {
        let index = u8::try_from(index).ok();
        let gpus = machine.gpus.iter().enumerate().filter(|(_, gpu)| Some(gpu.switch) == index);
        let gpus: Vec<String> = gpus.map(|(gpu, _)| gpu_box(gpu, view)).collect();
        let nics: Vec<String> = machine.nics.iter().filter(|nic| nic.switch == index).map(nic_text).collect();
        let number = index.unwrap_or_default();
        let bandwidth = match switch.bandwidth_bps {
            0 => String::new(),
            bps => format!(" {}", bits(bps)),
        };
        lines.push(format!("switch {number}{bandwidth}  {}", [gpus, nics].concat().join("  ")).trim_end().to_string());
    }
    let loose: Vec<String> =
        machine.nics.iter().filter(|nic| nic.switch.is_none() && nic.socket == socket).map(nic_text).collect();
    if !loose.is_empty() {
        lines.push(loose.join("  "));
    }
    lines
}

fn branches(out: &mut String, lines: &[String]) {
    for (i, line) in lines.iter().enumerate() {
        let branch = if i + 1 == lines.len() { "└─" } else { "├─" };
        let _ = writeln!(out, "{branch} {line}");
    }
}

/// `[GPU 3 U 12]`: index, state, job; of one in parts what is held of it.
fn gpu_box(index: usize, view: Option<&NodeView>) -> String {
    let Some(view) = view else { return format!("[GPU {index}]") };
    let letter = view.devices.chars().nth(index).unwrap_or('?');
    let owner = u8::try_from(index).ok().and_then(|index| view.owners.get(&index));
    let held = u8::try_from(index).ok().and_then(|index| view.held_milli.get(&index));
    match (owner, held) {
        (Some(owner), _) => format!("[GPU {index} {letter} {owner}]"),
        (None, Some(milli)) => format!("[GPU {index} {letter} {}]", GpuMilli(*milli)),
        (None, None) => format!("[GPU {index} {letter}]"),
    }
}

fn nic_text(nic: &Nic) -> String {
    let role = match nic.role {
        NicRole::Compute => "",
        NicRole::Storage => " storage",
        NicRole::Management => " management",
    };
    let bandwidth = if nic.bandwidth_bps > 0 { format!(" {}", bits(nic.bandwidth_bps)) } else { String::new() };
    let rail = nic.rail.map(|rail| format!(" rail {rail}")).unwrap_or_default();
    format!("({}{role}{bandwidth}{rail})", nic.name)
}

/// `400Gbps`.
fn bits(bps: u64) -> String {
    let units = [(1_000_000_000_000, "Tbps"), (1_000_000_000, "Gbps"), (1_000_000, "Mbps")];
    match units.into_iter().find(|(scale, _)| bps >= *scale) {
        Some((scale, unit)) if bps.is_multiple_of(scale) => format!("{}{unit}", bps / scale),
        Some((scale, unit)) => format!("{}.{}{unit}", bps / scale, bps % scale * 10 / scale),
        None => format!("{bps}bps"),
    }
}

fn islands(machine: &Machine) -> String {
    if machine.gpus.is_empty() {
        return String::new();
    }
    if machine.islands.is_empty() {
        return "\nNVLink: none\n".to_string();
    }
    let mut out = String::from("\nNVLink\n");
    let lines: Vec<String> = machine
        .islands
        .iter()
        .enumerate()
        .map(|(index, island)| {
            let spans = if island.spans_nodes { ", goes on in other nodes" } else { "" };
            format!("island {index}: GPUs {}{}{spans}", ranges(island.gpus), links(machine, island.gpus))
        })
        .collect();
    branches(&mut out, &lines);
    out
}

/// How many links join its pairs, where that is known.
fn links(machine: &Machine, mask: u64) -> String {
    let inside = machine.nvlink.iter().filter(|link| mask >> link.a & mask >> link.b & 1 == 1).map(|link| link.links);
    match (inside.clone().min(), inside.max()) {
        (Some(low), Some(high)) if low == high => format!(", {} a pair", count(low.into(), "link")),
        (Some(low), Some(high)) => format!(", {low} to {high} links a pair"),
        _ => String::new(),
    }
}

fn rails(machine: &Machine) -> String {
    let pairs: Vec<String> = (0..machine.gpus.len())
        .filter_map(|gpu| {
            let nic = machine.nic_for_gpu(u8::try_from(gpu).ok()?)?;
            Some(format!("GPU {gpu} → {}", machine.nics.get(usize::from(nic))?.name))
        })
        .collect();
    if pairs.is_empty() {
        return String::new();
    }
    let mut out = String::from("\nNetwork\n");
    let lines: Vec<String> = pairs.chunks(4).map(|four| four.join("   ")).collect();
    branches(&mut out, &lines);
    out
}

/// `0-3,6` of a mask.
pub fn ranges(mask: u64) -> String {
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for bit in (0..64).filter(|bit| mask >> bit & 1 == 1) {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == bit => *last = bit,
            _ => parts.push((bit, bit)),
        }
    }
    let text = |(first, last): &(u32, u32)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    parts.iter().map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use ganger_core::model::machine::profiles::{profile, profile_names};

    #[test]
    fn a_node_at_work() {
        let machine = profile("dgx-h100").unwrap();
        insta::assert_snapshot!("topo-node", node(&machine, Some(&samples::nodes()[0]), &samples::look()));
    }

    #[test]
    fn every_profile_can_be_drawn_and_shows_each_device_once() {
        for name in profile_names() {
            let machine = profile(name).unwrap();
            let picture = node(&machine, None, &samples::look());
            for gpu in 0..machine.gpus.len() {
                assert_eq!(picture.matches(&format!("[GPU {gpu}]")).count(), 1, "{name} GPU {gpu}:\n{picture}");
            }
            for nic in &machine.nics {
                assert!(picture.contains(&format!("({}", nic.name)), "{name} {}:\n{picture}", nic.name);
            }
        }
    }

    #[test]
    fn masks_print_as_ranges() {
        assert_eq!(ranges(0b1100_1011), "0-1,3,6-7");
        assert_eq!(ranges(0), "");
        assert_eq!(ranges(u64::MAX), "0-63");
    }
}
