//! The jobs of a unit, placed all or none.
use super::Unit;
use super::draft::Draft;
use super::filter::Pick;
use super::place::{Miss, place_gang};
use super::tree::Tree;
use crate::model::job::Place;
use std::collections::BTreeSet;

/// Places the jobs of a unit on the draft, all or none. Several that spare what others ask for may be in each other's way
/// where they would not be if each took the tightest place, by which it was said that they fit on the empty machines.
pub fn place_together(
    draft: &mut Draft<'_>,
    tree: &Tree,
    unit: &Unit<'_>,
    pick: Pick,
) -> Result<Vec<Vec<Place>>, Miss> {
    let found = place_in_some_order(draft, tree, unit, pick);
    if found.is_ok() || unit.len() < 2 || pick == Pick::Existing {
        return found;
    }
    draft.spares = false;
    let tight = place_in_some_order(draft, tree, unit, pick);
    draft.spares = true;
    tight.or(found)
}

/// Big workers first; a member that then finds no room is tried first of all, once each, because what one takes may be what
/// only another can use.
fn place_in_some_order(
    draft: &mut Draft<'_>,
    tree: &Tree,
    unit: &Unit<'_>,
    pick: Pick,
) -> Result<Vec<Vec<Place>>, Miss> {
    let mut order = by_size(unit);
    let mut moved = BTreeSet::new();
    loop {
        match place_in_order(draft, tree, unit, pick, &order) {
            Err(miss) if order[0] != miss.member && moved.insert(miss.member) => {
                order.retain(|member| *member != miss.member);
                order.insert(0, miss.member);
            }
            result => return result,
        }
    }
}

fn place_in_order(
    draft: &mut Draft<'_>,
    tree: &Tree,
    unit: &Unit<'_>,
    pick: Pick,
    order: &[usize],
) -> Result<Vec<Vec<Place>>, Miss> {
    let mark = draft.mark();
    let mut places = vec![Vec::new(); unit.len()];
    for index in order.iter().copied() {
        let spec = &unit[index].spec;
        match place_gang(draft, tree, spec, spec.gang.workers, pick) {
            Ok(found) => places[index] = found,
            Err(miss) => {
                draft.undo_to(mark);
                return Err(Miss { member: index, ..miss });
            }
        }
    }
    Ok(places)
}

/// The largest shapes first: they have the fewest places to go.
fn by_size(unit: &Unit<'_>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..unit.len()).collect();
    order.sort_by_key(|i| {
        let spec = &unit[*i].spec;
        (std::cmp::Reverse((spec.shape.gpus, spec.shape.milli(), spec.gang.workers)), *i)
    });
    order
}
