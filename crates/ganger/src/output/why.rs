//! `ganger why`: one page that answers why a job waits, from the short answer to what would change it.
use super::Look;
use super::text::{bold, columns, count, hang, paint, state};
use super::time::{age, relative};
use comfy_table::Color;
use ganger_core::model::wire::api::{Gate, Why};

const INDENT: usize = 12;

pub fn page(why: &Why, look: &Look) -> String {
    let mut out = head(why, look);
    out.push_str(&format!("\n{}", hang("", 0, &why.summary, 2, look.width)));
    if why.reason.is_none() && why.gates.is_empty() {
        return out;
    }
    out.push('\n');
    out.push_str(&order(why, look));
    out.push_str(&gates(&why.gates, look));
    out.push_str(&nodes(why, look));
    out.push_str(&outlook(why, look));
    out
}

fn head(why: &Why, look: &Look) -> String {
    let title = bold(&format!("Job {} {}", why.id, why.name), look.colour);
    let word = why.state.to_string();
    let mut line = format!("{title}  {} for {}", state(&word, look.colour), age(&why.since, look.now_ms));
    if let Some(reason) = why.reason {
        line.push_str(&format!("  {}", paint(&reason.to_string(), Some(Color::Cyan), look.colour)));
        if let Some(slurm) = why.slurm_reason.as_ref().filter(|slurm| **slurm != reason.to_string()) {
            line.push_str(&format!(" (in Slurm's words: {slurm})"));
        }
    }
    line + "\n"
}

fn order(why: &Why, look: &Look) -> String {
    let Some(position) = why.position else { return String::new() };
    let before = u64::from(position.saturating_sub(1));
    let more = before.saturating_sub(why.ahead.len() as u64);
    let text = match (why.ahead.as_slice(), more) {
        ([], 0) => "first in line".to_string(),
        (ahead, 0) => format!("place {position} in line, behind {}", ahead.join(", ")),
        (ahead, more) => format!("place {position} in line, behind {} and {more} more", ahead.join(", ")),
    };
    hang("Order", 5, &text, INDENT, look.width)
}

fn gates(gates: &[Gate], look: &Look) -> String {
    let widest = gates.iter().map(|gate| columns(&gate.gate)).max().unwrap_or(0);
    let mut out = String::new();
    for (i, gate) in gates.iter().enumerate() {
        let title = if i == 0 { "Gates" } else { "" };
        let (mark, colour) = if gate.passed { ("✓", Color::Green) } else { ("✗", Color::Red) };
        let mark = paint(mark, Some(colour), look.colour);
        let head = format!("{title:<INDENT$}{mark} {:<widest$}  ", gate.gate);
        let seen = INDENT + 2 + widest + 2;
        out.push_str(&hang(&head, seen, &gate.text, seen, look.width));
    }
    out
}

/// The counts in a column, with their sum, so that it can be seen that no node is left out.
fn nodes(why: &Why, look: &Look) -> String {
    let digits = why.nodes_total.to_string().len();
    let mut out = String::new();
    for (i, count) in why.nodes.iter().enumerate() {
        let title = if i == 0 { "Nodes" } else { "" };
        let head = format!("{title:<INDENT$}{:>digits$}  ", count.nodes);
        out.push_str(&hang(&head, INDENT + digits + 2, &count.because, INDENT + digits + 2, look.width));
    }
    if why.nodes.len() > 1 {
        let indent = " ".repeat(INDENT);
        out.push_str(&format!("{indent}{}\n{indent}{}  in all\n", "─".repeat(digits), why.nodes_total));
    }
    out
}

fn outlook(why: &Why, look: &Look) -> String {
    let mut out = String::new();
    let mut line = |head: &str, text: &str| out.push_str(&hang(head, head.len(), text, INDENT, look.width));
    if let Some(estimate) = &why.estimate {
        let when = format!("{} ({})", estimate.start, relative(&estimate.start, look.now_ms));
        match estimate.conditional_on.as_slice() {
            [] => line("Start", &format!("promised for {when}")),
            conditions => line("Start", &format!("expected {when}, if {}", conditions.join(", and "))),
        }
    }
    if let Some(preemption) = &why.preemption {
        line("Eviction", preemption);
    }
    for (i, change) in why.would_start_now.iter().enumerate() {
        line(if i == 0 { "Start now" } else { "" }, &format!("• {change}"));
    }
    if !why.satisfiable {
        let never = count(why.nodes_total.into(), "node");
        line("Ever", &format!("not even an empty healthy cluster of these {never} holds it: change the job"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Look, samples};
    use super::*;

    #[test]
    fn a_waiting_job_is_explained_on_one_page() {
        insta::assert_snapshot!("why", page(&samples::why(), &samples::look()));
        insta::assert_snapshot!("why-narrow", page(&samples::why(), &Look { width: 60, ..samples::look() }));
    }

    #[test]
    fn a_running_job_needs_one_line() {
        let why = Why {
            reason: None,
            gates: vec![],
            summary: "running on n0 since 09:00".into(),
            state: ganger_core::model::job::JobState::Running,
            ..samples::why()
        };
        assert_eq!(page(&why, &samples::look()), "Job 12 llama-ft  running for 3m12s\n\n  running on n0 since 09:00\n");
    }

    #[test]
    fn what_can_never_run_says_so() {
        let page = page(&Why { satisfiable: false, ..samples::why() }, &samples::look());
        assert!(page.contains("not even an empty healthy cluster"), "{page}");
    }
}
