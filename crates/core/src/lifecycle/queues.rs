//! Queues as administrators make, change and remove them: each file whole or not at all, and no queue goes that somebody
//! still needs.
use super::change::Change;
use super::input::{QueueSpec, Refusal};
use crate::model::amounts::count;
use crate::model::queue::{DEFAULT_QUEUE, Queue, ancestry};
use crate::model::whole::{self, WholeNodes, is_inside};
use std::collections::BTreeMap;

impl Change<'_> {
    /// All or nothing: every queue of the list is checked before one is changed.
    pub fn set_queues(&mut self, queues: Vec<QueueSpec>, by: String) -> Result<(), Refusal> {
        for (index, spec) in queues.iter().enumerate() {
            let bad = |why: String| Err(Refusal::BadQueue { queue: spec.path.clone(), why });
            let valid =
                |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
            if !spec.path.split('/').all(valid) {
                return bad("a name is parts of letters, digits, - _ . joined by /".to_string());
            }
            if queues[..index].iter().any(|other| other.path == spec.path) {
                return bad("it is named twice".to_string());
            }
            let known = |path: &str| self.cluster.queues.contains_key(path) || queues.iter().any(|q| q.path == path);
            if let Some(parent) = ancestry(&spec.path).nth(1).filter(|parent| !known(parent)) {
                return bad(format!("its parent {parent} does not exist; name it in the same file"));
            }
        }
        if let Some((queue, why)) = self.misplaced_promise(&queues) {
            return Err(Refusal::BadQueue { queue, why });
        }
        let mut held = self.gpus_by_user(&queues);
        for spec in queues {
            self.effects.dirty.queues.insert(spec.path.clone());
            let queue = self.cluster.queues.entry(spec.path.clone()).or_insert_with(|| Queue::new(&spec.path));
            queue.weight = spec.weight.unwrap_or(queue.weight);
            queue.guarantee = spec.guarantee.unwrap_or(queue.guarantee);
            queue.limit = spec.limit.unwrap_or(queue.limit);
            queue.policy = spec.policy.unwrap_or(queue.policy);
            queue.whole_nodes = spec.whole_nodes.or(queue.whole_nodes.take()).filter(|whole| whole.nodes > 0);
            if let Some(budget) = spec.budget {
                let held = held.remove(&spec.path).unwrap_or_default();
                queue.set_budget(budget, &held, self.now, self.cluster.policy.usage_half_life);
            }
            self.event("queue", None, None, format!("queue {} set by {by}", spec.path));
        }
        self.mark_changed();
        self.tick_budgets();
        Ok(())
    }

    fn misplaced_promise(&self, queues: &[QueueSpec]) -> Option<(String, String)> {
        let known = self.cluster.queues.iter().map(|(path, queue)| (path.as_str(), queue.whole_nodes.as_ref()));
        let said = queues.iter().filter(|spec| spec.whole_nodes.is_some());
        let said = said.map(|spec| (spec.path.as_str(), spec.whole_nodes.as_ref()));
        let all: BTreeMap<&str, Option<&WholeNodes>> = known.chain(said).collect();
        let all = all.into_iter().filter_map(|(path, whole)| Some((path, whole.filter(|whole| whole.nodes > 0)?)));
        whole::misplaced(&all.collect()).map(|(path, why)| (path.to_string(), why))
    }

    /// GPUs that each user holds in the queues that get a budget.
    fn gpus_by_user(&self, queues: &[QueueSpec]) -> BTreeMap<String, BTreeMap<String, u64>> {
        let mut held: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        let budgeted = |path: &str| queues.iter().any(|spec| spec.path == path && spec.budget.is_some());
        for job in self.cluster.jobs.values() {
            let gpus = job.attempt.as_ref().map_or(0, |attempt| attempt.live_resources().all_gpus_milli());
            for path in ancestry(&job.spec.queue).filter(|path| gpus > 0 && budgeted(path)) {
                let users = held.entry(path.to_string()).or_default();
                *users.entry(job.owner.user.clone()).or_default() += gpus;
            }
        }
        held
    }

    /// What it was charged goes with it: one of the same name begins anew.
    pub fn remove_queue(&mut self, path: &str, by: &str) -> Result<(), Refusal> {
        if !self.cluster.queues.contains_key(path) {
            return Err(Refusal::NoSuchQueue { queue: path.to_string() });
        }
        if let Some(why) = self.needed_for(path) {
            return Err(Refusal::QueueInUse { queue: path.to_string(), why });
        }
        self.cluster.queues.remove(path);
        self.effects.dirty.queues.insert(path.to_string());
        self.event("queue", None, None, format!("queue {path} removed by {by}"));
        self.mark_changed();
        Ok(())
    }

    fn needed_for(&self, path: &str) -> Option<String> {
        if path == DEFAULT_QUEUE {
            return Some("it is the queue of jobs that name none".to_string());
        }
        let below = self.cluster.queues.keys().filter(|other| *other != path && is_inside(other, path));
        if let Some(first) = below.clone().next() {
            let queues = count(below.count() as u64, "queue");
            return Some(format!("{queues} below it ({first}); remove them first"));
        }
        let jobs = self.cluster.jobs.values().chain(self.cluster.arrays.values());
        let jobs = jobs.filter(|job| job.spec.queue == path && job.task.is_none());
        if let Some(first) = jobs.clone().next() {
            let (number, name, state) = (first.number(), first.title(), first.state);
            let first = format!("job {number} {name} ({state})");
            return Some(match jobs.count() {
                1 => format!("1 job in it has not ended: {first}"),
                all => format!("{all} jobs in it have not ended, the first is {first}"),
            });
        }
        let lent = self.cluster.pools.iter().find(|(_, lending)| lending.to.iter().any(|to| to == path));
        lent.map(|(pool, _)| format!("pool {pool} is lent to it; apply a cluster file that says otherwise"))
    }
}
