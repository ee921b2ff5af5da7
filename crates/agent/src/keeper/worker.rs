//! The worker in a keeper's hands: its start, its exit, its end, in this order and each once.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, wait};

use super::child::{Child, Streams};
use super::connection::Mode;
use super::exec::{Input, Terminal, non_blocking, pipe, push_exit};
use super::isolation::Isolated;
use super::launch::LaunchFile;
use super::log::LogCopier;
use super::plan::{Act, SIGTERM};
use super::protocol::{ExecExit, Target};
use super::role::Keeper;
use super::shim::{Order, Report};
use super::state::{Exit, NotApplied, Phase, Why};
use super::sweep::{Found, Sweep};
use super::{clock, cpulist, proc};

/// How long the log thread may take to write the rest after the end of the tree.
const DRAIN_MS: u64 = 10_000;

impl Keeper {
    /// Starts the worker; what fails is recorded as its end.
    pub(super) fn launch(&mut self) {
        if let Err(message) = self.try_launch() {
            self.exited_as(None, None, Why::LaunchFailed { message });
            self.begin_sweep();
        }
        self.save();
    }

    fn try_launch(&mut self) -> Result<(), String> {
        if self.launch.lease_deadline_boottime_ms.is_some_and(|deadline| deadline <= clock::boottime_ms()) {
            return Err("the lease was over before the start".into());
        }
        let isolated = Isolated::create(&self.launch.cgroup, self.launch.memory_bytes)?;
        self.state.isolation = isolated.tree.kind();
        self.state.cgroups = isolated.directories();
        self.state.not_applied.extend(isolated.not_applied.iter().cloned());
        self.isolated = Some(isolated);
        let (cpus, missing) = cpus(&self.launch);
        self.state.not_applied.extend(missing);
        self.cpus = cpus;
        let text = |error: super::KeeperError| error.to_string();
        let (source, streams) = self.streams().map_err(text)?;
        self.log = Some(LogCopier::start(source, &self.launch.log).map_err(text)?);
        let order = self.order(self.launch.command.clone(), self.launch.pty);
        let child = Child::start(&self.dir, &order, streams).map_err(text)?;
        self.state.worker = Some(child.id);
        self.worker = Some(child);
        Ok(())
    }

    /// The source of the log, and the worker's standard streams.
    fn streams(&mut self) -> Result<(OwnedFd, Streams), super::KeeperError> {
        if self.launch.pty {
            let terminal = Terminal::open(self.launch.uid)?;
            let source = terminal.master.try_clone().map_err(super::KeeperError::system("copy a terminal"))?;
            self.terminal = Some(Input::new(terminal.master, true));
            return Ok((source, terminal.streams));
        }
        let null = std::path::Path::new("/dev/null");
        let stdin = File::open(null).map_err(super::KeeperError::file("open", null))?.into();
        let (source, stdout) = pipe(self.launch.uid)?;
        non_blocking(&source)?;
        let stderr = stdout.try_clone().map_err(super::KeeperError::system("copy a pipe"))?;
        Ok((source, Streams { stdin, stdout, stderr }))
    }

    /// The order for the shim, of the worker itself or of a command beside it.
    pub(super) fn order(&self, command: Vec<String>, terminal: bool) -> Order {
        let launch = &self.launch;
        Order {
            keeper_pid: self.state.keeper.pid,
            command,
            env: launch.env.clone(),
            workdir: launch.workdir.clone(),
            uid: launch.uid,
            gid: launch.gid,
            groups: launch.groups.clone().unwrap_or_default(),
            cpus: self.cpus.clone(),
            cgroups: self.state.cgroups.clone(),
            terminal,
        }
    }

    /// Hears the shim: the command runs, or why not.
    pub(super) fn hear_shim(&mut self) {
        let Some(reports) = self.worker.as_mut().and_then(Child::read_report) else { return };
        for report in reports {
            match report {
                Report::NotApplied { what, why } => self.state.not_applied.push(NotApplied { what, why }),
                Report::Failed { message } => self.launch_failure = Some(message),
            }
        }
        if self.launch_failure.is_none() {
            self.state.phase = Phase::Running;
            self.save();
        }
    }

