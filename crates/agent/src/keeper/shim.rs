//! The shim, role `launch DIR`: becomes the worker. It takes its order over standard input, joins the cgroups, pins
//! itself, drops to the worker's user, and executes the command.
//!
//! Why a process of its own: all this between fork and exec in the keeper would need unsafe code. A failure goes back
//! over the same socket, which an exec closes: the end of that stream without a word means success.

use std::collections::BTreeMap;
use std::io::{ErrorKind, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;

use rustix::fs::Mode;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Gid, Signal, Uid};
use rustix::thread::CpuSet;
use serde::{Deserialize, Serialize};
use signal_hook::consts::FORBIDDEN;

/// What the keeper orders. The descriptor for standard input travels in front of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub keeper_pid: i32,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub workdir: PathBuf,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub groups: Vec<u32>,
    pub cpus: Vec<usize>,
    pub cgroups: Vec<PathBuf>,
    pub terminal: bool,
}

/// One line of the answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Report {
    NotApplied { what: String, why: String },
    Failed { message: String },
}

/// Why there is no worker.
enum Failure {
    /// The node could not bring it about: the keeper is told, nothing was started.
    Node(String),
    /// The command itself cannot be executed. That is the job's own affair, told as a shell would: in its log, and by its
    /// exit code. Otherwise a typing error would count as a fault of every node in turn.
    Command { message: String, code: u8 },
}

impl From<String> for Failure {
    fn from(message: String) -> Failure {
        Failure::Node(message)
    }
}

/// The role. Returns only when the command could not be executed.
#[must_use]
pub fn main(dir: &Path) -> ExitCode {
    let failed = |message: &str| {
        eprintln!("ganger launch {}: {message}", dir.display());
        ExitCode::from(127)
    };
    let mut keeper = match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) {
        Ok(descriptor) => UnixStream::from(descriptor),
        Err(error) => return failed(&format!("standard input: {error}; this role is started by a keeper only")),
    };
    let order = receive(&mut keeper).map_err(Failure::Node);
    let message = match order.and_then(|(stdin, order)| run(&mut keeper, stdin, &order)) {
        Err(Failure::Node(message)) => message,
        Err(Failure::Command { message, code }) => {
            eprintln!("ganger: {message}");
            return ExitCode::from(code);
        }
    };
    match report(&mut keeper, &Report::Failed { message: message.clone() }) {
        Ok(()) => ExitCode::from(127),
        Err(_) => failed(&message),
    }
}

fn receive(keeper: &mut UnixStream) -> Result<(OwnedFd, Order), String> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8];
    recvmsg(&*keeper, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
        .map_err(|error| format!("no order on standard input ({error}); this role is started by a keeper only"))?;
    let stdin = ancillary
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
            _ => None,
        })
        .ok_or("the order came without a descriptor for standard input")?;
    let mut text = Vec::new();
    keeper.read_to_end(&mut text).map_err(|error| format!("cannot read the order: {error}"))?;
    let order = serde_json::from_slice(&text).map_err(|error| format!("cannot read the order: {error}"))?;
    Ok((stdin, order))
}

fn run(keeper: &mut UnixStream, stdin: OwnedFd, order: &Order) -> Result<std::convert::Infallible, Failure> {
    for group in &order.cgroups {
        let file = group.join("cgroup.procs");
        std::fs::write(&file, "0").map_err(|error| format!("cannot join {}: {error}", file.display()))?;
    }
    if let Err(why) = pin(&order.cpus) {
        let _ = report(keeper, &Report::NotApplied { what: "cpus".into(), why });
    }
    rustix::process::setsid().map_err(|error| format!("cannot start a session: {error}"))?;
    rustix::stdio::dup2_stdin(&stdin).map_err(|error| format!("cannot set standard input: {error}"))?;
    drop(stdin);
    if order.terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())
            .map_err(|error| format!("cannot take the terminal: {error}"))?;
    }
    become_user(order)?;
    tie_to_keeper(order.keeper_pid)?;
    rustix::process::umask(Mode::from_bits_truncate(0o022));
    std::env::set_current_dir(&order.workdir)
        .map_err(|error| format!("cannot enter the working directory {}: {error}", order.workdir.display()))?;
    heed_signals()?;
    let (program, arguments) = order.command.split_first().ok_or("the command is empty".to_string())?;
    // exec also unblocks all signals.
    let error = Command::new(program).args(arguments).env_clear().envs(&order.env).exec();
    let message = format!("cannot execute `{program}`: {error}");
    Err(match error.kind() {
        ErrorKind::NotFound => Failure::Command { message, code: 127 },
        ErrorKind::PermissionDenied | ErrorKind::IsADirectory => Failure::Command { message, code: 126 },
        _ => Failure::Node(message),
    })
}

/// What was started with `nohup`, or in the background of a script, ignores signals, and so would all that it starts: an
/// agent's jobs would not hear that they have to save. A signal that is caught at an exec gets its default back, and
/// catching can be done without unsafe code.
fn heed_signals() -> Result<(), String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| format!("/proc/self/status: {error}"))?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap_or("0");
    let ignored = u64::from_str_radix(mask.trim(), 16).unwrap_or(0);
    let heard = (1..=31).filter(|signal| ignored >> (signal - 1) & 1 == 1);
    for signal in heard.filter(|signal| !FORBIDDEN.contains(signal)) {
        signal_hook::flag::register(signal, Arc::default())
            .map_err(|error| format!("cannot set signal {signal} back to its default: {error}"))?;
    }
    Ok(())
}

fn pin(cpus: &[usize]) -> Result<(), String> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    rustix::thread::sched_setaffinity(None, &set).map_err(|error| format!("cannot pin to CPUs {cpus:?}: {error}"))
}

/// Groups first, user last: after that nothing more may be changed.
fn become_user(order: &Order) -> Result<(), String> {
    let (Some(uid), Some(gid)) = (order.uid, order.gid) else { return Ok(()) };
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    if uid == rustix::process::geteuid() && !uid.is_root() {
        return Ok(());
    }
    let refused = |what: &str| {
        let what = format!("cannot become {what} (uid {}, gid {})", uid.as_raw(), gid.as_raw());
        move |error: rustix::io::Errno| format!("{what}: {error}")
    };
    let groups: Vec<Gid> = order.groups.iter().copied().map(Gid::from_raw).collect();
    // Per-thread calls are enough: this process has one thread.
    rustix::thread::set_thread_groups(&groups).map_err(refused("member of the groups"))?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(refused("the group"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(refused("the user"))
}

/// A worker without its keeper has nobody to end it at its lease, so it goes with it. Set last: a change of user
/// clears it.
fn tie_to_keeper(keeper_pid: i32) -> Result<(), String> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot tie to the keeper: {error}"))?;
    match rustix::process::getppid() {
        Some(parent) if parent.as_raw_nonzero().get() == keeper_pid => Ok(()),
        _ => Err("the keeper is gone".into()),
    }
}

fn report(keeper: &mut UnixStream, report: &Report) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    keeper.write_all(&line)
}
