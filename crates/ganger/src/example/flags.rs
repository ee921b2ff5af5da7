//! The flags of `ganger example train`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

/// What `ganger example` can run.
#[derive(Debug, Subcommand)]
pub enum ExampleCommand {
    /// Train a small network data-parallel; every rank of the gang runs this.
    Train(TrainArgs),
}

/// How long, how fast and what to write down. Ranks and paths of checkpoints come from the environment.
#[derive(Debug, Args)]
pub struct TrainArgs {
    /// Steps of the whole training, those before a resume included.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub steps: u64,
    /// Least time that a step takes, like 50ms.
    #[arg(long, default_value = "0ms", value_parser = duration)]
    pub step_time: Duration,
    /// Checkpoint after every N steps; 0 only at a stop and at the end.
    #[arg(long, default_value_t = 0)]
    pub checkpoint_every: u64,
    /// Rank 0 prints a line every N steps; 0 never.
    #[arg(long, default_value_t = 10)]
    pub log_every: u64,
    /// Rank 0 appends "step loss-bits-in-hex loss" for every step.
    #[arg(long)]
    pub loss_log: Option<PathBuf>,
    /// Every rank appends when it started, was alive and ended, with its node and devices.
    #[arg(long)]
    pub stamp_dir: Option<PathBuf>,
    /// Seed of the data and of the first weights.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How long the ranks may take to find one another.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub rendezvous_timeout: Duration,
    /// How long a peer may be silent, beyond the time of a step, before it counts as lost.
    #[arg(long, default_value = "60s", value_parser = duration)]
    pub peer_timeout: Duration,
}

fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (amount, unit) = text.split_at(digits);
    let scale_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(format!("`{text}` has no unit of time: write it like 50ms, 2s, 1m or 1h")),
    };
    let amount: u64 = amount.parse().map_err(|_| format!("`{text}` is no whole amount of time: write it like 50ms"))?;
    amount
        .checked_mul(scale_ms)
        .filter(|ms| *ms <= 7 * 24 * 3_600_000)
        .map(Duration::from_millis)
        .ok_or_else(|| format!("`{text}` is longer than a week: give a shorter time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit_and_a_sane_size() {
        assert_eq!(duration("50ms"), Ok(Duration::from_millis(50)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["50", "ms", "", "-1s", "1.5s", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(wrong).is_err(), "{wrong} was taken");
        }
    }
}
