//! Watches one unit from its keeper's start to its end, and verifies the checkpoints that it announces.
//!
//! The end is told last: by then what the unit announced before has been looked at (within a limit, so that devices are
//! not kept for a slow disk), because the server chooses what to resume from when it hears of the end.
use crate::checkpoint::{self, Fence, announce};
use crate::keeper::state::Phase;
use crate::keepers::{Keepers, exit_of};
use crate::prepare::newest;
use crate::unit::{Unit, UnitKey};
use ganger_core::model::job::Exit;
use ganger_core::model::report::Report;
use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Between two looks at a file that ranks announce in.
const LOOK: Duration = Duration::from_millis(300);
/// The longest that the end of a unit waits for its last checkpoint to be verified.
const LAST_LOOK: Duration = Duration::from_secs(30);

/// What happened to a unit.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    Running,
    Checkpoint(Report),
    Ended(Exit),
}

/// What a watch needs.
pub struct Watch {
    pub keepers: Arc<dyn Keepers>,
    pub unit: Unit,
    pub dir: PathBuf,
    pub announce: PathBuf,
    pub tell: UnboundedSender<(UnitKey, Seen)>,
}

impl Watch {
    /// Runs until the unit has ended.
    pub async fn run(self) {
        let ended = match self.keepers.wait(&self.dir, Phase::Running).await {
            Ok(state) if matches!(exit_of(&state), Exit::Refused(_)) => Ok(exit_of(&state)),
            Ok(_) => {
                // Also if it has ended meanwhile: every unit that ran is told to have run.
                self.say(Seen::Running);
                self.until_ended().await
            }
            Err(error) => Err(error),
        };
        let exit = ended.unwrap_or_else(|error| {
            tracing::error!(unit = %self.unit.key, %error, "the worker's state is gone; it counts as lost");
            Exit::Lost
        });
        self.say(Seen::Ended(exit));
    }

    async fn until_ended(&self) -> Result<Exit, crate::keeper::KeeperError> {
        let mut announced = Announced::new(&self.unit, &self.announce);
        let mut ended = self.keepers.wait(&self.dir, Phase::Ended);
        loop {
            tokio::select! {
                state = &mut ended => {
                    let exit = exit_of(&state?);
                    if tokio::time::timeout(LAST_LOOK, self.last_look(announced)).await.is_err() {
                        tracing::warn!(unit = %self.unit.key, "its last checkpoint is not verified in time");
                    }
                    return Ok(exit);
                }
                () = tokio::time::sleep(LOOK) => announced = self.look(announced).await,
            }
        }
    }

    /// Reads what is new in the file and verifies it, off the async threads.
    async fn look(&self, mut announced: Announced) -> Announced {
        // Cheap, and nearly always all there is to do.
        if !announced.has_more() {
            return announced;
        }
        let fallback = announced.clone();
        let looked = tokio::task::spawn_blocking(move || {
            let reports = announced.reports();
            (announced, reports)
        });
        match looked.await {
            Ok((announced, reports)) => {
                reports.into_iter().for_each(|report| self.say(Seen::Checkpoint(report)));
                announced
            }
            Err(error) => {
                tracing::error!(unit = %self.unit.key, %error, "reading announced checkpoints failed");
                fallback
            }
        }
    }

    async fn last_look(&self, announced: Announced) {
        let announced = self.look(announced).await;
        let Some(dir) = self.unit.launch.checkpoint.dir.clone() else { return };
        // A job that never announces may still have saved; one rank's look is enough.
        if self.unit.key.lead.0 != 0 || !announced.seen.is_empty() {
            return;
        }
        let unit = self.unit.clone();
        if let Ok(Some(report)) = tokio::task::spawn_blocking(move || newest(&unit, Path::new(&dir))).await {
            self.say(Seen::Checkpoint(report));
        }
    }

    fn say(&self, seen: Seen) {
        // The agent is gone only when it shuts down; its successor looks again.
        let _ = self.tell.send((self.unit.key, seen));
    }
}

/// How far the file has been read.
#[derive(Debug, Clone)]
struct Announced {
    unit: Unit,
    file: PathBuf,
    offset: u64,
    seen: BTreeSet<(u64, PathBuf)>,
}

impl Announced {
    fn new(unit: &Unit, file: &Path) -> Announced {
        Announced { unit: unit.clone(), file: file.to_path_buf(), offset: 0, seen: BTreeSet::new() }
    }

    fn has_more(&self) -> bool {
        std::fs::metadata(&self.file).is_ok_and(|metadata| metadata.len() != self.offset)
    }

