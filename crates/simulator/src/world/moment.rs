//! One moment: processes and agents act, then time, then the scheduler, until nothing changes. All that they say reaches the
//! core through [`World::apply`], and nothing else does.
use super::agent::{Change, Key};
use super::decisions::may_call_for_a_decision;
use super::{Care, TraceLine, World};
use ganger_core::lifecycle::{self, Effects, Input, Refusal};
use ganger_core::model::ids::{JobId, NodeId};
use ganger_core::model::time::Time;
use std::collections::BTreeMap;

/// After so many rounds at one moment something goes in circles.
const MOST_ROUNDS: usize = 1_000;
/// So many reports are kept for replays.
const REPORTS_KEPT: usize = 64;

impl World {
    /// Lets processes, agents, time and scheduler act at this moment until nothing changes, then checks the rules.
    pub(crate) fn settle(&mut self) {
        let calm = (0..MOST_ROUNDS).any(|_| !(self.agents_act() || self.time_acts() || self.scheduler_acts()));
        if !calm {
            self.breaks(9, "the cluster does not come to rest: agents and decisions go in circles".to_string());
        }
        self.check();
        self.quiet = self.quiet.saturating_add(1);
    }

    fn agents_act(&mut self) -> bool {
        let mut acted = false;
        while let Some(due) = self.agenda.take_due(self.now) {
            self.happen(due);
            acted = true;
        }
        self.spare_the_fallen();
        acted | self.obey_orders() | self.send_reports()
    }

    fn time_acts(&mut self) -> bool {
        if self.next_deadline().is_none_or(|at| at > self.now) {
            return false;
        }
        let before = self.cluster.version;
        let told = self.apply(Input::Tick).is_ok_and(|effects| !effects.events.is_empty());
        told || self.cluster.version != before
    }

    fn obey_orders(&mut self) -> bool {
        let mut acted = false;
        let mut leaving: BTreeMap<JobId, Vec<(NodeId, Key, Time)>> = BTreeMap::new();
        for id in std::mem::take(&mut self.touched) {
            let index = id.index();
            let node = self.cluster.node(id);
            let (generation, revoked) = (node.generation, node.revoked_at.is_some());
            let agent = &mut self.agents[index];
            if !agent.is_heard() || agent.generation_seen == generation {
                continue;
            }
            acted = true;
            agent.generation_seen = generation;
            if revoked {
                self.watch_lease(id);
            }
            let orders = lifecycle::orders(&self.cluster, id);
            for (key, change) in self.agents[index].obey(&orders) {
                match change {
                    Change::Started => self.rank_runs(id, key),
                    Change::Ended => self.rank_over(key),
                    Change::AskedToLeave { deadline } => {
                        leaving.entry(key.0).or_default().push((id, key, deadline));
                    }
                }
            }
        }
        leaving.into_iter().for_each(|(job, ranks)| self.ranks_leave(job, &ranks));
        acted
    }

    fn send_reports(&mut self) -> bool {
        let mut sent = false;
        for index in 0..self.agents.len() {
            if !self.agents[index].is_heard() || self.agents[index].reports.is_empty() {
                continue;
            }
            let node = NodeId(index as u32);
            self.contact(node);
            for report in std::mem::take(&mut self.agents[index].reports) {
                if self.care == Care::Full {
                    self.recent_reports.push((node, report.clone()));
                }
                self.observe(Input::Report { node, report });
            }
            sent = true;
        }
        let old = self.recent_reports.len().saturating_sub(REPORTS_KEPT);
        self.recent_reports.drain(..old);
        sent
    }

    /// The agent sends and is answered: both sides count its lease from now.
    pub(super) fn contact(&mut self, node: NodeId) {
        self.observe(Input::Heard { node });
        if self.cluster.node(node).revoked_at.is_none() {
            self.agents[node.index()].leased_from = self.now;
        }
    }

    /// Observations are never refused; one that is breaks the contract of `apply`.
    pub(super) fn observe(&mut self, input: Input) {
        if let Err(refusal) = self.apply(input.clone()) {
            self.breaks(9, format!("the observation {input:?} was refused: {refusal}"));
        }
    }

    pub(super) fn apply(&mut self, input: Input) -> Result<Effects, Refusal> {
        if !matches!(input, Input::Heard { .. }) {
            self.deadline = None;
        }
        let (calls, ends) = (may_call_for_a_decision(&self.cluster, &input), matches!(input, Input::Report { .. }));
        let effects = lifecycle::apply(&mut self.cluster, input, self.now)?;
        // What a job leaves behind that is over is of use only to those who wait.
        let of_use = !ends || effects.finished.is_empty() || !self.cluster.blocked.is_empty();
        self.stale |= calls && of_use;
        for event in effects.events.iter().filter(|_| self.care == Care::Full) {
            self.trace.push(TraceLine { at_ms: event.at.0, kind: event.kind.clone(), text: event.text.clone() });
        }
        if !effects.events.is_empty() {
            self.quiet = 0;
        }
        self.touched.extend(&effects.dirty.nodes);
        for job in &effects.finished {
            self.ends(job);
        }
        Ok(effects)
    }
}
