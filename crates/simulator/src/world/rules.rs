//! What must be true at every moment: the core's rules, what processes really hold, and that nobody ends twice.
use super::{Broken, World, truth};
use ganger_core::check;
use ganger_core::model::ids::JobId;
use ganger_core::model::job::{Job, JobState};
use std::collections::BTreeSet;
use std::sync::Arc;

impl World {
    /// Nobody ends twice, and an array only when every task of it did that was ever to run.
    pub(super) fn ends(&mut self, job: &Arc<Job>) {
        if self.finished.insert(job.id, job.clone()).is_some() {
            self.breaks(8, format!("job {} ended a second time", job.number()));
        }
        let Some(state) = &job.array else { return };
        let ended = |id: u64| self.finished.get(&JobId(id)).is_some_and(|task| task.state.is_terminal());
        let tasks = job.task_ids();
        let tasks = (tasks.start.0..tasks.end.0).filter(|id| ended(*id)).count() as u64;
        let said = u64::from(state.done) + u64::from(state.failed) + u64::from(state.cancelled);
        let never = state.waiting.count() + state.held.count();
        let all = job.spec.array.as_ref().map_or(0, |spec| u64::from(spec.count()));
        if tasks != said || said + never != all || (never > 0 && job.state != JobState::Cancelled) {
            let text = format!("array {} ended as {}: {tasks} tasks of {all} ended, it says {said}", job.id, job.state);
            self.breaks(8, text);
        }
    }

    pub(super) fn check(&mut self) {
        if !self.looks_closely() {
            return;
        }
        let mut found: BTreeSet<(u8, String)> =
            check::full(&self.cluster).into_iter().map(|violation| (violation.rule, violation.text)).collect();
        found.extend(truth::check(&self.agents));
        found.extend(truth::arrays(&self.cluster, &self.agents));
        for (rule, text) in found.difference(&self.found_before.clone()) {
            self.breaks(*rule, text.clone());
        }
        self.found_before = found;
    }

    pub(super) fn breaks(&mut self, rule: u8, text: String) {
        self.note("violation", format!("rule {rule}: {text}"));
        self.broken.push(Broken { at_ms: self.now.0, rule, text });
    }
}
