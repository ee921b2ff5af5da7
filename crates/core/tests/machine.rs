//! Rules of every machine: what contradicts itself is refused, also from JSON; partitions cover the GPUs at each level.
#![allow(clippy::unwrap_used, reason = "a test may")]

use ganger_core::model::cpuset::CpuSet;
use ganger_core::model::machine::profiles::{profile, profile_names};
use ganger_core::model::machine::{
    Gpu, Island, Machine, MachineError, Nic, NicRole, NvLink, Parts, Socket, Source, Switch,
};
use proptest::prelude::*;

fn gpu(socket: Option<u8>, switch: u8) -> Gpu {
    Gpu { socket, switch, vram_bytes: 80 << 30, pcie_bandwidth_bps: 252_000_000_000 }
}

fn parts(gpus: Vec<Gpu>, switches: usize, islands: Vec<u64>) -> Parts {
    let socket = |numa: u32| Socket { numa, cpus: CpuSet::range(numa * 8, numa * 8 + 8), memory_bytes: 64 << 30 };
    Parts {
        profile: "test".into(),
        gpu_model: if gpus.is_empty() { String::new() } else { "H100".into() },
        source: Source::Declared,
        sockets: (0..4).map(socket).collect(),
        switches: vec![Switch { socket: None, bandwidth_bps: 252_000_000_000 }; switches],
        gpus,
        nics: Vec::new(),
        islands: islands.into_iter().map(|gpus| Island { gpus, spans_nodes: false }).collect(),
        nvlink: Vec::new(),
    }
}

fn pair() -> Parts {
    parts(vec![gpu(Some(0), 0), gpu(Some(1), 1)], 2, vec![0b11])
}

fn refused(change: impl FnOnce(&mut Parts)) -> MachineError {
    let mut parts = pair();
    change(&mut parts);
    let error = Machine::new(parts.clone()).expect_err("a broken machine");
    let json = serde_json::to_string(&parts).expect("plain data");
    let from_json = serde_json::from_str::<Machine>(&json).expect_err("the same broken machine");
    assert!(from_json.to_string().contains(&error.to_string()), "{from_json}");
    error
}

fn nic(name: &str, socket: Option<u8>, switch: Option<u8>) -> Nic {
    Nic { name: name.into(), socket, switch, bandwidth_bps: 1, role: NicRole::Compute, rail: None }
}

#[test]
fn indices_must_exist() {
    assert!(matches!(refused(|parts| parts.gpus[1].switch = 2), MachineError::OutOfRange { target: "switch", .. }));
    assert!(matches!(
        refused(|parts| parts.gpus[1].socket = Some(4)),
        MachineError::OutOfRange { target: "socket", .. }
    ));
    assert!(matches!(refused(|parts| parts.switches[0].socket = Some(4)), MachineError::OutOfRange { .. }));
    let far = refused(|parts| parts.nics.push(nic("mlx5_0", None, Some(9))));
    assert!(matches!(far, MachineError::OutOfRange { index: 9, count: 2, .. }));
    let many = refused(|parts| parts.gpus = vec![gpu(None, 0); 65]);
    assert!(matches!(many, MachineError::TooMany { what: "GPUs", count: 65, .. }));
}

#[test]
fn parts_must_not_contradict_each_other() {
    let conflict = refused(|parts| parts.switches[0].socket = Some(3));
    assert!(matches!(conflict, MachineError::SocketConflict { own: 0, switch: 0, other: 3, .. }));
    assert!(matches!(refused(|parts| parts.sockets[1].numa = 0), MachineError::SocketsOverlap { .. }));
    let shared = refused(|parts| {
        parts.sockets[2].cpus.insert(3);
    });
    assert!(shared.to_string().contains("the CPUs 3"), "{shared}");
    let twice = refused(|parts| parts.nics = vec![nic("mlx5_0", None, None), nic("mlx5_0", None, None)]);
    assert!(matches!(twice, MachineError::NicName { .. }));
    assert!(matches!(refused(|parts| parts.gpu_model = "Nvidia H100".into()), MachineError::GpuModel { .. }));
    assert!(matches!(refused(|parts| parts.gpu_model = String::new()), MachineError::GpuModel { .. }));
    assert!(matches!(refused(|parts| parts.sockets[0].memory_bytes = u64::MAX), MachineError::SumTooLarge { .. }));
}

