//! Adoption: what an agent that comes back finds in its workers' directories.
//!
//! A process counts only if its number *and* its start time are those on record, in the same boot: numbers are
//! reused. Scanning changes nothing; [`end_orphan`] ends what a dead keeper left.

use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::launch::LaunchFile;
use super::socket::SocketDir;
use super::state::{Exit, Phase, ProcessId, State, Why};
use super::{KeeperError, clock, isolation, proc};

/// How a worker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Its keeper lives: talk to it.
    Kept,
    /// It has ended and its keeper is gone; `state` is final.
    Ended,
    /// The keeper is gone and the worker has no recorded end: call [`end_orphan`].
    Orphaned,
    /// No state was ever written: its keeper never started, or is starting at this moment.
    NotStarted,
}

/// One worker's directory.
#[derive(Debug)]
pub struct Found {
    pub dir: PathBuf,
    pub standing: Standing,
    /// With `why: reboot` filled in when it is of an earlier boot.
    pub state: Option<State>,
    pub launch: Option<LaunchFile>,
    /// What could not be read.
    pub problem: Option<KeeperError>,
}

/// Looks at every directory in `workers_dir`, in the order of names. A missing `workers_dir` holds none.
///
/// # Errors
/// `workers_dir` cannot be listed. What is wrong with a single one is in its [`Found::problem`].
pub fn scan(workers_dir: &Path) -> Result<Vec<Found>, KeeperError> {
    let entries = match std::fs::read_dir(workers_dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(KeeperError::file("list", workers_dir))?,
    };
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    dirs.sort();
    let boot_id = proc::boot_id();
    Ok(dirs.into_iter().map(|dir| look(dir, &boot_id)).collect())
}

fn look(dir: PathBuf, boot_id: &str) -> Found {
    let (launch, launch_problem) = split(LaunchFile::read(&dir));
    if !State::is_there(&dir) {
        return Found { dir, standing: Standing::NotStarted, state: None, launch, problem: launch_problem };
    }
    let (state, state_problem) = split(State::read(&dir));
    let state = state.map(|state| after_reboot(state, boot_id));
    let answers = answers(&dir);
    let standing = match &state {
        _ if answers => Standing::Kept,
        Some(state) if state.boot_id == boot_id && proc::lives(state.keeper) => Standing::Kept,
        Some(state) if state.phase == Phase::Ended => Standing::Ended,
        _ => Standing::Orphaned,
    };
    Found { dir, standing, state, launch, problem: state_problem.or(launch_problem) }
}

fn split<T>(result: Result<T, KeeperError>) -> (Option<T>, Option<KeeperError>) {
    match result {
        Ok(value) => (Some(value), None),
        Err(error) => (None, Some(error)),
    }
}

fn answers(dir: &Path) -> bool {
    SocketDir::open(dir).and_then(|dir| std::os::unix::net::UnixStream::connect(dir.path())).is_ok()
}

fn after_reboot(state: State, boot_id: &str) -> State {
    if state.boot_id == boot_id || state.phase == Phase::Ended { state } else { ended(state, Why::Reboot) }
}

/// Keeps an exit that is on record; else says why there is none.
fn ended(mut state: State, why: Why) -> State {
    state.phase = Phase::Ended;
    let (at_boottime_ms, at_unix_ms) = (clock::boottime_ms(), clock::unix_ms());
    state.exit.get_or_insert(Exit { code: None, signal: None, at_boottime_ms, at_unix_ms, why });
    state
}

/// Ends what is left of a worker whose keeper is gone: its cgroup, its main process, and every process of its
/// session; then records `keeper_lost` (or `reboot`). Without a cgroup a process that made a session of its own
/// cannot be found any more. Blocking, a few milliseconds; call it again while it returns survivors.
///
/// Returns the living that are left, empty when the end is recorded.
///
/// # Errors
/// A keeper lives after all, or the state cannot be read or written.
pub fn end_orphan(dir: &Path) -> Result<Vec<i32>, KeeperError> {
    let state = State::read(dir)?;
    let same_boot = state.boot_id == proc::boot_id();
    if answers(dir) || (same_boot && proc::lives(state.keeper)) {
        return Err(KeeperError::Refused("the keeper lives; ask it to stop or kill".into()));
    }
    if state.phase == Phase::Ended {
        return Ok(Vec::new());
    }
    let survivors = if same_boot { kill_orphan(&state) } else { Vec::new() };
    if survivors.is_empty() {
        let why = if same_boot { Why::KeeperLost } else { Why::Reboot };
        ended(state, why).write(dir)?;
    }
    Ok(survivors)
}

fn kill_orphan(state: &State) -> Vec<i32> {
    let cgroups: Vec<_> = state.cgroups.iter().filter_map(|dir| isolation::reopen(dir)).collect();
    let left = orphans(state, &cgroups);
    cgroups.iter().for_each(|group| drop(group.kill()));
    for id in &left {
        proc::signal(*id, Signal::KILL);
    }
    left.into_iter().filter(|id| proc::lives(*id)).map(|id| id.pid).collect()
}

fn orphans(state: &State, cgroups: &[Box<dyn isolation::Isolation>]) -> Vec<ProcessId> {
    let inside: Vec<i32> = cgroups.iter().flat_map(|group| group.processes()).collect();
    let Some(worker) = state.worker else { return Vec::new() };
    // The session has the worker's number. If a process of that number but another start lives, the number was
    // reused: then there is no session of ours (a number is not given out while a session bears it).
    let reused = proc::stat(worker.pid).is_some_and(|stat| stat.id != worker);
    let ours = |stat: &proc::Stat| {
        inside.contains(&stat.id.pid)
            || (!reused && stat.session == worker.pid && stat.id.start_ticks >= worker.start_ticks)
    };
    proc::all().into_iter().filter(|stat| !stat.dead && ours(stat)).map(|stat| stat.id).collect()
}
