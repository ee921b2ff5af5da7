//! `ganger checkpoint announce`, called by programs inside a job: through the rank's own file where there is one, which
//! works while the server is away; else through the API.
use crate::cli::CheckpointCommand;
use crate::client::locate;
use crate::failure::Failure;
use ganger_core::model::wire::api::CheckpointAnnounce;
use std::io::Write;
use std::path::{Path, PathBuf};

pub async fn run(command: CheckpointCommand, server: Option<&str>) -> Result<(), Failure> {
    let CheckpointCommand::Announce { step, path } = command;
    let path = std::path::absolute(&path)
        .map_err(|error| Failure::wrong(format!("cannot use {}: {error}", path.display())))?;
    if !path.exists() {
        return Err(Failure::wrong(format!("cannot announce {}: it does not exist", path.display())));
    }
    if let Some(ack) = std::env::var_os("GANGER_CHECKPOINT_ACK").map(PathBuf::from) {
        return append(&ack, step, &path);
    }
    let outside =
        || Failure::wrong("GANGER_JOB_ID and GANGER_ATTEMPT are not set: this command is for programs inside a job");
    let job = std::env::var("GANGER_JOB_ID").map_err(|_| outside())?;
    let attempt = std::env::var("GANGER_ATTEMPT").ok().and_then(|n| n.parse().ok()).ok_or_else(outside)?;
    let announce = CheckpointAnnounce { attempt, step, path: path.display().to_string() };
    locate::api(server)?.announce(&job, &announce).await
}

/// One line in one write, so that ranks which announce at once do not mix.
fn append(ack: &Path, step: u64, path: &Path) -> Result<(), Failure> {
    let line = format!("CHECKPOINT {step} {}\n", path.display());
    let mut options = std::fs::OpenOptions::new();
    let written = options.create(true).append(true).open(ack).and_then(|mut file| file.write_all(line.as_bytes()));
    written.map_err(|error| Failure::failed(format!("cannot announce the checkpoint in {}: {error}", ack.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_lines_that_the_agent_reads() {
        let dir = std::env::temp_dir().join(format!("ganger-announce-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let ack = dir.join("ack");
        append(&ack, 10, Path::new("/c/step-10")).unwrap();
        append(&ack, 20, Path::new("/c/step 20")).unwrap();
        assert_eq!(std::fs::read_to_string(&ack).unwrap(), "CHECKPOINT 10 /c/step-10\nCHECKPOINT 20 /c/step 20\n");
        assert_eq!(append(&dir.join("no/ack"), 1, Path::new("/c")).unwrap_err().code, 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
