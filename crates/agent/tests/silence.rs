//! What becomes of leases when the server does not answer: to all agents, or to one.
mod common;

use common::keepers::FakeKeepers;
use common::server::FakeServer;
use common::{TempDir, go, order, start, until};
use ganger_core::model::job::Launcher;
use ganger_core::model::report::Report;
use ganger_core::model::wire::agent::Action;
use ganger_runtime::clock::boottime_ms;
use std::sync::Arc;

const LEASE_MS: u64 = 4_000;

struct Pair {
    dir: TempDir,
    server: FakeServer,
    keepers: Arc<FakeKeepers>,
}

/// Two agents that know each other; `n0` runs a leased worker.
async fn pair() -> (Pair, [common::Running; 2]) {
    let pair = Pair {
        dir: TempDir::new(),
        server: FakeServer::start(LEASE_MS).await,
        keepers: Arc::new(FakeKeepers::default()),
    };
    let agents = ["n0", "n1"].map(|node| start(node, pair.dir.path(), &pair.server, &pair.keepers));
    for node in ["n0", "n1"] {
        until("registered", || pair.server.is_registered(node).then_some(())).await;
    }
    pair.server.order("n0", vec![order(0, Launcher::Ranks, Action::Prepare)]);
    let heard = |pick: fn(&Report) -> bool| pair.server.reports("n0").iter().any(pick).then_some(());
    until("prepared", || heard(|report| matches!(report, Report::Prepared { .. }))).await;
    pair.server.order("n0", vec![order(0, Launcher::Ranks, go())]);
    until("running", || heard(|report| matches!(report, Report::Running { .. }))).await;
    // Each has been told of the other: both lists were sent after both had registered.
    let contact =
        |node: &str| std::fs::read_to_string(pair.dir.path().join(node).join("contact.json")).unwrap_or_default();
    until("n0 knows n1", || contact("n0").contains("\"n1\"").then_some(())).await;
    until("n1 knows n0", || contact("n1").contains("\"n0\"").then_some(())).await;
    (pair, agents)
}

fn lease(pair: &Pair) -> u64 {
    pair.keepers.with("7.1.0", |worker| worker.lease).unwrap().unwrap()
}

#[tokio::test]
async fn a_server_that_is_away_ends_no_rank_and_hears_of_the_vouches_first_of_all() {
    let (pair, agents) = pair().await;
    pair.server.with(|inner| inner.away.insert("*".into()));
    let gone_at = boottime_ms();
    // No answer that was sent for before can give a lease beyond this.
    until("the lease is prolonged without the server", || (lease(&pair) > gone_at + 2 * LEASE_MS).then_some(())).await;
    pair.server.with(|inner| inner.away.clear());
    let vouched =
        until("n1 says for whom it vouched", || pair.server.with(|inner| inner.nodes["n1"].vouched.first().cloned()));
    let vouch = vouched.await;
    assert_eq!(vouch.node, "n0");
    assert!(vouch.remaining_ms <= LEASE_MS);
    assert!(pair.server.with(|inner| inner.nodes["n1"].doubtful), "it said first that it is no witness");
    for agent in agents {
        agent.stop().await;
    }
}

#[tokio::test]
async fn a_node_that_alone_is_cut_off_lets_its_leases_run_out() {
    let (pair, agents) = pair().await;
    pair.server.with(|inner| inner.away.insert("n0".into()));
    let cut_at = boottime_ms();
    until("its lease is over", || (boottime_ms() > cut_at + 2 * LEASE_MS).then_some(())).await;
    assert!(lease(&pair) <= cut_at + LEASE_MS, "nobody prolonged it");
    // The other one heard the server all the time, and vouched for nobody.
    assert!(pair.server.with(|inner| inner.nodes["n1"].vouched.is_empty()));
    for agent in agents {
        agent.stop().await;
    }
}
