use super::*;
use std::collections::BTreeSet;

fn sku(key: &str) -> &'static Sku {
    SKUS.iter().find(|sku| sku.key == key).unwrap()
}

fn at(sku: &Sku, name: &str, start: u8) -> Instance {
    sku.named(ProfileName::parse(name).unwrap()).unwrap_or_else(|| panic!("{name} on {}", sku.key)).at(start)
}

#[test]
fn every_row_of_the_table_agrees_with_itself() {
    for sku in SKUS {
        for profile in sku.profiles {
            let name = format!("{} {}", sku.key, profile.name());
            assert_eq!(ProfileName::parse(&profile.name().to_string()), Some(profile.name()), "{name}");
            assert_eq!(sku.named(profile.name()), Some(profile), "{name} is found by its name");
            let ends = profile.starts.iter().map(|start| start + profile.memory);
            assert!(ends.max().unwrap() <= sku.slots, "{name} goes past the last slot");
            assert!(profile.compute <= sku.compute && usize::from(profile.most) <= profile.starts.len(), "{name}");
            let estimate = Profile { gib_hundredths: 0, ..*profile }.memory_bytes();
            assert!(estimate <= profile.memory_bytes(), "{name}: an unknown size is never taken for more than it is");
        }
        let largest = sku.profiles.iter().map(Profile::size).max().unwrap();
        assert_eq!(largest, (sku.compute, sku.slots), "{}: the whole card is a profile", sku.key);
    }
}

#[test]
fn cards_are_found_by_family_and_memory() {
    let key = |model: &str, gib: u64| Sku::of(model, gib << 30).map(|sku| sku.key);
    assert_eq!(key("A100", 40), Some("a100-40gb"));
    assert_eq!(key("a100", 80), Some("a100-80gb"));
    assert_eq!(key("H100", 80), Some("h100-80gb"));
    assert_eq!(key("H100", 94), Some("h100-94gb"));
    assert_eq!(key("H100", 96), Some("h100-96gb-gh200"));
    assert_eq!(key("GH200", 141), Some("gh200-144gb"));
    assert_eq!(key("H200", 141), Some("h200-141gb"));
    assert_eq!((key("L40S", 48), key("A100", 60), key("", 80)), (None, None, None));
}

#[test]
fn names_of_other_drivers_mean_the_same_profile() {
    let card = sku("gb200");
    assert_eq!(at(card, "7g.189gb", 0), at(card, "7g.186gb", 0));
    for nonsense in ["", "3g", "3g.gb", "g.40gb", "3g.40gb+x", "03g.40gb", "3g.40", "-3g.40gb", "3g.40gb "] {
        assert_eq!(ProfileName::parse(nonsense), None, "{nonsense:?}");
    }
}

#[test]
fn compute_is_counted_in_sms_and_cards_are_not_seven_equal_parts() {
    let card = sku("h100-80gb");
    let sms = |name: &str| card.named(ProfileName::parse(name).unwrap()).unwrap().sms;
    assert_eq!((sms("1g.10gb"), sms("1g.20gb"), sms("3g.40gb"), sms("7g.80gb")), (16, 26, 60, 132));
}

#[test]
fn what_is_not_legal_is_refused_with_the_reason() {
    let card = sku("h100-80gb");
    let refused = |held: &[(&str, u8)], name: &str, start: u8| {
        let held: Vec<Instance> = held.iter().map(|(name, start)| at(card, name, *start)).collect();
        card.check(&held).unwrap();
        card.beside(&held, at(card, name, start)).unwrap_err().to_string()
    };
    assert!(refused(&[], "3g.40gb", 2).contains("cannot start there"));
    assert!(refused(&[("1g.10gb", 5)], "3g.40gb", 4).contains("overlaps the one at slot 5"));
    assert!(refused(&[("1g.10gb+me", 0)], "1g.10gb+me", 6).contains("at most 1"));
    assert!(card.check(&[at(card, "4g.40gb", 0), at(card, "3g.40gb", 4)]).is_ok());
    assert!(card.check(&[at(card, "3g.40gb", 4), at(card, "3g.40gb", 0), at(card, "1g.10gb", 6)]).is_err());
    let pro = sku("rtx-pro-6000-blackwell-96gb");
    let all = at(pro, "1g.24gb+me.all", 0);
    assert!(pro.beside(&[all], at(pro, "1g.24gb", 1)).unwrap_err().to_string().contains("media engine"));
    assert!(pro.beside(&[all], at(pro, "1g.24gb-me", 1)).is_ok());
}

/// Every legal set of plain instances of a card.
fn legal_sets(sku: &Sku) -> BTreeSet<Vec<Instance>> {
    let plain = sku.profiles.iter().filter(|profile| profile.extra == Extra::Plain);
    let every: Vec<Instance> =
        plain.flat_map(|profile| profile.starts.iter().map(|start| profile.at(*start))).collect();
    let mut known = BTreeSet::from([Vec::new()]);
    let mut open = vec![Vec::new()];
    while let Some(set) = open.pop() {
        for new in every.iter().filter(|new| sku.beside(&set, **new).is_ok()) {
            let mut larger = set.clone();
            larger.push(*new);
            larger.sort_unstable();
            if known.insert(larger.clone()) {
                open.push(larger);
            }
        }
    }
    known.remove(&Vec::new());
    known
}

#[test]
fn the_legal_layouts_are_those_that_were_counted_by_hand() {
    let counted = |key: &str| {
        let sets = legal_sets(sku(key));
        let mix = |set: &Vec<Instance>| {
            let mut mix: Vec<(u8, u8)> = set.iter().map(|one| (one.compute, one.memory)).collect();
            mix.sort_unstable();
            mix
        };
        (sets.len(), sets.iter().map(mix).collect::<BTreeSet<_>>().len())
    };
    assert_eq!(counted("h100-80gb"), (722, 77));
    assert_eq!(counted("a100-40gb"), (722, 77));
    assert_eq!(counted("a30-24gb"), (25, 9));
}

#[test]
fn a_first_small_instance_leaves_the_larger_half_whole() {
    let card = sku("h100-80gb");
    let small = card.named(ProfileName::parse("1g.10gb").unwrap()).unwrap();
    let mut held = Vec::new();
    for expected in [6, 5, 4] {
        let plan = card.plan(&held, &[small]).unwrap();
        assert_eq!(plan[0].start, expected);
        held.extend(plan);
    }
    assert_eq!(card.prospect(&held).largest, (4, 4), "half of the card is still one piece");
    // The layout that was found in the field: four slices are free and no large instance can start.
    let scattered = [0, 1, 5].map(|start| small.at(start));
    assert_eq!(card.prospect(&scattered).largest, (2, 2));
}

#[test]
fn several_instances_are_planned_together() {
    let card = sku("h100-80gb");
    let names = ["1g.10gb", "4g.40gb", "2g.20gb"];
    let wanted = names.map(|name| card.named(ProfileName::parse(name).unwrap()).unwrap());
    let starts: Vec<u8> = card.plan(&[], &wanted).unwrap().iter().map(|one| one.start).collect();
    assert_eq!(starts, [6, 0, 4]);
    assert_eq!(card.plan(&[small_at(card, 0)], &wanted), None);
    let seven = [wanted[0]; 7];
    let mut all: Vec<u8> = card.plan(&[], &seven).unwrap().iter().map(|one| one.start).collect();
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(card.plan(&[], &[wanted[0]; 8]), None);
}

fn small_at(sku: &Sku, start: u8) -> Instance {
    at(sku, "1g.10gb", start)
}
