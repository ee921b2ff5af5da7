//! Each foreign format: whole, and torn in every way that its module claims to see.

use super::super::{Defect, Format, verify};
use super::fixtures::{self, Tree};

fn good(tree: &Tree, at: &str, format: Format, step: Option<u64>) {
    let verified = verify(&tree.path(at)).unwrap();
    assert_eq!((verified.format, verified.step), (format, step));
    assert!(verified.files > 0 && verified.bytes > 0);
}

/// What a torn checkpoint's defect must say, and how to tear it so.
type Tear<'a> = (&'a str, &'a dyn Fn(&Tree) -> &Tree);

/// Tears a fresh copy in each way and asks for a defect that names the right thing.
fn torn(build: impl Fn(&Tree), at: &str, tears: &[Tear<'_>]) {
    for (expected, tear) in tears {
        let tree = Tree::new();
        build(&tree);
        tear(&tree);
        let defect = verify(&tree.path(at)).expect_err(expected);
        assert!(defect.to_string().contains(expected), "`{defect}` does not say `{expected}`");
    }
}

#[test]
fn safetensors_file_proves_its_length() {
    let tree = Tree::new();
    tree.write("step_7.safetensors", fixtures::safetensors(&[("w", 300), ("empty", 0)]));
    good(&tree, "step_7.safetensors", Format::Safetensors, Some(7));
    tree.shorten("step_7.safetensors", 1100);
    let defect = verify(&tree.path("step_7.safetensors")).unwrap_err();
    assert!(matches!(defect, Defect::Short { missing_bytes: 1100, .. }));
    assert!(defect.to_string().contains("1,100 bytes short of its header"), "{defect}");
}

#[test]
fn safetensors_header_is_held_to_the_format() {
    let bad = [
        (
            "twice",
            r#"{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}"#,
        ),
        ("ends at 0", r#"{"a":{"dtype":"U8","shape":[3],"data_offsets":[1,4]}}"#),
        ("does not take 4", r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#),
        ("is not that of", r#"{"a":"#),
        ("longer than its header", "{}"),
    ];
    for (expected, header) in bad {
        let tree = Tree::new();
        tree.write("x.safetensors", fixtures::with_header(header, 4));
        let defect = verify(&tree.path("x.safetensors")).unwrap_err();
        assert!(defect.to_string().contains(expected), "`{defect}` does not say `{expected}`");
    }
    let tree = Tree::new();
    tree.write("x.safetensors", vec![0; 4096]);
    assert!(matches!(verify(&tree.path("x.safetensors")), Err(Defect::Malformed { .. })));
    let header = r#"{"__metadata__":{"step":"80"},"a":{"dtype":"NEW9","shape":[7],"data_offsets":[0,4]}}"#;
    tree.write("x.safetensors", fixtures::with_header(header, 4));
    good(&tree, "x.safetensors", Format::Safetensors, Some(80));
}

#[test]
fn any_cut_of_a_safetensors_or_torch_file_is_seen() {
    let tree = Tree::new();
    for (name, content) in
        [("x.safetensors", fixtures::safetensors(&[("a", 5), ("b", 9)])), ("x.pt", fixtures::torch(b"weights"))]
    {
        for bytes in 0..content.len() {
            tree.write(name, &content[..bytes]);
            assert!(verify(&tree.path(name)).is_err(), "{name} cut to {bytes} of {} bytes", content.len());
        }
        tree.write(name, &content);
        assert!(verify(&tree.path(name)).is_ok());
    }
}

#[test]
fn torch_file_ends_as_one() {
    let tree = Tree::new();
    tree.write("epoch=3-step=100.ckpt", fixtures::torch(b"weights"));
    good(&tree, "epoch=3-step=100.ckpt", Format::Torch, Some(100));
    tree.write("old.pt", b"\x80\x02a bare pickle");
    good(&tree, "old.pt", Format::Torch, None);
    tree.write("two.pt", [fixtures::torch(b"old, longer"), fixtures::torch(b"new")].concat());
    tree.write("zeros.pt", [0; 512]);
    for name in ["two.pt", "zeros.pt"] {
        assert!(matches!(verify(&tree.path(name)), Err(Defect::Malformed { .. })), "{name}");
    }
}

#[test]
fn sharded_safetensors() {
    let build = |tree: &Tree| fixtures::sharded(tree, "step-4");
    let tree = Tree::new();
    build(&tree);
    good(&tree, "step-4", Format::Safetensors, Some(4));
    let index = "step-4/model.safetensors.index.json";
    torn(
        build,
        "step-4",
        &[
            ("model-00002-of-00002.safetensors is missing", &|t| t.remove("step-4/model-00002-of-00002.safetensors")),
            ("model-00001-of-00002.safetensors is missing", &|t| {
                t.remove("step-4/model-00001-of-00002.safetensors").remove(index)
            }),
            ("model-00001-of-00002.safetensors is 1,024 bytes short", &|t| {
                t.shorten("step-4/model-00001-of-00002.safetensors", 1024)
            }),
            ("does not hold tensor `c`", &|t| {
                t.write("step-4/model-00002-of-00002.safetensors", fixtures::safetensors(&[("of an older save", 10)]))
            }),
            ("index.json", &|t| t.shorten(index, 3)),
        ],
    );
}

#[test]
fn torch_dcp() {
    let build = |tree: &Tree| fixtures::dcp(tree, "step_9");
    let tree = Tree::new();
    build(&tree);
    tree.write("step_9/__7_0.distcp", b"PK\x03\x04 left by an older save of more ranks");
    good(&tree, "step_9", Format::TorchDcp, Some(9));
    torn(
        build,
        "step_9",
        &[
            ("has no .metadata", &|t| t.remove("step_9/.metadata")),
            ("has no .metadata", &|t| t.remove("step_9/.metadata").write("step_9/.metadata.tmp", b"\x80\x04")),
            ("not a whole pickle", &|t| t.shorten("step_9/.metadata", 1)),
            ("__1_0.distcp is missing", &|t| t.remove("step_9/__1_0.distcp")),
            ("__1_0.distcp: empty", &|t| t.cut("step_9/__1_0.distcp", 0)),
            ("__0_0.distcp: does not end", &|t| t.shorten("step_9/__0_0.distcp", 5)),
        ],
    );
}

#[test]
fn orbax() {
    let build = |tree: &Tree| fixtures::orbax(tree, "100");
    let tree = Tree::new();
    build(&tree);
    good(&tree, "100", Format::Orbax, Some(100));
    good(&tree, "100/default", Format::Orbax, None);
    torn(
        build,
        "100",
        &[
            ("has no commit_timestamp_nsecs", &|t| {
                t.write("100/_CHECKPOINT_METADATA", r#"{"init_timestamp_nsecs": 1}"#)
            }),
            ("manifest.ocdbt is missing", &|t| t.remove("100/default/manifest.ocdbt")),
            ("manifest.ocdbt: empty", &|t| t.cut("100/default/manifest.ocdbt", 0)),
            ("_METADATA: not the JSON", &|t| t.shorten("100/default/_METADATA", 2)),
            ("not finished", &|t| t.write("100/state.orbax-checkpoint-tmp-17/d/1", b"x")),
            ("has no commit_success.txt", &|t| {
                t.write("100/state/_METADATA", "{}")
                    .write("100/state/commit_success.txt", "ok")
                    .write("100/state/d/1", b"x")
            }),
            ("no data", &|t| t.remove("100/default")),
        ],
    );
    tree.write("200.orbax-checkpoint-tmp-5/default/_METADATA", "{}");
    assert!(matches!(verify(&tree.path("200.orbax-checkpoint-tmp-5")), Err(Defect::Temporary { .. })));
}

#[test]
fn deepspeed() {
    let build = |tree: &Tree| fixtures::deepspeed(tree, "run", 50);
    let tree = Tree::new();
    build(&tree);
    good(&tree, "run", Format::DeepSpeed, Some(50));
    good(&tree, "run/global_step50", Format::DeepSpeed, Some(50));
    let tag = "run/global_step50";
    torn(
        build,
        tag,
        &[
            ("says `global_step40`", &|t| t.write("run/latest", "global_step40")),
            ("has no file `latest`", &|t| t.remove("run/latest")),
            ("latest: empty", &|t| t.cut("run/latest", 0)),
            ("mp_rank_01_model_states.pt is missing", &|t| t.remove(&format!("{tag}/mp_rank_01_model_states.pt"))),
            ("bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt is missing", &|t| {
                t.remove(&format!("{tag}/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"))
            }),
            ("does not end", &|t| t.shorten(&format!("{tag}/bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt"), 1)),
        ],
    );
    tree.write("run/latest", "../elsewhere");
    assert!(matches!(verify(&tree.path("run")), Err(Defect::Malformed { .. })));
    tree.write("run/latest", "global_step60");
    assert!(matches!(verify(&tree.path("run")), Err(Defect::MissingFile { .. })));
}

#[test]
fn deepspeed_zero_3_pairs_model_and_optimizer() {
    let tree = Tree::new();
    for rank in 0..3 {
        tree.write(&format!("global_step5/zero_pp_rank_{rank}_mp_rank_00_model_states.pt"), fixtures::torch(b"m"));
        tree.write(&format!("global_step5/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"), fixtures::torch(b"o"));
    }
    tree.write("latest", "global_step5\n");
    good(&tree, ".", Format::DeepSpeed, Some(5));
    tree.remove("global_step5/zero_pp_rank_2_mp_rank_00_model_states.pt");
    assert!(
        verify(&tree.path("."))
            .unwrap_err()
            .to_string()
            .contains("zero_pp_rank_2_mp_rank_00_model_states.pt is missing")
    );
}

#[test]
fn megatron() {
    let build = |tree: &Tree| fixtures::megatron(tree, "run", 300);
    let tree = Tree::new();
    build(&tree);
    good(&tree, "run", Format::Megatron, Some(300));
    let iteration = "run/iter_0000300";
    good(&tree, iteration, Format::Megatron, Some(300));
    torn(
        build,
        iteration,
        &[
            ("says `200`", &|t| t.write("run/latest_checkpointed_iteration.txt", "200")),
            ("has no latest_checkpointed_iteration.txt", &|t| t.remove("run/latest_checkpointed_iteration.txt")),
            ("mp_rank_01_001", &|t| {
                t.remove(&format!("{iteration}/mp_rank_01_001"))
                    .write(&format!("{iteration}/mp_rank_00_000_001/model_optim_rng.pt"), fixtures::torch(b"m"))
            }),
            ("model_optim_rng.pt is missing", &|t| t.remove(&format!("{iteration}/mp_rank_00_001/model_optim_rng.pt"))),
            ("distrib_optim.pt is missing", &|t| t.remove(&format!("{iteration}/mp_rank_01_000/distrib_optim.pt"))),
            ("does not end", &|t| t.shorten(&format!("{iteration}/mp_rank_01_000/model_optim_rng.pt"), 9)),
        ],
    );
}

#[test]
fn megatron_experts_need_not_pair_with_every_tensor_rank() {
    let tree = Tree::new();
    for folder in ["mp_rank_00_000", "mp_rank_01_001", "mp_rank_02_000", "mp_rank_03_001"] {
        tree.write(&format!("iter_0000010/{folder}_000/model_optim_rng.pt"), fixtures::torch(b"m"));
    }
    for folder in ["mp_rank_00_001_001", "mp_rank_01_000_001", "mp_rank_02_001_001", "mp_rank_03_000_001"] {
        tree.write(&format!("iter_0000010/{folder}/model_optim_rng.pt"), fixtures::torch(b"m"));
    }
    tree.write("latest_checkpointed_iteration.txt", "10");
    good(&tree, ".", Format::Megatron, Some(10));
}

#[test]
fn megatron_torch_dist() {
    let build = |tree: &Tree| fixtures::megatron_dist(tree, "run", 20);
    let tree = Tree::new();
    build(&tree);
    let at = "run/iter_0000020";
    good(&tree, at, Format::MegatronDist, Some(20));
    tree.write("run/latest_checkpointed_iteration.txt", "20");
    good(&tree, "run", Format::MegatronDist, Some(20));
    tree.remove(&format!("{at}/common.pt"));
    good(&tree, at, Format::MegatronDist, Some(20));
    torn(
        build,
        at,
        &[
            ("has no metadata.json", &|t| t.remove(&format!("{at}/metadata.json"))),
            ("metadata.json: not the JSON", &|t| t.shorten(&format!("{at}/metadata.json"), 4)),
            ("has no .metadata", &|t| t.remove(&format!("{at}/.metadata"))),
            ("__1_0.distcp is missing", &|t| t.remove(&format!("{at}/__1_0.distcp"))),
            ("common.pt: does not end", &|t| t.shorten(&format!("{at}/common.pt"), 2)),
        ],
    );
}

#[test]
fn trainer() {
    let build = |tree: &Tree| drop(fixtures::trainer(tree, "out", 500));
    let tree = Tree::new();
    build(&tree);
    let at = "out/checkpoint-500";
    good(&tree, at, Format::HfTrainer, Some(500));
    torn(
        build,
        at,
        &[
            ("has no trainer_state.json", &|t| t.remove(&format!("{at}/trainer_state.json"))),
            ("trainer_state.json: not the JSON", &|t| t.shorten(&format!("{at}/trainer_state.json"), 5)),
            ("says step 499", &|t| t.write(&format!("{at}/trainer_state.json"), r#"{"global_step": 499}"#)),
            ("model-00001-of-00002.safetensors is missing", &|t| {
                t.remove(&format!("{at}/model-00001-of-00002.safetensors"))
            }),
            ("optimizer.pt: does not end", &|t| t.shorten(&format!("{at}/optimizer.pt"), 7)),
            ("rng_state_0.pth is missing", &|t| t.remove(&format!("{at}/rng_state_0.pth"))),
        ],
    );
    tree.write("out/tmp-checkpoint-600/config.json", "{}");
    assert!(matches!(verify(&tree.path("out/tmp-checkpoint-600")), Err(Defect::Temporary { .. })));
}

#[test]
fn trainer_with_deepspeed_or_fsdp_weights() {
    let tree = Tree::new();
    tree.write("checkpoint-3/trainer_state.json", r#"{"global_step": 3}"#);
    assert!(verify(&tree.path("checkpoint-3")).unwrap_err().to_string().contains("model.safetensors is missing"));
    fixtures::deepspeed(&tree, "checkpoint-3", 3);
    good(&tree, "checkpoint-3", Format::HfTrainer, Some(3));
    tree.remove("checkpoint-3/global_step3/mp_rank_00_model_states.pt");
    assert!(verify(&tree.path("checkpoint-3")).is_err());
    tree.write("checkpoint-4/trainer_state.json", r#"{"global_step": 4}"#);
    fixtures::dcp(&tree, "checkpoint-4/pytorch_model_fsdp_0");
    good(&tree, "checkpoint-4", Format::HfTrainer, Some(4));
    tree.remove("checkpoint-4/pytorch_model_fsdp_0/.metadata");
    assert!(verify(&tree.path("checkpoint-4")).is_err());
}

#[test]
fn what_is_no_checkpoint() {
    let tree = Tree::new();
    tree.write("notes/readme.txt", "hello");
    std::fs::create_dir(tree.path("empty")).unwrap();
    assert!(matches!(verify(&tree.path("notes")), Err(Defect::UnknownFormat { .. })));
    assert!(matches!(verify(&tree.path("notes/readme.txt")), Err(Defect::UnknownFormat { .. })));
    assert!(matches!(verify(&tree.path("empty")), Err(Defect::Empty { .. })));
    assert!(matches!(verify(&tree.path("nowhere")), Err(Defect::NotFound { .. })));
}
