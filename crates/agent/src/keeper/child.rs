//! The keeper's side of the shim: starts it, hands it its order, reads its report.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::KeeperError;
use super::proc;
use super::shim::{Order, Report};
use super::state::ProcessId;

/// A started shim, later the command itself.
pub(crate) struct Child {
    pub id: ProcessId,
    /// Readable when the process has ended.
    pub exited: OwnedFd,
    report: Option<UnixStream>,
    said: Vec<u8>,
}

/// Standard streams of a child.
pub(crate) struct Streams {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl Child {
    /// Starts `launch DIR` from the program that this keeper runs, even if its file was replaced meanwhile.
    pub(crate) fn start(dir: &Path, order: &Order, streams: Streams) -> Result<Self, KeeperError> {
        let system = KeeperError::system::<std::io::Error>("start the shim");
        let (ours, theirs) = UnixStream::pair().map_err(KeeperError::system("make a socket pair"))?;
        let child = Command::new("/proc/self/exe")
            .arg0("ganger")
            .arg("launch")
            .arg(dir)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(streams.stdout))
            .stderr(Stdio::from(streams.stderr))
            .spawn()
            .map_err(system)?;
        let pid = Pid::from_child(&child);
        let exited = pidfd_open(pid, PidfdFlags::empty()).map_err(KeeperError::system("watch the shim"))?;
        let raw = pid.as_raw_nonzero().get();
        // Not reaped before we do it, so the number is still its own.
        let id = proc::stat(raw).map_or(ProcessId { pid: raw, start_ticks: 0 }, |stat| stat.id);
        // When the shim dies before it has read its order, its exit tells more than this error would.
        let _ = send(&ours, order, &streams.stdin);
        ours.set_nonblocking(true).map_err(KeeperError::system("make the shim's socket non-blocking"))?;
        Ok(Self { id, exited, report: Some(ours), said: Vec::new() })
    }

    /// The socket to watch while the shim is at work.
    pub(crate) fn report(&self) -> Option<&UnixStream> {
        self.report.as_ref()
    }

    /// Reads what the shim said. `Some` at its end: the command runs, or a [`Report::Failed`] is among the reports.
    pub(crate) fn read_report(&mut self) -> Option<Vec<Report>> {
        let mut bytes = [0; 4096];
        loop {
            match self.report.as_mut()?.read(&mut bytes) {
                Ok(count) if count > 0 => self.said.extend(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
                Ok(_) | Err(_) => break,
            }
        }
        self.report = None;
        let lines = self.said.split(|byte| *byte == b'\n');
        Some(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

fn send(socket: &UnixStream, order: &Order, stdin: &OwnedFd) -> std::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [stdin.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(b"<")], &mut ancillary, SendFlags::NOSIGNAL)?;
    (&*socket).write_all(&serde_json::to_vec(order)?)?;
    socket.shutdown(Shutdown::Write)
}
