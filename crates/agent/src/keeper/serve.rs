//! Answers the clients of a keeper.

use std::os::fd::OwnedFd;

use rustix::process::Signal;

use super::clock;
use super::connection::{Connection, Mode};
use super::exec::ExecSession;
use super::frame::{self, FrameKind};
use super::launch::check_env;
use super::protocol::{Reply, Request, Status, Target};
use super::role::Keeper;
use super::state::Phase;

const MOST_CONNECTIONS: usize = 256;

impl Keeper {
    pub(super) fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.connections.len() < MOST_CONNECTIONS && stream.set_nonblocking(true).is_ok() {
                self.connections.insert(self.next_connection, Connection::new(stream));
                self.next_connection += 1;
            }
        }
    }

    /// Reads, answers and writes, one round for every client.
    pub(super) fn serve(&mut self) {
        self.serve_tap();
        let numbers: Vec<u64> = self.connections.keys().copied().collect();
        for number in numbers {
            // Out of the map while it is served, because a request may touch all of the keeper.
            if let Some(mut connection) = self.connections.remove(&number) {
                self.serve_one(&mut connection);
                if !connection.over() {
                    self.connections.insert(number, connection);
                } else if let Mode::Exec(session) = connection.mode {
                    session.hang_up();
                }
            }
        }
        self.connections_changed();
    }

    fn serve_one(&mut self, connection: &mut Connection) {
        connection.fill();
        loop {
            match &mut connection.mode {
                Mode::Requests => match connection.line() {
                    Ok(Some(line)) => self.request(connection, &line),
                    Ok(None) => break,
                    Err(message) => {
                        connection.reply(&Reply::Error { message });
                        connection.mode = Mode::Closing;
                    }
                },
                Mode::Waiting(phase) if self.state.phase >= *phase => {
                    connection.mode = Mode::Requests;
                    connection.reply(&self.status());
                }
                Mode::Waiting(_) | Mode::Closing => break,
                Mode::Exec(_) | Mode::Attached => {
                    self.stream(connection);
                    break;
                }
            }
        }
        connection.flush();
    }

    fn stream(&mut self, connection: &mut Connection) {
        while let Some(frame) = connection.frame() {
            match &mut connection.mode {
                Mode::Exec(session) => session.frame(&frame),
                _ => {
                    if let Some(terminal) = &mut self.terminal {
                        terminal.frame(&frame);
                    }
                }
            }
        }
        if let Mode::Exec(session) = &mut connection.mode
            && session.pump(&mut connection.output)
        {
            connection.mode = Mode::Closing;
        }
        if self.terminal.as_mut().is_some_and(|terminal| !terminal.flush()) {
            self.terminal = None;
        }
    }

    /// Hands new output of the worker's terminal to the attached.
    pub(super) fn serve_tap(&mut self) {
        let Some(log) = &self.log else { return };
        let bytes = log.take_tap();
        for connection in self.connections.values_mut() {
            if matches!(connection.mode, Mode::Attached) {
                for piece in bytes.chunks(frame::LONGEST_BYTES) {
                    frame::push(&mut connection.output, FrameKind::Output, piece);
                }
            }
        }
    }

    fn connections_changed(&self) {
        if let Some(log) = &self.log {
            log.tap(self.connections.values().any(|connection| matches!(connection.mode, Mode::Attached)));
        }
    }

    fn request(&mut self, connection: &mut Connection, line: &[u8]) {
        let answer = match serde_json::from_slice(line) {
            Ok(request) => self.answer(connection, request),
            Err(error) => Err(format!("the request is not understood: {error}")),
        };
        match answer {
            Ok(Some(reply)) => connection.reply(&reply),
            Ok(None) => {}
            Err(message) => connection.reply(&Reply::Error { message }),
        }
    }

    /// `Ok(None)`: the answer follows later.
    fn answer(&mut self, connection: &mut Connection, request: Request) -> Result<Option<Reply>, String> {
        let now_ms = clock::boottime_ms();
        if self.resting_until_ms.is_some()
            && !matches!(request, Request::Rest | Request::Begin { .. } | Request::Forget)
        {
            return Err("there is no worker: this keeper rests".into());
        }
        match request {
            Request::Status => return Ok(Some(self.status())),
            Request::Wait { phase } => {
                connection.mode = Mode::Waiting(phase);
                return Ok(None);
            }
            Request::Lease { deadline_boottime_ms } => {
                self.alive()?;
                self.plan.renew(now_ms, deadline_boottime_ms)?;
            }
            Request::Signal { number, target } => self.send(number, target)?,
            Request::Stop { signal, grace_ms, target } => {
                self.send(signal, target)?;
                self.plan.stop(now_ms, signal, grace_ms);
            }
            Request::Kill => {
                // Also when the main process has ended and its tree is being ended: then it is only confirmed.
                if self.alive().is_ok() {
                    self.plan.kill();
                    self.begin_sweep();
                }
            }
            Request::Exec { command, env, pty } => {
                let session = self.exec(command, env, pty)?;
                connection.mode = Mode::Exec(Box::new(session));
            }
            Request::Attach => {
                self.alive()?;
                self.terminal.as_ref().ok_or("the worker has no terminal; start it with `pty`")?;
                connection.mode = Mode::Attached;
            }
            Request::Forget => {
                if self.state.phase != Phase::Ended {
                    return Err("the worker has not ended; stop or kill it first".into());
                }
                self.forgotten = true;
                connection.mode = Mode::Closing;
            }
            Request::Rest => self.rest(now_ms)?,
            Request::Begin { dir } => self.begin(dir, now_ms)?,
        }
        Ok(Some(Reply::Done))
    }

    fn alive(&self) -> Result<(), String> {
        if self.worker.is_some() && self.sweep.is_none() {
            Ok(())
        } else {
            Err("the worker has ended or is being ended".into())
        }
    }

    fn send(&self, number: i32, target: Target) -> Result<(), String> {
        self.alive()?;
        let signal = Signal::from_named_raw(number)
            .ok_or_else(|| format!("{number} is no signal that can be sent; use one of 1 to 31"))?;
        // A launcher may have no child at this instant; a stop goes on with its grace all the same.
        let sent = self.signal(signal, target);
        if sent || target == Target::Descendants { Ok(()) } else { Err("the worker has just ended".into()) }
    }

    fn exec(
        &mut self,
        command: Vec<String>,
        env: std::collections::BTreeMap<String, String>,
        pty: bool,
    ) -> Result<ExecSession, String> {
        self.alive()?;
        if self.state.phase != Phase::Running {
            return Err("the worker does not run yet".into());
        }
        if command.first().is_none_or(String::is_empty) || command.iter().any(|word| word.contains('\0')) {
            return Err("the command is empty or holds a NUL character".into());
        }
        check_env(&env).map_err(|error| error.to_string())?;
        let mut order = self.order(command, pty);
        order.env.extend(env);
        ExecSession::start(&self.dir, &order).map_err(|error| error.to_string())
    }

    fn status(&self) -> Reply {
        let lease_deadline_boottime_ms = self.plan.lease_ms();
        Reply::Status(Box::new(Status { state: self.state.clone(), lease_deadline_boottime_ms }))
    }

    /// The descriptors of the keeper itself that wake its loop.
    pub(super) fn wakers(&self) -> impl Iterator<Item = &OwnedFd> {
        let log = self.log.as_ref().filter(|_| self.state.phase != Phase::Ended).map(super::log::LogCopier::wake);
        [&self.timer].into_iter().chain(log).chain(self.worker.as_ref().map(|worker| &worker.exited))
    }
}
