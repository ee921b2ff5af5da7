//! `ganger show`: one job in full.
use super::Look;
use super::table::{event_line, render, resources};
use super::text::{bold, count, hang, state};
use super::time::{age, between, relative};
use ganger_core::model::time::Span;
use ganger_core::model::wire::api::{ArrayView, JobDetail, RankView};
use ganger_core::model::wire::sbatch;

const INDENT: usize = 12;
/// So much of a command or script is shown.
const COMMAND_CHARS: usize = 300;
const SCRIPT_LINES: usize = 3;

pub fn job(detail: &JobDetail, look: &Look) -> String {
    let view = &detail.view;
    let word = view.state.to_string();
    let mut out = format!(
        "{}  {} for {}\n\n",
        bold(&format!("Job {} {}", view.number(), view.name), look.colour),
        state(&word, look.colour),
        age(&view.state_since, look.now_ms),
    );
    let mut line = |head: &str, text: String| out.push_str(&hang(head, head.len(), &text, INDENT, look.width));
    if let Some(note) = &view.note {
        let reason = view.reason.map(|reason| format!("{reason}: ")).unwrap_or_default();
        line("why", format!("{reason}{note}"));
    }
    let yields = if detail.preemptible { ", may be stopped for others" } else { "" };
    line("owner", format!("{} in queue {}, {}{yields}", view.user, view.queue, view.priority));
    line("asks", asks(detail));
    line("times", times(detail, look));
    match &view.array {
        Some(array) => line("tasks", tasks(array)),
        None => line("runs", runs(detail)),
    }
    if let Some(checkpoint) = &detail.checkpoint {
        let at = relative(&checkpoint.at, look.now_ms);
        line(
            "checkpoint",
            format!("step {} of attempt {}, {at}: {}", checkpoint.step, checkpoint.attempt, checkpoint.path),
        );
    }
    line("command", script(&detail.command).unwrap_or_else(|| words(&detail.command)));
    if let Some(code) = view.exit_code {
        line("exit code", code.to_string());
    }
    if !detail.ranks.is_empty() {
        out.push_str(&format!("\n{}", ranks(&detail.ranks, look)));
    }
    if !detail.events.is_empty() {
        out.push('\n');
        detail.events.iter().for_each(|event| out.push_str(&event_line(event, look)));
    }
    out
}

fn asks(detail: &JobDetail) -> String {
    let each = resources(&detail.resources_per_worker);
    let limit = detail.time_limit_ms.map(|ms| format!(", at most {}", Span(ms))).unwrap_or_default();
    format!("{} of {each}{limit}", count(detail.view.workers.into(), "worker"))
}

fn times(detail: &JobDetail, look: &Look) -> String {
    let view = &detail.view;
    let mut said = vec![format!("submitted {}", relative(&view.submitted_at, look.now_ms))];
    if let Some(started) = &view.started_at {
        let waited = between(&view.submitted_at, started).map(|w| format!(" after waiting {w}")).unwrap_or_default();
        said.push(format!("first started {}{waited}", relative(started, look.now_ms)));
    }
    if let Some(ended) = &view.ended_at {
        said.push(format!("ended {}", relative(ended, look.now_ms)));
    }
    said.join(", ")
}

/// `0-9%2: 2 started, 4 waiting (4-7), 3 done, 1 failed, 0 cancelled`
fn tasks(array: &ArrayView) -> String {
    let ArrayView { indices, started, waiting, done, failed, cancelled, .. } = array;
    format!("{indices}: {started} started, {waiting} waiting, {done} done, {failed} failed, {cancelled} cancelled")
}

fn runs(detail: &JobDetail) -> String {
    let view = &detail.view;
    let evictions = count(view.evictions.into(), "eviction");
    let failures = count(detail.failures.into(), "failure");
    format!("attempt {}, {evictions}, {failures}, {}", view.attempt, count(detail.gpu_seconds, "GPU-second"))
}

/// A batch script by its interpreter, its length and the first commands of it.
fn script(command: &[String]) -> Option<String> {
    let text = sbatch::script_of(command)?;
    let lines = text.lines().count() as u64;
    let mut own = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = own.by_ref().take(SCRIPT_LINES).collect::<Vec<_>>().join("; ");
    let more = if own.next().is_some() { "; …" } else { "" };
    Some(format!("script of {} for {}: {}{more}", count(lines, "line"), command[0], cut(&first)))
}

/// The command as a shell would take it; long scripts are cut.
fn words(command: &[String]) -> String {
    let plain = |word: &String| {
        !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "'\"$&|;<>()*?`\\".contains(c))
    };
    let quoted = command
        .iter()
        .map(|word| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) });
    let line = quoted.collect::<Vec<_>>().join(" ");
    cut(&line)
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(COMMAND_CHARS) {
        Some((at, _)) => format!("{} …", &line[..at]),
        None => line.to_string(),
    }
}

fn ranks(ranks: &[RankView], look: &Look) -> String {
    let list = |items: Vec<String>| if items.is_empty() { "-".to_string() } else { items.join(",") };
    let row = |rank: &RankView| {
        vec![
            rank.rank.to_string(),
            rank.node.clone(),
            rank.slice.clone().unwrap_or_else(|| list(rank.gpus.iter().map(u8::to_string).collect())),
            rank.cpus.clone(),
            list(rank.nics.clone()),
            rank.phase.clone(),
            rank.exit.clone().unwrap_or_default(),
        ]
    };
    render(look, &["RANK", "NODE", "GPUS", "CPUS", "NICS", "STATE", "EXIT"], ranks.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::samples;

    #[test]
    fn a_job_in_full() {
        insta::assert_snapshot!("show", super::job(&samples::job_detail(), &samples::look()));
    }

    #[test]
    fn a_script_is_told_by_its_own_first_commands() {
        let text = "#!/bin/bash\n#SBATCH -n 2\n\nmodule load nccl\nsrun python train.py\n";
        let read = |text: &str| {
            let job = ganger_core::model::wire::sbatch::read(text, "train.sh").unwrap().job;
            super::script(&job.into_spec(&|_| None).unwrap().run.command).unwrap()
        };
        assert_eq!(read(text), "script of 5 lines for /bin/bash: module load nccl; srun python train.py");
        let longer = format!("{text}echo a\necho b\n");
        assert!(read(&longer).ends_with("srun python train.py; echo a; …"), "{}", read(&longer));
    }
}