#[test]
fn islands_are_disjoint_and_hold_their_links() {
    let island = |gpus| Island { gpus, spans_nodes: false };
    for masks in [vec![0], vec![0b100], vec![0b11, 0b10]] {
        let error = refused(|parts| parts.islands = masks.iter().copied().map(island).collect());
        assert!(matches!(error, MachineError::Island { .. }), "{masks:?}");
    }
    let link = |a, b, links| NvLink { a, b, links };
    for links in [
        vec![link(1, 0, 4)],
        vec![link(0, 0, 4)],
        vec![link(0, 1, 0)],
        vec![link(0, 1, 4), link(0, 1, 4)],
        vec![link(0, 2, 4)],
    ] {
        assert!(matches!(refused(|parts| parts.nvlink = links.clone()), MachineError::NvLink { .. }), "{links:?}");
    }
    let apart = refused(|parts| {
        parts.islands = vec![island(0b01), island(0b10)];
        parts.nvlink = vec![link(0, 1, 4)];
    });
    assert!(apart.to_string().contains("no common island"), "{apart}");
}

#[test]
fn json_gives_the_same_machine() {
    for name in profile_names() {
        let machine = profile(name).unwrap();
        let json = serde_json::to_string(&*machine).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&json).unwrap(), *machine, "{name}");
    }
}

#[test]
fn storage_nics_carry_no_rail_and_ties_take_turns() {
    let mut four = parts(vec![gpu(Some(0), 0); 4], 1, Vec::new());
    four.nics = vec![nic("a", Some(0), None), nic("b", Some(0), None), nic("c", Some(0), None)];
    four.nics[1].role = NicRole::Storage;
    let machine = Machine::new(four).unwrap();
    let chosen: Vec<_> = (0..5).map(|gpu| machine.nic_for_gpu(gpu)).collect();
    assert_eq!(chosen, [Some(0), Some(2), Some(0), Some(2), None]);
}

#[test]
fn the_level_above_islands_joins_what_shares_a_socket() {
    // Island 0-1 crosses sockets 0 and 1; GPUs 2 and 3 have no NVLink and sit on sockets 1 and 2.
    let gpus = vec![gpu(Some(0), 0), gpu(Some(1), 1), gpu(Some(1), 1), gpu(Some(2), 2)];
    let machine = Machine::new(parts(gpus, 3, vec![0b0011])).unwrap();
    let levels = [vec![1, 2, 4, 8], vec![0b0011, 0b0100, 0b1000], vec![0b0111, 0b1000], vec![0b1111]];
    assert_eq!(machine.partitions(), levels);
}

prop_compose! {
    fn any_parts()(
        gpus in prop::collection::vec((prop::option::of(0u8..4), 0u8..6, 0usize..5), 1..=64),
    ) -> Parts {
        // GPUs of number 4 have no NVLink; the others are islands.
        let mut islands = vec![0u64; 4];
        for (at, (_, _, island)) in gpus.iter().enumerate() {
            if let Some(mask) = islands.get_mut(*island) {
                *mask |= 1 << at;
            }
        }
        islands.retain(|mask| *mask != 0);
        parts(gpus.into_iter().map(|(socket, switch, _)| gpu(socket, switch)).collect(), 6, islands)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_level_covers_every_gpu_once_and_is_coarser_than_the_one_before(parts in any_parts()) {
        let machine = Machine::new(parts).unwrap();
        let levels = machine.partitions();
        prop_assert!(!levels.is_empty());
        for level in levels {
            prop_assert_eq!(level.iter().map(|mask| mask.count_ones()).sum::<u32>(), machine.gpu_mask().count_ones());
            prop_assert_eq!(level.iter().fold(0, |all, mask| all | mask), machine.gpu_mask());
        }
        for pair in levels.windows(2) {
            prop_assert!(pair[0].iter().all(|fine| pair[1].iter().any(|coarse| fine & coarse == *fine)));
            prop_assert!(pair[0].len() > pair[1].len());
        }
        prop_assert_eq!(levels.last().map(Vec::len), Some(1));
    }

    #[test]
    fn cpus_are_taken_from_the_free_ones_of_the_socket(free in any::<u32>(), n in 0u32..12) {
        let free: CpuSet = (0..32).filter(|cpu| free >> cpu & 1 == 1).collect();
        let machine = Machine::new(pair()).unwrap();
        let there = free.intersection(&machine.sockets[1].cpus);
        match machine.take_cpus(1, &free, n) {
            Some(taken) => prop_assert!(taken.is_subset(&there) && taken.count() == n),
            None => prop_assert!(there.count() < n),
        }
    }
}
