//! The role `keeper DIR`: starts the worker and runs one small poll loop until it is forgotten.
//!
//! The loop tries every source that cannot block and then sleeps on all of them; nothing in it waits for a client, a
//! log disk or the agent. Deadlines are on the boot-time clock, so that a suspended machine wakes to them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, Mode, flock};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::child::Child;
use super::connection::Connection;
use super::exec::Input;
use super::isolation::Isolated;
use super::launch::LaunchFile;
use super::log::LogCopier;
use super::plan::EndPlan;
use super::socket::SocketDir;
use super::state::{IsolationKind, Phase, State};
use super::sweep::Sweep;
use super::{KeeperError, clock, proc};

/// What a keeper says when it answers on its socket.
pub(super) const READY: &str = "ready";
/// How long an ended keeper waits to be forgotten.
const LINGER_MS: u64 = 600_000;
/// How often orphans of a running tree are reaped.
const REAP_MS: u64 = 5_000;
const SAVE_AGAIN_MS: u64 = 1_000;

/// A keeper at work.
pub(super) struct Keeper {
    pub dir: PathBuf,
    pub launch: LaunchFile,
    pub state: State,
    pub plan: EndPlan,
    pub isolated: Option<Isolated>,
    pub cpus: Vec<usize>,
    pub log: Option<LogCopier>,
    pub terminal: Option<Input>,
    /// The main process until it is reaped.
    pub worker: Option<Child>,
    pub launch_failure: Option<String>,
    pub sweep: Option<Sweep>,
    pub drain_until_ms: Option<u64>,
    pub ended_ms: Option<u64>,
    pub save_again_ms: Option<u64>,
    pub listener: UnixListener,
    pub timer: OwnedFd,
    pub connections: BTreeMap<u64, Connection>,
    pub next_connection: u64,
    pub forgotten: bool,
    /// Without a worker until then.
    pub resting_until_ms: Option<u64>,
    /// Its directory, whatever that is called.
    pub home: SocketDir,
    /// Held while this keeper lives: a directory has one.
    _lock: File,
}

