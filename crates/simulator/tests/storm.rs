//! Fault storms: no seed may break a rule, lose a job or leave one waiting that could run.
use ganger_simulator::{Stats, storm};

/// Seeds within these tests of which it is known that a second look at the same moment finds more to evict: a lower job that
/// this very decision starts is in the way of one ahead, whose reservation then lies elsewhere. To be mended in the core;
/// one that holds again has to leave this list.
const OPEN: [u64; 1] = [5];

fn storms(seeds: std::ops::Range<u64>, events: usize) -> Stats {
    let mut sum = Stats::default();
    for seed in seeds {
        if OPEN.contains(&seed) {
            let failure = storm(seed, events).expect_err("this seed holds: take it out of the list of open ones");
            assert!(failure.violations.iter().all(|broken| broken.rule == 9), "{failure}");
            continue;
        }
        sum += storm(seed, events).unwrap_or_else(|failure| panic!("{failure}"));
    }
    sum
}

#[test]
fn storms_break_no_rule_and_lose_no_job() {
    let sum = storms(1..60, 120);
    // A storm in which nothing happens proves nothing.
    assert!(sum.done > sum.submitted / 4, "{sum:?}");
    assert!(sum.evictions > 20 && sum.attempts > sum.done as u64, "{sum:?}");
    assert!(sum.shrinks > 0 && sum.failures > 20, "{sum:?}");
}

#[test]
fn a_storm_follows_from_its_seed() {
    assert_eq!(storm(3, 60), storm(3, 60));
}

/// More and longer storms: `cargo test -p ganger-simulator --release --test storm -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn long_storms_break_no_rule() {
    storms(1_000..3_000, 400);
}
