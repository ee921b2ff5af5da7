//! Fault storms: no seed may break a rule, lose a job or leave one waiting that could run.
use ganger_simulator::{Stats, storm};

fn storms(seeds: impl IntoIterator<Item = u64>, events: usize) -> Stats {
    let mut sum = Stats::default();
    for seed in seeds {
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

/// A second look at the same moment found more to do: who was just started could be stopped at once by somebody ahead, or
/// who had just been promised devices could start elsewhere.
#[test]
fn storms_that_once_broke_a_rule_hold() {
    storms([154, 344, 361, 362, 3_134, 3_581, 3_611, 3_807, 3_876, 4_239], 120);
}

/// Two ranks with equal parts of one GPU left when one was asked to; a gate that closed for a promoted job opened within the
/// decision, after somebody without an end had been started where its reservation then came to lie.
#[test]
fn parts_of_one_gang_leave_alone_and_promoted_jobs_wait_for_nobody_without_an_end() {
    storms([118, 129, 234, 254, 267], 150);
}

/// A start put its queue beyond its guarantee, and who waited could stop it, or others of its queue, at once; so could it
/// stop who had just started on a claim.
#[test]
fn nobody_starts_whom_a_guarantee_could_stop_at_once() {
    storms([128, 144, 235, 377, 421, 427], 150);
}

/// What a decision splits anew, or makes whole, was not yet so to itself: the next one took less time for a start, or found the
/// reserved part on another GPU.
#[test]
fn what_is_split_is_asked_of_the_decision_and_not_of_the_cluster_before_it() {
    storms([382, 939], 150);
}

/// In a queue by attained service one who waited had the place of one who starts: without it the next decision asks it later,
/// or others sooner.
#[test]
fn places_in_a_queue_go_with_who_starts() {
    storms([885], 150);
    storms([20217], 120);
}

/// A start on a claim in flight was not taken for one that begins now and has no known end, before whom nobody who waited
/// beyond the bound may be put.
#[test]
fn who_starts_on_its_claim_starts_now() {
    storms([20094, 30099, 30239], 120);
}

/// A claim of this decision was taken for free by what the cluster has, while other starts of it took the same memory.
#[test]
fn nobody_starts_on_memory_that_starts_beside_it_take() {
    storms([30205], 120);
}

/// Who was told to leave by the same decision still had to be paid by its budget, and the next decision found a start more.
#[test]
fn who_was_told_to_leave_costs_its_budget_no_more() {
    storms([118, 238], 120);
}

/// A move let a reserved start come sooner than a guest on its devices had been told.
#[test]
fn guests_make_way_when_a_move_brings_a_start_nearer() {
    storms([293], 150);
}

/// Windows that open and close, deadlines, maintenance.
#[test]
fn storms_with_a_calendar_break_no_rule() {
    let sum = storms(10_000..10_030, 120);
    assert!(sum.done > sum.submitted / 5, "{sum:?}");
}

/// Maintenance was over on a node that nobody had looked at since; a gang that grew went before its seniors for its deadline.
#[test]
fn storms_with_a_calendar_that_once_broke_a_rule_hold() {
    storms([10_041, 10_164], 120);
}

/// Arrays, of which people hold, release and cancel single tasks, also such as are no jobs yet or no more.
#[test]
fn storms_with_arrays_break_no_rule() {
    let sum = storms(20_000..20_030, 120);
    assert!(sum.tasks > sum.submitted / 3 && sum.done > sum.submitted / 3, "{sum:?}");
}

/// A pool was opened at the moment of a claim for which it had taken back its nodes.
#[test]
fn a_pool_that_is_opened_takes_no_claim_back() {
    storms([30_211], 63);
}

/// Whole nodes that are promised: a claim for which somebody was to leave was withdrawn for a start on what that one seemed to
/// leave of a promised node; what made two jobs displace each other in turn was one on a pool of its own.
#[test]
fn storms_with_promises_break_no_rule() {
    let sum = storms(40_000..40_030, 120);
    assert!(sum.evictions > 20 && sum.done > sum.submitted / 3, "{sum:?}");
    storms([40_019, 40_213, 40_252, 40_352, 40_556], 120);
}

/// The right of one job of a group to be host in its pool was taken for that of its mate.
#[test]
fn a_group_asks_for_a_guarantee_only_as_hosts_of_one_pool() {
    storms([43_488], 120);
}

/// Two jobs of a group kept off what was scarce for others, and so were in each other's way on an empty cluster for ever.
#[test]
fn a_group_that_fits_on_an_empty_cluster_starts_on_it() {
    storms([1_026], 400);
}

/// The short run of somebody who was told to leave was kept from a budget, so that nobody started on what it could pay.
#[test]
fn who_leaves_needs_no_short_run_from_a_budget() {
    storms([43_206], 120);
}

#[test]
fn a_storm_follows_from_its_seed() {
    assert_eq!(storm(3, 60), storm(3, 60));
    assert_eq!(storm(10_003, 60), storm(10_003, 60));
    assert_eq!(storm(20_003, 60), storm(20_003, 60));
    assert_eq!(storm(40_003, 60), storm(40_003, 60));
}

/// More and longer storms: `cargo test -p ganger-simulator --release --test storm -- --ignored`.
#[test]
#[ignore = "takes minutes"]
fn long_storms_break_no_rule() {
    storms((1_000..1_500).chain(11_000..11_500).chain(21_000..21_500), 400);
}

/// A claim of this decision was taken for free though a start beside it had taken the part of a GPU that it needs.
#[test]
fn nobody_starts_on_a_part_that_starts_beside_it_take() {
    storms([1185], 400);
}

/// A gate closed for who had just claimed, by a reserved start of its queue or by who was told to leave, and the claim stood;
/// and a limit that its queue was over kept one waiting who asked for nothing of it.
#[test]
fn a_claim_of_a_decision_stands_no_longer_than_one_in_flight() {
    storms([1259, 1333], 400);
}

/// Of two victims the one with the shorter grace was taken to leave as late as the other.
#[test]
fn each_victim_is_gone_when_its_own_grace_is_over() {
    storms([1323], 400);
}

/// A start put its queue beyond its guarantee by the memory of its GPUs, which it had not asked for, and was in the way of
/// somebody who would have fitted on what others were leaving: the next decision stopped it.
#[test]
fn who_could_be_stopped_at_once_waits_for_those_who_leave_with_the_one_ahead() {
    storms([1330], 400);
}

/// A guest was sent home for a start that came too near, and not asked again when that start lay elsewhere at the end.
#[test]
fn guests_that_were_sent_home_are_asked_once_more() {
    storms([1377], 400);
}

/// Two units that were both beyond what is guaranteed to their queues by the memory of their GPUs took each other's places in
/// turn, until the decision had no budget left.
#[test]
fn who_is_displaced_for_a_guarantee_does_not_come_back_for_another() {
    storms([1_336, 11_071, 11_075, 11_097], 400);
}
