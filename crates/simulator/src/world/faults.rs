//! What people and fate do to nodes and to the control plane.
use super::agent::{Key, Process};
use super::{OPERATOR, World};
use ganger_core::lifecycle::Input;
use ganger_core::model::cluster::Cluster;
use ganger_core::model::decision::{Decision, Reservation};
use ganger_core::model::ids::NodeId;
use ganger_core::model::job::Exit;
use ganger_core::model::report::Report;
use ganger_core::scheduler;

impl World {
    /// The node is gone with all its processes, and the server knows at once.
    pub fn fail(&mut self, node: NodeId) {
        let agent = &mut self.agents[node.index()];
        agent.alive = false;
        agent.reports.clear();
        let ranks = std::mem::take(&mut agent.ranks);
        ranks.into_keys().for_each(|key| self.rank_over(key));
        self.observe(Input::NodeLost { node, cause: "failed".to_string() });
        self.settle();
    }

    /// The node is trusted again; one that had failed has booted anew.
    pub fn recover(&mut self, node: NodeId) {
        let now = self.now;
        let agent = &mut self.agents[node.index()];
        if !agent.alive {
            agent.alive = true;
            agent.connected = true;
            agent.boots += 1;
            agent.leased_from = now;
            agent.generation_seen = 0;
            self.touched.insert(node);
            let spec = &mut self.specs[node.index()];
            spec.boot_id = format!("{}-boot-{}", spec.name, agent.boots);
            let spec = spec.clone();
            self.observe(Input::Register(Box::new(spec)));
        }
        self.observe(Input::Recover { node, by: OPERATOR.to_string() });
        self.settle();
    }

    /// Its agent hears nothing and is not heard; its processes go on until its lease is over.
    pub fn cut(&mut self, node: NodeId) {
        self.agents[node.index()].connected = false;
        self.deadline = None;
        self.watch_lease(node);
        self.settle();
    }

    /// Its agent is heard again, and sends what it kept.
    pub fn heal(&mut self, node: NodeId) {
        let agent = &mut self.agents[node.index()];
        if agent.connected {
            return;
        }
        agent.connected = true;
        agent.generation_seen = 0;
        self.touched.insert(node);
        if agent.alive {
            self.contact(node);
        }
        self.settle();
    }

    pub fn drain(&mut self, node: NodeId) {
        self.observe(Input::Drain { node, by: OPERATOR.to_string() });
        self.settle();
    }

    pub fn uncordon(&mut self, node: NodeId) {
        self.observe(Input::Uncordon { node, by: OPERATOR.to_string() });
        self.settle();
    }

    /// A process that runs ends by itself; nothing happens if it does not run.
    pub fn crash(&mut self, node: NodeId, key: Key, exit: Exit) {
        let agent = &mut self.agents[node.index()];
        if agent.ranks.get(&key).is_some_and(|held| held.process == Process::Running) {
            agent.end(key, exit);
            self.rank_over(key);
            self.settle();
        }
    }

    /// The processes on the node stand still, and nobody hears of it. Those that did not stand still before.
    pub fn hang(&mut self, node: NodeId) -> Vec<Key> {
        let running = self.agents[node.index()].ranks.iter().filter(|(_, held)| held.process == Process::Running);
        let keys: Vec<Key> = running.map(|(key, _)| *key).filter(|key| self.trains(key.0)).collect();
        keys.iter().for_each(|key| self.halt(key.0));
        keys
    }

    /// Whether the node refuses to start anything.
    pub fn set_refusing(&mut self, node: NodeId, refuses: bool) {
        self.agents[node.index()].refuses = refuses;
        self.settle();
    }

    /// A report comes in that the node's agent did not send just now: late, doubled, or made up.
    pub fn stale_report(&mut self, node: NodeId, report: Report) {
        self.observe(Input::Report { node, report });
        self.settle();
    }

    /// The server goes down and comes back from its records: it must decide what it would have decided before.
    pub fn restart_control(&mut self) {
        let before = scheduler::decide(&self.cluster, self.now);
        let read = serde_json::to_string(&self.cluster).and_then(|text| serde_json::from_str::<Cluster>(&text));
        match read {
            Ok(cluster) => {
                if cluster != self.cluster {
                    self.breaks(8, "the cluster read back from its records differs".to_string());
                }
                self.cluster = cluster;
            }
            Err(error) => self.breaks(8, format!("the cluster cannot be written and read back: {error}")),
        }
        self.observe(Input::NewTerm);
        let after = scheduler::decide(&self.cluster, self.now);
        if !alike(&before, &after) {
            self.breaks(8, format!("decide after a restart differs: {before:?} became {after:?}"));
        }
        self.settle();
    }

    /// Whether applying the decision would change nothing but its date.
    pub(super) fn is_known(&self, decision: &Decision) -> bool {
        let known = |one: &Reservation| self.cluster.reservations.get(&one.job) == Some(one);
        decision.reservations.len() == self.cluster.reservations.len()
            && decision.reservations.iter().all(known)
            && decision.blocked == self.cluster.blocked
    }
}

/// Equal but for the version that they were made for.
fn alike(one: &Decision, other: &Decision) -> bool {
    one.steps == other.steps && one.reservations == other.reservations && one.blocked == other.blocked
}
