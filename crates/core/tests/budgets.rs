//! GPU-hour budgets through the lifecycle: what is charged, who is told when, and who may start.
#![allow(clippy::unwrap_used, reason = "a test may")]
mod common;

use common::{Lab, job};
use ganger_core::lifecycle::input::QueueSpec;
use ganger_core::lifecycle::{Input, next_deadline};
use ganger_core::model::budget::{Budget, Period};
use ganger_core::model::decision::Blocker;
use ganger_core::model::job::{JobSpec, JobState, Owner, Priority, StopWhy};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::queue::Queue;
use ganger_core::model::{JobId, Span, Time};
use std::sync::Arc;

const HOUR: Span = Span::hours(1);

/// Two nodes of eight GPUs at midnight, and a budget for all.
fn lab(hours: u64, user_hours: Option<u64>) -> Lab {
    let mut lab = Lab::new(2, &profile("dgx-h100").unwrap(), 2);
    lab.now = Period::Day.end(lab.now);
    budget(&mut lab, hours, user_hours);
    lab
}

fn budget(lab: &mut Lab, hours: u64, user_hours: Option<u64>) {
    let gpu_ms = |hours: u64| hours * HOUR.0;
    let budget = Budget { gpu_ms: gpu_ms(hours), per: Period::Day, user_gpu_ms: user_hours.map(gpu_ms) };
    let path = "default".to_string();
    let queue = QueueSpec { path, budget: Some(budget), ..QueueSpec::default() };
    lab.apply(Input::Queues { queues: vec![queue], by: "ops".to_string() });
}

/// Saves when asked, with this grace.
fn saver(name: &str, gpus: u32, grace: Span) -> JobSpec {
    let mut spec = job(name, 1, gpus, Priority::P2);
    (spec.checkpoint.on_demand, spec.checkpoint.grace) = (true, grace);
    spec
}

fn submit(lab: &mut Lab, user: &str, spec: JobSpec) -> JobId {
    let owner = Owner { user: user.to_string(), ..Owner::default() };
    lab.apply(Input::Submit { spec: Arc::new(spec), owner }).submitted.unwrap()
}

fn spent(lab: &Lab) -> u64 {
    lab.cluster.queues["default"].spent_gpu_ms(lab.now)
}

/// Ticks at every moment that has one, until then.
fn pass_until(lab: &mut Lab, until: Time) {
    loop {
        let next = next_deadline(&lab.cluster).map_or(until, |at| at.max(lab.now + Span(1))).min(until);
        lab.pass(next.since(lab.now));
        lab.settle();
        if lab.now >= until {
            return;
        }
    }
}

#[test]
fn what_was_held_is_charged_whatever_became_of_it() {
    let mut lab = lab(100, None);
    let one = lab.submit(saver("one", 4, Span::ZERO));
    lab.settle();
    lab.pass(HOUR);
    let two = lab.submit(saver("two", 8, Span::ZERO));
    lab.settle();
    lab.pass(HOUR);
    lab.finish(one);
    lab.settle();
    lab.apply(Input::Requeue { job: two, by: "ops".to_string() });
    lab.settle();
    lab.pass(HOUR);
    lab.finish(two);
    lab.settle();
    lab.pass(HOUR);
    assert_eq!(spent(&lab), (4 * 2 + 8 * 2) * HOUR.0);
    let charged: u64 = lab.finished.iter().map(|job| job.gpu_us / 1_000).sum();
    assert_eq!(charged, spent(&lab), "the jobs say the same");
    let midnight = Period::Day.end(lab.now);
    pass_until(&mut lab, midnight);
    assert_eq!(spent(&lab), 0, "a new day");
}

