//! One client of a keeper: its buffers, and what it waits for. Nothing here blocks; a client that does not read is
//! dropped when its output grows too long.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;

use super::exec::{ExecSession, OUTPUT_LIMIT_BYTES};
use super::frame::{self, Frame, HEADER_BYTES, LONGEST_BYTES};
use super::protocol::{LONGEST_LINE_BYTES, Reply};
use super::state::Phase;

/// Output that an attached client has not taken; beyond it the client is dropped, never the worker held up.
const SLOW_CLIENT_BYTES: usize = 4 << 20;

/// What the bytes of a connection mean at present.
pub(crate) enum Mode {
    Requests,
    Waiting(Phase),
    Exec(Box<ExecSession>),
    Attached,
    /// Only what is in `output` is still to be sent.
    Closing,
}

/// A connected client.
pub(crate) struct Connection {
    stream: UnixStream,
    input: Vec<u8>,
    pub output: Vec<u8>,
    pub mode: Mode,
    gone: bool,
}

impl Connection {
    /// `stream` must be non-blocking.
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream, input: Vec::new(), output: Vec::new(), mode: Mode::Requests, gone: false }
    }

    pub(crate) fn reply(&mut self, reply: &Reply) {
        // A reply is always representable in JSON.
        self.output.extend(serde_json::to_vec(reply).unwrap_or_default());
        self.output.push(b'\n');
    }

    /// Whether it can be dropped.
    pub(crate) fn over(&self) -> bool {
        self.gone || self.output.len() > SLOW_CLIENT_BYTES || (self.closing() && self.output.is_empty())
    }

    fn closing(&self) -> bool {
        matches!(self.mode, Mode::Closing)
    }

    fn reads(&self) -> bool {
        match &self.mode {
            Mode::Exec(session) => session.takes_input(),
            Mode::Closing => false,
            _ => self.output.len() < OUTPUT_LIMIT_BYTES,
        }
    }

    /// Reads what is there, up to one longest message.
    pub(crate) fn fill(&mut self) {
        let mut buffer = [0; 16 << 10];
        while self.reads() && self.input.len() <= LONGEST_BYTES.max(LONGEST_LINE_BYTES) + HEADER_BYTES {
            match self.stream.read(&mut buffer) {
                Ok(0) => {
                    // A client that asked and closed its sending side still gets its answer.
                    match self.mode {
                        Mode::Requests if !self.output.is_empty() => self.mode = Mode::Closing,
                        _ => self.gone = true,
                    }
                    return;
                }
                Ok(count) => self.input.extend(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.gone = true;
                    return;
                }
            }
        }
    }

    /// Sends what it can.
    pub(crate) fn flush(&mut self) {
        while !self.output.is_empty() && !self.gone {
            match self.stream.write(&self.output) {
                Ok(count) => drop(self.output.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
    }

    /// The next request line, or an error after which nothing more can be understood.
    pub(crate) fn line(&mut self) -> Result<Option<Vec<u8>>, String> {
        match self.input.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                let rest = self.input.split_off(end + 1);
                Ok(Some(std::mem::replace(&mut self.input, rest)))
            }
            None if self.input.len() > LONGEST_LINE_BYTES => {
                Err(format!("a request is longer than {LONGEST_LINE_BYTES} bytes"))
            }
            None => Ok(None),
        }
    }

    /// The next frame; a client that sends none but garbage is dropped.
    pub(crate) fn frame(&mut self) -> Option<Frame> {
        frame::take(&mut self.input).unwrap_or_else(|_| {
            self.gone = true;
            None
        })
    }

    pub(crate) fn interests<'a>(&'a self, list: &mut Vec<(&'a dyn AsFd, PollFlags)>) {
        let read = if self.reads() { PollFlags::IN } else { PollFlags::empty() };
        let write = if self.output.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        // With neither it must stay out of the list: poll reports a hang-up even to those who asked for nothing.
        if !(read | write).is_empty() {
            list.push((&self.stream, read | write));
        }
        if let Mode::Exec(session) = &self.mode {
            session.interests(self.output.len() < OUTPUT_LIMIT_BYTES, list);
        }
    }
}
