//! Nodes and tasks of the experiment in the terms of the core, which says what is fragmented.
use super::mix::{Kind, Mix};
use super::room::{Ask, Room, WHOLE_MILLI};
use ganger_core::scheduler::fragment::free::{self, Free};

pub fn free_of(room: &Room) -> Free<'static> {
    let gpus = || room.free_milli().iter().enumerate();
    let whole = gpus().filter(|(_, free)| **free == WHOLE_MILLI).fold(0, |mask, (gpu, _)| mask | 1 << gpu);
    let mut free = Free::new(room.cpu_milli.into(), room.memory_mib.into(), whole, None);
    gpus().filter(|(_, free)| (1..WHOLE_MILLI).contains(free)).for_each(|(_, part)| free.add_part(*part));
    free
}

pub fn ask_of(ask: &Ask) -> free::Ask {
    let (cpus, memory) = (ask.cpu_milli.into(), ask.memory_mib.into());
    free::Ask { cpus, memory, gpus: ask.gpus.into(), gpu_milli: ask.gpu_milli.into(), within: None }
}

/// The GPUs of a node of this model that suit the task.
pub fn usable(ask: &Ask, model: u32) -> u64 {
    if ask.models & model == 0 { 0 } else { u64::MAX }
}

/// The fragmented part of what is free, times [`Mix::count`].
pub fn fragmented(mix: &Mix, room: &Room) -> u64 {
    let free = free_of(room);
    let one = |Kind { ask, count }: &Kind| free.unusable_milli(&ask_of(ask), usable(ask, room.model)) * count;
    mix.kinds.iter().map(one).sum()
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
        let elsewhere = Mix { kinds: vec![kind(Ask { models: 2, ..ask(1, 500) }, 1)], count: 1 };
        assert_eq!(fragmented(&elsewhere, &room(8_000)), 2_400);
    }
}
