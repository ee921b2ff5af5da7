//! `ganger checkpoint`, called by programs inside a job. Sealing is work on files alone; announcing goes through the
//! rank's own file where there is one, which works while the server is away; else through the API.
use crate::cli::CheckpointCommand;
use crate::client::locate;
use crate::failure::Failure;
use crate::output::{say, text::count};
use ganger_agent::checkpoint::{self, ManifestError};
use ganger_core::model::amounts::HumanBytes;
use ganger_core::model::wire::api::CheckpointAnnounce;
use std::path::{Path, PathBuf};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub async fn run(command: CheckpointCommand, server: Option<&str>) -> Result<(), Failure> {
    let _held = hold_off_signals();
    match command {
        CheckpointCommand::Seal { dir, step } => seal(&dir, step),
        CheckpointCommand::Announce { step, path, seal: sealed } => {
            let path = announceable(&path)?;
            if sealed {
                seal(&path, step)?;
            }
            announce(step, &path, server).await
        }
    }
}

/// A stop signals the whole process group of a rank, this process too; the save that it asks for must not be cut by it.
/// The end of the grace time still ends it.
fn hold_off_signals() -> Vec<Signal> {
    let kinds = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
        SignalKind::user_defined1(),
        SignalKind::user_defined2(),
        SignalKind::alarm(),
    ];
    kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect()
}

fn seal(dir: &Path, step: u64) -> Result<(), Failure> {
    let sealed = checkpoint::seal_directory(dir, step).map_err(|error| match error {
        ManifestError::Io { .. } => Failure::failed(error.to_string()),
        _ => Failure::wrong(error.to_string()),
    })?;
    let files = count(sealed.files, "file");
    say(format!("sealed {} for step {step}: {files}, {}", dir.display(), HumanBytes(sealed.bytes)));
    Ok(())
}

fn announceable(path: &Path) -> Result<PathBuf, Failure> {
    let path =
        std::path::absolute(path).map_err(|error| Failure::wrong(format!("cannot use {}: {error}", path.display())))?;
    match path.exists() {
        true => Ok(path),
        false => Err(Failure::wrong(format!("cannot announce {}: it does not exist", path.display()))),
    }
}

async fn announce(step: u64, path: &Path, server: Option<&str>) -> Result<(), Failure> {
    if let Some(ack) = std::env::var_os("GANGER_CHECKPOINT_ACK").map(PathBuf::from) {
        return append(&ack, step, path);
    }
    let outside =
        || Failure::wrong("GANGER_JOB_ID and GANGER_ATTEMPT are not set: this command is for programs inside a job");
    let job = std::env::var("GANGER_JOB_ID").map_err(|_| outside())?;
    let attempt = std::env::var("GANGER_ATTEMPT").ok().and_then(|n| n.parse().ok()).ok_or_else(outside)?;
    let announce = CheckpointAnnounce { attempt, step, path: path.display().to_string() };
    locate::api(server)?.announce(&job, &announce).await
}

fn append(ack: &Path, step: u64, path: &Path) -> Result<(), Failure> {
    let written = checkpoint::announce::append(ack, step, path);
    written.map_err(|error| Failure::failed(format!("cannot announce the checkpoint in {}: {error}", ack.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(test: &str) -> Dir {
            let dir = std::env::temp_dir().join(format!("ganger-checkpoint-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&dir).unwrap();
            Dir(dir)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn announcements_are_lines_that_the_agent_reads() {
        let dir = Dir::new("announce");
        let ack = dir.0.join("ack");
        append(&ack, 10, Path::new("/c/step-10")).unwrap();
        append(&ack, 20, Path::new("/c/step 20")).unwrap();
        assert_eq!(std::fs::read_to_string(&ack).unwrap(), "CHECKPOINT 10 /c/step-10\nCHECKPOINT 20 /c/step 20\n");
        assert_eq!(append(&dir.0.join("no/ack"), 1, Path::new("/c")).unwrap_err().code, 1);
    }

    #[test]
    fn a_directory_is_sealed_once_for_its_step() {
        let dir = Dir::new("seal");
        let save = dir.0.join("step-7");
        let refused = |dir: &Path, step, says: &str| {
            let failure = seal(dir, step).unwrap_err();
            assert!(failure.code == 2 && failure.message.contains(says), "{says}: {failure:?}");
        };
        refused(&save, 7, "there is no such directory; save");
        std::fs::create_dir(&save).unwrap();
        refused(&save, 7, "it holds no file; save");
        std::fs::write(save.join("state.json.tmp"), "{").unwrap();
        refused(&save, 7, "it holds no file");
        std::fs::write(save.join("state.json"), "{}").unwrap();
        refused(&save.join("state.json"), 7, "it is no directory");
        seal(&save, 7).unwrap();
        seal(&save, 7).unwrap();
        refused(&save, 8, "it is sealed for step 7 already");
        let verified = checkpoint::verify(&save).unwrap();
        assert_eq!((verified.step, verified.files), (Some(7), 1));
        std::fs::write(save.join("state.json"), "[]").unwrap();
        assert!(checkpoint::verify(&save).is_err(), "changed content does not count");
    }
}
