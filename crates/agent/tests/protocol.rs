//! The agent against a server that speaks the protocol, with keepers that are no processes.
#![allow(clippy::unwrap_used)]
mod common;

use common::keepers::FakeKeepers;
use common::server::FakeServer;
use common::{TempDir, go, order, start, stop, until};
use ganger_core::model::job::{Exit, Launcher};
use ganger_core::model::report::Report;
use ganger_core::model::wire::agent::{Action, StreamAsk, StreamKind};
use std::sync::Arc;

const LONG_LEASE_MS: u64 = 60_000;

struct Bench {
    dir: TempDir,
    server: FakeServer,
    keepers: Arc<FakeKeepers>,
}

impl Bench {
    async fn new() -> Bench {
        let server = FakeServer::start(LONG_LEASE_MS).await;
        Bench { dir: TempDir::new(), server, keepers: Arc::new(FakeKeepers::default()) }
    }

    fn start(&self) -> common::Running {
        start("n0", self.dir.path(), &self.server, &self.keepers)
    }

    async fn report<T>(&self, what: &str, pick: impl Fn(&Report) -> Option<T>) -> T {
        until(what, || self.server.reports("n0").iter().find_map(&pick)).await
    }

    /// Brings rank 0 to running.
    async fn run_rank(&self) {
        self.server.order("n0", vec![order(0, Launcher::Ranks, Action::Prepare)]);
        self.report("prepared", prepared).await;
        self.server.order("n0", vec![order(0, Launcher::Ranks, go())]);
        self.report("running", running).await;
    }
}

fn prepared(report: &Report) -> Option<u16> {
    match report {
        Report::Prepared { port, .. } => Some(*port),
        _ => None,
    }
}

fn running(report: &Report) -> Option<u32> {
    match report {
        Report::Running { rank, .. } => Some(rank.0),
        _ => None,
    }
}

fn ended(report: &Report) -> Option<Exit> {
    match report {
        Report::Ended { exit, .. } => Some(exit.clone()),
        _ => None,
    }
}

#[tokio::test]
async fn a_worker_is_prepared_started_and_reported_to_its_end() {
    let bench = Bench::new().await;
    let agent = bench.start();
    bench.run_rank().await;
    let port = bench.report("prepared", prepared).await;
    assert_ne!(port, 0);
    bench
        .keepers
        .with("7.1.0", |worker| {
            assert_eq!(worker.launch.command, ["sh"]);
            assert_eq!(worker.launch.env["MASTER_PORT"], "4242");
            assert!(worker.launch.env["CUDA_VISIBLE_DEVICES"].starts_with("GPU-"));
            assert!(worker.lease.is_some());
        })
        .unwrap();
    bench.keepers.end("7.1.0", 3);
    assert_eq!(bench.report("ended", ended).await, Exit::Code(3));
    let log = bench.dir.path().join("n0/logs/7.1.0.log");
    assert!(log.exists());
    // While an order names it its files stay; then they go, and the log remains.
    let dir = bench.dir.path().join("n0/workers/7.1.0");
    assert!(dir.exists());
    bench.server.order("n0", vec![]);
    until("its files are gone", || (!dir.exists()).then_some(())).await;
    assert!(log.exists());
    assert_eq!(bench.keepers.started(), 1);
    agent.stop().await;
}

#[tokio::test]
async fn reports_are_sent_again_with_their_numbers_until_acknowledged() {
    let bench = Bench::new().await;
    bench.server.with(|inner| inner.forgetful = true);
    let agent = bench.start();
    bench.server.order("n0", vec![order(0, Launcher::Ranks, Action::Prepare)]);
    let times =
        |bench: &Bench| bench.server.with(|inner| inner.nodes["n0"].heard.iter().filter(|r| r.number == 1).count());
    until("the first report comes twice", || (times(&bench) > 1).then_some(())).await;
    agent.stop().await;
    // A new agent goes on with them.
    let before = times(&bench);
    let agent = bench.start();
    until("and again after a restart", || (times(&bench) > before).then_some(())).await;
    bench.server.with(|inner| inner.forgetful = false);
    agent.stop().await;
}

#[tokio::test]
async fn an_end_while_the_server_and_the_agent_are_away_is_told_later() {
    let bench = Bench::new().await;
    let agent = bench.start();
    bench.run_rank().await;
    bench.server.with(|inner| inner.away.insert("*".into()));
    agent.stop().await;
    bench.keepers.end("7.1.0", 0);
    // This agent learns of the end and dies before the server is back.
    let agent = bench.start();
    let journal = bench.dir.path().join("n0/journal");
    until("the end is durable", || std::fs::read_to_string(&journal).unwrap().contains("ended").then_some(())).await;
    agent.stop().await;
    bench.server.with(|inner| inner.away.clear());
    let agent = bench.start();
    assert_eq!(bench.report("ended", ended).await, Exit::Code(0));
    let ends = bench.server.reports("n0").iter().filter_map(ended).count();
    assert_eq!(ends, 1);
    assert_eq!(bench.keepers.started(), 1, "nothing was started twice");
    agent.stop().await;
}

