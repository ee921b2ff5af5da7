//! Units: what one keeper runs. With `launcher: ranks` a unit is one rank; with `torchrun` and `mpi` it is all ranks of
//! an attempt on this node, started once by the lowest of them and running and ending together.
//!
//! From the orders of a node it groups units; it never looks at anything else.
use ganger_core::model::ids::{AttemptNo, JobId, Rank};
use ganger_core::model::job::Launcher;
use ganger_core::model::wire::agent::{Action, Devices, Launch, Order};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Names a unit: its attempt, and the rank that starts the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UnitKey {
    pub job: JobId,
    pub attempt: AttemptNo,
    pub lead: Rank,
}

/// Prints as `job.attempt.rank`, which is also the name of the unit's directory.
impl fmt::Display for UnitKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.job, self.attempt, self.lead)
    }
}

/// One rank of a unit and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub rank: Rank,
    pub devices: Devices,
}

/// A unit as the server wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    pub key: UnitKey,
    pub action: Action,
    pub launch: Arc<Launch>,
    /// Sorted by rank; the first is the lead.
    pub members: Vec<Member>,
}

impl Unit {
    /// Whether this unit does what only one unit of an attempt has to do on a node, such as looking at the checkpoint.
    pub fn is_first_on_node(&self) -> bool {
        let lead = self.key.lead.0 as usize;
        self.launch.ranks.get(lead).is_none_or(|site| site.local_rank == 0)
    }
}

/// Groups the orders of `node` into units, sorted by key. `known` tells the unit that a rank is already part of: an order
/// to stop a stray carries no launch, so it cannot say.
pub fn units(node: &str, orders: &[Order], known: impl Fn(&Order) -> Option<UnitKey>) -> Vec<Unit> {
    let mut units: BTreeMap<UnitKey, Unit> = BTreeMap::new();
    for order in orders {
        let fresh = || UnitKey { job: order.job, attempt: order.attempt, lead: lead(node, order) };
        let key = known(order).unwrap_or_else(fresh);
        let member = Member { rank: order.rank, devices: order.devices.clone() };
        match units.get_mut(&key) {
            Some(unit) => {
                unit.action = joined(&unit.action, &order.action);
                unit.members.push(member);
            }
            None => {
                let (action, launch) = (order.action.clone(), order.launch.clone());
                units.insert(key, Unit { key, action, launch, members: vec![member] });
            }
        }
    }
    let mut units: Vec<Unit> = units.into_values().collect();
    for unit in &mut units {
        unit.members.sort_by_key(|member| member.rank);
    }
    units
}

fn lead(node: &str, order: &Order) -> Rank {
    if order.launch.run.launcher == Launcher::Ranks {
        return order.rank;
    }
    let first = order.launch.ranks.iter().position(|site| site.node == node);
    first.map_or(order.rank, |rank| Rank(rank as u32))
}

/// One process cannot be stopped in part: a stop of any member is a stop of all, at the earliest deadline. It starts
/// only when all its members may.
fn joined(one: &Action, other: &Action) -> Action {
    match (one, other) {
        (Action::Stop { grace: a, deadline: d, why }, Action::Stop { grace: b, deadline: e, .. }) => {
            Action::Stop { grace: *a && *b, deadline: *d.min(e), why: why.clone() }
        }
        (Action::Stop { .. }, _) => one.clone(),
        (_, Action::Stop { .. }) => other.clone(),
        (Action::Prepare, _) | (_, Action::Prepare) => Action::Prepare,
        (Action::Go { .. }, Action::Go { .. }) => one.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use ganger_core::model::time::Time;

    #[test]
    fn ranks_are_units_of_their_own() {
        let orders = testing::orders(Launcher::Ranks, Action::Prepare);
        let units = units("n1", &orders, |_| None);
        assert_eq!(units.iter().map(|u| u.key.lead.0).collect::<Vec<_>>(), [2, 3]);
        assert!(units[0].is_first_on_node() && !units[1].is_first_on_node());
    }

    #[test]
    fn a_launcher_per_node_is_one_unit_led_by_its_lowest_rank() {
        let orders = testing::orders(Launcher::Torchrun, Action::Prepare);
        let units = units("n1", &orders, |_| None);
        assert_eq!(units.len(), 1);
        assert_eq!(units[0].key.to_string(), "7.1.2");
        assert_eq!(units[0].members.iter().map(|m| m.rank.0).collect::<Vec<_>>(), [2, 3]);
    }

    #[test]
    fn a_rank_belongs_to_the_unit_that_is_known_to_hold_it() {
        let orders = testing::orders(Launcher::Ranks, Action::Prepare);
        let key = UnitKey { job: JobId(7), attempt: AttemptNo(1), lead: Rank(2) };
        let units = units("n1", &orders, |_| Some(key));
        assert_eq!((units.len(), units[0].members.len()), (1, 2));
    }

    #[test]
    fn a_stop_of_one_member_stops_the_process() {
        let mut orders = testing::orders(Launcher::Mpi, Action::Prepare);
        let stop = Action::Stop { grace: true, deadline: Time(5), why: "drain".into() };
        orders[1].action = stop.clone();
        assert_eq!(units("n1", &orders, |_| None)[0].action, stop);
        orders[0].action = Action::Stop { grace: false, deadline: Time(9), why: "fault".into() };
        let Action::Stop { grace, deadline, .. } = units("n1", &orders, |_| None)[0].action.clone() else { panic!() };
        assert_eq!((grace, deadline), (false, Time(5)));
    }
}
