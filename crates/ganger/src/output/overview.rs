//! `ganger top`: the cluster on one screen. `ganger usage`: what was charged to whom.
use super::Look;
use super::table::{queues, render};
use super::text::{bold, count};
use super::time::relative;
use ganger_core::model::amounts::{GpuMilli, HumanBandwidth};
use ganger_core::model::budget::GpuHours;
use ganger_core::model::wire::api::{GpuStates, LeafView, PendingView, TopView, UplinkView, UsageView};

/// So wide is the bar that shows how full a leaf is.
const BAR: u64 = 24;

pub fn top(view: &TopView, look: &Look) -> String {
    let status = &view.status;
    let nodes = count(status.nodes.into(), "node");
    let fragmented = percent(status.fragmented_millionths);
    let mut out = format!(
        "{}  {nodes}, {} ready; {}; {fragmented} of the free GPUs of no use to what is asked for\n",
        bold("Cluster", look.colour),
        status.nodes_ready,
        gpus(&view.gpus),
    );
    out.push_str(&format!("\n{}", queues(&view.queues, look)));
    out.push_str(&format!("\n{}", leaves(&view.leaves, look)));
    match view.pending.is_empty() {
        true => out.push_str("\nnothing waits\n"),
        false => out.push_str(&format!("\n{}", pending(&view.pending, look))),
    }
    out
}

/// `96 GPUs: 60 used, 20 free, 4 leaving`: what there is none of is not named.
fn gpus(states: &GpuStates) -> String {
    let GpuStates { used, free, out, claimed, draining, split, split_held_milli, sick } = *states;
    let all = used + free + out + claimed + draining + split + sick;
    let parts = format!("in parts (of these {} held)", GpuMilli(split_held_milli));
    let named = [
        (used, "used"),
        (free, "free"),
        (split, parts.as_str()),
        (claimed, "promised"),
        (draining, "leaving"),
        (out, "free on nodes that take no work"),
        (sick, "sick"),
    ];
    let said: Vec<String> = named.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    format!("{}: {}", count(all, "GPU"), if said.is_empty() { "none".to_string() } else { said.join(", ") })
}

/// `12.5%`
fn percent(millionths: u64) -> String {
    format!("{}.{}%", millionths / 10_000, millionths / 1_000 % 10)
}

fn leaves(leaves: &[LeafView], look: &Look) -> String {
    let row = |leaf: &LeafView| {
        vec![
            format!("{}/{}", leaf.spine, leaf.leaf),
            format!("{}/{}", leaf.nodes_ready, leaf.nodes),
            format!("{} {}/{}", bar(leaf.gpu_milli_used, leaf.gpus * 1_000), GpuMilli(leaf.gpu_milli_used), leaf.gpus),
            leaf.uplink.as_ref().map_or("-".to_string(), uplink),
        ]
    };
    render(look, &["LEAF", "READY", "GPUS", "UPLINK"], leaves.iter().map(row).collect())
}

/// A part of it is full as soon as something is used, and all of it only when all is.
fn bar(used: u64, all: u64) -> String {
    let full = (used.saturating_mul(BAR) / all.max(1)).clamp(u64::from(used > 0), BAR);
    (0..BAR).map(|at| if at < full { '#' } else { '.' }).collect()
}

fn uplink(way: &UplinkView) -> String {
    let (asked, capacity) = (HumanBandwidth(way.asked_bps), HumanBandwidth(way.capacity_bps));
    let over = if way.asked_bps > way.capacity_bps { ", too much" } else { "" };
    format!("{asked} of {capacity} by {}{over}", count(way.gangs.into(), "gang"))
}

fn pending(lines: &[PendingView], look: &Look) -> String {
    let row = |line: &PendingView| {
        let reason = line.reason.map_or("not looked at yet".to_string(), |reason| reason.to_string());
        let slurm = line.reason.map_or("-", |reason| reason.slurm());
        vec![reason, slurm.to_string(), line.jobs.to_string(), GpuMilli(line.gpu_milli).to_string()]
    };
    render(look, &["WAITS FOR", "SLURM", "JOBS", "GPUS"], lines.iter().map(row).collect())
}

pub fn usage(lines: &[UsageView], look: &Look) -> String {
    // The head of the column says what it is.
    let hours =
        |gpu_ms: u64| GpuHours(gpu_ms).to_string().trim_end_matches('s').trim_end_matches(" GPU-hour").to_string();
    let row = |line: &UsageView| {
        let budget = line.budget.as_ref();
        let charged =
            budget.map_or("-".to_string(), |budget| format!("{} this {}", hours(budget.spent_gpu_ms), budget.per));
        vec![
            line.queue.clone(),
            line.user.clone().unwrap_or_else(|| "-".to_string()),
            GpuMilli(line.gpu_milli).to_string(),
            charged,
            budget.map_or("-".to_string(), |budget| hours(budget.gpu_ms)),
            budget.map_or("-".to_string(), |budget| hours(budget.left_gpu_ms)),
            budget.map_or("-".to_string(), |budget| relative(&budget.renews_at, look.now_ms)),
            line.decayed_gpu_ms.map_or("-".to_string(), hours),
        ]
    };
    let header = ["QUEUE", "USER", "GPUS", "GPU-HOURS CHARGED", "BUDGET", "LEFT", "RENEWS", "PAST THAT COUNTS"];
    render(look, &header, lines.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn the_cluster_on_one_screen_and_what_was_charged() {
        let look = samples::look();
        insta::assert_snapshot!("top", top(&samples::top(), &look));
        insta::assert_snapshot!("usage", usage(&samples::usage(), &look));
        let idle = TopView { pending: Vec::new(), ..samples::top() };
        assert!(top(&idle, &look).ends_with("\nnothing waits\n"));
    }

    #[test]
    fn a_bar_is_full_only_when_all_is_used() {
        assert_eq!(bar(0, 8), ".".repeat(24));
        assert_eq!(bar(1, 1_000), format!("#{}", ".".repeat(23)));
        assert_eq!(bar(999, 1_000), format!("{}.", "#".repeat(23)));
        assert_eq!((bar(8, 8), bar(0, 0)), ("#".repeat(24), ".".repeat(24)));
    }
}