#[tokio::test]
async fn a_restarted_agent_calls_nothing_a_stray_before_it_has_orders() {
    let bench = Bench::new().await;
    let agent = bench.start();
    bench.run_rank().await;
    let mut second = order(1, Launcher::Ranks, Action::Prepare);
    second.job.0 = 8;
    bench.server.order("n0", vec![order(0, Launcher::Ranks, go()), second.clone()]);
    let of_second = |report: &Report| matches!(report, Report::Prepared { job, .. } if job.0 == 8).then_some(());
    bench.report("prepared", of_second).await;
    agent.stop().await;
    bench.server.with(|inner| inner.away.insert("*".into()));
    let agent = bench.start();
    let journal = bench.dir.path().join("n0/journal");
    // That it ran is journalled again as soon as the worker is adopted; a stray would be by then too.
    let adopted = || std::fs::read_to_string(&journal).unwrap().contains("running");
    until("the worker is adopted", || adopted().then_some(())).await;
    bench.server.with(|inner| inner.away.clear());
    second.action = go();
    bench.server.order("n0", vec![order(0, Launcher::Ranks, go()), second]);
    let runs = |report: &Report| matches!(report, Report::Running { job, .. } if job.0 == 8).then_some(());
    bench.report("what was prepared before the restart runs", runs).await;
    assert!(!bench.server.reports("n0").iter().any(|report| matches!(report, Report::Stray { .. })));
    agent.stop().await;
}

#[tokio::test]
async fn what_no_order_names_is_told_and_left_alone() {
    let bench = Bench::new().await;
    let agent = bench.start();
    bench.run_rank().await;
    bench.server.order("n0", vec![]);
    let gpus = bench.report("stray", |report| match report {
        Report::Stray { gpus, .. } => Some(*gpus),
        _ => None,
    });
    assert_eq!(gpus.await, 1);
    assert_eq!(bench.keepers.with("7.1.0", |worker| worker.asked.clone()).unwrap(), [] as [String; 0]);
    agent.stop().await;
}

#[tokio::test]
async fn a_stop_with_grace_writes_the_deadline_and_signals_and_one_without_kills() {
    let bench = Bench::new().await;
    let agent = bench.start();
    bench.run_rank().await;
    bench.server.order("n0", vec![order(0, Launcher::Ranks, stop(true))]);
    let asked = async |count: usize| {
        let asked = || bench.keepers.with("7.1.0", |worker| worker.asked.clone());
        until("the keeper is asked", || asked().filter(|asked| asked.len() == count)).await
    };
    assert_eq!(asked(1).await, ["stop 10 Group"]);
    let preempt = std::fs::read_to_string(bench.dir.path().join("n0/logs/7.1.0.preempt")).unwrap();
    let deadline: u64 = preempt.trim().parse().unwrap();
    assert!(deadline > ganger_runtime::clock::unix_ms() / 1_000);
    bench.server.order("n0", vec![order(0, Launcher::Ranks, stop(false))]);
    assert_eq!(asked(2).await, ["stop 10 Group", "kill"]);
    agent.stop().await;
}

#[tokio::test]
async fn a_stop_before_the_start_ends_it_unstarted() {
    let bench = Bench::new().await;
    let agent = bench.start();
    bench.server.order("n0", vec![order(0, Launcher::Ranks, Action::Prepare)]);
    bench.report("prepared", prepared).await;
    bench.server.order("n0", vec![order(0, Launcher::Ranks, stop(true))]);
    assert!(matches!(bench.report("ended", ended).await, Exit::Refused(why) if why.contains("before it started")));
    assert_eq!(bench.keepers.started(), 0);
    agent.stop().await;
}

#[tokio::test]
async fn a_deposed_leader_is_not_obeyed() {
    let bench = Bench::new().await;
    bench.server.with(|inner| inner.term = 5);
    let agent = bench.start();
    bench.run_rank().await;
    let syncs = || bench.server.with(|inner| inner.nodes["n0"].generation);
    bench.server.with(|inner| inner.term = 4);
    bench.server.order("n0", vec![order(0, Launcher::Ranks, stop(false))]);
    bench.keepers.end("7.1.0", 0);
    // Its end is reported, so answers of the deposed leader did come; the order in them was not obeyed.
    bench.report("ended", ended).await;
    assert_eq!(bench.keepers.with("7.1.0", |worker| worker.asked.len()), Some(0));
    assert!(syncs() > 0);
    agent.stop().await;
}