    fn reports(&mut self) -> Vec<Report> {
        let text = match self.read() {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!(file = %self.file.display(), %error, "announced checkpoints cannot be read");
                return Vec::new();
            }
        };
        let found = announce::parse(&text);
        self.offset += found.consumed_bytes as u64;
        for line in found.malformed {
            tracing::warn!(unit = %self.unit.key, line, "this announces no checkpoint; write CHECKPOINT STEP PATH");
        }
        let fresh: Vec<_> = found.made.into_iter().filter(|a| self.seen.insert((a.step, a.path.clone()))).collect();
        fresh.into_iter().map(|announcement| self.judge(announcement.step, &announcement.path)).collect()
    }

    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(&self.file)?;
        // A rank that truncates the file starts it anew.
        if file.metadata()?.len() < self.offset {
            self.offset = 0;
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut text = Vec::new();
        file.take(1 << 20).read_to_end(&mut text)?;
        Ok(text)
    }

    fn judge(&self, step: u64, path: &Path) -> Report {
        let (job, attempt) = (self.unit.key.job, self.unit.key.attempt);
        let text = path.to_string_lossy().into_owned();
        match self.accept(path) {
            Ok(()) => Report::Checkpoint { job, attempt, step, path: text },
            Err(why) => Report::CheckpointRejected { job, attempt, path: text, why },
        }
    }

    fn accept(&self, path: &Path) -> Result<(), String> {
        if !path.is_absolute() || path.to_str().is_none() {
            return Err("announce an absolute path in UTF-8".to_string());
        }
        checkpoint::verify(path).map_err(|defect| defect.to_string())?;
        let Some(dir) = &self.unit.launch.checkpoint.dir else { return Ok(()) };
        let fence = Fence::current(Path::new(dir)).map_err(|error| error.to_string())?;
        let Some(fence) = fence else { return Ok(()) };
        let (job, attempt) = (self.unit.key.job.to_string(), u64::from(self.unit.key.attempt.0));
        if (fence.job(), fence.attempt()) != (job.as_str(), attempt) {
            return Err(format!("attempt {} of job {} writes there now", fence.attempt(), fence.job()));
        }
        fence.accept(path).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::{OtherJob, write_manifest};
    use crate::testing::{self, TempDir};
    use ganger_core::model::job::Launcher;
    use ganger_core::model::wire::agent::Action;

    #[test]
    fn announcements_are_verified_once_and_late_attempts_are_refused() {
        let dir = TempDir::new();
        let root = dir.path().join("ckpt");
        std::fs::create_dir_all(&root).unwrap();
        let mut unit = crate::unit::units("n1", &testing::orders(Launcher::Ranks, Action::Prepare), |_| None).remove(0);
        let mut launch = (*unit.launch).clone();
        launch.checkpoint.dir = Some(root.display().to_string());
        unit.launch = Arc::new(launch);
        let save = |folder: &Path, step: u64| {
            let path = folder.join(format!("step-{step}"));
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("weights"), b"w").unwrap();
            write_manifest(&path, step).unwrap();
            path
        };
        let fence = Fence::raise(&root, "7", 1, OtherJob::TakeOver).unwrap();
        let good = save(&fence.checkpoint_dir(), 10);
        let file = dir.path().join("ack");
        let mut announced = Announced::new(&unit, &file);
        assert!(!announced.has_more());
        std::fs::write(&file, format!("CHECKPOINT 10 {0}\nCHECKPOINT 10 {0}\nCHECKPOINT 1", good.display())).unwrap();
        let reports = announced.reports();
        assert!(matches!(&reports[..], [Report::Checkpoint { step: 10, .. }]), "{reports:?}");
        // The rest of the cut line arrives, and names nothing that is there.
        std::fs::write(&file, format!("CHECKPOINT 10 {0}\nCHECKPOINT 10 {0}\nCHECKPOINT 11 /none\n", good.display()))
            .unwrap();
        let reports = announced.reports();
        assert!(matches!(&reports[..], [Report::CheckpointRejected { path, .. }] if path == "/none"), "{reports:?}");
        // After the next attempt was let in, this one's announcements no longer count.
        Fence::raise(&root, "7", 2, OtherJob::TakeOver).unwrap();
        let late = save(&fence.checkpoint_dir(), 12);
        announce::append(&file, 12, &late).unwrap();
        let reports = announced.reports();
        assert!(
            matches!(&reports[..], [Report::CheckpointRejected { why, .. }] if why.contains("attempt 2")),
            "{reports:?}"
        );
    }
}
