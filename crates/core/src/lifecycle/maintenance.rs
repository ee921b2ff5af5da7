//! Maintenance of nodes: planned, begun, over. Who can save is told before, by the same clock that ends its other bounds;
//! what is left when it begins is drained as by a person.
use super::change::Change;
use super::input::Refusal;
use crate::model::ids::NodeId;
use crate::model::node::{Maintenance, Node};
use crate::model::time::{Span, Time, rfc3339};

/// A moment that is past by more was not meant.
const LATE: Span = Span::minutes(1);

impl Change<'_> {
    /// # Errors
    /// It would be over already, it was to begin in the past, or it overlaps with what is planned.
    pub fn maintain(&mut self, id: NodeId, from: Time, until: Time, by: String) -> Result<(), Refusal> {
        let (now, node) = (self.now, self.cluster.node(id));
        let (asked, from) = (from, from.max(now));
        let clash = node.maintenance.iter().find(|other| from < other.until && other.from < until);
        let why = match clash {
            _ if until <= from => "it would be over before it begins".to_string(),
            // A slip in the date must not empty the node.
            _ if now.since(asked) > LATE => {
                format!("{} is past; leave the moment out (no `--at`) to drain it from now on", rfc3339(asked))
            }
            Some(other) => format!(
                "it overlaps with that from {} to {}; `ganger uncordon` strikes what is planned",
                rfc3339(other.from),
                end_words(other.until)
            ),
            None => {
                self.plan(id, Maintenance { from, until, by, planned_at: now, begun: false });
                return Ok(());
            }
        };
        Err(Refusal::BadMaintenance { node: node.name.clone(), why })
    }

    fn plan(&mut self, id: NodeId, one: Maintenance) {
        let (from, until) = (rfc3339(one.from), end_words(one.until));
        let text = format!("{} is drained from {from} to {until}, says {}", self.cluster.node(id).name, one.by);
        let node = self.node_mut(id);
        node.maintenance.push(one);
        node.maintenance.sort_by_key(|one| one.from);
        self.event("maintenance", None, Some(id), text);
        self.tick_maintenance(id);
    }

    /// Begins what is due and ends what is over.
    pub fn tick_maintenance(&mut self, id: NodeId) {
        let now = self.now;
        if next_change(self.cluster.node(id)).is_none_or(|at| at > now) {
            return;
        }
        let node = self.node_mut(id);
        let over = node.maintenance.iter().any(|one| one.begun && one.until <= now);
        node.maintenance.retain(|one| one.until > now);
        if over {
            node.draining = None;
            let text = format!("{} takes work again: its maintenance is over", node.name);
            self.event("returned", None, Some(id), text);
        }
        let due = self.node_mut(id).maintenance.iter_mut().find(|one| !one.begun && one.from <= now);
        let Some(due) = due else { return };
        due.begun = true;
        let by = due.by.clone();
        // A person who drained it before has the last word when it is over.
        if self.cluster.node(id).draining.is_some() {
            return self.forget_begun(id);
        }
        self.start_drain(id, by);
    }

    /// The node is drained by a person now: no end of maintenance opens it.
    pub fn forget_begun(&mut self, id: NodeId) {
        if self.cluster.node(id).maintenance.iter().any(|one| one.begun) {
            self.node_mut(id).maintenance.retain(|one| !one.begun);
        }
    }
}

/// When maintenance of the node begins or ends next.
pub fn next_change(node: &Node) -> Option<Time> {
    node.maintenance.iter().map(|one| if one.begun { one.until } else { one.from }).min()
}

fn end_words(until: Time) -> String {
    if until == Time::NEVER { "when somebody ends it".to_string() } else { rfc3339(until) }
}
