//! `ganger why`: one page that answers why a job waits, from the short answer to what would change it.
use super::Look;
use super::text::{bold, columns, count, hang, paint, state};
use super::time::{age, relative};
use comfy_table::Color;
use ganger_core::model::wire::api::{Fact, Gate, Why};

const INDENT: usize = 12;

pub fn page(why: &Why, look: &Look) -> String {
    let mut out = head(why, look);
    out.push_str(&format!("\n{}", hang("", 0, &why.summary, 2, look.width)));
    if why.reason.is_none() && why.gates.is_empty() {
        return out + &facts(&why.facts, look);
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

/// What is known of the stay of one that runs.
fn facts(facts: &[Fact], look: &Look) -> String {
    let line = |fact: &Fact| {
        let mut about = fact.about.clone();
        about.get_mut(..1).into_iter().for_each(str::make_ascii_uppercase);
        hang(&about, columns(&about), &fact.text, INDENT, look.width)
    };
    let lines: String = facts.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
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
        line("Ever", &never(why));
    }
    out
}

/// Machines that are too small are one thing, what is allowed another.
fn never(why: &Why) -> String {
    let gate = why.gates.iter().find(|gate| gate.gate == "satisfiable" && !gate.passed);
    match gate.filter(|gate| !gate.text.starts_with("not even")) {
        Some(gate) => format!("no waiting helps: {}; change the job, or ask for another limit", gate.text),
        None => {
            let nodes = count(why.nodes_total.into(), "node");
            format!("not even an empty healthy cluster of {nodes} like these holds it: change the job")
        }
    }
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
    fn what_is_known_of_a_stay_follows_in_a_column() {
        let fact = |about: &str, text: &str| Fact { about: about.into(), text: text.into() };
        let why = Why {
            reason: None,
            gates: vec![],
            summary: "running as attempt 2 with 4 workers".into(),
            facts: vec![
                fact(
                    "until",
                    "at most 2026-11-30T11:00:00Z (time limit 2h), 2026-11-30T12:00:00Z (maintenance of n3 begins, told at 2026-11-30T11:57:00Z)",
                ),
                fact("goes on", "with 8 workers on n0, n1, kept for it until 2026-11-30T09:10:00Z"),
            ],
            state: ganger_core::model::job::JobState::Running,
            ..samples::why()
        };
        insta::assert_snapshot!("why-running", page(&why, &samples::look()));
    }

    #[test]
    fn what_can_never_run_says_so() {
        let page = page(&Why { satisfiable: false, ..samples::why() }, &samples::look());
        assert!(page.contains("not even an empty healthy cluster of 16 nodes like these"), "{page}");
        let gate = Gate { gate: "satisfiable".into(), passed: false, text: "queue lab may hold 8 GPUs at most".into() };
        let forbidden = super::page(&Why { satisfiable: false, gates: vec![gate], ..samples::why() }, &samples::look());
        assert!(forbidden.contains("no waiting helps: queue lab may hold 8 GPUs at most;"), "{forbidden}");
    }
}
