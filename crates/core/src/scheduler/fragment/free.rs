//! The free part of one node in numbers, and what a shape could still do with it.
//!
//! Fragmentation: a shape that does not fit, or wants no GPU, cannot use anything of what is free; one that fits cannot use
//! GPUs with less room than its share, those that are not of its kind, nor those in parts of the node (islands, sockets,
//! switches) that are too small for it where it must be in one.
use crate::model::job::Level;
use crate::model::machine::{MAX_GPUS, Machine};

/// Thousandths of a whole GPU.
pub const WHOLE_MILLI: u32 = 1_000;

/// What one worker asks of a node. CPUs and memory are in any unit, the same as in [`Free`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    pub cpus: u64,
    pub memory: u64,
    pub gpus: u32,
    /// Of each GPU, in thousandths.
    pub gpu_milli: u32,
    /// All its GPUs in one part of the node of this level.
    pub within: Option<Level>,
}

impl Ask {
    pub fn total_milli(&self) -> u64 {
        u64::from(self.gpus) * u64::from(self.gpu_milli)
    }

    fn is_share(&self) -> bool {
        self.gpus == 1 && self.gpu_milli < WHOLE_MILLI
    }
}

/// What is free on a node: whole GPUs by their bit, those in part use by what is left of each.
#[derive(Debug, Clone, Copy)]
pub struct Free<'m> {
    pub cpus: u64,
    pub memory: u64,
    pub whole: u64,
    parts: [u16; MAX_GPUS],
    part_count: usize,
    /// Where its parts are; none where no shape asks for one.
    machine: Option<&'m Machine>,
}

