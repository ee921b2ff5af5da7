//! From one worker to the next: what a keeper does between them.

use std::path::{Path, PathBuf};

use super::role::{Keeper, first_state};
use super::spares::REST_MS;
use super::state::{Phase, State};
use super::{launch::LaunchFile, plan::EndPlan, sweep};
use crate::states;

impl Keeper {
    /// Clears the state of the ended worker and waits for another one. Also when it rests already.
    pub(super) fn rest(&mut self, now_ms: u64) -> Result<(), String> {
        if self.state.phase != Phase::Ended {
            return Err("the worker has not ended; stop or kill it first".into());
        }
        if !self.state.stuck_pids.is_empty() || self.save_again_ms.is_some() || !sweep::is_childless() {
            return Err("something of the worker is left; let the keeper go".into());
        }
        let state = self.home.beside("state.json");
        states::clear(&state).map_err(|error| format!("cannot clear {}: {error}", State::path(&self.dir).display()))?;
        self.connections.clear();
        self.isolated = None;
        self.log = None;
        self.terminal = None;
        self.ended_ms = None;
        self.resting_until_ms = Some(now_ms + REST_MS);
        Ok(())
    }

    /// Starts the worker whose launch file lies in this keeper's directory, which is called `dir` now.
    pub(super) fn begin(&mut self, dir: PathBuf, now_ms: u64) -> Result<(), String> {
        if self.resting_until_ms.is_none() {
            return Err("this keeper has a worker".into());
        }
        if !self.lives_in(&dir) {
            return Err(format!("{} is not the directory of this keeper", dir.display()));
        }
        let launch = LaunchFile::read(&dir).map_err(|error| error.to_string())?;
        let state = first_state(&launch);
        state.write(&dir).map_err(|error| error.to_string())?;
        self.plan = EndPlan::new(now_ms, launch.lease_deadline_boottime_ms);
        (self.dir, self.launch, self.state) = (dir, launch, state);
        self.sweep = None;
        self.resting_until_ms = None;
        self.launch();
        Ok(())
    }

    fn lives_in(&self, dir: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let number = |path: &Path| std::fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
        number(dir).is_some_and(|there| number(&self.home.beside("")) == Some(there))
    }
}
