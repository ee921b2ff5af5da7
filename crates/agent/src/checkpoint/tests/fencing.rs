//! A late write of an older attempt is never taken for the newest.

use std::fs;
use std::sync::Barrier;

use proptest::prelude::*;

use super::super::{Defect, Fence, FenceError, OtherJob, newest_valid};
use super::fixtures::{self, Tree, entry};

fn raise(tree: &Tree, attempt: u64) -> Fence {
    Fence::raise(&tree.path("."), "job-1", attempt, OtherJob::Refuse).unwrap()
}

fn best(tree: &Tree) -> Option<String> {
    newest_valid(&tree.path(".")).best.map(|(path, _)| entry(&path, tree))
}

fn first_defect(tree: &Tree) -> Defect {
    newest_valid(&tree.path(".")).skipped.remove(0).1
}

#[test]
fn what_an_attempt_had_counts_and_what_it_writes_late_does_not() {
    let tree = Tree::new();
    let first = raise(&tree, 1);
    assert_eq!(first.checkpoint_dir(), tree.path("attempt-1"));
    fixtures::own(&tree, "attempt-1/step_10", 10);
    tree.write("attempt-1/step_20/weights.bin", "half");
    raise(&tree, 2);
    assert_eq!(best(&tree).as_deref(), Some("attempt-1/step_10"));
    // The lost attempt finishes the half-written one and writes another.
    fixtures::own(&tree, "attempt-1/step_20", 20);
    fixtures::own(&tree, "attempt-1/step_30", 30);
    assert_eq!(best(&tree).as_deref(), Some("attempt-1/step_10"));
    assert!(matches!(first_defect(&tree), Defect::Late { writer: 1, fence: 2, .. }));
    fixtures::own(&tree, "attempt-2/step_15", 15);
    assert_eq!(best(&tree).as_deref(), Some("attempt-2/step_15"));
    // Raising again must not launder what the fence before had refused.
    raise(&tree, 3);
    assert_eq!(best(&tree).as_deref(), Some("attempt-2/step_15"));
}

#[test]
fn an_accepted_one_that_is_overwritten_late_does_not_count() {
    let tree = Tree::new();
    raise(&tree, 1);
    fixtures::own(&tree, "attempt-1/step_10", 10);
    fixtures::own(&tree, "attempt-1/step_9", 9);
    raise(&tree, 2);
    tree.write("attempt-1/step_10/weights.bin", "weights of another step");
    super::super::write_manifest(&tree.path("attempt-1/step_10"), 10).unwrap();
    assert_eq!(best(&tree).as_deref(), Some("attempt-1/step_9"));
}

#[test]
fn the_fence_only_rises() {
    let tree = Tree::new();
    let second = raise(&tree, 2);
    assert_eq!(raise(&tree, 2), second);
    let refused = Fence::raise(&tree.path("."), "job-1", 1, OtherJob::Refuse);
    assert!(matches!(refused, Err(FenceError::Superseded { by: 2, .. })));
    assert_eq!((second.job(), second.attempt()), ("job-1", 2));
    assert!(fs::read_to_string(tree.path(".ganger-attempt")).unwrap().contains("\"attempt\":2"));
    assert!(matches!(Fence::raise(&tree.path("nowhere"), "job-1", 1, OtherJob::Refuse), Err(FenceError::Io { .. })));
}

#[test]
fn racing_raises_end_with_the_highest() {
    let tree = Tree::new();
    let start = Barrier::new(8);
    std::thread::scope(|scope| {
        for attempt in 1..=8 {
            let (start, tree) = (&start, &tree);
            scope.spawn(move || {
                start.wait();
                let _ = Fence::raise(&tree.path("."), "job-1", attempt, OtherJob::Refuse);
            });
        }
    });
    assert_eq!(Fence::current(&tree.path(".")).unwrap().unwrap().attempt(), 8);
}

#[test]
fn another_job_must_say_that_it_takes_over() {
    let tree = Tree::new();
    raise(&tree, 3);
    fixtures::own(&tree, "attempt-3/step_10", 10);
    let dir = tree.path(".");
    assert!(matches!(Fence::raise(&dir, "job-2", 1, OtherJob::Refuse), Err(FenceError::OtherJob { .. })));
    let other = Fence::raise(&dir, "job-2", 1, OtherJob::TakeOver).unwrap();
    assert_eq!(other.checkpoint_dir(), tree.path("attempt-4"));
    assert_eq!(best(&tree).as_deref(), Some("attempt-3/step_10"));
    fixtures::own(&tree, "attempt-3/step_20", 20);
    assert_eq!(best(&tree).as_deref(), Some("attempt-3/step_10"));
    let next = Fence::raise(&dir, "job-2", 2, OtherJob::Refuse).unwrap();
    assert_eq!(next.checkpoint_dir(), tree.path("attempt-5"));
}

