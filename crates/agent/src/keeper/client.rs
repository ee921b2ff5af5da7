//! The agent's side of `keeper.sock`.
//!
//! A [`Client`] asks one thing at a time over its connection; `exec` and `attach` use it up and give a [`Stream`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use super::KeeperError;
use super::frame::{self, Frame, FrameKind, HEADER_BYTES};
use super::protocol::{ExecExit, Reply, Request, Status, Target};
use super::socket::SocketDir;
use super::state::Phase;

/// A connection to one keeper. Every method fails when the keeper is gone or refuses.
#[derive(Debug)]
pub struct Client {
    dir: PathBuf,
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
}

impl Client {
    /// Connects to the keeper of a worker's directory.
    ///
    /// # Errors
    /// Nothing listens on `DIR/keeper.sock`.
    pub async fn connect(dir: &Path) -> Result<Self, KeeperError> {
        let socket = dir.join("keeper.sock");
        let by_descriptor = SocketDir::open(dir).map_err(KeeperError::file("reach", &socket))?;
        let stream =
            UnixStream::connect(by_descriptor.path()).await.map_err(KeeperError::file("connect to", &socket))?;
        let (reader, writer) = stream.into_split();
        Ok(Self { dir: dir.to_path_buf(), reader: BufReader::new(reader), writer })
    }

    /// What the keeper knows now.
    ///
    /// # Errors
    /// See [`Client`].
    pub async fn status(&mut self) -> Result<Status, KeeperError> {
        self.ask_status(&Request::Status).await
    }

    /// Waits until the worker is in `phase` or past it.
    ///
    /// # Errors
    /// See [`Client`].
    pub async fn wait(&mut self, phase: Phase) -> Result<Status, KeeperError> {
        self.ask_status(&Request::Wait { phase }).await
    }

    /// Moves the lease forward; the deadline is in milliseconds of [`boottime_ms`](super::boottime_ms).
    ///
    /// # Errors
    /// Refused when the worker is already being ended by its old lease.
    pub async fn lease(&mut self, deadline_boottime_ms: u64) -> Result<(), KeeperError> {
        self.ask_done(&Request::Lease { deadline_boottime_ms }).await
    }

    /// Sends a signal once.
    ///
    /// # Errors
    /// Refused when the worker has ended or the number is no signal.
    pub async fn signal(&mut self, number: i32, target: Target) -> Result<(), KeeperError> {
        self.ask_done(&Request::Signal { number, target }).await
    }

    /// Begins to stop the worker; see [`Request::Stop`]. [`Client::wait`] tells the end.
    ///
    /// # Errors
    /// As [`Client::signal`].
    pub async fn stop(&mut self, signal: i32, grace_ms: u64, target: Target) -> Result<(), KeeperError> {
        self.ask_done(&Request::Stop { signal, grace_ms, target }).await
    }

    /// Begins to kill the whole tree. No error when it has ended already.
    ///
    /// # Errors
    /// See [`Client`].
    pub async fn kill(&mut self) -> Result<(), KeeperError> {
        self.ask_done(&Request::Kill).await
    }

    /// Ends the keeper of an ended worker; `state.json` remains.
    ///
    /// # Errors
    /// Refused while the worker has not ended.
    pub async fn forget(mut self) -> Result<(), KeeperError> {
        self.ask_done(&Request::Forget).await
    }

    /// Lets the keeper of an ended worker rest; the worker's state is cleared.
    ///
    /// # Errors
    /// Refused while anything of the worker is left.
    pub async fn rest(&mut self) -> Result<(), KeeperError> {
        self.ask_done(&Request::Rest).await
    }

    /// Has a resting keeper start the worker of `dir`, its directory.
    ///
    /// # Errors
    /// The keeper does not rest there, or cannot read the launch file. That the worker could not start is no error here
    /// but its state.
    pub async fn begin(&mut self, dir: &Path) -> Result<(), KeeperError> {
        self.ask_done(&Request::Begin { dir: dir.to_path_buf() }).await
    }

    /// Runs a further command beside the worker; `env` is added to the worker's. That it cannot be executed comes as
    /// [`ExecExit::launch_failed`].
    ///
    /// # Errors
    /// Refused when the worker does not run.
    pub async fn exec(
        self,
        command: Vec<String>,
        env: BTreeMap<String, String>,
        pty: bool,
    ) -> Result<Stream, KeeperError> {
        self.into_stream(&Request::Exec { command, env, pty }).await
    }

    /// Joins the worker's terminal from now on; earlier output is in its log.
    ///
    /// # Errors
    /// Refused when the worker has none.
    pub async fn attach(self) -> Result<Stream, KeeperError> {
        self.into_stream(&Request::Attach).await
    }

    async fn into_stream(mut self, request: &Request) -> Result<Stream, KeeperError> {
        self.ask_done(request).await?;
        let output = StreamOutput { dir: self.dir, reader: self.reader };
        Ok(Stream { output, input: StreamInput { writer: self.writer } })
    }

