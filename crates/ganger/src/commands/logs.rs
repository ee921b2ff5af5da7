//! `ganger logs`.
use super::follow::{self, Log, Logs};
use crate::cli;
use crate::client::Api;
use crate::failure::Failure;

pub async fn run(api: &Api, args: cli::Logs) -> Result<(), Failure> {
    let detail = api.job(&args.job).await?;
    let newest = args.attempt.is_none_or(|attempt| attempt == detail.view.attempt);
    let logs = match args.rank {
        Some(rank) => vec![Log::of_rank(rank)],
        None if newest => follow::logs_of(&detail),
        // Where the ranks of an earlier run were is not told: each has a log, if need be the same.
        None => (0..detail.view.workers).map(Log::of_rank).collect(),
    };
    // By its id: a newer job may take the name while this one is followed.
    let job = detail.view.id.to_string();
    follow::copy(api, &Logs { job, attempt: args.attempt, logs, follow: args.follow }).await
}
