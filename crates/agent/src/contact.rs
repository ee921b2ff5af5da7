//! What this agent knows of its contact with the server: term, generation, lease, peers, and for whom it vouched.
//!
//! Pure but for saving and loading; every time is milliseconds of the boot-time clock and comes in as an argument.
//!
//! Three steps into silence, as parts of the lease counted from the last answer. After a quarter the agent tells the
//! server in each request that it is no witness: from then on it does not count among those heard from. After three
//! quarters it has *lost* the server and may vouch for peers, and asks them to vouch for it. The half between the two is
//! the longest that the server may count an agent as heard from, so that it never counts one that vouches. At the end of
//! the lease keepers end what nobody prolonged.
use ganger_core::model::wire::agent::{Peers, Vouch};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Saved times are older than the true ones by this part of the lease at most.
const SAVES_PER_LEASE: u64 = 32;

/// The part of [`Contact`] that survives a restart of the agent. It is worth nothing after a reboot: no rank is left then.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Contact {
    pub boot_id: String,
    /// Tells this agent from any other; drawn once.
    #[serde(default)]
    pub agent: String,
    /// Highest term seen; answers of a lower one are from a deposed leader.
    pub term: u64,
    pub lease_ms: u64,
    /// When the last good answer came.
    pub answered_at: Option<u64>,
    /// Until when leased workers may run: the last answered request's sending, or the last vouch, plus the lease.
    pub deadline: Option<u64>,
    pub peers: Peers,
    /// Until when, by node, this agent's word may keep a peer's ranks alive.
    pub vouched: BTreeMap<String, u64>,
    /// Of the orders last taken. Starts at 0 with each agent, so that the first answer comes at once.
    #[serde(skip)]
    pub generation: u64,
}

/// Whether an answer may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// From a deposed leader: ignored whole.
    Deposed,
    /// Good for lease and acknowledgement, but newer orders were taken already.
    Overtaken,
    /// Its orders are to be taken.
    Current,
}

impl Contact {
    /// Continues from what was saved, if it is of this boot.
    pub fn resume(saved: Option<Contact>, boot_id: &str) -> Contact {
        match saved {
            Some(saved) if saved.boot_id == boot_id => saved,
            // A term outlives the boot: a deposed leader is still deposed.
            Some(saved) => {
                Contact { boot_id: boot_id.to_string(), agent: saved.agent, term: saved.term, ..Contact::default() }
            }
            None => Contact { boot_id: boot_id.to_string(), ..Contact::default() },
        }
    }

    /// A register answer: term and lease, no orders.
    pub fn registered(&mut self, term: u64, lease_ms: u64, now: u64) -> Standing {
        if term < self.term {
            return Standing::Deposed;
        }
        if term > self.term {
            // The new leader may have counted generations differently.
            self.generation = 0;
        }
        self.term = term;
        if lease_ms > 0 {
            self.lease_ms = lease_ms;
        }
        self.answered_at = Some(now);
        Standing::Overtaken
    }

    /// A sync answer to a request sent at `sent_at`. `lease_ms` 0 prolongs nothing.
    pub fn answered(&mut self, term: u64, generation: u64, lease_ms: u64, sent_at: u64, now: u64) -> Standing {
        if self.registered(term, lease_ms, now) == Standing::Deposed {
            return Standing::Deposed;
        }
        if lease_ms > 0 {
            self.prolong(sent_at);
        }
        if generation < self.generation {
            return Standing::Overtaken;
        }
        self.generation = generation;
        Standing::Current
    }

    /// Whether no newer orders than these were taken.
    pub fn is_newest(&self, term: u64, generation: u64) -> bool {
        (self.term, self.generation) == (term, generation)
    }

    /// Leased workers may run for a lease from `asked_at` on. A deadline never moves back.
    pub fn prolong(&mut self, asked_at: u64) {
        self.deadline = self.deadline.max(Some(asked_at.saturating_add(self.lease_ms)));
    }

