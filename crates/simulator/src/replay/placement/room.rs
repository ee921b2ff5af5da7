//! What is free on one node, and what a task asks of it: integers only.

/// The most GPUs of one node.
pub const GPUS_MAX: usize = 8;
pub const WHOLE_MILLI: u16 = 1_000;

/// GPUs of one node, a bit each.
pub type GpuSet = u8;
/// GPU models, a bit each.
pub type Models = u32;

/// What one task asks of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ask {
    pub cpu_milli: u32,
    pub memory_mib: u32,
    pub gpus: u8,
    /// Of each GPU.
    pub gpu_milli: u16,
    /// Models that will do.
    pub models: Models,
}

impl Ask {
    pub fn total_milli(&self) -> u32 {
        u32::from(self.gpus) * u32::from(self.gpu_milli)
    }

    /// Wants a part of one GPU.
    pub fn is_share(&self) -> bool {
        self.gpus == 1 && self.gpu_milli < WHOLE_MILLI
    }
}

/// What is free on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Room {
    pub cpu_milli: u32,
    pub memory_mib: u32,
    /// The bit of its model.
    pub model: Models,
    pub gpus: u8,
    free_milli: [u16; GPUS_MAX],
}

impl Room {
    pub fn empty(cpu_milli: u32, memory_mib: u32, model: Models, gpus: u8) -> Room {
        let mut free_milli = [0; GPUS_MAX];
        free_milli.iter_mut().take(usize::from(gpus)).for_each(|free| *free = WHOLE_MILLI);
        Room { cpu_milli, memory_mib, model, gpus, free_milli }
    }

    /// Of each GPU, by its index.
    pub fn free_milli(&self) -> &[u16] {
        &self.free_milli[..usize::from(self.gpus)]
    }

    pub fn total_milli(&self) -> u32 {
        self.free_milli().iter().map(|&free| u32::from(free)).sum()
    }

    pub fn whole_gpus(&self) -> u32 {
        self.free_milli().iter().filter(|&&free| free == WHOLE_MILLI).count() as u32
    }

    pub fn fits(&self, ask: &Ask) -> bool {
        let enough = || self.free_milli().iter().filter(|&&free| free >= ask.gpu_milli).count();
        self.cpu_milli >= ask.cpu_milli
            && self.memory_mib >= ask.memory_mib
            && (ask.gpus == 0 || (ask.models & self.model != 0 && enough() >= usize::from(ask.gpus)))
    }

    /// The first GPUs that hold a task of whole GPUs, or of none.
    pub fn first_whole(&self, ask: &Ask) -> GpuSet {
        let free = self.free_milli().iter().enumerate().filter(|(_, free)| **free >= ask.gpu_milli);
        free.take(usize::from(ask.gpus)).fold(0, |set, (index, _)| set | 1 << index)
    }

    /// The GPU with the least room that holds a share, the first of equals; the first whole ones for other tasks.
    pub fn tightest(&self, ask: &Ask) -> GpuSet {
        if !ask.is_share() {
            return self.first_whole(ask);
        }
        let holds = self.free_milli().iter().enumerate().filter(|(_, free)| **free >= ask.gpu_milli);
        holds.min_by_key(|(_, free)| **free).map_or(0, |(index, _)| 1 << index)
    }

    /// Every choice of GPUs for `ask` that makes a difference: one for each distinct room of a GPU that holds a share.
    pub fn choices(&self, ask: &Ask) -> impl Iterator<Item = GpuSet> + use<'_> {
        let (ask, share) = (*ask, ask.is_share());
        let free = self.free_milli();
        let differs = move |index: &usize| free[*index] >= ask.gpu_milli && !free[..*index].contains(&free[*index]);
        let shares = (0..free.len()).filter(move |_| share).filter(differs).map(|index| 1 << index);
        (!share).then(|| self.first_whole(&ask)).into_iter().chain(shares)
    }

    /// What is left when `ask` sits on the GPUs of `set`. The caller has asked [`Room::fits`].
    pub fn after(&self, ask: &Ask, set: GpuSet) -> Room {
        let mut left = *self;
        left.cpu_milli = left.cpu_milli.saturating_sub(ask.cpu_milli);
        left.memory_mib = left.memory_mib.saturating_sub(ask.memory_mib);
        for (index, free) in left.free_milli.iter_mut().enumerate().filter(|(index, _)| set >> index & 1 == 1) {
            debug_assert!(*free >= ask.gpu_milli, "GPU {index} has {free} of {}", ask.gpu_milli);
            *free = free.saturating_sub(ask.gpu_milli);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(milli: u16) -> Ask {
        Ask { cpu_milli: 1_000, memory_mib: 1, gpus: 1, gpu_milli: milli, models: 1 }
    }

    #[test]
    fn shares_go_to_the_tightest_gpu_and_whole_ones_to_the_first() {
        let room = Room::empty(4_000, 8, 1, 3).after(&share(400), 0b010).after(&share(700), 0b100);
        assert_eq!(room.free_milli(), [1_000, 600, 300]);
        assert_eq!((room.total_milli(), room.whole_gpus(), room.cpu_milli), (1_900, 1, 2_000));
        assert_eq!((room.tightest(&share(200)), room.tightest(&share(500))), (0b100, 0b010));
        assert_eq!(room.tightest(&share(1_000)), 0b001);
        assert_eq!(room.choices(&share(300)).collect::<Vec<_>>(), [0b001, 0b010, 0b100]);
        assert_eq!(room.choices(&share(1_000)).collect::<Vec<_>>(), [0b001]);
    }

    #[test]
    fn each_dimension_can_refuse() {
        let room = Room::empty(4_000, 8, 0b01, 2);
        assert!(room.fits(&share(1_000)));
        assert!(!room.fits(&Ask { models: 0b10, ..share(10) }));
        assert!(!room.fits(&Ask { memory_mib: 9, ..share(10) }));
        assert!(!room.fits(&Ask { cpu_milli: 4_001, ..share(10) }));
        assert!(!room.fits(&Ask { gpus: 3, ..share(1_000) }));
        assert!(room.fits(&Ask { gpus: 0, gpu_milli: 0, models: 0b10, ..share(0) }), "no GPU, no model");
    }
}
