//! Who this rank is and where its checkpoints go, from the environment.
//!
//! Everything is read and checked once, before the first socket or file is opened. An empty value counts as unset,
//! because scripts often export empty names.

use std::path::PathBuf;

use super::error::TrainError;

#[derive(Debug)]
pub struct Settings {
    pub rank: usize,
    pub world: usize,
    pub master_host: String,
    pub master_port: u16,
    /// One word that tells this job's gang from another one on the same port.
    pub job: String,
    pub attempt: u32,
    pub node: String,
    pub devices: String,
    pub checkpoint_dir: Option<PathBuf>,
    pub resume_from: Option<PathBuf>,
    pub checkpoint_ack: Option<PathBuf>,
    pub preempt_file: Option<PathBuf>,
}

impl Settings {
    pub fn from_env() -> Result<Self, TrainError> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    /// Reads the settings through `lookup`, so that tests need not change their own environment.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, TrainError> {
        let value = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let path = |name: &str| value(name).map(PathBuf::from);
        let world =
            number(value, "WORLD_SIZE", 1, "a number of ranks from 1 to 65536", |n: &usize| (1..=65536).contains(n))?;
        let rank = number(value, "RANK", 0, "a rank below WORLD_SIZE", |n: &usize| *n < world)?;
        let needs_port = move |port: &u16| world == 1 || *port != 0;
        Ok(Self {
            rank,
            world,
            master_host: value("MASTER_ADDR").unwrap_or_else(|| "127.0.0.1".into()),
            master_port: number(
                value,
                "MASTER_PORT",
                0,
                "a port from 1 to 65535, which several ranks need",
                needs_port,
            )?,
            job: word(value("GANGER_JOB_ID").or_else(|| value("SLURM_JOB_ID")))?,
            attempt: number(value, "GANGER_ATTEMPT", 0, "the number of an attempt", |_| true)?,
            node: value("GANGER_NODE").or_else(|| value("SLURMD_NODENAME")).unwrap_or_else(host_name),
            devices: value("CUDA_VISIBLE_DEVICES").unwrap_or_else(|| "-".into()),
            checkpoint_dir: path("GANGER_CHECKPOINT_DIR"),
            resume_from: path("GANGER_RESUME_FROM"),
            checkpoint_ack: path("GANGER_CHECKPOINT_ACK"),
            preempt_file: path("GANGER_PREEMPT_FILE"),
        })
    }
}

fn number<N: std::str::FromStr>(
    value: impl Fn(&str) -> Option<String>,
    name: &'static str,
    default: N,
    expected: &'static str,
    fits: impl Fn(&N) -> bool,
) -> Result<N, TrainError> {
    let text = value(name);
    let parsed = match &text {
        Some(text) => text.parse().ok(),
        None => Some(default),
    };
    parsed.filter(|n| fits(n)).ok_or(TrainError::Setting { name, value: text.unwrap_or_default(), expected })
}

fn word(job: Option<String>) -> Result<String, TrainError> {
    let job = job.unwrap_or_else(|| "-".into());
    if job.len() <= 200 && !job.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Ok(job);
    }
    Err(TrainError::Setting { name: "GANGER_JOB_ID", value: job, expected: "one word of at most 200 bytes" })
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, TrainError> {
        Settings::from_lookup(|name| pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_string()))
    }

    #[test]
    fn an_empty_environment_is_a_single_rank() {
        let settings = read(&[("GANGER_RESUME_FROM", "")]).unwrap();
        assert_eq!((settings.rank, settings.world, settings.attempt), (0, 1, 0));
        assert_eq!(settings.resume_from, None);
    }

    #[test]
    fn wrong_numbers_are_refused_by_name() {
        let gang = ("WORLD_SIZE", "4");
        for (pairs, name) in [
            (&[("WORLD_SIZE", "0")][..], "WORLD_SIZE"),
            (&[gang, ("RANK", "4"), ("MASTER_PORT", "9")], "RANK"),
            (&[gang, ("RANK", "-1"), ("MASTER_PORT", "9")], "RANK"),
            (&[gang], "MASTER_PORT"),
            (&[gang, ("MASTER_PORT", "70000")], "MASTER_PORT"),
            (&[("GANGER_ATTEMPT", "x")], "GANGER_ATTEMPT"),
            (&[("SLURM_JOB_ID", "a b")], "GANGER_JOB_ID"),
        ] {
            let error = read(pairs).unwrap_err();
            assert!(matches!(&error, TrainError::Setting { name: n, .. } if *n == name), "{pairs:?} gave {error}");
        }
    }
}