    /// Reaps every child that has ended: the worker, commands beside it, orphans of the tree.
    pub(super) fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            if self.worker.as_ref().is_some_and(|worker| worker.id.pid == pid) {
                self.worker_exited(status);
            } else {
                self.exec_exited(pid, status);
            }
        }
    }

    fn worker_exited(&mut self, status: WaitStatus) {
        // Its last word may have come after the last look.
        self.hear_shim();
        self.worker = None;
        match self.launch_failure.take() {
            Some(message) => self.exited_as(None, None, Why::LaunchFailed { message }),
            None => self.exited_as(status.exit_status(), status.terminating_signal(), self.plan.cause()),
        }
        self.begin_sweep();
    }

    fn exec_exited(&mut self, pid: i32, status: WaitStatus) {
        for connection in self.connections.values_mut() {
            if let Mode::Exec(session) = &mut connection.mode
                && session.pid() == pid
            {
                session.exited(status);
            }
        }
    }

    fn exited_as(&mut self, code: Option<i32>, signal: Option<i32>, why: Why) {
        let (at_boottime_ms, at_unix_ms) = (clock::boottime_ms(), clock::unix_ms());
        self.state.exit = Some(Exit { code, signal, at_boottime_ms, at_unix_ms, why });
    }

    /// Sends a signal by its number. False when there is nobody to take it.
    pub(super) fn signal(&self, signal: Signal, target: Target) -> bool {
        let Some(worker) = &self.worker else { return false };
        match target {
            Target::Descendants => {
                let sent = proc::descendants(worker.id.pid).into_iter().filter(|id| proc::signal(*id, signal)).count();
                sent > 0
            }
            Target::Group => {
                // Not reaped yet, so the number is still its own. Before its own session there is no group.
                let group = Pid::from_raw(worker.id.pid).map(|pid| rustix::process::kill_process_group(pid, signal));
                matches!(group, Some(Ok(()))) || proc::signal(worker.id, signal)
            }
        }
    }

    /// Ends everything at once, or goes on with it.
    pub(super) fn begin_sweep(&mut self) {
        if self.drain_until_ms.is_none() && self.state.phase != Phase::Ended {
            let now_ms = clock::boottime_ms();
            self.sweep.get_or_insert_with(|| Sweep::new(now_ms));
            self.sweep_round(now_ms);
        }
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, now_ms: u64) {
        if self.sweep.as_ref().is_some_and(|sweep| sweep.next_ms() <= now_ms) {
            self.sweep_round(now_ms);
        }
        while self.sweep.is_none()
            && self.worker.is_some()
            && let Some(act) = self.plan.due(now_ms)
        {
            match act {
                Act::Terminate => _ = self.signal(Signal::TERM, Target::Group),
                Act::KillAll => self.begin_sweep(),
            }
        }
        let drained = self.log.as_ref().is_none_or(LogCopier::finished);
        if self.drain_until_ms.is_some_and(|until| drained || until <= now_ms) {
            self.finish();
        }
        if self.save_again_ms.is_some_and(|at| at <= now_ms) {
            self.save();
        }
    }

    fn sweep_round(&mut self, now_ms: u64) {
        let Some(mut sweep) = self.sweep.take() else { return };
        let tree = self.isolated.as_ref().map(|isolated| isolated.tree.as_ref());
        let found = sweep.round(now_ms, tree);
        self.state.leftovers_killed = sweep.killed_besides(self.state.worker);
        match found {
            Found::Nothing if self.worker.is_none() => self.drain(now_ms),
            // Dead, not reaped yet: its exit wakes the loop.
            Found::Nothing | Found::Living => self.sweep = Some(sweep),
            Found::Stuck(pids) => {
                self.state.stuck_pids = pids;
                if self.state.exit.is_none() {
                    self.exited_as(None, None, self.plan.cause());
                }
                self.worker = None;
                self.drain(now_ms);
            }
        }
    }

    fn drain(&mut self, now_ms: u64) {
        self.drain_until_ms = Some(now_ms + DRAIN_MS);
        if let Some(log) = &self.log {
            log.finish();
        }
    }

    /// Nothing is left: say so, durably, then to those who wait.
    fn finish(&mut self) {
        self.serve_tap();
        self.drain_until_ms = None;
        self.state.log_lost_bytes = self.log.as_ref().map_or(0, LogCopier::lost_bytes);
        self.state.phase = Phase::Ended;
        if let Some(isolated) = &self.isolated {
            isolated.remove();
        }
        self.ended_ms = Some(clock::boottime_ms());
        self.save();
        self.end_attached();
    }

    fn end_attached(&mut self) {
        let exit = self.state.exit.as_ref();
        let launch_failed = exit.and_then(|exit| match &exit.why {
            Why::LaunchFailed { message } => Some(message.clone()),
            _ => None,
        });
        let (code, signal) = exit.map_or((None, None), |exit| (exit.code, exit.signal));
        let exit = ExecExit { code, signal, launch_failed };
        for connection in self.connections.values_mut() {
            if matches!(connection.mode, Mode::Attached) {
                push_exit(&mut connection.output, &exit);
                connection.mode = Mode::Closing;
            }
        }
    }
}

/// The CPUs to pin to, and those that this machine lacks.
fn cpus(launch: &LaunchFile) -> (Vec<usize>, Option<NotApplied>) {
    let wanted = launch.cpus.as_deref().and_then(|list| cpulist::parse(list).ok()).unwrap_or_default();
    let online = cpulist::online();
    let missing: std::collections::BTreeSet<usize> = wanted.difference(&online).copied().collect();
    let not_applied = (!missing.is_empty()).then(|| NotApplied {
        what: "cpus".into(),
        why: format!("this machine has no CPU {} (online: {})", cpulist::format(&missing), cpulist::format(&online)),
    });
    (wanted.intersection(&online).copied().collect(), not_applied)
}

/// TERM, as the plan counts it.
const _: () = assert!(Signal::TERM.as_raw() == SIGTERM);
