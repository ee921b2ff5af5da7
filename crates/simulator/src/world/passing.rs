//! How time passes: the clock goes from one moment at which something can change to the next, and agents renew their leases
//! on the way.
use super::World;
use ganger_core::lifecycle;
use ganger_core::model::ids::NodeId;
use ganger_core::model::time::{Span, Time};

/// Agents renew their leases at each multiple of this part of it: every 10 s with the usual lease of 60 s.
const BEATS_PER_LEASE: u64 = 6;

impl World {
    /// Moves on to `target`; all that is due until then, and at it, has happened afterwards.
    pub fn advance_to(&mut self, target: Time) {
        while self.step(target) {}
        self.beat_by(target);
        self.now = self.now.max(target);
    }

    /// Moves on to the next moment at which something can change, if it comes by `until`.
    pub fn step(&mut self, until: Time) -> bool {
        let stop = self.next_stop().filter(|stop| *stop <= until);
        stop.is_some_and(|stop| {
            self.move_to(stop);
            true
        })
    }

    fn beat_every(&self) -> Span {
        Span((self.cluster.policy.lease.0 / BEATS_PER_LEASE).max(1))
    }

    /// The next moment at which something can change by itself. A deadline that a tick cannot clear now (too few agents
    /// are heard to fence anybody) is looked at again with each beat.
    fn next_stop(&mut self) -> Option<Time> {
        let again = self.now + self.beat_every();
        let deadline = self.next_deadline().map(|at| if at > self.now { at } else { again });
        deadline.into_iter().chain(self.agenda.next()).min()
    }

    /// Asked anew when the cluster changed or the moment came. Whoever is heard renews its lease at every beat in time, so
    /// nobody has to look.
    pub(super) fn next_deadline(&mut self) -> Option<Time> {
        match self.deadline {
            Some(deadline) if deadline.is_none_or(|deadline| deadline > self.now) => deadline,
            _ => {
                let cut_off = |node: NodeId| !self.agents[node.index()].is_heard();
                let deadline = lifecycle::next_deadline_where(&self.cluster, cut_off);
                self.deadline = Some(deadline);
                deadline
            }
        }
    }

    /// Goes to `stop`, or only to the last beat before it, which may move the stop. A beat at `stop` itself comes after
    /// what is due there, so that it cannot carry the clock past a deadline that nobody looked at.
    fn move_to(&mut self, stop: Time) {
        if !self.beat_by(stop - Span(1)) {
            self.now = self.now.max(stop);
            self.settle();
        }
    }

    /// The agents that can be heard renew their leases at the last beat that is due by `at`. One beat stands for all that
    /// were skipped: nothing looked at the leases in between.
    fn beat_by(&mut self, at: Time) -> bool {
        let every = self.beat_every();
        let beat = Time(at.0 / every.0 * every.0);
        if beat <= self.last_beat {
            return false;
        }
        self.last_beat = beat;
        self.now = self.now.max(beat);
        for index in 0..self.agents.len() {
            if self.agents[index].is_heard() {
                self.contact(NodeId(index as u32));
            }
        }
        true
    }
}
