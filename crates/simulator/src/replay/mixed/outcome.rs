//! What each kind of work got.
use super::{MS_PER_HOUR, RESTART, WRITE};
use crate::world::Claims;
use ganger_core::model::job::Job;
use ganger_core::model::time::Span;
use serde::Serialize;

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Until the first start of urgent pods.
    pub p0_wait_p50_s: f64,
    pub p0_wait_p99_s: f64,
    pub p0_wait_max_s: f64,
    /// Training done by the end, in GPU hours.
    pub p3_goodput_gpu_hours: f64,
    /// Written and restarted for others, in GPU hours.
    pub lost_gpu_hours: f64,
    pub preemptions: u64,
    /// Claims that were made, those that ended by the start of their claimant on what was freed for it, and those that
    /// ended by its start elsewhere, sooner.
    pub claims: u64,
    pub claims_kept: u64,
    pub claims_sooner: u64,
    #[serde(skip)]
    waits_ms: Vec<u64>,
}

impl Outcome {
    pub fn note(&mut self, urgent: bool, waited: Option<Span>, done: Span, job: &Job) {
        if urgent {
            self.waits_ms.push(waited.unwrap_or_default().0);
            return;
        }
        let gpu_hours = |span: Span| span.0 as f64 * job.spec.total().gpus as f64 / MS_PER_HOUR;
        self.p3_goodput_gpu_hours += gpu_hours(done);
        self.preemptions += u64::from(job.evictions);
        self.lost_gpu_hours += gpu_hours((WRITE + RESTART).times(u64::from(job.evictions)));
    }

    pub fn finished(mut self, claims: Claims) -> Outcome {
        self.waits_ms.sort_unstable();
        let at = |place: usize| self.waits_ms.get(place).map_or(0.0, |ms| *ms as f64 / 1_000.0);
        let count = self.waits_ms.len();
        (self.p0_wait_p50_s, self.p0_wait_p99_s) = (at(count / 2), at(count * 99 / 100));
        self.p0_wait_max_s = at(count.saturating_sub(1));
        (self.claims, self.claims_kept, self.claims_sooner) = (claims.made, claims.kept, claims.sooner);
        self
    }
}
