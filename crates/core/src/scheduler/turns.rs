//! Who is asked next: class by class, and within a class queue by queue, by shares that move with every start.
//!
//! Each tenant offers the candidate of the child that goes first, up to the top; a unit that was asked leaves its queue, and
//! only the way from there to the top is looked at again. Seniority within a queue is the order in which units are given.
use super::share::{Ask, Key, Shares, Standing};
use super::{Session, Unit, order};
use crate::model::job::Priority;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Whether it is no own job of a kept pool, effective class, genuine class, and whether it waited beyond the bound. Units of
/// one rank stand together in the order.
type Rank = (bool, Priority, Priority, bool);

pub struct Turns<'u, 'a> {
    units: &'u [Unit<'a>],
    /// What each asks, where shares count.
    asks: Vec<Ask>,
    shares: Shares<'a>,
    classes: VecDeque<Class>,
    /// The unit that was given out last, and how many steps there were before it.
    last: Option<(usize, usize)>,
    /// Units of several queues wait in one class: then a start may change who goes first.
    pub shared: bool,
}

/// The units of one class that are still to be asked.
enum Class {
    /// All in one queue.
    Line(VecDeque<usize>),
    Tree(Tree),
}

#[derive(Default)]
struct Tree {
    waiting: BTreeMap<usize, VecDeque<usize>>,
    /// By parent: its children with a candidate, the first goes first.
    offers: BTreeMap<usize, BTreeSet<(Key, usize)>>,
    /// By tenant: its own key among its siblings, and its candidate.
    offered: BTreeMap<usize, (Key, Candidate)>,
}

#[derive(Clone, Copy)]
struct Candidate {
    unit: usize,
    standing: Standing,
}

impl<'u, 'a> Turns<'u, 'a> {
    /// The units, by seniority within their classes, without those that start already.
    pub fn new(session: &Session<'a>, units: &'u [Unit<'a>]) -> Turns<'u, 'a> {
        let mut shares = Shares::new(session);
        let left: Vec<usize> = (0..units.len()).filter(|i| !session.started.contains(&units[*i][0].id)).collect();
        let mut by_class: Vec<(Rank, Vec<usize>)> = Vec::new();
        for index in left.iter().copied() {
            let job = units[index][0];
            let turn = session.cluster.turn(job, session.now);
            let promoted = session.cluster.is_promoted(job, session.now);
            let rank = (turn.elsewhere, turn.effective, turn.genuine, promoted);
            match by_class.last_mut().filter(|(class, _)| *class == rank) {
                Some((_, members)) => members.push(index),
                None => by_class.push((rank, vec![index])),
            }
        }
        // Who waited beyond the bound waits for nobody's share: else a stream in a poorer queue could pass it for ever.
        let in_one_line = |rank: &Rank, members: &[usize]| {
            rank.3 || members.iter().all(|index| units[*index][0].spec.queue == units[members[0]][0].spec.queue)
        };
        let shared = by_class.iter().any(|(rank, members)| !in_one_line(rank, members));
        let mut asks: Vec<Ask> = Vec::new();
        if shared {
            asks.extend(units.iter().map(|unit| session.ask_of(unit)));
            let open = |index: &usize| units[*index].iter().all(|job| session.is_open(job));
            let wanted: Vec<(usize, usize)> =
                left.iter().copied().filter(open).map(|i| (i, shares.tenant_of(&units[i][0].spec.queue))).collect();
            let demand: Vec<(usize, Ask)> = wanted.iter().map(|(i, tenant)| (*tenant, asks[*i])).collect();
            shares.set_demand(session, &demand, |at| session.over_limit(&units[wanted[at].0]).is_none());
        }
        let classes = by_class
            .into_iter()
            .map(|(rank, members)| match in_one_line(&rank, &members) {
                true => Class::Line(members.into()),
                false => Class::Tree(Tree::of(&shares, units, members)),
            })
            .collect();
        Turns { units, asks, shares, classes, last: None, shared }
    }

    /// The next unit, by what the books say now.
    pub fn next(&mut self, session: &Session<'a>) -> Option<usize> {
        self.settle(session);
        loop {
            let next = match self.classes.front_mut()? {
                Class::Line(line) => line.pop_front(),
                Class::Tree(tree) => tree.first(&self.shares, &self.asks),
            };
            match next {
                Some(unit) => {
                    self.last = Some((unit, session.steps.len()));
                    return Some(unit);
                }
                None => drop(self.classes.pop_front()),
            }
        }
    }

    /// Takes in what became of the unit that was asked last.
    fn settle(&mut self, session: &Session<'a>) {
        let Some((unit, steps)) = self.last.take() else { return };
        if !self.shared {
            return;
        }
        let mut moved: BTreeSet<&str> = BTreeSet::new();
        for job in session.steps.get(steps..).unwrap_or_default().iter().filter_map(order::job_of) {
            moved.extend(session.cluster.job(job).map(|job| job.spec.queue.as_str()));
        }
        moved.iter().for_each(|path| self.shares.renew(session, path));
        if let Some(Class::Tree(tree)) = self.classes.front_mut() {
            moved.insert(&self.units[unit][0].spec.queue);
            moved.iter().for_each(|path| tree.offer(&self.shares, &self.asks, self.shares.tenant_of(path)));
        }
    }
}

impl Tree {
    fn of(shares: &Shares<'_>, units: &[Unit<'_>], members: Vec<usize>) -> Tree {
        let mut tree = Tree::default();
        for index in members {
            let tenant = shares.tenant_of(&units[index][0].spec.queue);
            tree.waiting.entry(tenant).or_default().push_back(index);
        }
        tree
    }

    /// Takes out the candidate of the top. Offers are made when they are first asked for, by the shares of that moment.
    fn first(&mut self, shares: &Shares<'_>, asks: &[Ask]) -> Option<usize> {
        if self.offered.is_empty() {
            let tenants: Vec<usize> = self.waiting.keys().copied().collect();
            tenants.into_iter().for_each(|tenant| self.offer(shares, asks, tenant));
        }
        let mut at = 0;
        while let Some((_, child)) = self.offers.get(&at).and_then(BTreeSet::first) {
            at = *child;
        }
        self.waiting.get_mut(&at)?.pop_front()
    }

    /// Makes the offer of a tenant anew, and those above it.
    fn offer(&mut self, shares: &Shares<'_>, asks: &[Ask], from: usize) {
        let mut at = from;
        while let Some(parent) = shares.parent(at) {
            let among = self.offers.entry(parent).or_default();
            if let Some((key, _)) = self.offered.remove(&at) {
                among.remove(&(key, at));
            }
            if let Some(candidate) = self.candidate(shares, asks, at) {
                let key = shares.key(at, asks[candidate.unit], candidate.standing, candidate.unit);
                self.offers.entry(parent).or_default().insert((key, at));
                self.offered.insert(at, (key, candidate));
            }
            at = parent;
        }
    }

    fn candidate(&self, shares: &Shares<'_>, asks: &[Ask], tenant: usize) -> Option<Candidate> {
        let below = match self.waiting.get(&tenant) {
            Some(line) => Candidate { unit: *line.front()?, standing: Standing::Unnamed },
            None => {
                let (_, child) = self.offers.get(&tenant)?.first()?;
                self.offered.get(child)?.1
            }
        };
        let standing = below.standing.and(shares.standing(tenant, asks[below.unit]));
        Some(Candidate { standing, ..below })
    }
}
