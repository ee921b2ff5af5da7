//! What is said to the world: settings, queues, pools, nodes, jobs, and what people ask of jobs. Each is an input of the
//! core; a refusal is handed back as it is.
use super::agent::Agent;
use super::gangs::SimulatedJob;
use super::training::WorkPlan;
use super::{OPERATOR, World};
use ganger_core::lifecycle::input::{NodePlacement, NodeSpec, QueueSpec};
use ganger_core::lifecycle::{Input, Refusal};
use ganger_core::model::ids::{JobId, NodeId};
use ganger_core::model::job::{JobSpec, Owner};
use ganger_core::model::pool::Lending;
use std::collections::BTreeMap;
use std::sync::Arc;

impl World {
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Refusal> {
        let (name, value, by) = (name.to_string(), value.to_string(), OPERATOR.to_string());
        self.apply(Input::Setting { name, value, by }).map(|_| ())
    }

    pub fn set_uplink(&mut self, leaf: &str, bps: u64) -> Result<(), Refusal> {
        let (placements, pools, by) = (BTreeMap::new(), BTreeMap::new(), OPERATOR.to_string());
        let uplinks = [(leaf.to_string(), bps)].into();
        self.apply(Input::Fabric { placements, uplinks, pools, by }).map(|_| ())
    }

    pub fn put_in_pool(&mut self, node: &str, pool: &str) -> Result<(), Refusal> {
        let (uplinks, pools, by) = (BTreeMap::new(), BTreeMap::new(), OPERATOR.to_string());
        let placement = NodePlacement { pool: Some(pool.to_string()), ..NodePlacement::default() };
        let placements = [(node.to_string(), placement)].into();
        self.apply(Input::Fabric { placements, uplinks, pools, by }).map(|_| ())
    }

    /// Keeps a pool for its own jobs, lent as `lending` says; `None`: it is open to all.
    pub fn set_pool(&mut self, pool: &str, lending: Option<Lending>) -> Result<(), Refusal> {
        let (placements, uplinks, by) = (BTreeMap::new(), BTreeMap::new(), OPERATOR.to_string());
        let pools = [(pool.to_string(), lending)].into();
        self.apply(Input::Fabric { placements, uplinks, pools, by }).map(|_| ())
    }

    pub fn set_queues(&mut self, queues: Vec<QueueSpec>) -> Result<(), Refusal> {
        self.apply(Input::Queues { queues, by: OPERATOR.to_string() }).map(|_| ())
    }

    pub fn add_node(&mut self, spec: NodeSpec) -> Result<NodeId, Refusal> {
        let effects = self.apply(Input::Register(Box::new(spec.clone())))?;
        let id = effects.registered.unwrap_or(NodeId(self.specs.len() as u32));
        self.specs.push(spec);
        self.agents.push(Agent::new(id, self.now));
        Ok(id)
    }

    /// As [`World::submit`], but nobody acts on it before the world settles.
    pub fn enter(&mut self, spec: Arc<JobSpec>, plan: WorkPlan) -> Result<JobId, Refusal> {
        let owner = Owner { user: OPERATOR.to_string(), uid: 1_000, gid: 1_000 };
        let effects = self.apply(Input::Submit { spec: spec.clone(), owner })?;
        let id = effects.submitted.unwrap_or_default();
        self.names.insert(spec.name.clone(), id);
        let tasks = self.cluster.array(id).map(|array| array.task_ids());
        let each = tasks.map_or(id.0..id.0 + 1, |tasks| tasks.start.0..tasks.end.0);
        for job in each.map(JobId) {
            self.jobs.insert(job, SimulatedJob::new(plan, spec.gang.workers, spec.total().all_gpus_milli()));
        }
        Ok(id)
    }

    pub fn submit(&mut self, spec: Arc<JobSpec>, plan: WorkPlan) -> Result<JobId, Refusal> {
        let id = self.enter(spec, plan)?;
        self.settle();
        Ok(id)
    }

    /// Cancel, hold, release: anything that a person may ask of a job.
    pub fn ask(&mut self, input: Input) -> Result<(), Refusal> {
        let result = self.apply(input).map(|_| ());
        self.settle();
        result
    }
}
