//! The life of a node: it joins, falls silent, is fenced, drained, quarantined, and trusted again.
use super::change::Change;
use super::input::{NodePlacement, NodeSpec, Refusal};
use crate::model::ids::{JobId, NodeId, Rank};
use crate::model::job::{Exit, StopWhy};
use crate::model::machine::Machine;
use crate::model::node::{Device, Health, HealthState, Node};
use crate::model::time::Time;
use std::sync::Arc;

impl Change<'_> {
    pub fn register(&mut self, spec: NodeSpec) -> Result<(), Refusal> {
        let bad = |why: &str| Err(Refusal::BadNode { node: spec.name.clone(), why: why.to_string() });
        let valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if spec.name.is_empty() || spec.name.len() > 253 || !spec.name.chars().all(valid) {
            return bad("a node name is 1 to 253 letters, digits, - _ .");
        }
        if spec.machine.sockets.len() > crate::scheduler::MAX_SOCKETS {
            return bad("it has more NUMA nodes with CPUs than 16");
        }
        let machine = self.shared(&spec.machine);
        let spec = NodeSpec { machine, ..spec };
        match self.cluster.node_names.get(&spec.name).copied() {
            Some(id) => self.come_back(id, spec),
            None => {
                self.join(spec);
                Ok(())
            }
        }
    }

    /// Equal machines are one: thousands of nodes are of a few kinds.
    fn shared(&self, machine: &Arc<Machine>) -> Arc<Machine> {
        let equal = self.cluster.nodes.iter().find(|node| node.machine == *machine);
        equal.map_or_else(|| machine.clone(), |node| node.machine.clone())
    }

    fn join(&mut self, spec: NodeSpec) {
        let id = NodeId(self.cluster.nodes.len() as u32);
        let placement = self.merged_placement(&spec);
        let node = fresh_node(id, spec, self.now);
        let gpus = match node.machine.gpus.len() {
            0 => "no GPUs".to_string(),
            gpus => format!("{gpus} x {}", node.machine.gpu_model),
        };
        let text = format!("{} joins: {gpus}", node.name);
        self.cluster.node_names.insert(node.name.clone(), id);
        self.cluster.nodes.push(Arc::new(node));
        self.effects.registered = Some(id);
        self.put_in_place(id, &placement);
        self.mark_globals();
        self.event("joined", None, Some(id), text);
    }

    /// What the cluster file says goes before what the agent says.
    fn merged_placement(&self, spec: &NodeSpec) -> NodePlacement {
        let file = self.cluster.placements.get(&spec.name).cloned().unwrap_or_default();
        let own = spec.placement.clone();
        let mut labels = own.labels;
        labels.extend(file.labels);
        NodePlacement {
            leaf: file.leaf.or(own.leaf),
            spine: file.spine.or(own.spine),
            pool: file.pool.or(own.pool),
            labels,
        }
    }

    pub fn put_in_place(&mut self, id: NodeId, placement: &NodePlacement) {
        let leaf = placement.leaf.as_ref().map(|leaf| {
            // Who names no spine leaves the leaf where it is.
            let known = self.cluster.fabric.leaves.iter().find(|known| known.name == *leaf);
            let known = known.map(|known| self.cluster.fabric.spines[known.spine.0 as usize].clone());
            let spine = placement.spine.clone().or(known).unwrap_or_else(|| "spine0".to_string());
            self.cluster.fabric.leaf(leaf, &spine)
        });
        let node = self.node_mut(id);
        node.leaf = leaf.unwrap_or(node.leaf);
        if let Some(pool) = &placement.pool {
            node.pool = Some(pool.clone()).filter(|pool| !pool.is_empty());
        }
        node.labels.extend(placement.labels.clone());
        self.mark_globals();
    }

    /// An agent returns. After a reboot nothing of the old work can be alive.
    fn come_back(&mut self, id: NodeId, spec: NodeSpec) -> Result<(), Refusal> {
        let node = self.cluster.node(id);
        let silent = self.now.since(node.last_heard);
        let another = node.agent != spec.agent && !node.agent.is_empty();
        if another && silent < self.cluster.policy.lease {
            let why = format!(
                "another agent answers for it and was heard {silent} ago: stop that one and wait for its lease of {}, or \
                 give this one another name",
                self.cluster.policy.lease
            );
            return Err(Refusal::BadNode { node: spec.name, why });
        }
        let rebooted = node.boot_id != spec.boot_id;
        let other_machine = node.machine != spec.machine;
        if other_machine && !node.tenants.is_empty() && !rebooted {
            let why = "its machine changed while work runs on it; drain it first".to_string();
            return Err(Refusal::BadNode { node: spec.name, why });
        }
        self.effects.registered = Some(id);
        if rebooted {
            self.lose_all(id);
        }
        if other_machine {
            self.drop_claims_on(id, "its node has another machine now");
        }
        let placement = self.merged_placement(&spec);
        let changed = rebooted || other_machine || another || self.cluster.node(id).address != spec.address;
        if changed {
            let node = self.node_mut(id);
            if rebooted {
                node.strays.clear();
                // Instances and servers do not outlive a boot.
                node.splits.clear();
                node.devices
                    .iter_mut()
                    .filter(|d| **d == (Device::Sick { owner: None }))
                    .for_each(|d| *d = Device::Free);
            }
            if other_machine {
                let strays: u64 = node.strays.iter().fold(0, |mask, stray| mask | stray.gpus);
                let device = |gpu: usize| match strays >> gpu & 1 {
                    0 => Device::Free,
                    _ => Device::Sick { owner: None },
                };
                node.devices = (0..spec.machine.gpus.len()).map(device).collect();
                node.splits.clear();
                node.memory_used = vec![0; spec.machine.sockets.len()];
                node.machine = spec.machine;
            }
            node.boot_id = spec.boot_id;
            node.agent = spec.agent;
            node.address = spec.address;
            node.generation += 1;
            self.put_in_place(id, &placement);
            self.event(
                "returned",
                None,
                Some(id),
                format!("{} is back{}", spec.name, if rebooted { " after a reboot" } else { "" }),
            );
        }
        self.heard(id);
        Ok(())
    }

    /// Heard from, but no witness: it may be among those who let a cut-off peer go on.
    pub fn doubtful(&mut self, id: NodeId) {
        self.heard(id);
        self.cluster.doubtful.insert(id);
    }

    /// Nothing of the node's work goes elsewhere before `until`.
    pub fn vouched(&mut self, id: NodeId, until: Time) {
        let now = self.now;
        self.cluster.vouched.retain(|_, until| *until > now);
        let known = self.cluster.vouched.entry(id).or_insert(until);
        *known = until.max(*known);
    }

    /// Its agent speaks. A suspect node is trusted again; one that comes back too often is taken out; a fenced one
    /// starts on probation.
    pub fn heard(&mut self, id: NodeId) {
        self.cluster.doubtful.remove(&id);
        self.touch_heard(id);
        let now = self.now;
        match self.cluster.node(id).health.state {
            HealthState::Suspect if self.cluster.node(id).revoked_at.is_none() => self.back_from_silence(id),
            HealthState::Fenced | HealthState::Dead => {
                let until = now + self.cluster.policy.probation;
                let was = if self.cluster.node(id).health.state == HealthState::Dead { "forgotten" } else { "fenced" };
                self.node_mut(id).revoked_at = None;
                self.set_health(id, HealthState::Probation, format!("back after it was {was}"), Some(until));
            }
            _ => {}
        }
    }

    fn back_from_silence(&mut self, id: NodeId) {
        let now = self.now;
        let (limit, window) = (self.cluster.policy.flap_limit, self.cluster.policy.flap_window);
        let until = now + self.cluster.policy.quarantine;
        let node = self.node_mut(id);
        node.flaps.push(now);
        node.flaps.retain(|at| now.since(*at) <= window);
        let flaps = node.flaps.len() as u32;
        if flaps >= limit {
            let cause = format!("it fell silent and came back {flaps} times within {window}");
            self.set_health(id, HealthState::Quarantined, cause, Some(until));
        } else {
            self.set_health(id, HealthState::Ready, "heard again within its lease".to_string(), None);
        }
    }

    pub fn set_health(&mut self, id: NodeId, state: HealthState, cause: String, until: Option<Time>) {
        let since = self.now;
        let node = self.node_mut(id);
        let text = format!("{} is {state}: {cause}", node.name);
        node.health = Health { state, since, cause, until };
        self.event(&state.to_string(), None, Some(id), text);
        if !matches!(state, HealthState::Ready | HealthState::Probation) {
            self.drop_claims_on(id, "its node takes no new work");
        }
    }

    /// The ranks on this node are known to be over: they may run elsewhere.
    pub fn fence(&mut self, id: NodeId, cause: String) {
        // Quarantine outlasts the fence: else silence would be the way out of it.
        let out = [HealthState::Fenced, HealthState::Dead, HealthState::Quarantined];
        if !out.contains(&self.cluster.node(id).health.state) {
            self.set_health(id, HealthState::Fenced, cause, None);
        }
        self.node_mut(id).revoked_at = None;
        self.lose_all(id);
    }

    /// Every worker on the node is lost, and with it its attempt.
    fn lose_all(&mut self, id: NodeId) {
        let tenants: Vec<(JobId, Rank)> = self.cluster.node(id).tenants.iter().copied().collect();
        for (job, rank) in tenants {
            let attempt = self.cluster.job(job).and_then(|job| job.attempt.as_ref()).map(|attempt| attempt.number);
            if let Some(attempt) = attempt {
                self.end_worker(job, attempt, rank, Exit::Lost);
            }
        }
    }

    pub fn drain(&mut self, id: NodeId, by: String) {
        self.forget_begun(id);
        self.start_drain(id, by);
    }

    pub fn start_drain(&mut self, id: NodeId, by: String) {
        self.event("draining", None, Some(id), format!("{} is drained by {by}", self.cluster.node(id).name));
        self.node_mut(id).draining = Some(by);
        self.drop_claims_on(id, "its node is being drained");
        let mut jobs: Vec<JobId> = self.cluster.node(id).tenants.iter().map(|(job, _)| *job).collect();
        jobs.dedup();
        for job in jobs {
            self.stop(job, StopWhy::Drained { node: id });
        }
    }

    pub fn cordon(&mut self, id: NodeId, by: String) {
        self.event("cordoned", None, Some(id), format!("{} is cordoned by {by}", self.cluster.node(id).name));
        self.node_mut(id).cordoned = true;
        self.drop_claims_on(id, "its node is cordoned");
    }

    pub fn uncordon(&mut self, id: NodeId, by: String) {
        self.event("uncordoned", None, Some(id), format!("{} is open again, says {by}", self.cluster.node(id).name));
        let node = self.node_mut(id);
        node.cordoned = false;
        node.draining = None;
        node.maintenance.clear();
        node.cooldown_until = Time(0);
        node.refusals.clear();
        node.flaps.clear();
        if node.health.state == HealthState::Quarantined {
            node.revoked_at = None;
            self.set_health(id, HealthState::Ready, format!("released by {by}"), None);
        }
    }

    pub fn quarantine(&mut self, id: NodeId, cause: String, fenced: bool) {
        if fenced {
            self.lose_all(id);
        }
        self.set_health(id, HealthState::Quarantined, cause, None);
    }

    /// Only of a node whose agent is silent and on which nothing is counted: nobody can be let down by it.
    pub fn forget(&mut self, id: NodeId, by: String) -> Result<(), Refusal> {
        let (node, lease) = (self.cluster.node(id), self.cluster.policy.lease);
        let silent = self.now.since(node.last_heard);
        let workers = node.tenants.len() + node.strays.len();
        let why = if workers > 0 {
            format!("{workers} of its workers may still run: drain it, or wait until it is fenced")
        } else if silent < lease {
            format!("its agent was heard {silent} ago: stop the agent, and wait for its lease of {lease}")
        } else {
            let node = self.node_mut(id);
            (node.cordoned, node.draining, node.revoked_at) = (false, None, None);
            self.set_health(id, HealthState::Dead, format!("forgotten by {by}"), None);
            return Ok(());
        };
        Err(Refusal::NodeInUse { node: node.name.clone(), why })
    }

    pub fn recover(&mut self, id: NodeId, by: String) {
        let node = self.node_mut(id);
        node.cooldown_until = Time(0);
        node.refusals.clear();
        node.flaps.clear();
        node.revoked_at = None;
        self.touch_heard(id);
        self.set_health(id, HealthState::Ready, format!("trusted again, says {by}"), None);
    }

    /// A node that refused or did not start something in time pays for it, not the job.
    pub fn charge_refusal(&mut self, id: NodeId, why: &str) {
        let (now, policy) = (self.now, self.cluster.policy.clone());
        let node = self.node_mut(id);
        node.refusals.push(now);
        node.refusals.retain(|at| now.since(*at) <= policy.cooldown_window);
        let (refusals, name) = (node.refusals.len() as u32, node.name.clone());
        self.event("refused", None, Some(id), format!("{name} could not start a worker ({refusals}): {why}"));
        let limit = policy.cooldown_refusals.max(1);
        if refusals >= limit.saturating_mul(2) {
            let cause = format!("{refusals} refused starts within {}, last: {why}", policy.cooldown_window);
            self.set_health(id, HealthState::Quarantined, cause, Some(now + policy.quarantine));
        } else if refusals >= limit {
            self.node_mut(id).cooldown_until = now + policy.cooldown;
            self.drop_claims_on(id, "its node cools down");
            self.event("cooling_down", None, Some(id), format!("{name} gets no new work for {}", policy.cooldown));
        }
    }

    /// A claim that counts on this node cannot be kept.
    pub fn drop_claims_on(&mut self, id: NodeId, why: &str) {
        let broken: Vec<JobId> = self
            .cluster
            .claims
            .values()
            .filter(|claim| claim.places.iter().any(|place| place.node == id))
            .map(|claim| claim.claimant)
            .collect();
        broken.into_iter().for_each(|claimant| self.unclaim(claimant, why));
    }

    /// Claims some of whose devices on this node went another way.
    pub fn drop_broken_claims(&mut self, id: NodeId) {
        let node = self.cluster.node(id);
        let sick = node.mask(|device| matches!(device, Device::Sick { .. }));
        let lost = node.strays.iter().fold(sick, |mask, stray| mask | stray.gpus);
        let broken: Vec<JobId> = self
            .cluster
            .claims
            .values()
            .filter(|claim| claim.places.iter().any(|place| place.node == id && place.touched_gpus() & lost != 0))
            .map(|claim| claim.claimant)
            .collect();
        broken.into_iter().for_each(|claimant| self.unclaim(claimant, "a device that it needs is lost"));
    }
}

fn fresh_node(id: NodeId, spec: NodeSpec, now: Time) -> Node {
    Node {
        id,
        name: spec.name,
        leaf: crate::model::LeafId(0),
        pool: None,
        labels: Default::default(),
        address: spec.address,
        health: Health { state: HealthState::Ready, since: now, cause: "registered".to_string(), until: None },
        cordoned: false,
        draining: None,
        maintenance: Vec::new(),
        last_heard: now,
        boot_id: spec.boot_id,
        agent: spec.agent,
        generation: 1,
        devices: vec![Device::Free; spec.machine.gpus.len()],
        splits: Default::default(),
        tenants: Default::default(),
        strays: Vec::new(),
        cpus_used: Default::default(),
        memory_used: vec![0; spec.machine.sockets.len()],
        pcie_used_bps: Default::default(),
        network_used_bps: 0,
        refusals: Vec::new(),
        cooldown_until: Time(0),
        flaps: Vec::new(),
        revoked_at: None,
        machine: spec.machine,
    }
}