#[test]
fn who_saves_is_told_its_grace_before_the_end_and_starts_again_the_next_day() {
    let mut lab = lab(8, None);
    let id = lab.submit(saver("train", 8, Span::minutes(5)));
    lab.settle();
    let start = lab.now;
    let told = |lab: &Lab| lab.cluster.job(id).unwrap().state != JobState::Running;
    pass_until(&mut lab, start + Span::minutes(55) - Span(1));
    assert!(!told(&lab));
    lab.pass(Span(1));
    let attempt = lab.cluster.job(id).unwrap().attempt.clone().unwrap();
    let stop = attempt.stopping().unwrap();
    assert!(matches!(&stop.why, StopWhy::Budget { abrupt: false, .. }), "{stop:?}");
    assert_eq!(stop.deadline, start + HOUR, "at the end it is gone");
    lab.settle();
    let blocked = &lab.cluster.blocked[&id];
    assert!(matches!(blocked, Blocker::Budget { renews_at, .. } if *renews_at == Period::Day.end(start)), "{blocked}");
    pass_until(&mut lab, Period::Day.end(start));
    assert_eq!(lab.state(id), JobState::Running);
    assert!(lab.cluster.job(id).unwrap().evictions == 0, "nobody stopped it for somebody else");
}

#[test]
fn a_warning_comes_once_a_period_and_at_four_fifths() {
    let mut lab = lab(10, None);
    lab.submit(saver("train", 8, Span::ZERO));
    lab.settle();
    let mut warned = Vec::new();
    for _ in 0..70 {
        lab.now = lab.now + Span::minutes(1);
        (0..2).for_each(|node| drop(lab.apply(Input::Heard { node: ganger_core::model::NodeId(node) })));
        let effects = lab.apply(Input::Tick);
        warned.extend(effects.events.into_iter().filter(|event| event.kind == "budget"));
    }
    let texts: Vec<&str> = warned.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(warned.len(), 1, "{texts:?}");
    assert!(texts[0].starts_with("queue default has spent 8 GPU-hours of 10 GPU-hours of this day"), "{texts:?}");
    assert_eq!(warned[0].at.since(Period::Day.start(lab.now)), HOUR);
}

#[test]
fn each_user_has_a_part() {
    let mut lab = lab(100, Some(8));
    let ada = submit(&mut lab, "ada", saver("one", 8, Span::ZERO));
    let bob = submit(&mut lab, "bob", saver("two", 4, Span::ZERO));
    lab.settle();
    // Only when her first job leaves is there room for it, but nothing left to pay for it.
    let again = submit(&mut lab, "ada", saver("three", 8, Span::ZERO));
    let start = lab.now;
    pass_until(&mut lab, start + HOUR);
    assert_eq!((lab.state(ada), lab.state(bob)), (JobState::Pending, JobState::Running));
    let why = lab.cluster.blocked[&again].to_string();
    assert!(why.starts_with("user ada in queue default has spent 8 GPU-hours"), "{why}");
    // More for everybody: what was spent stays spent.
    budget(&mut lab, 100, Some(12));
    lab.settle();
    assert_eq!(lab.cluster.queues["default"].purse_of("ada").unwrap().spent_gpu_ms(lab.now), 8 * HOUR.0);
    assert!([ada, again].iter().any(|id| lab.state(*id) == JobState::Running));
}

#[test]
fn a_lowered_budget_acts_at_once() {
    let mut lab = lab(100, None);
    let id = lab.submit(saver("train", 8, Span::seconds(30)));
    lab.settle();
    lab.pass(HOUR);
    budget(&mut lab, 4, None);
    assert_eq!(lab.state(id), JobState::Stopping);
    lab.assert_rules();
}

#[test]
fn the_record_of_a_queue_from_before_there_were_budgets_is_read() {
    let old =
        r#"{"path":"lab","weight":1,"guarantee":{},"limit":{"gpus":4},"used":{"gpus":1,"cpus":2,"memory_bytes":3}}"#;
    let queue: Queue = serde_json::from_str(old).unwrap();
    assert_eq!((queue.used.gpus, queue.used.vram_bytes, queue.budget), (1, 0, None));
}

/// What a submission is answered, if it is refused.
fn refusal(lab: &mut Lab, user: &str, spec: &JobSpec) -> Option<String> {
    let owner = Owner { user: user.to_string(), ..Owner::default() };
    let answer = lab.try_apply(Input::Submit { spec: Arc::new(spec.clone()), owner });
    answer.err().map(|refusal| refusal.to_string())
}

