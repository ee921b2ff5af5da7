//! Tells the tour: titles, what was decided and why, pictures; and keeps what came out.
use crate::client::Api;
use crate::failure::Failure;
use crate::output::{Look, emit, say, table, text, tree, why};
use serde::Serialize;
use std::time::Duration;

/// One thing that was claimed and how it came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    pub what: String,
    pub found: String,
    pub took_ms: Option<u64>,
    pub ok: bool,
}

impl Outcome {
    pub fn sentence(&self) -> String {
        format!("{}: {}", self.what, self.found)
    }
}

#[derive(Debug)]
pub struct Teller {
    look: Look,
    /// The last event that was told.
    told: u64,
    outcomes: Vec<Outcome>,
    scene: u32,
}

impl Teller {
    pub fn new(look: Look) -> Teller {
        Teller { look, told: 0, outcomes: Vec::new(), scene: 0 }
    }

    pub fn outcomes(&self) -> &[Outcome] {
        &self.outcomes
    }

    /// With JSON, standard output is the summary alone.
    fn print(&self, words: &str) -> Result<(), Failure> {
        if self.look.is_json() {
            say(words.trim_end());
            return Ok(());
        }
        emit(words)
    }

    pub fn title(&self, words: &str) -> Result<(), Failure> {
        self.print(&format!("{}\n", text::bold(words, self.look.colour)))
    }

    pub fn scene(&mut self, words: &str) -> Result<(), Failure> {
        self.scene += 1;
        self.print(&format!("\n{}\n", text::bold(&format!("{}. {words}", self.scene), self.look.colour)))
    }

    pub fn line(&self, words: &str) -> Result<(), Failure> {
        self.print(&text::hang("", 0, words, 3, self.look.width))
    }

    /// Keeps an outcome and tells it.
    pub fn found(&mut self, ok: bool, what: &str, found: String, took: Option<Duration>) -> Result<(), Failure> {
        let took_ms = took.map(|took| u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        let outcome = Outcome { what: what.to_string(), found, took_ms, ok };
        let mark = if ok { "✓" } else { "✗" };
        self.print(&format!("   {mark} {}{}\n", outcome.sentence(), in_time(took_ms)))?;
        self.outcomes.push(outcome);
        Ok(())
    }

    /// What happened since the last time, but checkpoints: they come by the dozen.
    pub async fn events(&mut self, api: &Api) -> Result<(), Failure> {
        let since = self.told.to_string();
        let events = api.events(&[("since", Some(&since))]).await?;
        for event in events.iter().filter(|event| event.number > self.told) {
            if event.kind != "checkpoint" {
                self.print(&table::event_line(event, &self.look))?;
            }
        }
        self.told = events.iter().map(|event| event.number).max().unwrap_or(0).max(self.told);
        Ok(())
    }

    pub async fn picture(&self, api: &Api) -> Result<(), Failure> {
        let picture = tree::cluster(&api.nodes().await?, &api.jobs(&[]).await?, &self.look);
        self.print(&format!("\n{}\n", indented(&picture)))
    }

    pub async fn why(&self, api: &Api, job: &str) -> Result<(), Failure> {
        let look = Look { now_ms: ganger_runtime::clock::unix_ms(), width: self.look.width - 3, ..self.look };
        self.print(&format!("\n{}\n", indented(&why::page(&api.why(job).await?, &look))))
    }
}

fn indented(lines: &str) -> String {
    lines.trim_end().lines().map(|line| format!("   {line}").trim_end().to_string() + "\n").collect()
}

fn in_time(took_ms: Option<u64>) -> String {
    took_ms.map(|ms| format!(" ({}.{} s)", ms / 1_000, ms % 1_000 / 100)).unwrap_or_default()
}

pub fn table(outcomes: &[Outcome], look: &Look) -> String {
    let row = |outcome: &Outcome| {
        let took = outcome.took_ms.map_or("-".to_string(), |ms| format!("{}.{} s", ms / 1_000, ms % 1_000 / 100));
        vec![if outcome.ok { "ok" } else { "NO" }.to_string(), outcome.what.clone(), took, outcome.found.clone()]
    };
    table::render(look, &["", "WHAT", "TOOK", "FOUND"], outcomes.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_a_table() {
        let outcomes = [
            Outcome { what: "a gang runs".into(), found: "16 workers".into(), took_ms: Some(1_250), ok: true },
            Outcome { what: "it resumes".into(), found: "from step 0".into(), took_ms: None, ok: false },
        ];
        let expected =
            "    WHAT         TOOK   FOUND\nok  a gang runs  1.2 s  16 workers\nNO  it resumes   -      from step 0\n";
        assert_eq!(table(&outcomes, &crate::output::samples::look()), expected);
    }
}
