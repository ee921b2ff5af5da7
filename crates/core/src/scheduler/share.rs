//! Shares of the tenant tree: what each queue holds beside its siblings, hierarchical and by dominant resource.
//!
//! The share of a queue is its largest part of any resource that its next job asks for, over its weight. Only resources
//! of which more is wanted than there is count, unless there are none such. A parent holds what its children hold, where
//! children that could go on are counted down to the one with the least: so one child's use of what nobody else can use
//! does not stand against its siblings (rejected: plain sums, by which a queue that fills the CPUs starves its sibling of
//! GPUs). Children that cannot go on are counted as they are, else a small one that waits for something rare would hide
//! what the others hold.
//!
//! All is in integers: parts of 2^50, products in 128 bits, saturating. Follows from the books of a decision alone.
use super::Session;
use crate::model::amounts::Resources;
use crate::model::queue::Queue;
use std::collections::BTreeMap;

/// The whole of a resource.
const WHOLE: u128 = 1 << 50;
/// A weight of 1.
pub const UNIT_WEIGHT: u64 = 1_000_000;
/// The top of the tree.
const ROOT: usize = 0;

type Vector = [u128; 6];

/// Where a unit stands among the candidates of its siblings. Lower goes first.
///
/// Who stays within guarantees goes before all others, weight 0 after all others, then the share, then seniority.
pub type Key = (bool, bool, u128, usize);

/// What a unit asks for on top of what its queue is charged with already.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    pub wanted: Resources,
    /// Its claim is charged: nothing comes on top.
    pub charged: bool,
}

/// How a candidate stands to the guarantees from here down to its own queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nobody guarantees anything of what it asks for.
    Unnamed,
    /// It stays within all that are named.
    Within,
    Beyond,
}

impl Standing {
    pub fn and(self, other: Standing) -> Standing {
        use Standing::*;
        match (self, other) {
            (Beyond, _) | (_, Beyond) => Beyond,
            (Unnamed, other) => other,
            (Within, _) => Within,
        }
    }
}

/// A queue, or what an inner queue's own jobs hold, which stands beside its children with weight 1.
#[derive(Debug)]
struct Tenant<'a> {
    path: &'a str,
    own: bool,
    parent: usize,
    children: Vec<usize>,
    /// In millionths, damped by use in the past; 0 is last.
    weight: u64,
    guarantee: [Option<u64>; 6],
    used: Resources,
    vector: Vector,
    /// It has a job that could go on: see the head of this file.
    goes_on: bool,
}

#[derive(Debug)]
pub struct Shares<'a> {
    capacity: [u64; 6],
    scarce: [bool; 6],
    tenants: Vec<Tenant<'a>>,
    by_path: BTreeMap<&'a str, usize>,
}

