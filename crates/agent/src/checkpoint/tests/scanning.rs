//! The newest valid checkpoint of a directory, and announcements.

use std::path::Path;

use super::super::announce::{self, Announcement};
use super::super::{Defect, Format, MANIFEST_NAME, newest_valid};
use super::fixtures::{self, Tree, entry, names};

fn best(tree: &Tree) -> Option<(String, Format, Option<u64>)> {
    newest_valid(&tree.path(".")).best.map(|(path, verified)| (entry(&path, tree), verified.format, verified.step))
}

#[test]
fn newest_step_wins_not_newest_time_or_name() {
    let tree = Tree::new();
    for step in [100, 90, 9] {
        fixtures::own(&tree, &format!("step_{step}"), step);
    }
    let scan = newest_valid(&tree.path("."));
    assert_eq!(entry(&scan.best.unwrap().0, &tree), "step_100");
    assert!(scan.skipped.is_empty() && !scan.unproven);
}

#[test]
fn torn_ones_are_skipped_with_a_reason() {
    let tree = Tree::new();
    for step in [1, 2, 3] {
        fixtures::own(&tree, &format!("step_{step}"), step);
    }
    tree.shorten("step_3/weights.bin", 1)
        .write("step_4/weights.bin", b"no manifest yet")
        .write("step_5.tmp/weights.bin", b"x");
    let scan = newest_valid(&tree.path("."));
    assert_eq!(entry(&scan.best.unwrap().0, &tree), "step_2");
    assert_eq!(names(&scan.skipped), ["step_4", "step_3"]);
    assert!(matches!(scan.skipped[1].1, Defect::Short { missing_bytes: 1, .. }));
}

#[test]
fn only_what_is_newer_than_the_best_is_read() {
    let tree = Tree::new();
    for step in 1..=50 {
        fixtures::own(&tree, &format!("step_{step}"), step);
        if step < 50 {
            tree.shorten(&format!("step_{step}/weights.bin"), 1);
        }
    }
    assert!(newest_valid(&tree.path(".")).skipped.is_empty());
    for step in 51..=200 {
        tree.write(&format!("step_{step}/x"), b"");
    }
    let scan = newest_valid(&tree.path("."));
    assert!(scan.best.is_none() && matches!(scan.skipped.last(), Some((_, Defect::NotTried { tried: 64, .. }))));
}

#[test]
fn nothing_there() {
    let tree = Tree::new();
    assert!(newest_valid(&tree.path("nowhere")).skipped.is_empty());
    tree.write("logs/out.txt", "hello").write("events.log", "x");
    let scan = newest_valid(&tree.path("."));
    assert!(scan.best.is_none() && scan.skipped.is_empty());
}

#[test]
fn roots_of_each_framework() {
    let tree = Tree::new();
    fixtures::deepspeed(&tree, ".", 10);
    fixtures::deepspeed(&tree, ".", 20);
    tree.write("global_step30/mp_rank_00_model_states.pt", fixtures::torch(b"unfinished"));
    assert_eq!(best(&tree), Some(("global_step20".into(), Format::DeepSpeed, Some(20))));

    let tree = Tree::new();
    fixtures::megatron(&tree, ".", 100);
    fixtures::megatron(&tree, ".", 200);
    tree.remove("iter_0000200/mp_rank_00_000");
    assert_eq!(best(&tree), Some(("iter_0000100".into(), Format::Megatron, Some(100))));

    let tree = Tree::new();
    fixtures::trainer(&tree, ".", 500);
    fixtures::trainer(&tree, ".", 1000);
    tree.remove("checkpoint-1000/trainer_state.json")
        .write("runs/events", "x")
        .write("tmp-checkpoint-1500/config.json", "{}");
    assert_eq!(best(&tree), Some(("checkpoint-500".into(), Format::HfTrainer, Some(500))));

    let tree = Tree::new();
    fixtures::orbax(&tree, "100");
    fixtures::orbax(&tree, "300.orbax-checkpoint-tmp-8");
    fixtures::orbax(&tree, "200");
    assert_eq!(best(&tree), Some(("200".into(), Format::Orbax, Some(200))));
}

#[test]
fn plain_files_and_a_checkpoint_in_the_directory_itself() {
    let tree = Tree::new();
    for step in [10, 20, 30] {
        tree.write(&format!("step_{step}.safetensors"), fixtures::safetensors(&[("w", 9)]));
    }
    tree.shorten("step_30.safetensors", 4);
    assert_eq!(best(&tree), Some(("step_20.safetensors".into(), Format::Safetensors, Some(20))));

    let tree = Tree::new();
    fixtures::sharded(&tree, ".");
    assert_eq!(best(&tree), Some((String::new(), Format::Safetensors, None)));
    tree.remove("model-00001-of-00002.safetensors");
    assert_eq!(best(&tree), None);

    let tree = Tree::new();
    fixtures::own(&tree, "latest", 7);
    fixtures::own(&tree, "previous", 6);
    assert_eq!(best(&tree), Some(("latest".into(), Format::Manifest, Some(7))));
    tree.remove(&format!("latest/{MANIFEST_NAME}"));
    assert_eq!(best(&tree), Some(("previous".into(), Format::Manifest, Some(6))));
}

#[test]
fn attempts_are_searched_together() {
    let tree = Tree::new();
    fixtures::own(&tree, "attempt-1/step_50", 50);
    fixtures::own(&tree, "attempt-2/step_50", 50);
    fixtures::own(&tree, "attempt-10/step_40", 40);
    assert_eq!(best(&tree).unwrap().0, "attempt-2/step_50");
}

#[test]
fn announcements_are_read_line_by_line() {
    let text = b"CHECKPOINT 10 /ckpt/step 10\n\n# note\nCHECKPOINT x /ckpt\nhello\r\nCHECKPOINT 20  rel/step_20\r\nCHECKPOINT 30 /ckpt/st";
    let found = announce::parse(text);
    let made = |step, path: &str| Announcement { step, path: path.into() };
    assert_eq!(found.made, [made(10, "/ckpt/step 10"), made(20, "rel/step_20")]);
    assert_eq!(found.malformed, ["CHECKPOINT x /ckpt", "hello"]);
    assert_eq!(&text[found.consumed_bytes..], b"CHECKPOINT 30 /ckpt/st");
    let rest = [&text[found.consumed_bytes..], b"ep_30\n"].concat();
    assert_eq!(announce::parse(&rest).made, [made(30, "/ckpt/step_30")]);
    let endless = announce::parse(&[b'x'; 10_000]);
    assert_eq!((endless.consumed_bytes, endless.malformed.len()), (10_000, 1));
}

#[test]
fn what_is_appended_is_parsed() {
    let tree = Tree::new();
    announce::append(&tree.path("ack"), 5, Path::new("/ckpt/a b")).unwrap();
    announce::append(&tree.path("ack"), 6, Path::new("/ckpt/c")).unwrap();
    assert!(announce::append(&tree.path("ack"), 7, Path::new("/ckpt/a\nCHECKPOINT 9 /x")).is_err());
    let found = announce::parse(&std::fs::read(tree.path("ack")).unwrap());
    assert_eq!(found.made.iter().map(|made| made.step).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(found.made[0].path, Path::new("/ckpt/a b"));
}