#[test]
fn a_plain_directory_of_a_job_that_never_announces_is_believed_and_marked() {
    let tree = Tree::new();
    raise(&tree, 1);
    fixtures::own(&tree, "step_10", 10);
    raise(&tree, 2);
    let scan = newest_valid(&tree.path("."));
    assert!(scan.best.is_some() && !scan.unproven);
    fixtures::own(&tree, "step_20", 20);
    let scan = newest_valid(&tree.path("."));
    assert_eq!(scan.best.unwrap().1.step, Some(20));
    assert!(scan.unproven);
}

#[test]
fn a_plain_directory_of_a_job_that_announces_takes_only_what_was_announced() {
    let tree = Tree::new();
    let first = raise(&tree, 1);
    first.accept(&fixtures::own(&tree, "step_10", 10)).unwrap();
    let second = raise(&tree, 2);
    fixtures::own(&tree, "step_30", 30);
    assert!(matches!(first.accept(&tree.path("step_30")), Err(FenceError::Superseded { by: 2, .. })));
    let scan = newest_valid(&tree.path("."));
    assert_eq!(scan.best.unwrap().1.step, Some(10));
    assert!(matches!(scan.skipped[0].1, Defect::Unannounced { fence: 2, .. }));
    fixtures::own(&tree, "step_20", 20);
    second.accept(&tree.path("step_20/weights.bin")).unwrap();
    let scan = newest_valid(&tree.path("."));
    assert!(!scan.unproven);
    assert_eq!(scan.best.unwrap().1.step, Some(20));
    // The next attempt seals what counted, not what lay about.
    raise(&tree, 3);
    assert_eq!(best(&tree).as_deref(), Some("step_20"));
    assert!(matches!(second.accept(&std::env::temp_dir()), Err(FenceError::Outside { .. })));
}

#[test]
fn announcing_a_root_means_what_its_tracker_names() {
    let tree = Tree::new();
    let fence = raise(&tree, 1);
    fixtures::deepspeed(&tree, ".", 10);
    fence.accept(&tree.path(".")).unwrap();
    let scan = newest_valid(&tree.path("."));
    assert_eq!((scan.best.unwrap().1.step, scan.unproven), (Some(10), false));
    fixtures::deepspeed(&tree, ".", 20);
    assert_eq!(best(&tree).as_deref(), Some("global_step10"));
}

#[test]
fn an_unreadable_fence_trusts_nothing() {
    let tree = Tree::new();
    raise(&tree, 1);
    fixtures::own(&tree, "attempt-1/step_10", 10);
    tree.cut(".ganger-attempt-1", 5);
    assert!(matches!(first_defect(&tree), Defect::FenceUnreadable { .. }));
    assert!(Fence::raise(&tree.path("."), "job-1", 2, OtherJob::Refuse).is_err());
}

#[test]
fn an_attempt_that_was_never_let_in_does_not_count() {
    let tree = Tree::new();
    raise(&tree, 1);
    fixtures::own(&tree, "attempt-9/step_90", 90);
    assert_eq!(best(&tree), None);
    assert!(matches!(first_defect(&tree), Defect::Stray { writer: 9, fence: 1, .. }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Writes of attempts 1 to 3 in any order with raises between them: the best is always one that was written while its attempt was in.
    #[test]
    fn no_order_of_writes_and_raises_lets_a_late_one_count(acts in prop::collection::vec((0..4_u64, 1..4_u64), 1..14)) {
        let tree = Tree::new();
        raise(&tree, 1);
        let mut current = 1;
        let mut expected: Option<u64> = None;
        for (index, (act, attempt)) in acts.into_iter().enumerate() {
            let step = index as u64 + 1;
            if act == 0 && attempt > current {
                raise(&tree, attempt);
                current = attempt;
            } else {
                let attempt = attempt.min(current);
                fixtures::own(&tree, &format!("attempt-{attempt}/step_{step}"), step);
                if attempt == current {
                    expected = Some(step);
                }
            }
            let best = newest_valid(&tree.path(".")).best.and_then(|(_, verified)| verified.step);
            prop_assert_eq!(best, expected);
        }
    }
}