#[tokio::test]
async fn a_launcher_starts_once_for_all_ranks_of_its_node() {
    let bench = Bench::new().await;
    let agent = bench.start();
    let both =
        |action: Action| vec![order(0, Launcher::Torchrun, action.clone()), order(1, Launcher::Torchrun, action)];
    bench.server.order("n0", both(Action::Prepare));
    let all = |pick: fn(&Report) -> bool| bench.server.reports("n0").iter().filter(|r| pick(r)).count();
    until("both prepared", || (all(|r| prepared(r).is_some()) == 2).then_some(())).await;
    bench.server.order("n0", both(go()));
    until("both running", || (all(|r| running(r).is_some()) == 2).then_some(())).await;
    assert_eq!(bench.keepers.started(), 1);
    let gpus = bench.keepers.with("7.1.0", |worker| worker.launch.env["CUDA_VISIBLE_DEVICES"].clone()).unwrap();
    assert_eq!(gpus.split(',').count(), 2);
    bench.keepers.end("7.1.0", 0);
    until("both ended", || (all(|r| ended(r) == Some(Exit::Code(0))) == 2).then_some(())).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_device_in_use_is_refused_and_a_failed_start_too() {
    let bench = Bench::new().await;
    let agent = bench.start();
    bench.run_rank().await;
    let mut second = order(1, Launcher::Ranks, Action::Prepare);
    second.devices.gpus = vec![0];
    bench.server.order("n0", vec![order(0, Launcher::Ranks, go()), second]);
    assert!(matches!(bench.report("refused", ended).await, Exit::Refused(why) if why.contains("GPU 0 is held by")));
    *bench.keepers.broken.lock().unwrap() = Some("no memory".into());
    let mut third = order(1, Launcher::Ranks, Action::Prepare);
    third.job.0 = 8;
    bench.server.order("n0", vec![order(0, Launcher::Ranks, go()), third.clone()]);
    let of_third = |report: &Report| matches!(report, Report::Prepared { job, .. } if job.0 == 8).then_some(());
    bench.report("prepared", of_third).await;
    third.action = go();
    bench.server.order("n0", vec![order(0, Launcher::Ranks, go()), third]);
    let failed =
        |report: &Report| ended(report).filter(|exit| matches!(exit, Exit::Refused(why) if why.contains("no memory")));
    bench.report("failed", failed).await;
    agent.stop().await;
}

#[tokio::test]
async fn a_log_is_streamed_until_the_worker_has_ended() {
    let bench = Bench::new().await;
    let agent = bench.start();
    bench.run_rank().await;
    let log = bench.dir.path().join("n0/logs/7.1.0.log");
    std::fs::write(&log, "first\n").unwrap();
    let asked = order(0, Launcher::Ranks, go());
    let kind = StreamKind::Log { from_byte: 0, follow: true };
    let ask = StreamAsk { id: 9, job: asked.job, attempt: asked.attempt, rank: asked.rank, kind };
    bench.server.with(|inner| inner.nodes.get_mut("n0").unwrap().streams.push(ask));
    until("the ask is taken", || bench.server.with(|inner| inner.nodes["n0"].streams.is_empty().then_some(()))).await;
    std::fs::write(&log, "first\nlast\n").unwrap();
    bench.keepers.end("7.1.0", 0);
    let streamed = until("the stream ends", || bench.server.with(|inner| inner.streamed.get(&9).cloned())).await;
    assert_eq!(String::from_utf8(streamed).unwrap(), "first\nlast\n");
    agent.stop().await;
}

#[tokio::test]
async fn after_another_boot_what_ran_before_is_forgotten_however_torn_its_files_are() {
    let bench = Bench::new().await;
    let agent = bench.start();
    bench.run_rank().await;
    let home = bench.dir.path().join("n0");
    agent.stop().await;
    let edit = |name: &str, change: &dyn Fn(String) -> String| {
        let text = std::fs::read_to_string(home.join(name)).unwrap();
        std::fs::write(home.join(name), change(text)).unwrap();
    };
    let this_boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    edit("contact.json", &|text| text.replace(this_boot.trim(), "an earlier boot"));
    edit("workers/7.1.0/unit.json", &|_| String::new());
    edit("journal", &|text| text + "\0\0\0\n");
    bench.keepers.workers.lock().unwrap().clear();
    bench.server.order("n0", vec![]);
    let agent = bench.start();
    until("the earlier boot's worker is forgotten", || (!home.join("workers/7.1.0").exists()).then_some(())).await;
    // And the next start is of this boot: what runs now is adopted.
    bench.server.with(|inner| inner.nodes.get_mut("n0").unwrap().heard.clear());
    bench.run_rank().await;
    // What the earlier boot had to tell may be told again after it was cleared here: it is no word of this start.
    until("the rank of this boot runs", || bench.keepers.with("7.1.0", |_| ())).await;
    agent.stop().await;
    let agent = bench.start();
    bench.keepers.end("7.1.0", 0);
    assert_eq!(bench.report("ended", ended).await, Exit::Code(0));
    assert_eq!(bench.keepers.started(), 2);
    agent.stop().await;
}
