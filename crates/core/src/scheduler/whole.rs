//! Whole nodes that are promised to queues, in a decision: others keep off those that are kept for a promise, unless they
//! are on loan; and a job that its queue has nodes left for may tell those on loan to leave.
//!
//! The fence is laid over the draft of every placement, of now and of coming moments, so starts, claims, moves, growth and
//! reserved starts all meet it. Nothing is reserved on kept nodes for anybody else, not even for those on loan: what is
//! promised is lent now and never later. Who leaves is of the lowest class and who asks is above it, so that right ends like
//! that of any class to stop a lower one.
use super::place::Miss;
use super::room::{Room, first_bits};
use super::together::place_together;
use super::{Session, Unit};
use crate::model::decision::Blocker;
use crate::model::ids::NodeId;
use crate::model::job::{Job, JobSpec, Place, Priority};
use crate::model::node::Node;
use crate::model::time::Time;
use crate::model::whole::{Holds, Kept, Spare, is_inside};
use std::rc::Rc;

pub type AllKept<'a> = Vec<Kept<'a>>;

impl<'a> Session<'a> {
    /// What is kept as the books are now.
    fn kept(&self) -> Rc<AllKept<'a>> {
        let made = || Rc::new(self.cluster.kept_nodes(self.all_held(), self.now));
        Rc::clone(self.kept_nodes.borrow_mut().get_or_insert_with(made))
    }

    fn all_held(&self) -> impl Iterator<Item = Holds<'_>> {
        let held = self.ends.iter().filter_map(|held| Some((held, self.cluster.job(held.job)?)));
        held.flat_map(|(held, job)| held.places.iter().map(move |place| Holds { job, place, until: held.end }))
    }

    /// Takes from the draft what the unit, starting at `at`, may not have; with the way back.
    pub fn fence_off(&mut self, unit: &Unit<'a>, at: Time) -> Option<super::draft::Mark> {
        let lent = at <= self.now && unit.iter().all(|job| job.spec.is_on_loan());
        if !self.promises_nodes || lent {
            return None;
        }
        let (kept, mark) = (self.kept(), self.draft.mark());
        let strange = kept.iter().filter(|one| unit.iter().any(|job| !is_inside(&job.spec.queue, one.path)));
        for (node, spare) in strange.flat_map(|one| &one.nodes) {
            self.leave_spare(*node, *spare);
        }
        Some(mark)
    }

    /// Takes all that is free on the node but what is spare. Nobody counts parts of GPUs: where there are any, all.
    fn leave_spare(&mut self, node: NodeId, spare: Spare) {
        let room = *self.draft.room(node);
        let in_parts = self.draft.parts(node).is_some_and(|parts| parts.slices().next().is_some());
        let [gpus, cpus, memory] = if in_parts { [0; 3] } else { spare };
        let few = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
        let gpus = room.gpus & !first_bits(room.gpus, few(gpus));
        let cpus = room.cpus.difference(&room.cpus.first_n(few(cpus)));
        let memory = beyond(&room, memory);
        self.draft.take(&Place { memory, ..Place::of_devices(node, gpus, cpus) });
    }

    /// Whether the unit may tell the job to leave: it asks for nodes that are promised to its queue and not in use by it, and
    /// the job is on loan on one of that kind.
    pub fn asks_back(&self, unit: &Unit<'_>, job: &Job) -> bool {
        // The own jobs of a kept pool are on none of these nodes.
        if !self.promises_nodes || !job.spec.is_on_loan() || self.cluster.own_pool(&job.spec).is_some() {
            return false;
        }
        let suits = |one: &Kept<'_>| {
            let attempt = job.attempt.as_ref();
            let on = |node: NodeId| one.whole.suits(self.cluster, self.cluster.node(node));
            attempt.is_none_or(|attempt| attempt.live().any(|worker| on(worker.place.node)))
        };
        self.owed(unit, false, |one| !is_inside(&job.spec.queue, one.path) && suits(one))
    }

    /// Whether nodes are promised to the queue of the unit that it may still ask for.
    pub fn is_owed_nodes(&self, unit: &Unit<'_>) -> bool {
        self.owed(unit, false, |_| true)
    }

    /// As [`Session::is_owed_nodes`], of a unit whose nodes count already as those of its queue.
    pub fn has_owed_nodes(&self, unit: &Unit<'_>) -> bool {
        self.owed(unit, true, |_| true)
    }

    fn owed(&self, unit: &Unit<'_>, has: bool, wanted: impl Fn(&Kept<'a>) -> bool) -> bool {
        if !self.promises_nodes || unit.iter().any(|job| job.spec.priority >= Priority::P3) {
            return false;
        }
        let inside = |one: &&Kept<'a>| unit.iter().all(|job| is_inside(&job.spec.queue, one.path));
        let asks = |one: &Kept<'a>| {
            let each = unit.iter().map(|job| one.whole.nodes_for(&job.spec));
            each.sum::<Option<u32>>().is_some_and(|nodes| one.held + if has { 0 } else { nodes } <= one.whole.nodes)
        };
        self.kept().iter().filter(inside).any(|one| asks(one) && wanted(one))
    }

    /// The promise without which the unit would start now.
    pub fn promised_away(&mut self, unit: &Unit<'a>) -> Option<Blocker> {
        self.fence_off(unit, self.now).map(|mark| self.draft.undo_to(mark))?;
        let mark = self.draft.mark();
        let pick = super::Pick::Accepting(self.now);
        let found: Result<_, Miss> = place_together(&mut self.draft, &self.tree, unit, pick);
        self.draft.undo_to(mark);
        let places = found.ok()?.concat();
        let strange = |one: &&Kept<'a>| unit.iter().any(|job| !is_inside(&job.spec.queue, one.path));
        let meets = |one: &&Kept<'a>| one.nodes.iter().any(|(node, _)| places.iter().any(|place| place.node == *node));
        let kept = self.kept();
        let one = kept.iter().filter(strange).find(meets)?;
        let (nodes, gpus, taken, open) = (one.whole.nodes, one.whole.gpus, one.taken, one.open);
        Some(Blocker::Promised { queue: one.path.to_string(), nodes, gpus, taken, open })
    }

    /// What speaks against a node that is kept for others, for `why`; `None`: nothing, or what is spare may do.
    pub fn promise_verdict(&self, spec: &JobSpec, node: &Node) -> Option<(u8, String)> {
        if !self.promises_nodes || spec.is_on_loan() {
            return None;
        }
        let full = |one: &&Kept<'_>| one.nodes.iter().any(|(kept, spare)| *kept == node.id && spare[1] == 0);
        let kept = self.kept();
        let one = kept.iter().filter(|one| !is_inside(&spec.queue, one.path)).find(full)?;
        Some((8, format!("promised to queue {}", one.path)))
    }
}

/// The free memory of a room without so much of it.
fn beyond(room: &Room, mut spare: u64) -> Vec<(u8, u64)> {
    let taken = (0u8..).zip(&room.memory).map(|(socket, free)| {
        let left = spare.min(*free);
        spare -= left;
        (socket, free - left)
    });
    taken.filter(|(_, bytes)| *bytes > 0).collect()
}
