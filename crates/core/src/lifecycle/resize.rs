//! A person asks for another size of an elastic gang. What is too much leaves at once; what is missing is for the scheduler
//! to find.
use super::change::Change;
use super::input::Refusal;
use crate::model::amounts::count;
use crate::model::decision::Claim;
use crate::model::ids::{JobId, Rank};
use crate::model::job::{Job, JobSpec, StopWhy};
use std::sync::Arc;

impl Change<'_> {
    pub fn resize(&mut self, id: JobId, workers: u32, by: String) -> Result<(), Refusal> {
        let job = self.find_job(id)?;
        let gang = job.spec.gang;
        let bad = |why: String| Refusal::WrongState { job: id, state: job.state.to_string(), why };
        let asked = job.filed.unwrap_or(gang);
        if job.spec.group.is_some() || asked.least() >= asked.workers {
            return Err(bad(
                "it runs with all its workers or not at all: it was submitted without gang.min".to_string()
            ));
        }
        if !asked.may_be(workers) {
            return Err(bad(format!("its job file allows {}, not {workers}", asked.sizes())));
        }
        let mut spec = JobSpec::clone(&job.spec);
        spec.gang.workers = workers;
        spec.check().map_err(|(field, why)| bad(format!("{field}: {why}")))?;
        let text =
            format!("{} is to have {} instead of {} by {by}", spec.name, count(workers.into(), "worker"), gang.workers);
        let now = self.now;
        if let Some(job) = self.job_mut(id) {
            job.spec = Arc::new(spec);
            (job.resized_at, job.filed) = (Some(now), Some(asked));
        }
        self.event("resized", Some(id), None, text);
        self.give_up_beyond(id, workers);
        Ok(())
    }

    /// Leaves what the gang holds or claims beyond so many workers.
    fn give_up_beyond(&mut self, id: JobId, workers: u32) {
        let Some(job) = self.cluster.job(id) else { return };
        if let Some(claim) = self.cluster.claims.get(&id).filter(|claim| claim.places.len() > workers as usize) {
            let mut smaller = claim.clone();
            smaller.places.truncate(workers as usize);
            return self.claim_anew(smaller);
        }
        let Some(attempt) = job.attempt.as_ref().filter(|_| job.size() > workers) else { return };
        let (number, policy) = (attempt.number, &self.cluster.policy);
        let deadline = self.now + job.spec.checkpoint.grace + policy.stop_margin + policy.claim_margin;
        let leaving: Vec<Rank> = attempt.staying().skip(workers as usize).map(|worker| worker.rank).collect();
        let places = attempt.staying().take(workers as usize).map(|worker| worker.place.clone()).collect();
        if job.is_running() {
            self.shrink(id, number, &leaving, id);
        } else {
            self.stop(id, StopWhy::Resized { workers });
        }
        if !self.cluster.job(id).is_some_and(Job::is_resizing) {
            return;
        }
        let (victims, made_at) = (vec![(id, number)], self.now);
        let (claimant, lost_gpu_ms, moves, resizes) = (id, 0, true, true);
        self.claim_anew(Claim { claimant, places, victims, made_at, deadline, lost_gpu_ms, moves, resizes });
    }

    /// Without a claim it finds its place as any other.
    fn claim_anew(&mut self, claim: Claim) {
        let id = claim.claimant;
        let open = |place: &crate::model::job::Place| place.slice.is_none();
        self.unclaim(id, "");
        if claim.places.iter().all(open) && self.claim(&claim).is_err() {
            self.cluster.claims.insert(id, claim);
            self.unclaim(id, "its node takes no new work");
        }
    }
}