/// The role, in a session of its own, so that it outlives whoever started it.
#[must_use]
pub fn main(dir: &Path) -> ExitCode {
    // Fails only for the leader of a process group, which then is detached enough.
    let _ = rustix::process::setsid();
    match Keeper::open(dir).and_then(|keeper| announce(dir).map(|()| keeper)) {
        Ok(keeper) => keeper.run(),
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Says that the socket answers, and turns standard output to the log like standard error.
fn announce(dir: &Path) -> Result<(), KeeperError> {
    let said = writeln!(std::io::stdout(), "{READY}").and_then(|()| std::io::stdout().flush());
    said.map_err(KeeperError::file("announce the keeper of", dir))?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr()).map_err(KeeperError::system("turn to the log"))
}

impl Keeper {
    fn open(dir: &Path) -> Result<Self, KeeperError> {
        rustix::process::umask(Mode::from_bits_truncate(0o077));
        let lock = lock(dir)?;
        if State::is_there(dir) {
            let message = format!("{} exists: a directory is for one run of one worker", State::path(dir).display());
            return Err(KeeperError::NotStarted { dir: dir.to_path_buf(), message });
        }
        let launch = LaunchFile::read(dir)?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(KeeperError::system("become the subreaper of the worker"))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Boottime, flags)
            .map_err(KeeperError::system("make a boot-time timer"))?;
        let state = first_state(&launch);
        state.write(dir)?;
        let home = SocketDir::open(dir).map_err(KeeperError::file("reach", dir))?;
        Ok(Self {
            dir: dir.to_path_buf(),
            plan: EndPlan::new(clock::boottime_ms(), launch.lease_deadline_boottime_ms),
            launch,
            state,
            isolated: None,
            cpus: Vec::new(),
            log: None,
            terminal: None,
            worker: None,
            launch_failure: None,
            sweep: None,
            drain_until_ms: None,
            ended_ms: None,
            save_again_ms: None,
            listener: listen(dir)?,
            timer,
            connections: BTreeMap::new(),
            next_connection: 0,
            forgotten: false,
            resting_until_ms: None,
            home,
            _lock: lock,
        })
    }

    fn run(mut self) -> ExitCode {
        self.launch();
        loop {
            self.hear_shim();
            self.reap();
            self.tick(clock::boottime_ms());
            self.accept();
            self.serve();
            if self.is_over(clock::boottime_ms()) {
                break;
            }
            if self.is_drained() {
                continue;
            }
            if let Err(error) = self.sleep() {
                eprintln!("keeper: cannot wait for events: {error}");
                std::thread::sleep(std::time::Duration::from_millis(REAP_MS / 50));
            }
        }
        let _ = std::fs::remove_file(self.home.path());
        ExitCode::SUCCESS
    }

    fn is_over(&self, now_ms: u64) -> bool {
        let until = self.resting_until_ms.or(self.ended_ms.map(|at| at + LINGER_MS));
        self.forgotten || until.is_some_and(|until| until <= now_ms)
    }

    /// The log was written out after the last look, and serving took note of its call: nothing else would wake the loop.
    fn is_drained(&self) -> bool {
        self.drain_until_ms.is_some() && self.log.as_ref().is_none_or(LogCopier::finished)
    }

    /// Sleeps until a source has something, or something is due.
    fn sleep(&self) -> std::io::Result<()> {
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Zero would switch the timer off.
        let alarm = Itimerspec { it_interval: zero, it_value: clock::timespec(self.next_ms().max(1)) };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &alarm)?;
        let mut interests: Vec<(&dyn AsFd, PollFlags)> = vec![(&self.listener, PollFlags::IN)];
        interests.extend(self.wakers().map(|waker| (waker as &dyn AsFd, PollFlags::IN)));
        if let Some(report) = self.worker.as_ref().and_then(Child::report) {
            interests.push((report, PollFlags::IN));
        }
        if let Some(terminal) = &self.terminal {
            terminal.interests(&mut interests);
        }
        self.connections.values().for_each(|connection| connection.interests(&mut interests));
        let mut list: Vec<PollFd<'_>> =
            interests.iter().map(|(source, flags)| PollFd::from_borrowed_fd(source.as_fd(), *flags)).collect();
        match poll(&mut list, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn next_ms(&self) -> u64 {
        let linger = self.ended_ms.map(|at| at + LINGER_MS);
        let sweep = self.sweep.as_ref().map(Sweep::next_ms);
        let plan = if self.worker.is_some() && self.sweep.is_none() { self.plan.next_ms() } else { None };
        let reap = self.ended_ms.is_none().then(|| clock::boottime_ms() + REAP_MS);
        [linger, sweep, plan, reap, self.drain_until_ms, self.save_again_ms, self.resting_until_ms]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(1)
    }

    /// Writes the state; a full disk is tried again, and never holds up the end of a worker.
    pub(super) fn save(&mut self) {
        let written = self.state.write(&self.dir);
        if let (Err(error), None) = (&written, self.save_again_ms) {
            eprintln!("keeper: {error}; trying again every second");
        }
        self.save_again_ms = written.is_err().then(|| clock::boottime_ms() + SAVE_AGAIN_MS);
    }
}

pub(super) fn first_state(launch: &LaunchFile) -> State {
    State {
        job: launch.job,
        attempt: launch.attempt,
        rank: launch.rank,
        phase: Phase::Starting,
        boot_id: proc::boot_id(),
        keeper: proc::own(),
        worker: None,
        isolation: IsolationKind::ProcessTree,
        cgroups: Vec::new(),
        not_applied: Vec::new(),
        exit: None,
        leftovers_killed: 0,
        stuck_pids: Vec::new(),
        log_lost_bytes: 0,
    }
}

fn lock(dir: &Path) -> Result<File, KeeperError> {
    let path = dir.join("keeper.lock");
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(KeeperError::file("open", &path))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(std::io::Error::from)
        .map_err(KeeperError::file("lock (another keeper may be at work there)", &path))?;
    Ok(file)
}

fn listen(dir: &Path) -> Result<UnixListener, KeeperError> {
    let socket = dir.join("keeper.sock");
    let failed = |action| KeeperError::file(action, &socket);
    let by_descriptor = SocketDir::open(dir).map_err(failed("reach"))?;
    // Only a keeper that died before it wrote a state can have left one; the lock says that it is gone.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(by_descriptor.path()).map_err(failed("listen on"))?;
    listener.set_nonblocking(true).map_err(failed("listen on"))?;
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).map_err(failed("protect"))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may")]
    use super::*;
    use crate::testing::TempDir;

    /// An ended worker whose log is still being written: only the drain is left to do.
    fn draining(dir: &Path, log: LogCopier) -> Keeper {
        LaunchFile { log: dir.join("log"), ..LaunchFile::sample() }.write(dir).unwrap();
        let mut keeper = Keeper::open(dir).unwrap();
        (keeper.log, keeper.drain_until_ms) = (Some(log), Some(u64::MAX));
        keeper
    }

    #[test]
    fn a_log_that_finishes_between_two_looks_is_not_slept_over() {
        let dir = TempDir::new();
        let (source, output) = rustix::pipe::pipe().unwrap();
        let log = LogCopier::start(source, &dir.path().join("log")).unwrap();
        let mut keeper = draining(dir.path(), log);
        keeper.tick(clock::boottime_ms());
        assert!(keeper.ended_ms.is_none() && !keeper.is_drained(), "its output is still open");
        // The thread finishes after that look; its call is waited for here, and taken note of by serving.
        drop(output);
        let wake = keeper.log.as_ref().unwrap().wake().try_clone().unwrap();
        poll(&mut [PollFd::new(&wake, PollFlags::IN)], None).unwrap();
        keeper.serve();
        assert!(keeper.is_drained(), "the loop must look again before it sleeps");
        keeper.tick(clock::boottime_ms());
        assert_eq!(keeper.state.phase, Phase::Ended);
        assert!(!keeper.is_drained());
    }
}
