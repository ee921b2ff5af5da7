//! `ganger logs`.
use super::follow::{self, Logs};
use crate::cli;
use crate::client::Api;
use crate::failure::Failure;

pub async fn run(api: &Api, args: cli::Logs) -> Result<(), Failure> {
    let detail = api.job(&args.job).await?;
    let ranks = match args.rank {
        Some(rank) => vec![rank],
        None => (0..detail.view.workers).collect(),
    };
    // By its id: a newer job may take the name while this one is followed.
    let job = detail.view.id.to_string();
    follow::copy(api, &Logs { job, attempt: args.attempt, ranks, follow: args.follow }).await
}
