//! A further command inside a worker's environment (`exec`), and the terminals that it or the worker may have.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::event::PollFlags;
use rustix::fs::{OFlags, fchown, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, Uid, WaitStatus};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::child::{Child, Streams};
use super::frame::{self, Frame, FrameKind};
use super::log::read_to_the_last;
use super::protocol::ExecExit;
use super::shim::{Order, Report};
use super::{KeeperError, proc};

/// Output that a client has not taken yet; beyond it the command waits.
pub(crate) const OUTPUT_LIMIT_BYTES: usize = 256 << 10;
/// Input that a process has not taken yet; beyond it the client waits.
const INPUT_LIMIT_BYTES: usize = 256 << 10;

/// A running command of an `exec` request.
pub(crate) struct ExecSession {
    child: Child,
    input: Option<Input>,
    outputs: Vec<(FrameKind, File)>,
    exit: Option<ExecExit>,
}

impl ExecSession {
    pub(crate) fn start(dir: &Path, order: &Order) -> Result<Self, KeeperError> {
        if order.terminal {
            let terminal = Terminal::open(order.uid)?;
            let output = terminal.master.try_clone().map_err(KeeperError::system("copy a terminal"))?;
            let child = Child::start(dir, order, terminal.streams)?;
            let outputs = vec![(FrameKind::Output, File::from(output))];
            return Ok(Self { child, input: Some(Input::new(terminal.master, true)), outputs, exit: None });
        }
        let (stdin, input) = pipe(order.uid)?;
        let (output, stdout) = pipe(order.uid)?;
        let (error_output, stderr) = pipe(order.uid)?;
        for ours in [&input, &output, &error_output] {
            non_blocking(ours)?;
        }
        let child = Child::start(dir, order, Streams { stdin, stdout, stderr })?;
        let outputs = vec![(FrameKind::Output, File::from(output)), (FrameKind::ErrorOutput, File::from(error_output))];
        Ok(Self { child, input: Some(Input::new(input, false)), outputs, exit: None })
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id.pid
    }

    /// Takes the exit status that the keeper reaped.
    pub(crate) fn exited(&mut self, status: WaitStatus) {
        let reports = self.child.read_report().unwrap_or_default();
        let failed = reports.into_iter().find_map(|report| match report {
            Report::Failed { message } => Some(message),
            Report::NotApplied { .. } => None,
        });
        let ran = ExecExit { code: status.exit_status(), signal: status.terminating_signal(), launch_failed: None };
        self.exit = Some(match failed {
            Some(message) => ExecExit { launch_failed: Some(message), ..ExecExit::default() },
            None => ran,
        });
    }

    /// Whether more frames of the client can be taken now.
    pub(crate) fn takes_input(&self) -> bool {
        self.input.as_ref().is_none_or(Input::has_room)
    }

    /// Hands a client's frame on.
    pub(crate) fn frame(&mut self, frame: &Frame) {
        if let Some(input) = &mut self.input {
            input.frame(frame);
        }
    }

    /// Moves bytes both ways; true when the exit frame was the last thing appended to `out`.
    pub(crate) fn pump(&mut self, out: &mut Vec<u8>) -> bool {
        if self.input.as_mut().is_some_and(|input| !input.flush()) {
            self.input = None;
        }
        // After the exit drain the pipes whatever the limit, but wait for nobody who still holds them.
        let limit = if self.exit.is_some() { usize::MAX } else { OUTPUT_LIMIT_BYTES };
        self.outputs.retain_mut(|(kind, file)| copy_out(*kind, file, out, limit));
        match &self.exit {
            None => false,
            Some(exit) => {
                push_exit(out, exit);
                true
            }
        }
    }

    /// What to wait for; `room` says whether the client takes output.
    pub(crate) fn interests<'a>(&'a self, room: bool, list: &mut Vec<(&'a dyn AsFd, PollFlags)>) {
        if self.exit.is_none() {
            list.push((&self.child.exited, PollFlags::IN));
        }
        if room {
            list.extend(self.outputs.iter().map(|(_, file)| (file as &dyn AsFd, PollFlags::IN)));
        }
        if let Some(input) = &self.input {
            input.interests(list);
        }
    }

    /// The client is gone: hang up, as a terminal would.
    pub(crate) fn hang_up(self) {
        if self.exit.is_none()
            && let Some(pid) = Pid::from_raw(self.child.id.pid)
            && rustix::process::kill_process_group(pid, Signal::HUP).is_err()
        {
            proc::signal(self.child.id, Signal::HUP);
        }
    }
}

