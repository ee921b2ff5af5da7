//! Random histories of instances on every card: each one that is made is legal, and where it starts is the best there is, as
//! a second, slower way of asking finds. The rules are written here once more, from the words and not from the code.
#![allow(clippy::unwrap_used, reason = "a test may")]
use ganger_core::model::machine::mig::{Extra, Instance, Profile, SKUS, Sku};
use proptest::collection::vec;
use proptest::prelude::*;

/// The rule in words: no slot twice, each start is one of the profile's, no profile more often than it may be, compute
/// slices at most those of the card, and who has all media engines stands beside those that need none.
fn is_legal(card: &Sku, set: &[Instance]) -> bool {
    let profile = |one: &Instance| {
        let same = |p: &&Profile| (p.compute, p.memory, p.extra) == (one.compute, one.memory, one.extra);
        card.profiles.iter().find(same)
    };
    let mut slots = vec![0u32; usize::from(card.slots)];
    let mut compute = 0u32;
    for one in set {
        let Some(known) = profile(one) else { return false };
        if !known.starts.contains(&one.start) || one.start + one.memory > card.slots {
            return false;
        }
        (one.start..one.start + one.memory).for_each(|slot| slots[usize::from(slot)] += 1);
        compute += u32::from(one.compute);
        let same =
            |other: &&Instance| (other.compute, other.memory, other.extra) == (one.compute, one.memory, one.extra);
        if set.iter().filter(same).count() > usize::from(known.most) {
            return false;
        }
    }
    let takes_all = set.iter().filter(|one| one.extra == Extra::AllMedia).count();
    let need = set.iter().filter(|one| one.extra != Extra::NoMedia).count();
    slots.iter().all(|times| *times <= 1) && compute <= u32::from(card.compute) && (takes_all == 0 || need == 1)
}

/// Every single instance that could be added.
fn could_be_added<'a>(card: &'a Sku, set: &'a [Instance]) -> impl Iterator<Item = (&'a Profile, Instance)> + 'a {
    let every = card.profiles.iter().flat_map(|profile| profile.starts.iter().map(move |s| (profile, profile.at(*s))));
    every.filter(move |(_, new)| {
        let mut larger = set.to_vec();
        larger.push(*new);
        is_legal(card, &larger)
    })
}

/// The largest plain profile that could still be made, and how many placements of plain ones.
fn worth(card: &Sku, set: &[Instance]) -> ((u8, u8), usize) {
    let plain: Vec<&Profile> = could_be_added(card, set)
        .filter(|(profile, _)| profile.extra == Extra::Plain)
        .map(|(profile, _)| profile)
        .collect();
    (plain.iter().map(|p| (p.compute, p.memory)).max().unwrap_or_default(), plain.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Made and given back in any order.
    #[test]
    fn every_instance_is_legal_and_starts_where_most_stays_possible(
        card in 0..SKUS.len(),
        steps in vec((any::<bool>(), any::<u8>()), 1..24),
    ) {
        let card = &SKUS[card];
        let mut set: Vec<Instance> = Vec::new();
        for (leaves, which) in steps {
            if leaves && !set.is_empty() {
                set.remove(usize::from(which) % set.len());
                continue;
            }
            let profile = &card.profiles[usize::from(which) % card.profiles.len()];
            let options: Vec<Instance> =
                could_be_added(card, &set).filter(|(known, _)| *known == profile).map(|(_, new)| new).collect();
            let best = options.iter().map(|new| {
                let mut larger = set.clone();
                larger.push(*new);
                worth(card, &larger)
            }).max();
            let chosen = card.plan(&set, &[profile]);
            prop_assert_eq!(chosen.is_some(), best.is_some(), "{} on {:?}", profile.name(), &set);
            let (Some(chosen), Some(best)) = (chosen, best) else { continue };
            set.extend(chosen);
            prop_assert!(is_legal(card, &set), "{:?} on {}", &set, card.key);
            prop_assert_eq!(worth(card, &set), best, "{} of {} in {:?}", profile.name(), card.key, &set);
        }
    }

    /// Several at once are placed whenever there is any way to place them, and in the best of all ways.
    #[test]
    fn a_joint_plan_is_the_best_of_all(
        card in 0..SKUS.len(),
        held in vec(any::<u8>(), 0..3),
        wanted in vec(any::<u8>(), 1..4),
    ) {
        let card = &SKUS[card];
        let profile = |which: u8| &card.profiles[usize::from(which) % card.profiles.len()];
        let mut set: Vec<Instance> = Vec::new();
        for which in held {
            set.extend(card.plan(&set, &[profile(which)]).into_iter().flatten());
        }
        let wanted: Vec<&Profile> = wanted.into_iter().map(profile).collect();
        let mut ways = vec![set.clone()];
        for profile in &wanted {
            ways = ways.iter().flat_map(|way| {
                let more = could_be_added(card, way).filter(|(known, _)| known == profile);
                more.map(|(_, new)| [way.as_slice(), &[new]].concat()).collect::<Vec<_>>()
            }).collect();
        }
        let best = ways.iter().map(|way| worth(card, way)).max();
        let plan = card.plan(&set, &wanted);
        prop_assert_eq!(plan.is_some(), best.is_some());
        if let (Some(plan), Some(best)) = (plan, best) {
            let fits = plan.iter().zip(&wanted).all(|(one, profile)| {
                (one.compute, one.memory, one.extra) == (profile.compute, profile.memory, profile.extra)
            });
            prop_assert!(fits, "in the order of the wish");
            set.extend(plan);
            prop_assert!(is_legal(card, &set));
            prop_assert_eq!(worth(card, &set), best);
        }
    }

    /// How many more of one profile there is room for.
    #[test]
    fn room_for_more_is_counted_exactly(card in 0..SKUS.len(), held in vec(any::<u8>(), 0..5), which in any::<u8>()) {
        let card = &SKUS[card];
        let profile = |which: u8| &card.profiles[usize::from(which) % card.profiles.len()];
        let mut set: Vec<Instance> = Vec::new();
        for which in held {
            set.extend(card.plan(&set, &[profile(which)]).into_iter().flatten());
        }
        let more = card.more_of(&set, profile(which)) as usize;
        let twins = |count: usize| vec![profile(which); count];
        prop_assert!(more == 0 || card.plan(&set, &twins(more)).is_some());
        prop_assert_eq!(card.plan(&set, &twins(more + 1)), None);
    }
}