fn said(lab: &Lab, id: JobId) -> String {
    ganger_core::scheduler::why(&lab.cluster, id, lab.now).unwrap().summary
}

#[test]
fn who_could_never_keep_anything_of_a_run_is_refused_with_the_numbers() {
    let mut lab = lab(8, None);
    let mut rare = job("rare", 2, 8, Priority::P2);
    (rare.checkpoint.every, rare.checkpoint.restart_time) = (Some(HOUR), Span::minutes(5));
    let why = refusal(&mut lab, "ada", &rare).unwrap();
    let numbers = "checkpoint: the 8 GPU-hours of queue default pay for 30m of 16 GPUs in a day, but it saves first after 1h05m \
                   (start 5m, work 1h, checkpoint 0s)";
    assert!(why.contains(numbers), "{why}");
    rare.checkpoint.every = Some(Span::minutes(20));
    assert_eq!(refusal(&mut lab, "ada", &rare), None);

    let mut slow = saver("slow", 8, Span::minutes(59));
    slow.checkpoint.restart_time = Span(1);
    let why = refusal(&mut lab, "ada", &slow).unwrap();
    assert!(why.contains("pay for 1h of 8 GPUs in a day, but it needs"), "{why}");
    slow.checkpoint.restart_time = Span::ZERO;
    assert_eq!(refusal(&mut lab, "ada", &slow), None);

    // It loses all; but it may begin before midnight and go on with the next day's.
    let mut long = job("long", 1, 8, Priority::P2);
    long.time_limit = Some(HOUR.times(2) + Span(1));
    let why = refusal(&mut lab, "ada", &long).unwrap();
    assert!(why.contains("time: ") && why.contains("in a day, 2h over the end of one, but it does not save"), "{why}");
    long.time_limit = Some(HOUR.times(2));
    assert_eq!(refusal(&mut lab, "ada", &long), None);
}

#[test]
fn what_counts_is_the_smallest_size_the_users_part_and_the_policy() {
    let mut lab = lab(100, Some(4));
    let mut spec = job("elastic", 8, 1, Priority::P2);
    spec.checkpoint.every = Some(HOUR);
    let why = refusal(&mut lab, "ada", &spec).unwrap();
    assert!(why.contains("of user ada in queue default pay for 30m of 8 GPUs"), "{why}");
    spec.gang.min = 4;
    assert_eq!(refusal(&mut lab, "ada", &spec), None, "with four workers it saves once");

    // Who is stopped without grace cannot save when asked.
    lab.apply(Input::Setting { name: "budget.policy".into(), value: "stop".into(), by: "ops".into() });
    let mut asked = saver("asked", 8, Span::ZERO);
    asked.time_limit = Some(HOUR.times(2));
    assert!(refusal(&mut lab, "ada", &asked).is_some_and(|why| why.contains("does not save in time")));
    lab.apply(Input::Setting { name: "budget.policy".into(), value: "none".into(), by: "ops".into() });
    assert_eq!(refusal(&mut lab, "ada", &asked), None, "nobody is stopped");
}

#[test]
fn what_cannot_be_known_is_told_by_why() {
    let mut lab = lab(8, None);
    let runs = lab.submit(job("runs", 1, 8, Priority::P2));
    lab.settle();
    let waits = lab.submit(job("waits", 1, 8, Priority::P2));
    lab.settle();
    for id in [runs, waits] {
        let why = said(&lab, id);
        assert!(why.contains("8 GPU-hours of queue default pay for 1h of 8 GPUs in a day: what takes longer"), "{why}");
    }
    let ended = job("ended", 1, 8, Priority::P2);
    let ended = lab.submit(JobSpec { time_limit: Some(HOUR), ..ended });
    assert!(!said(&lab, ended).contains("pay for"), "{}", said(&lab, ended));
    budget(&mut lab, 3, None);
    assert!(said(&lab, ended).contains("but it does not save in time and may take up to 1h"), "{}", said(&lab, ended));
    budget(&mut lab, 8 * 24, None);
    assert!(!said(&lab, waits).contains("pay for"), "a budget for the whole day stops nobody");
}