    /// Whether `saved` still serves a later agent: the same but for times, and those hardly older. With them it takes the
    /// server for lost at most a thirty-second of the lease too early: still long after the half in which the server may
    /// count it as heard from. Saving each answer took a quarter of what a short job costs its node.
    pub fn is_served_by(&self, saved: &Contact) -> bool {
        let slack = self.lease_ms / SAVES_PER_LEASE;
        let near = |now: Option<u64>, then: Option<u64>| match (now, then) {
            (Some(now), Some(then)) => now.abs_diff(then) <= slack,
            (now, then) => now == then,
        };
        let times = near(self.answered_at, saved.answered_at) && near(self.deadline, saved.deadline);
        let Contact { answered_at, deadline, generation, .. } = *saved;
        times && Contact { answered_at, deadline, generation, ..self.clone() } == *saved
    }

    fn silent_for(&self, now: u64, quarters: u64) -> bool {
        self.answered_at.is_some_and(|at| now >= at.saturating_add(self.lease_ms.saturating_mul(quarters) / 4))
    }

    /// Whether requests of now count as a sign that this agent hears the server.
    pub fn is_witness(&self, now: u64) -> bool {
        !self.silent_for(now, 1)
    }

    /// Whether the server is lost: the one answer that peers ask for.
    pub fn has_lost_server(&self, now: u64) -> bool {
        self.silent_for(now, 3)
    }

    /// Whether peers should be asked now: the server is lost and less than three quarters of the lease are left.
    pub fn should_ask_peers(&self, now: u64) -> bool {
        let left = self.deadline.unwrap_or(0).saturating_sub(now);
        self.lease_ms > 0 && self.has_lost_server(now) && left < self.lease_ms / 4 * 3
    }

    /// Remembers that `node` relies on this agent's word until a lease from now on.
    pub fn vouch(&mut self, node: &str, lease_ms: u64, now: u64) {
        self.vouched.retain(|_, until| *until > now);
        let until = self.vouched.entry(node.to_string()).or_default();
        *until = (*until).max(now.saturating_add(lease_ms));
    }

    /// What the server has to be told.
    pub fn vouches(&self, now: u64) -> Vec<Vouch> {
        let live = self.vouched.iter().filter(|(_, until)| **until > now);
        live.map(|(node, until)| Vouch { node: node.clone(), remaining_ms: until - now }).collect()
    }

