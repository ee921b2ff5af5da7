//! `ganger demo`: a tour with real processes that ends by itself: a gang trains, yields to an urgent job, resumes where
//! it was; a node dies under another gang, and the gang goes on elsewhere.
//!
//! Server and agents are set up by [`stage`]; from there on the demo knows the cluster only through the public API, as
//! any user does. Whatever does not come out as told makes it fail: it is a test that can be watched.
mod loss;
mod scenes;
mod stage;
mod teller;

use crate::cli::Demo;
use crate::failure::Failure;
use crate::output::{Look, json::json, say};
use scenes::Tour;
use stage::Stage;
use std::time::{Duration, Instant};
use teller::{Outcome, Teller};

/// The tour takes about a minute; what takes twice as long has failed.
const LONGEST: Duration = Duration::from_secs(115);
const INTERRUPTED: u8 = 130;

pub async fn run(args: Demo, look: Look) -> Result<(), Failure> {
    let began = Instant::now();
    let mut teller = Teller::new(look);
    teller.title("Two virtual dgx-h100 nodes, a server and two agents; every process that runs is real")?;
    let mut stage = Stage::build().await?;
    let ended = tokio::select! {
        ended = tokio::time::timeout(LONGEST, tour(&mut stage, &mut teller)) => {
            ended.unwrap_or_else(|_| Err(Failure::failed(format!("the tour was not over after {} s", LONGEST.as_secs()))))
        }
        _ = tokio::signal::ctrl_c() => Err(Failure { code: INTERRUPTED, ..Failure::failed("interrupted") }),
    };
    let place = stage.place().display().to_string();
    stage.tear_down(args.keep).await;
    if args.keep {
        say(format!("the demo's files are kept in {place}"));
    }
    summary(&teller, &look, began, ended)
}

async fn tour(stage: &mut Stage, teller: &mut Teller) -> Result<(), Failure> {
    let mut tour = Tour { stage, teller };
    tour.nodes_join().await?;
    let train = tour.a_gang_trains().await?;
    let (urgent, saved) = tour.an_urgent_job_preempts(&train).await?;
    tour.it_resumes_where_it_was(&train, &urgent, saved).await?;
    let survivor = tour.a_second_gang_trains().await?;
    tour.its_node_dies_and_it_goes_on(&survivor).await
}

fn summary(teller: &Teller, look: &Look, began: Instant, ended: Result<(), Failure>) -> Result<(), Failure> {
    let outcomes = teller.outcomes();
    if look.is_json() {
        crate::output::emit(&json(outcomes)?)?;
    } else {
        crate::output::emit(&format!("\n{}", teller::table(outcomes, look)))?;
    }
    say(format!("took {:.1} s in all", began.elapsed().as_secs_f64()));
    ended?;
    match outcomes.iter().filter(|outcome| !outcome.ok).map(Outcome::sentence).collect::<Vec<_>>() {
        bad if bad.is_empty() => Ok(()),
        bad => Err(Failure::failed(format!("not as told: {}", bad.join("; ")))),
    }
}