impl<'m> Free<'m> {
    pub fn new(cpus: u64, memory: u64, whole: u64, machine: Option<&'m Machine>) -> Free<'m> {
        Free { cpus, memory, whole, parts: [0; MAX_GPUS], part_count: 0, machine }
    }

    /// A GPU of which so much is left.
    pub fn add_part(&mut self, milli: u16) {
        if let Some(part) = self.parts.get_mut(self.part_count) {
            *part = milli;
            self.part_count += 1;
        }
    }

    fn parts(&self) -> impl Iterator<Item = u32> {
        self.parts[..self.part_count].iter().map(|part| u32::from(*part))
    }

    pub fn total_milli(&self) -> u64 {
        u64::from(self.whole.count_ones() * WHOLE_MILLI + self.parts().sum::<u32>())
    }

    /// Whether there are cores and memory for a worker.
    pub fn admits(&self, ask: &Ask) -> bool {
        self.cpus >= ask.cpus && self.memory >= ask.memory
    }

    /// How many workers that ask for GPUs fit, if nothing else comes, on the GPUs of `usable`.
    pub fn holds(&self, ask: &Ask, usable: u64) -> u64 {
        if ask.gpus == 0 || usable == 0 || !self.admits(ask) {
            return 0;
        }
        let by_gpu = match ask.is_share() {
            true => self.holds_shares(ask, usable),
            false => self.groups(ask, usable).map(|gpus| gpus / ask.gpus).sum(),
        };
        let per = |free: u64, need: u64| free.checked_div(need).unwrap_or(u64::MAX);
        u64::from(by_gpu).min(per(self.cpus, ask.cpus)).min(per(self.memory, ask.memory))
    }

    fn holds_shares(&self, ask: &Ask, usable: u64) -> u32 {
        let share = ask.gpu_milli.max(1);
        let whole = (self.whole & usable).count_ones();
        whole * (WHOLE_MILLI / share) + self.parts().map(|part| part / share).sum::<u32>()
    }

    /// Whole GPUs of each part of the node in which the worker could be.
    fn groups(&self, ask: &Ask, usable: u64) -> impl Iterator<Item = u32> {
        let (whole, machine) = (self.whole & usable, self.machine);
        let level = ask.within.filter(|_| machine.is_some()).unwrap_or(Level::Node);
        let count = machine.map_or(1, |machine| match level {
            Level::Switch => machine.switches.len(),
            Level::Socket => machine.sockets.len(),
            Level::Island => machine.islands.len(),
            _ => 1,
        });
        (0..count as u8).map(move |at| {
            let mask = machine.map_or(u64::MAX, |machine| match level {
                Level::Switch => machine.mask_of_switch(at),
                Level::Socket => machine.mask_of_socket(at),
                Level::Island => machine.mask_of_island(at),
                _ => u64::MAX,
            });
            (whole & mask).count_ones()
        })
    }

    /// What a shape cannot use of what is free.
    pub fn unusable_milli(&self, ask: &Ask, usable: u64) -> u64 {
        if self.holds(ask, usable) == 0 {
            return self.total_milli();
        }
        let small: u32 = self.parts().filter(|part| *part < ask.gpu_milli).sum();
        let open: u32 = match ask.is_share() {
            true => (self.whole & usable).count_ones(),
            false => self.groups(ask, usable).filter(|gpus| *gpus >= ask.gpus).sum(),
        };
        u64::from((self.whole.count_ones() - open) * WHOLE_MILLI + small)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::machine::profiles::Custom;

    const ALL: u64 = u64::MAX;

    fn ask(gpus: u32, gpu_milli: u32) -> Ask {
        Ask { cpus: 4, memory: 0, gpus, gpu_milli, within: None }
    }

    /// 1000 + 1000 + 400 free.
    fn free(cpus: u64) -> Free<'static> {
        let mut free = Free::new(cpus, 0, 0b11, None);
        free.add_part(400);
        free
    }

    #[test]
    fn a_node_holds_as_many_as_gpus_and_cores_allow() {
        let free_100 = free(100);
        assert_eq!(free_100.holds(&ask(1, 400), ALL), 2 + 2 + 1);
        let holds = |gpus| free_100.holds(&ask(gpus, WHOLE_MILLI), ALL);
        assert_eq!((holds(1), holds(2), holds(3)), (2, 1, 0));
        assert_eq!(free_100.holds(&ask(1, 400), 0), 0, "not its kind of GPU");
        assert_eq!(free(9).holds(&ask(1, 400), ALL), 2, "cores for two");
        assert_eq!(free_100.holds(&Ask { cpus: 0, ..ask(1, 300) }, ALL), 3 + 3 + 1);
    }

    #[test]
    fn what_a_shape_cannot_use_is_what_is_too_small_for_it() {
        assert_eq!(free(8).unusable_milli(&ask(1, 500), ALL), 400);
        assert_eq!(free(8).unusable_milli(&ask(2, WHOLE_MILLI), ALL), 400);
        assert_eq!(free(8).unusable_milli(&ask(0, 0), ALL), 2_400, "who wants no GPU uses none");
        assert_eq!(free(3).unusable_milli(&ask(1, 500), ALL), 2_400, "no cores");
        assert_eq!(free(8).unusable_milli(&ask(1, WHOLE_MILLI), 0b01), 1_400, "one GPU is of another kind");
    }

    #[test]
    fn islands_that_are_too_small_are_fragments() {
        let custom = Custom { gpus: 8, islands: Some("0-3|4-7".to_string()), ..Custom::default() };
        let machine = custom.build().unwrap();
        let free = Free::new(64, 0, 0b0011_1111, Some(&machine));
        let within = Ask { within: Some(Level::Island), ..ask(4, WHOLE_MILLI) };
        assert_eq!((free.holds(&within, ALL), free.unusable_milli(&within, ALL)), (1, 2_000));
        assert_eq!((free.holds(&ask(6, WHOLE_MILLI), ALL), free.holds(&Ask { gpus: 6, ..within }, ALL)), (1, 0));
        assert_eq!(free.unusable_milli(&Ask { gpus: 6, ..within }, ALL), 6_000);
    }

    proptest::proptest! {
        /// As many workers are placed one after the other as a node holds, and what is unusable is at most what is free.
        #[test]
        fn what_a_node_holds_is_what_can_be_placed(
            used in proptest::collection::vec(0_u32..=1_000, 1..=8), gpus in 1_u32..=4, share in 1_u32..=1_000, cpus in 0_u64..64
        ) {
            let ask = if gpus == 1 { ask(1, share) } else { ask(gpus, WHOLE_MILLI) };
            let mut left: Vec<u32> = used.iter().map(|used| WHOLE_MILLI - used).collect();
            let node = |left: &[u32], cpus| {
                let whole = left.iter().enumerate().filter(|(_, left)| **left == WHOLE_MILLI);
                let mut free = Free::new(cpus, 0, whole.fold(0, |mask, (gpu, _)| mask | 1 << gpu), None);
                left.iter().filter(|left| **left < WHOLE_MILLI).for_each(|left| free.add_part(*left as u16));
                free
            };
            let free = node(&left, cpus);
            proptest::prop_assert!(free.unusable_milli(&ask, ALL) <= free.total_milli());
            let (mut placed, mut cpus) = (0, cpus);
            loop {
                let enough: Vec<usize> = (0..left.len()).filter(|gpu| left[*gpu] >= ask.gpu_milli).collect();
                if cpus < ask.cpus || enough.len() < ask.gpus as usize {
                    break;
                }
                enough[..ask.gpus as usize].iter().for_each(|gpu| left[*gpu] -= ask.gpu_milli);
                (placed, cpus) = (placed + 1, cpus - ask.cpus);
            }
            proptest::prop_assert_eq!(free.holds(&ask, ALL), placed);
        }
    }
}
