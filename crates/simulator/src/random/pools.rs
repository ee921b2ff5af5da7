//! Kept pools in storms: some nodes are in one, some jobs are its own, and how it is lent changes now and then.
use super::dice::Dice;
use crate::world::World;
use ganger_core::lifecycle::Refusal;
use ganger_core::model::job::{JobSpec, Priority};
use ganger_core::model::pool::{LendTime, Lending};
use ganger_core::model::time::Time;
use ganger_core::model::window::Window;
use ganger_core::model::zone::Zone;

pub const POOL: &str = "side";

/// Puts some more nodes into the pool and says how it is lent.
pub fn keep(dice: &mut Dice, world: &mut World) -> Result<(), Refusal> {
    let names: Vec<String> = world.cluster().nodes.iter().map(|node| node.name.clone()).collect();
    for name in names {
        if dice.one_in(3) {
            world.put_in_pool(&name, POOL)?;
        }
    }
    say(dice, world)
}

/// Says anew how the pool is lent.
pub fn say(dice: &mut Dice, world: &mut World) -> Result<(), Refusal> {
    let lending = lending(dice);
    world.note("statement", format!("pool {POOL}: {lending:?}"));
    world.set_pool(POOL, lending)
}

/// Mostly kept, mostly lent at some time, mostly to everybody.
fn lending(dice: &mut Dice) -> Option<Lending> {
    let when = match dice.below(8) {
        0 => return None,
        1 => LendTime::Never,
        2 | 3 => LendTime::Always,
        _ => {
            let from_min = dice.below(1_440) as u16;
            let until_min = (from_min + dice.between(60, 1_200) as u16) % 1_440;
            LendTime::in_windows(vec![Window { days: 0x7f, from_min, until_min, zone: Zone::default() }])
        }
    };
    let to = if dice.one_in(4) { vec!["lab".to_string()] } else { Vec::new() };
    let classes = if dice.one_in(4) { vec![Priority::P2, Priority::P3] } else { Vec::new() };
    Some(Lending { when, to, classes, since: Time(0) })
}

/// Some jobs are the pool's own.
pub fn join(dice: &mut Dice, spec: &mut JobSpec) {
    if dice.one_in(4) {
        spec.pool = Some(POOL.to_string());
    }
}
