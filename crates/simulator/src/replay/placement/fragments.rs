//! What the free part of a node is worth to a workload: how many more tasks of a shape it holds, and how much of it the
//! mix cannot use, weighed by how often each shape comes. Exact integers; no I/O, no clock, no state.
//!
//! Fragmentation: a shape that does not fit, or wants no GPU, cannot use anything of the node; one that fits cannot use
//! the GPUs with less room than its share. The unit is thousandths of a GPU times tasks of the mix.
#![deny(clippy::float_arithmetic, reason = "decisions are integers; this is to move into the core")]
use super::mix::{Kind, Mix};
use super::room::{Ask, GPUS_MAX, Models, Room, WHOLE_MILLI};

/// A room with its GPUs counted: whole ones by number, used-up ones left out, so that a shape looks at the few others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    cpu_milli: u32,
    memory_mib: u32,
    model: Models,
    whole_gpus: u16,
    parts: [u16; GPUS_MAX],
    part_count: usize,
    total_milli: u32,
}

impl Tally {
    pub fn of(room: &Room) -> Tally {
        let (mut parts, mut part_count, mut whole_gpus) = ([0; GPUS_MAX], 0, 0);
        for &free in room.free_milli() {
            match free {
                0 => {}
                WHOLE_MILLI => whole_gpus += 1,
                part => {
                    parts[part_count] = part;
                    part_count += 1;
                }
            }
        }
        let (cpu_milli, memory_mib, total_milli) = (room.cpu_milli, room.memory_mib, room.total_milli());
        Tally { cpu_milli, memory_mib, model: room.model, whole_gpus, parts, part_count, total_milli }
    }

    fn parts(&self) -> &[u16] {
        &self.parts[..self.part_count]
    }

    /// Cores, memory and model hold one task of a shape with GPUs.
    fn admits(&self, ask: &Ask) -> bool {
        self.cpu_milli >= ask.cpu_milli && self.memory_mib >= ask.memory_mib && self.model & ask.models != 0
    }

    /// How many tasks of a shape with GPUs fit, if nothing else comes.
    pub fn holds(&self, ask: &Ask) -> u64 {
        if ask.gpus == 0 || !self.admits(ask) {
            return 0;
        }
        let by_gpu = if ask.is_share() {
            let share = ask.gpu_milli.max(1);
            self.whole_gpus * (WHOLE_MILLI / share) + self.parts().iter().map(|part| part / share).sum::<u16>()
        } else {
            self.whole_gpus / u16::from(ask.gpus)
        };
        let by_cpu = self.cpu_milli.checked_div(ask.cpu_milli).unwrap_or(u32::MAX);
        u64::from(by_cpu.min(by_gpu.into()))
    }

    /// What a shape cannot use of what is free.
    pub fn unusable_milli(&self, ask: &Ask) -> u64 {
        if self.holds(ask) == 0 {
            return self.total_milli.into();
        }
        self.parts().iter().filter(|part| **part < ask.gpu_milli).map(|&part| u64::from(part)).sum()
    }
}

/// The fragmented part of what is free, times [`Mix::count`].
pub fn fragmented(mix: &Mix, room: &Room) -> u64 {
    let tally = Tally::of(room);
    mix.kinds.iter().map(|Kind { ask, count }| tally.unusable_milli(ask) * count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(gpus: u8, gpu_milli: u16) -> Ask {
        Ask { cpu_milli: 4_000, memory_mib: 0, gpus, gpu_milli, models: 1 }
    }

    /// 1000 + 1000 + 400 free.
    fn room(cpu_milli: u32) -> Room {
        Room::empty(cpu_milli, 0, 1, 3).after(&Ask { cpu_milli: 0, ..ask(1, 600) }, 0b100)
    }

    #[test]
    fn each_shape_counts_what_it_cannot_use() {
        let kind = |ask, count| Kind { ask, count };
        let mix = Mix { kinds: vec![kind(ask(1, 500), 3), kind(ask(0, 0), 2), kind(ask(2, 1_000), 1)], count: 6 };
        // The half uses all but 400, the one without GPU nothing, the pair all but 400.
        assert_eq!(fragmented(&mix, &room(8_000)), 3 * 400 + 2 * 2_400 + 400);
        // Without cores nothing of it is of use to anybody.
        assert_eq!(fragmented(&mix, &room(3_999)), 6 * 2_400);
    }

    #[test]
    fn a_node_holds_as_many_as_gpus_and_cores_allow() {
        let tally = Tally::of(&room(100_000));
        assert_eq!(tally.holds(&ask(1, 400)), 2 + 2 + 1);
        assert_eq!((tally.holds(&ask(1, 1_000)), tally.holds(&ask(2, 1_000)), tally.holds(&ask(3, 1_000))), (2, 1, 0));
        assert_eq!(tally.holds(&Ask { models: 2, ..ask(1, 400) }), 0);
        assert_eq!(Tally::of(&room(9_000)).holds(&ask(1, 400)), 2, "cores for two");
        assert_eq!(tally.holds(&Ask { cpu_milli: 0, ..ask(1, 300) }), 3 + 3 + 1);
    }

    proptest::proptest! {
        /// As many tasks are placed one after the other as a node holds, and what is unusable is at most what is free.
        #[test]
        fn what_a_node_holds_is_what_can_be_placed(
            used in proptest::collection::vec(0_u16..=1_000, 1..=8), gpus in 1_u8..=4, share in 1_u16..=1_000, cpu in 0_u32..64_000
        ) {
            let ask = if gpus == 1 { ask(1, share) } else { ask(gpus, 1_000) };
            let mut room = Room::empty(cpu, 0, 1, used.len() as u8);
            for (index, &milli) in used.iter().enumerate() {
                room = room.after(&Ask { cpu_milli: 0, ..super::tests::ask(1, milli) }, 1 << index);
            }
            let tally = Tally::of(&room);
            proptest::prop_assert!(tally.unusable_milli(&ask) <= room.total_milli().into());
            let mut placed = 0;
            while room.fits(&ask) {
                room = room.after(&ask, room.tightest(&ask));
                placed += 1;
            }
            proptest::prop_assert_eq!(tally.holds(&ask), placed);
        }
    }
}
