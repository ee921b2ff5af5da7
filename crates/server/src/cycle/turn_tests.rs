//! Turns at times that the test says, on a store of its own.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::store::StoreOptions;
use ganger_core::model::job::{Owner, Shape};
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;

struct Bench {
    turns: Turns,
    answers: Receiver<Command>,
    folder: PathBuf,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Bench {
    fn new(name: &str) -> Bench {
        let folder = std::env::temp_dir().join(format!("ganger-turn-{name}-{}", std::process::id()));
        let (store, cluster) = Store::open(&folder, StoreOptions::default()).unwrap();
        let (sender, answers) = sync_channel(8);
        let board = Arc::new(Board::new(&cluster, Vec::new(), store.last_event()));
        let mut turns = Turns::new(store, cluster, board, Decider::start(sender).unwrap());
        turns.new_term().unwrap();
        Bench { turns, answers, folder }
    }

    fn apply(&mut self, input: Input, now: Time) {
        let mut turn = Turn::default();
        self.turns.apply(&mut turn, input, now).unwrap();
        self.turns.finish(turn, now);
    }

    /// Something besides last-heard times is different, but nothing that is stored or that a decision is about.
    fn quiet_turn(&mut self, now: Time) {
        self.turns.cluster.now = now;
        self.turns.finish(Turn { changed: true, ..Turn::default() }, now);
    }

    /// Whether a decision is asked for now. It is applied at once.
    fn decides(&mut self, now: Time) -> bool {
        self.turns.consider_deciding(now);
        let asked = self.turns.decider.is_busy();
        if asked {
            let Command::Decided { decision, from, took_us } = self.answers.recv().unwrap() else { panic!() };
            let mut turn = Turn::default();
            self.turns.on_decided(&mut turn, decision, from, took_us, now);
            self.turns.finish(turn, now);
        }
        asked
    }
}

fn job(begin: Time) -> JobSpec {
    JobSpec { begin: Some(begin), ..JobSpec::new("later", 1, Shape { cpus: 1, ..Shape::default() }) }
}

/// The state's own time was the measure: an input applied at the very moment, or past it while a tick was put off, moved
/// that time on, and the job waited for the next unrelated decision.
#[test]
fn a_begin_time_that_an_input_moved_past_is_decided_on() {
    let mut bench = Bench::new("begin");
    let start = bench.turns.clock.now() + Span::seconds(10);
    let begin = start + Span::seconds(5);
    bench.apply(Input::Submit { spec: Arc::new(job(begin)), owner: Owner::default() }, start);
    assert!(bench.decides(start), "a submission is decided on");
    assert!(!bench.decides(start), "once");
    bench.quiet_turn(begin - Span(1));
    assert!(!bench.decides(begin - Span(1)), "before its time nothing is asked for");
    bench.quiet_turn(begin);
    assert!(bench.decides(begin), "its time has come, and nothing else has happened");
    bench.quiet_turn(begin + Span(1));
    assert!(!bench.decides(begin + Span(1)), "once for each such moment");
}

#[test]
fn the_loop_sleeps_no_longer_than_until_a_job_may_begin() {
    let mut bench = Bench::new("sleep");
    let start = bench.turns.clock.now() + Span::seconds(10);
    bench.apply(Input::Submit { spec: Arc::new(job(start + Span(700))), owner: Owner::default() }, start);
    assert!(bench.decides(start));
    bench.turns.tick_at = Time::NEVER;
    assert_eq!(bench.turns.sleep(start), Duration::from_millis(700));
    assert_eq!(bench.turns.sleep(start + Span(900)), Duration::ZERO);
}

/// Each tick asked for a decision, and a tick comes whenever some agent might have fallen silent: with thousands of jobs
/// waiting the server was never idle.
#[test]
fn a_tick_that_finds_nothing_asks_for_no_decision() {
    let mut bench = Bench::new("quiet-tick");
    let start = bench.turns.clock.now() + Span::seconds(10);
    bench.apply(Input::Submit { spec: Arc::new(job(Time::NEVER)), owner: Owner::default() }, start);
    assert!(bench.decides(start));
    let mut turn = Turn::default();
    bench.turns.on_tick(&mut turn, start + Span::seconds(1));
    bench.turns.finish(turn, start + Span::seconds(1));
    assert!(!bench.decides(start + Span::seconds(1)));
}