    /// Whether `lost` agents that lost the server, this one included, are enough to go on: at least half of all agents
    /// and the server together. The server needs more than half, so that both can never hold.
    pub fn may_go_on(&self, lost: usize) -> bool {
        let agents = self.peers.agents.len() + 1;
        lost.saturating_mul(2) > agents
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_core::model::wire::agent::Peer;

    const LEASE: u64 = 60_000;

    fn with_peers(count: usize) -> Contact {
        let agents = (1..=count).map(|i| Peer { node: format!("n{i}"), address: None }).collect();
        Contact { peers: Peers { version: 1, secret: "s".into(), agents }, ..Contact::default() }
    }

    #[test]
    fn a_deposed_leader_changes_nothing() {
        let mut contact = Contact::resume(None, "boot");
        assert_eq!(contact.answered(3, 5, LEASE, 100, 110), Standing::Current);
        let before = contact.clone();
        assert_eq!(contact.answered(2, 9, LEASE, 50_000, 50_010), Standing::Deposed);
        assert_eq!(contact, before);
    }

    #[test]
    fn older_orders_renew_the_lease_and_are_not_taken() {
        let mut contact = Contact::resume(None, "boot");
        contact.answered(1, 5, LEASE, 100, 110);
        assert_eq!(contact.answered(1, 4, LEASE, 200, 210), Standing::Overtaken);
        assert_eq!(contact.deadline, Some(200 + LEASE));
        // An answer to an earlier request does not move the deadline back.
        contact.answered(1, 5, LEASE, 150, 220);
        assert_eq!(contact.deadline, Some(200 + LEASE));
        assert!(contact.is_newest(1, 5));
        // A new leader may count from anywhere.
        assert_eq!(contact.answered(2, 1, LEASE, 300, 310), Standing::Current);
        assert!(contact.is_newest(2, 1) && !contact.is_newest(1, 5), "what was current is overtaken");
    }

    #[test]
    fn a_server_that_prolongs_nothing_is_not_lost() {
        let mut contact = Contact::resume(None, "boot");
        contact.answered(1, 1, LEASE, 0, 0);
        assert_eq!(contact.answered(1, 2, 0, 20_000, 20_001), Standing::Current);
        assert_eq!(contact.deadline, Some(LEASE));
        assert!(contact.is_witness(30_000) && !contact.has_lost_server(30_000));
    }

    #[test]
    fn silence_first_ends_witnessing_then_loses_the_server() {
        let mut contact = Contact::resume(None, "boot");
        assert!(contact.is_witness(0) && !contact.has_lost_server(u64::MAX));
        contact.answered(1, 1, LEASE, 0, 10_000);
        for (now, witness, lost) in
            [(24_999, true, false), (25_000, false, false), (54_999, false, false), (55_000, false, true)]
        {
            assert_eq!((contact.is_witness(now), contact.has_lost_server(now)), (witness, lost), "{now}");
        }
        contact.answered(1, 1, LEASE, 56_000, 56_001);
        assert!(contact.is_witness(56_001) && !contact.has_lost_server(56_001));
    }

    #[test]
    fn what_was_saved_serves_until_its_times_are_too_old_or_something_else_changes() {
        let mut contact = Contact::resume(None, "boot");
        contact.answered(1, 1, LEASE, 10_000, 10_001);
        let saved = contact.clone();
        contact.answered(1, 9, LEASE, 11_875, 11_876);
        assert!(contact.is_served_by(&saved), "a thirty-second of the lease");
        let mut later = contact.clone();
        later.answered(1, 9, LEASE, 11_876, 11_877);
        assert!(!later.is_served_by(&saved));
        assert!(
            !contact.is_served_by(&Contact { answered_at: None, ..saved.clone() }),
            "the first answer is kept at once"
        );
        // Also with the older times nobody vouches while the server may count it as heard from.
        assert!(!saved.has_lost_server(11_876 + LEASE / 2));
        let changes: [fn(&mut Contact); 4] = [
            |contact| contact.vouch("n1", LEASE, 11_900),
            |contact| assert_eq!(contact.answered(2, 1, LEASE, 11_875, 11_876), Standing::Current),
            |contact| assert_eq!(contact.answered(1, 9, LEASE / 2, 11_875, 11_876), Standing::Current),
            |contact| contact.peers.version += 1,
        ];
        for change in changes {
            let mut changed = contact.clone();
            change(&mut changed);
            assert!(!changed.is_served_by(&saved), "{changed:?}");
        }
    }

    #[test]
    fn the_server_and_the_cut_off_agents_can_never_both_go_on() {
        assert!(with_peers(0).may_go_on(1), "a single agent goes on alone");
        for agents in 1..60 {
            for lost in 1..=agents {
                let heard = agents - lost;
                let server_may_fence = (1 + heard) * 2 > agents + 1;
                assert!(!(server_may_fence && with_peers(agents - 1).may_go_on(lost)), "{agents} agents, {lost} lost");
                assert!(server_may_fence || with_peers(agents - 1).may_go_on(lost), "{agents} agents, {lost} lost");
            }
        }
    }

    #[test]
    fn a_vouch_is_told_until_it_is_over_and_survives_a_restart_but_not_a_reboot() {
        let mut contact = Contact::resume(None, "boot");
        contact.vouch("n1", LEASE, 1_000);
        contact.vouch("n1", LEASE, 500);
        assert_eq!(contact.vouches(2_000), [Vouch { node: "n1".into(), remaining_ms: 59_000 }]);
        let saved: Contact = serde_json::from_str(&serde_json::to_string(&contact).unwrap()).unwrap();
        assert_eq!(Contact::resume(Some(saved.clone()), "boot").vouches(2_000).len(), 1);
        assert_eq!(Contact::resume(Some(saved), "next").vouches(2_000), []);
        assert_eq!(contact.vouches(1_000 + LEASE), []);
    }
}