    async fn ask_status(&mut self, request: &Request) -> Result<Status, KeeperError> {
        match self.ask(request).await? {
            Reply::Status(status) => Ok(*status),
            other => Err(KeeperError::Refused(format!("unexpected answer {other:?}"))),
        }
    }

    async fn ask_done(&mut self, request: &Request) -> Result<(), KeeperError> {
        match self.ask(request).await? {
            Reply::Done => Ok(()),
            other => Err(KeeperError::Refused(format!("unexpected answer {other:?}"))),
        }
    }

    async fn ask(&mut self, request: &Request) -> Result<Reply, KeeperError> {
        let socket = self.dir.join("keeper.sock");
        let json = |source| KeeperError::Json { path: socket.clone(), source };
        let mut line = serde_json::to_vec(request).map_err(json)?;
        line.push(b'\n');
        self.writer.write_all(&line).await.map_err(KeeperError::file("write to", &socket))?;
        let mut answer = Vec::new();
        let read = self.reader.read_until(b'\n', &mut answer).await;
        if read.map_err(KeeperError::file("read from", &socket))? == 0 {
            return Err(KeeperError::Closed { dir: self.dir.clone() });
        }
        match serde_json::from_slice(&answer).map_err(json)? {
            Reply::Error { message } => Err(KeeperError::Refused(message)),
            reply => Ok(reply),
        }
    }
}

/// Both ways of an exec or attach.
#[derive(Debug)]
pub struct Stream {
    pub input: StreamInput,
    pub output: StreamOutput,
}

impl Stream {
    /// The connection itself, for a relay that passes the frames on untouched.
    #[must_use]
    pub fn into_raw(self) -> (BufReader<OwnedReadHalf>, OwnedWriteHalf) {
        (self.output.reader, self.input.writer)
    }
}

/// The way to the process.
#[derive(Debug)]
pub struct StreamInput {
    writer: OwnedWriteHalf,
}

impl StreamInput {
    /// Sends bytes to standard input or the terminal.
    ///
    /// # Errors
    /// The keeper is gone or the command has ended.
    pub async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        // An empty frame would mean the end of input.
        for piece in bytes.chunks(frame::LONGEST_BYTES) {
            self.send(FrameKind::Input, piece).await?;
        }
        Ok(())
    }

    /// Closes standard input; nothing on a terminal.
    ///
    /// # Errors
    /// As [`StreamInput::write`].
    pub async fn close(&mut self) -> std::io::Result<()> {
        self.send(FrameKind::Input, &[]).await
    }

    /// Sets the size of the terminal; nothing on a pipe.
    ///
    /// # Errors
    /// As [`StreamInput::write`].
    pub async fn resize(&mut self, rows: u16, columns: u16) -> std::io::Result<()> {
        let ([r1, r2], [c1, c2]) = (rows.to_be_bytes(), columns.to_be_bytes());
        self.send(FrameKind::WindowSize, &[r1, r2, c1, c2]).await
    }

    async fn send(&mut self, kind: FrameKind, payload: &[u8]) -> std::io::Result<()> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + payload.len());
        frame::push(&mut bytes, kind, payload);
        self.writer.write_all(&bytes).await
    }
}

/// The way from the process.
#[derive(Debug)]
pub struct StreamOutput {
    dir: PathBuf,
    reader: BufReader<OwnedReadHalf>,
}

/// A piece of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamEvent {
    /// Standard output, or all of a terminal.
    Output(Vec<u8>),
    ErrorOutput(Vec<u8>),
    /// The last one.
    Exit(ExecExit),
}

impl StreamOutput {
    /// The next piece. Not cancel safe: a dropped call may lose part of a frame.
    ///
    /// # Errors
    /// The keeper is gone before an [`StreamEvent::Exit`] came.
    pub async fn next(&mut self) -> Result<StreamEvent, KeeperError> {
        let frame = self.frame().await.map_err(|_| KeeperError::Closed { dir: self.dir.clone() })?;
        match frame.kind {
            FrameKind::Output => Ok(StreamEvent::Output(frame.payload)),
            FrameKind::ErrorOutput => Ok(StreamEvent::ErrorOutput(frame.payload)),
            FrameKind::Exit => serde_json::from_slice(&frame.payload)
                .map(StreamEvent::Exit)
                .map_err(|source| KeeperError::Json { path: self.dir.join("keeper.sock"), source }),
            kind => Err(KeeperError::Refused(format!("unexpected frame {kind:?}"))),
        }
    }

    async fn frame(&mut self) -> std::io::Result<Frame> {
        let mut first = [0; HEADER_BYTES];
        self.reader.read_exact(&mut first).await?;
        let (kind, length) = frame::header(first).map_err(std::io::Error::other)?;
        let mut payload = vec![0; length];
        self.reader.read_exact(&mut payload).await?;
        Ok(Frame { kind, payload })
    }
}
