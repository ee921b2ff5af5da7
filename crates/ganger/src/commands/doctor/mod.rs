//! `ganger doctor`: what stands between this user and a running job, each finding with what to do about it.
mod host;

use crate::cli::Doctor;
use crate::client::locate::Surroundings;
use crate::client::{Api, records};
use crate::failure::Failure;
use crate::output::{Look, emit, json::json, text};
use comfy_table::Color;
use ganger_core::model::wire::job::parse_rfc3339;
use ganger_runtime::http::Client;
use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Note,
    Bad,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, text: impl Into<String>) -> Finding {
        Finding { check, verdict, text: text.into(), fix: None }
    }

    fn fix(mut self, fix: impl Into<String>) -> Finding {
        self.fix = Some(fix.into());
        self
    }
}

/// Leases and ages are told wrongly by clocks that are further apart.
const CLOCK_SKEW_MS: u64 = 2_000;

pub async fn run(server: Option<&str>, args: &Doctor, look: &Look) -> Result<(), Failure> {
    let mut findings = vec![cgroups(), boot_clock(), keeper_binary()];
    findings.extend(host::limits());
    findings.extend(host::directories(&args.directories));
    findings.extend(server_findings(server, look.now_ms).await);
    emit(&if look.is_json() { json(&findings)? } else { page(&findings, look) })?;
    match findings.iter().any(|finding| finding.verdict == Verdict::Bad) {
        true => Err(Failure::silent(1)),
        false => Ok(()),
    }
}

fn cgroups() -> Finding {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let has = |kind: &str| mounts.lines().any(|line| line.split(' ').nth(2) == Some(kind));
    let fix = "it works, but a process that hides from its parent is only found by looking for it";
    match (has("cgroup2"), rustix::process::geteuid().is_root()) {
        (true, true) => Finding::new("cgroups", Verdict::Ok, "cgroup v2 is there: workers end whole"),
        (true, false) => Finding::new("cgroups", Verdict::Note, "an agent of this user may not make cgroups").fix(fix),
        (false, _) if has("cgroup") => Finding::new("cgroups", Verdict::Note, "only cgroup v1 is mounted").fix(fix),
        (false, _) => Finding::new("cgroups", Verdict::Note, "no cgroups are mounted").fix(fix),
    }
}

fn boot_clock() -> Finding {
    match ganger_runtime::clock::boot_id() {
        Ok(_) => {
            Finding::new("boot id", Verdict::Ok, "the kernel names its boot: leases can be told from before a restart")
        }
        Err(error) => Finding::new("boot id", Verdict::Bad, format!("cannot be read: {error}")).fix("mount /proc"),
    }
}

fn keeper_binary() -> Finding {
    match std::env::current_exe() {
        Ok(path) if path.exists() => Finding::new("program", Verdict::Ok, path.display().to_string()),
        Ok(path) => Finding::new("program", Verdict::Bad, format!("{} was replaced or removed", path.display()))
            .fix("start agents again from the new program: they start keepers from it"),
        Err(error) => Finding::new("program", Verdict::Bad, format!("cannot tell where this program lies: {error}")),
    }
}

async fn server_findings(server: Option<&str>, now_ms: u64) -> Vec<Finding> {
    let around = Surroundings::of_process(server);
    let (endpoint, token) = match around.find() {
        Ok(found) => found,
        Err(failure) => return vec![Finding::new("server", Verdict::Bad, failure.message)],
    };
    let how = if token.is_some() { "with a token" } else { "without a token" };
    let api = Api::new(Client::new(endpoint, token));
    let status = match api.status().await {
        Ok(status) => status,
        Err(failure) => {
            let fix = if around.records.is_empty() { "start one with `ganger up`" } else { stale(&around.records) };
            return vec![
                Finding::new("server", Verdict::Bad, format!("{} ({how}): {failure}", api.endpoint())).fix(fix),
            ];
        }
    };
    let mut findings = vec![Finding::new(
        "server",
        Verdict::Ok,
        format!("{} answers {how}, version {}", api.endpoint(), status.version),
    )];
    if status.version != env!("CARGO_PKG_VERSION") {
        let text = format!("the server is {}, this program {}", status.version, env!("CARGO_PKG_VERSION"));
        findings.push(Finding::new("version", Verdict::Note, text).fix("use the same on both sides"));
    }
    let skew = parse_rfc3339(&status.now).map_or(0, |at| at.0.abs_diff(now_ms));
    if skew > CLOCK_SKEW_MS {
        let text = format!("this clock and the server's are {} ms apart", skew);
        findings.push(Finding::new("clock", Verdict::Note, text).fix("let both keep time with NTP"));
    }
    findings.push(match (status.nodes, status.nodes_ready) {
        (0, _) => Finding::new("nodes", Verdict::Bad, "none has registered")
            .fix("start one with `ganger agent --join ADDRESS`"),
        (all, ready) if ready < all => {
            let text = format!("{ready} of {all} are ready");
            Finding::new("nodes", Verdict::Note, text).fix("`ganger nodes` tells what keeps the others away")
        }
        (all, _) => Finding::new(
            "nodes",
            Verdict::Ok,
            format!("{} ready with {}", text::count(all.into(), "node"), text::count(status.gpus, "GPU")),
        ),
    });
    findings
}

fn stale(records: &[records::Record]) -> &'static str {
    let lives = |record: &records::Record| std::path::Path::new("/proc").join(record.pid.to_string()).exists();
    if records.iter().any(lives) {
        "look at what `ganger up` says in its terminal"
    } else {
        "the `ganger up` of before has ended: start it again"
    }
}

fn page(findings: &[Finding], look: &Look) -> String {
    let mut out = String::new();
    for finding in findings {
        let (mark, colour) = match finding.verdict {
            Verdict::Ok => ("✓", Color::Green),
            Verdict::Note => ("!", Color::Yellow),
            Verdict::Bad => ("✗", Color::Red),
        };
        let head = format!("{} {:<9} ", text::paint(mark, Some(colour), look.colour), finding.check);
        out.push_str(&text::hang(&head, 12, &finding.text, 12, look.width));
        if let Some(fix) = &finding.fix {
            out.push_str(&text::hang("", 0, fix, 12, look.width));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_print_with_what_to_do() {
        let findings = [
            Finding::new("server", Verdict::Ok, "answers"),
            Finding::new("nodes", Verdict::Bad, "none").fix("start one"),
        ];
        let page = page(&findings, &crate::output::samples::look());
        assert_eq!(page, "✓ server    answers\n✗ nodes     none\n            start one\n");
    }
}