pub(crate) fn push_exit(out: &mut Vec<u8>, exit: &ExecExit) {
    frame::push(out, FrameKind::Exit, &serde_json::to_vec(exit).unwrap_or_default());
}

/// False when the other side is closed. A terminal says so with an error (EIO).
fn copy_out(kind: FrameKind, file: &mut File, out: &mut Vec<u8>, limit: usize) -> bool {
    let mut buffer = [0; 16 << 10];
    while out.len() < limit {
        match read_to_the_last(file, &mut buffer) {
            Ok(0) => return false,
            Ok(count) => frame::push(out, kind, &buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// The way into a process: a pipe or the master side of a terminal.
pub(crate) struct Input {
    file: File,
    terminal: bool,
    waiting: Vec<u8>,
    ended: bool,
}

impl Input {
    pub(crate) fn new(descriptor: OwnedFd, terminal: bool) -> Self {
        Self { file: File::from(descriptor), terminal, waiting: Vec::new(), ended: false }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < INPUT_LIMIT_BYTES
    }

    pub(crate) fn frame(&mut self, frame: &Frame) {
        match (frame.kind, frame.payload.as_slice()) {
            // End of input is a key on a terminal (^D), and the client's to send.
            (FrameKind::Input, []) => self.ended |= !self.terminal,
            (FrameKind::Input, bytes) => self.waiting.extend(bytes),
            (FrameKind::WindowSize, &[r1, r2, c1, c2]) if self.terminal => {
                let (ws_row, ws_col) = (u16::from_be_bytes([r1, r2]), u16::from_be_bytes([c1, c2]));
                let size = Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
                // A terminal whose process is gone has no size any more.
                let _ = rustix::termios::tcsetwinsize(&self.file, size);
            }
            _ => {}
        }
    }

    /// Writes what it can; false when nothing can follow.
    pub(crate) fn flush(&mut self) -> bool {
        while !self.waiting.is_empty() {
            match self.file.write(&self.waiting) {
                Ok(count) => drop(self.waiting.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        !self.ended
    }

    pub(crate) fn interests<'a>(&'a self, list: &mut Vec<(&'a dyn AsFd, PollFlags)>) {
        if !self.waiting.is_empty() {
            list.push((&self.file, PollFlags::OUT));
        }
    }
}

/// A new terminal: our side, non-blocking, and the side of the process.
pub(crate) struct Terminal {
    pub master: OwnedFd,
    pub streams: Streams,
}

impl Terminal {
    pub(crate) fn open(owner: Option<u32>) -> Result<Self, KeeperError> {
        let failed = KeeperError::system::<rustix::io::Errno>;
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).map_err(failed("open a terminal"))?;
        rustix::pty::grantpt(&master).map_err(failed("grant a terminal"))?;
        rustix::pty::unlockpt(&master).map_err(failed("unlock a terminal"))?;
        let name = rustix::pty::ptsname(&master, Vec::new()).map_err(failed("name a terminal"))?;
        let path = Path::new(name.to_str().unwrap_or("/dev/pts/?")).to_path_buf();
        let noctty = i32::try_from(OFlags::NOCTTY.bits()).unwrap_or(0);
        let slave: OwnedFd = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(noctty)
            .open(&path)
            .map_err(KeeperError::file("open", &path))?
            .into();
        give_to(owner, &slave)?;
        non_blocking(&master)?;
        let copy = || slave.try_clone().map_err(KeeperError::system("copy a terminal"));
        let streams = Streams { stdin: copy()?, stdout: copy()?, stderr: slave };
        Ok(Self { master, streams })
    }
}

/// A pipe (read side, write side), both closed in further children, owned by the process's user: it may want to
/// open `/dev/stderr`.
pub(crate) fn pipe(owner: Option<u32>) -> Result<(OwnedFd, OwnedFd), KeeperError> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(KeeperError::system("make a pipe"))?;
    give_to(owner, &write)?;
    Ok((read, write))
}

pub(crate) fn non_blocking(descriptor: &OwnedFd) -> Result<(), KeeperError> {
    fcntl_setfl(descriptor, OFlags::NONBLOCK).map_err(KeeperError::system("make a descriptor non-blocking"))
}

fn give_to(owner: Option<u32>, descriptor: &OwnedFd) -> Result<(), KeeperError> {
    match owner {
        Some(uid) if uid != rustix::process::geteuid().as_raw() => {
            fchown(descriptor, Some(Uid::from_raw(uid)), None).map_err(KeeperError::system("hand over a descriptor"))
        }
        _ => Ok(()),
    }
}