impl<'a> Shares<'a> {
    /// From the books as they are.
    pub fn new(session: &Session<'a>) -> Shares<'a> {
        let cluster = session.cluster;
        let capacity = cluster.listed_nodes().fold(Resources::ZERO, |sum, node| sum.plus(node.capacity())).amounts();
        let root = Tenant::new("", None);
        let mut shares = Shares { capacity, scarce: [false; 6], tenants: vec![root], by_path: BTreeMap::new() };
        // Parents come before their children: a path is longer than its parent's.
        cluster.queues.values().for_each(|queue| shares.add(queue));
        for tenant in 0..shares.tenants.len() {
            if !shares.tenants[tenant].children.is_empty() {
                shares.add_own(tenant);
            }
        }
        shares.damp(session);
        for tenant in (0..shares.tenants.len()).rev() {
            shares.read_use(session, tenant);
        }
        shares
    }

    fn add(&mut self, queue: &'a Queue) {
        let above = queue.path.rsplit_once('/').and_then(|(parent, _)| self.by_path.get(parent));
        let (parent, index) = (above.copied().unwrap_or(ROOT), self.tenants.len());
        let mut tenant = Tenant::new(&queue.path, Some(parent));
        tenant.weight = u64::from(queue.weight) * UNIT_WEIGHT;
        tenant.guarantee = queue.guaranteed().bounds();
        self.tenants.push(tenant);
        self.tenants[parent].children.push(index);
        self.by_path.insert(&queue.path, index);
    }

    fn add_own(&mut self, parent: usize) {
        let index = self.tenants.len();
        let mut own = Tenant::new(self.tenants[parent].path, Some(parent));
        own.own = true;
        self.tenants.push(own);
        self.tenants[parent].children.push(index);
    }

    /// Takes what the past has used off the weights; see [`damped`].
    fn damp(&mut self, session: &Session<'a>) {
        let half_life = session.cluster.policy.usage_half_life;
        if half_life.0 == 0 {
            return;
        }
        let past = |path: &str| session.cluster.queues.get(path).map_or(0, |q| q.history_at(session.now, half_life));
        for parent in 0..self.tenants.len() {
            let children: Vec<usize> =
                self.tenants[parent].children.iter().copied().filter(|child| !self.tenants[*child].own).collect();
            let weights: u128 = children.iter().map(|child| u128::from(self.tenants[*child].weight)).sum();
            let uses: u128 = children.iter().map(|child| u128::from(past(self.tenants[*child].path))).sum();
            for child in children {
                let tenant = &mut self.tenants[child];
                tenant.weight = damped(tenant.weight, weights, past(tenant.path).into(), uses);
            }
        }
    }

    /// The tenant in which jobs of the queue stand.
    pub fn tenant_of(&self, path: &str) -> usize {
        let queue = self.by_path.get(path).copied().unwrap_or(ROOT);
        let own = self.tenants[queue].children.iter().find(|child| self.tenants[**child].own);
        own.copied().unwrap_or(queue)
    }

    pub fn parent(&self, tenant: usize) -> Option<usize> {
        (tenant != ROOT).then(|| self.tenants[tenant].parent)
    }

    /// Says what is wanted in all, by tenant and unit: it tells what is scarce, and who could go on.
    pub fn set_demand(&mut self, session: &Session<'a>, wanted: &[(usize, Ask)], fits_limits: impl Fn(usize) -> bool) {
        let used = self.tenants[ROOT].used;
        let open = wanted.iter().filter(|(_, ask)| !ask.charged);
        let all = open.clone().fold(used, |sum, (_, ask)| sum.plus(ask.wanted)).amounts();
        self.scarce = std::array::from_fn(|r| all[r] > self.capacity[r]);
        let held = session.held_in_all().amounts();
        let free: [u64; 6] = std::array::from_fn(|r| self.capacity[r].saturating_sub(held[r]));
        for (index, (tenant, ask)) in wanted.iter().enumerate().filter(|(_, (_, ask))| !ask.charged) {
            let could = ask.wanted.amounts().into_iter().zip(free).all(|(asks, free)| asks <= free);
            if could && !self.tenants[*tenant].goes_on && fits_limits(index) {
                let mut at = Some(*tenant);
                while let Some(tenant) = at {
                    self.tenants[tenant].goes_on = true;
                    at = self.parent(tenant);
                }
            }
        }
        // From the leaves up: parents come before their children.
        (0..self.tenants.len()).rev().for_each(|tenant| self.weigh(tenant));
    }

    /// Reads again what the books say a queue and those above it hold.
    pub fn renew(&mut self, session: &Session<'a>, path: &str) {
        let mut at = Some(self.tenant_of(path));
        while let Some(tenant) = at {
            self.read_use(session, tenant);
            at = self.parent(tenant);
        }
        let mut at = Some(self.tenant_of(path));
        while let Some(tenant) = at {
            self.weigh(tenant);
            at = self.parent(tenant);
        }
    }

    /// What an inner queue's own jobs hold is read with the queue.
    fn read_use(&mut self, session: &Session<'a>, tenant: usize) {
        if self.tenants[tenant].own {
            return;
        }
        let sum = |shares: &Self, own: bool| {
            let children = shares.tenants[tenant].children.iter().map(|child| &shares.tenants[*child]);
            children.filter(|child| child.own == own).fold(Resources::ZERO, |sum, child| sum.plus(child.used))
        };
        let below = sum(self, false);
        let used = if tenant == ROOT { below } else { session.staying_use(self.tenants[tenant].path) };
        self.tenants[tenant].used = used;
        let own = self.tenants[tenant].children.iter().copied().find(|child| self.tenants[*child].own);
        if let Some(own) = own {
            self.tenants[own].used = used.less(below);
        }
    }

    /// Its vector: of a queue without children what it holds, of another what its children hold, counted down.
    fn weigh(&mut self, tenant: usize) {
        let vector = match self.tenants[tenant].children.as_slice() {
            [] => self.parts(self.tenants[tenant].used),
            children => {
                let least = children.iter().filter_map(|child| self.share_if_going_on(*child)).min();
                children.iter().fold([0; 6], |sum, child| add(sum, self.counted_down(*child, least)))
            }
        };
        self.tenants[tenant].vector = vector;
    }

    fn parts(&self, held: Resources) -> Vector {
        let held = held.amounts();
        std::array::from_fn(|r| match self.capacity[r] {
            0 => 0,
            capacity => u128::from(held[r]) * WHOLE / u128::from(capacity),
        })
    }

    fn share_if_going_on(&self, tenant: usize) -> Option<u128> {
        let tenant = &self.tenants[tenant];
        (tenant.goes_on && tenant.weight > 0).then(|| over_weight(dominant(tenant.vector), tenant.weight))
    }

    fn counted_down(&self, child: usize, least: Option<u128>) -> Vector {
        let vector = self.tenants[child].vector;
        match (self.share_if_going_on(child), least) {
            (Some(share), Some(least)) if share > least => vector.map(|part| part.saturating_mul(least) / share),
            _ => vector,
        }
    }

    /// How `ask` stands to what is guaranteed to this one alone.
    pub fn standing(&self, tenant: usize, ask: Ask) -> Standing {
        let tenant = &self.tenants[tenant];
        let extra = if ask.charged { Resources::ZERO } else { ask.wanted };
        let after = tenant.used.plus(extra).amounts();
        stands(&tenant.guarantee, after, ask.wanted.amounts())
    }

    /// The key of a tenant whose candidate is the unit at `index`, which stands so to the guarantees from here down.
    pub fn key(&self, tenant: usize, ask: Ask, standing: Standing, index: usize) -> Key {
        let tenant = &self.tenants[tenant];
        let asked = ask.wanted.amounts();
        let extra = if ask.charged { [0; 6] } else { self.parts(ask.wanted) };
        let after = add(tenant.vector, extra);
        let most = |counts: &dyn Fn(usize) -> bool| (0..6).filter(|r| counts(*r)).map(|r| after[r]).max();
        let wanted = |r: usize| asked[r] > 0 && self.capacity[r] > 0;
        let part = most(&|r| wanted(r) && self.scarce[r]).or_else(|| most(&wanted)).unwrap_or(0);
        let share = over_weight(part, if tenant.weight == 0 { UNIT_WEIGHT } else { tenant.weight });
        (standing != Standing::Within, tenant.weight == 0, share, index)
    }
}

impl<'a> Tenant<'a> {
    fn new(path: &'a str, parent: Option<usize>) -> Tenant<'a> {
        Tenant {
            path,
            own: false,
            parent: parent.unwrap_or(ROOT),
            children: Vec::new(),
            weight: UNIT_WEIGHT,
            guarantee: [None; 6],
            used: Resources::ZERO,
            vector: [0; 6],
            goes_on: false,
        }
    }
}

/// The one test of guarantees, for the order and for reclaiming alike: what is held after, of what is asked for.
pub fn stands(guarantee: &[Option<u64>; 6], after: [u64; 6], asked: [u64; 6]) -> Standing {
    let named = (0..6).filter(|r| asked[*r] > 0).filter_map(|r| guarantee[r].map(|bound| after[r] <= bound));
    named.fold(Standing::Unnamed, |all, within| all.and(if within { Standing::Within } else { Standing::Beyond }))
}

/// `weight × max(1/10, 1 + part of the weights − part of the use)`, over siblings. Nobody is damped where nothing was used.
fn damped(weight: u64, weights: u128, past: u128, uses: u128) -> u64 {
    if uses == 0 || weights == 0 {
        return weight;
    }
    let unit = u128::from(UNIT_WEIGHT);
    let (deserved, used) = (u128::from(weight) * unit / weights, past * unit / uses);
    let factor = (unit + deserved).saturating_sub(used).max(unit / 10);
    let damped = u128::from(weight) * factor / unit;
    // Only a weight of 0 is 0.
    u64::try_from(damped).unwrap_or(u64::MAX).max(u64::from(weight > 0))
}

fn over_weight(part: u128, weight: u64) -> u128 {
    part.saturating_mul(UNIT_WEIGHT.into()) / u128::from(weight.max(1))
}

fn dominant(vector: Vector) -> u128 {
    vector.into_iter().max().unwrap_or(0)
}

fn add(one: Vector, other: Vector) -> Vector {
    std::array::from_fn(|r| one[r].saturating_add(other[r]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn within_guarantees_only_if_within_all_that_are_named() {
        let gpus = |bound| [Some(bound), None, None, None, None, None];
        assert_eq!(stands(&gpus(4), [4, 99, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]), Standing::Within);
        assert_eq!(stands(&gpus(4), [5, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]), Standing::Beyond);
        assert_eq!(stands(&gpus(0), [0, 1, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]), Standing::Unnamed);
        assert_eq!(Standing::Within.and(Standing::Beyond), Standing::Beyond);
        assert_eq!(Standing::Unnamed.and(Standing::Within), Standing::Within);
    }

    #[test]
    fn the_past_lowers_a_weight_to_a_tenth_and_never_to_nothing() {
        let unit = UNIT_WEIGHT;
        assert_eq!(damped(unit, 2 * u128::from(unit), 0, 0), unit, "nothing used");
        assert_eq!(damped(unit, 2 * u128::from(unit), 5, 10), unit, "used what it deserves");
        assert_eq!(damped(unit, 2 * u128::from(unit), 10, 10), unit / 2, "used all");
        assert_eq!(damped(unit, 2 * u128::from(unit), 0, 10), unit * 3 / 2, "used nothing");
        assert_eq!(damped(unit, 100 * u128::from(unit), 10, 10), unit / 10, "the floor");
        assert_eq!(damped(0, u128::from(unit), 0, 10), 0);
        assert_eq!(damped(1, u128::from(u64::MAX), u128::from(u64::MAX), u128::from(u64::MAX)), 1);
    }
}
