use super::*;
use crate::inventory::InventorySource;
use crate::testing;
use ganger_core::model::ids::{AttemptNo, JobId, Rank};
use ganger_core::model::job::Launcher;

fn build(launcher: Launcher, change: impl FnOnce(&mut Launch, &mut Vec<Member>)) -> BTreeMap<String, String> {
    let mut launch = testing::launch(launcher);
    launch.resume_from = Some("/shared/ckpt/llama-ft/attempt-1/step-000900".into());
    launch.run.env.insert("NCCL_DEBUG".into(), "WARN".into());
    let count = if launcher == Launcher::Ranks { 1 } else { 2 };
    let mut members = vec![
        Member { rank: Rank(2), devices: testing::devices(&[4, 5], 8) },
        Member { rank: Rank(3), devices: testing::devices(&[6, 7], 12) },
    ];
    members.truncate(count);
    change(&mut launch, &mut members);
    let inventory = Inventory::load("n1", &InventorySource::Virtual("dgx-h100".into())).unwrap();
    let account = Account {
        name: "ada".into(),
        uid: 1000,
        gid: 1000,
        groups: vec![],
        home: "/home/ada".into(),
        shell: "/bin/bash".into(),
    };
    let files = Files {
        preempt: "/d/logs/7.2.2.preempt".into(),
        announce: "/d/logs/7.2.2.checkpoints".into(),
        hostfile: "/d/logs/7.2.2.hostfile".into(),
        checkpoint_dir: Some("/shared/ckpt/llama-ft/attempt-2".into()),
    };
    environment(&Scene {
        key: UnitKey { job: JobId(7), attempt: AttemptNo(2), lead: Rank(2) },
        launch: &launch,
        members: &members,
        node: "n1",
        leaf: Some("leaf1"),
        inventory: &inventory,
        account: &account,
        workdir: Path::new("/home/ada/run"),
        rendezvous: ("10.0.0.1", 29_501),
        files: &files,
        server: "http://10.0.0.9:7411",
        binary: Path::new("/opt/ganger/bin/ganger"),
        now: Time(1_700_000_000_000),
    })
}

#[test]
fn the_whole_environment_of_one_rank() {
    insta::assert_json_snapshot!(build(Launcher::Ranks, |_, _| ()));
}

#[test]
fn torchrun_is_told_its_flags_and_sees_the_gpus_of_all_its_ranks() {
    let env = build(Launcher::Torchrun, |_, _| ());
    for (name, value) in [
        ("PET_NNODES", "2"),
        ("PET_NPROC_PER_NODE", "2"),
        ("PET_NODE_RANK", "1"),
        ("PET_RDZV_ENDPOINT", "10.0.0.1:29501"),
        ("SLURM_JOB_GPUS", "4,5,6,7"),
    ] {
        assert_eq!(env[name], value, "{name}");
    }
    assert_eq!(env["CUDA_VISIBLE_DEVICES"].split(',').count(), 4);
}

#[test]
fn mpi_gets_a_hostfile_with_all_slots() {
    let env = build(Launcher::Mpi, |_, _| ());
    assert_eq!(env["OMPI_MCA_orte_default_hostfile"], "/d/logs/7.2.2.hostfile");
    assert_eq!(hostfile(&testing::launch(Launcher::Mpi)), "10.0.0.1 slots=2\n10.0.0.2 slots=2\n");
}

#[test]
fn a_task_of_an_array_is_told_which_as_slurm_does() {
    let env = build(Launcher::Ranks, |launch, _| launch.task = Some(testing::task()));
    for (name, value) in [("JOB_ID", "5"), ("TASK_ID", "4"), ("TASK_COUNT", "4"), ("TASK_MIN", "0"), ("TASK_MAX", "6")]
    {
        assert_eq!(env[&format!("SLURM_ARRAY_{name}")], value, "{name}");
    }
    assert_eq!((env["SLURM_ARRAY_TASK_STEP"].as_str(), env["SLURM_JOB_ID"].as_str()), ("2", "7"));
    assert!(build(Launcher::Ranks, |_, _| ()).keys().all(|name| !name.starts_with("SLURM_ARRAY")));
}

#[test]
fn a_job_without_gpus_sees_none() {
    let env = build(Launcher::Ranks, |_, members| members[0].devices.gpus.clear());
    assert_eq!(env["CUDA_VISIBLE_DEVICES"], "");
    assert_eq!(env["NVIDIA_VISIBLE_DEVICES"], "void");
    assert!(!env.contains_key("SLURM_JOB_GPUS"));
}

#[test]
fn a_part_of_a_gpu_is_named_and_bounded() {
    let env = build(Launcher::Ranks, |_, members| {
        members[0].devices.gpus.clear();
        members[0].devices.slice = Some(testing::mig(4, 4));
    });
    assert!(env["CUDA_VISIBLE_DEVICES"].starts_with("MIG-"), "{}", env["CUDA_VISIBLE_DEVICES"]);
    assert!(!env.contains_key("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"));
    let env = build(Launcher::Ranks, |_, members| {
        let part = ganger_core::model::split::Part::Share(Default::default());
        members[0].devices.gpus.clear();
        members[0].devices.slice =
            Some(ganger_core::model::split::Slice { gpu: 4, part, milli: 255, vram_bytes: 10 << 30 });
    });
    assert!(env["CUDA_VISIBLE_DEVICES"].starts_with("GPU-"), "{}", env["CUDA_VISIBLE_DEVICES"]);
    assert_eq!(env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"], "25");
    assert_eq!(env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"], "0=10240M");
}

#[test]
fn the_user_wins_except_for_who_a_rank_is_and_what_it_may_use() {
    let env = build(Launcher::Ranks, |launch, _| {
        for name in ["PATH", "OMP_NUM_THREADS", "NCCL_IB_HCA", "RANK", "CUDA_VISIBLE_DEVICES", "SLURM_PROCID"] {
            launch.run.env.insert(name.into(), "mine".into());
        }
    });
    for name in ["OMP_NUM_THREADS", "NCCL_IB_HCA"] {
        assert_eq!(env[name], "mine", "{name}");
    }
    assert_eq!(env["PATH"], "mine:/opt/ganger/bin", "only `ganger` is added, last");
    for name in ["RANK", "CUDA_VISIBLE_DEVICES", "SLURM_PROCID"] {
        assert_ne!(env[name], "mine", "{name}");
    }
}

#[test]
fn nothing_of_the_agents_own_environment_comes_along() {
    let env = build(Launcher::Ranks, |_, _| ());
    assert!(!env.contains_key("CARGO_MANIFEST_DIR"));
}
