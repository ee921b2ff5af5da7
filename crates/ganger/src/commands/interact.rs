//! `ganger exec` and terminals: bytes both ways between this process and a process in a job.
use crate::cli::Exec;
use crate::client::Api;
use crate::client::frames::{self, Event};
use crate::failure::Failure;
use crate::output::emit_bytes;
use ganger_agent::keeper::protocol::ExecExit;
use ganger_core::model::wire::api::ExecRequest;
use ganger_runtime::http::Duplex;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{IsTerminal, Read, Write};
use tokio::io::WriteHalf;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

pub async fn exec(api: &Api, args: Exec) -> Result<(), Failure> {
    let request = ExecRequest { command: args.command, pty: args.pty };
    let stream = api.exec(&args.job, args.rank, &request).await?;
    let exit = pump(stream, args.pty).await?;
    finish(exit)
}

/// Joins the job's own terminal until its process ends or the connection does.
pub async fn attach(api: &Api, job: &str) -> Result<(), Failure> {
    let stream = api.attach(job).await?;
    pump(stream, true).await.map(drop)
}

/// The exit code is that of the command, as a shell would tell it.
fn finish(exit: ExecExit) -> Result<(), Failure> {
    match (exit.launch_failed, exit.code, exit.signal) {
        (Some(why), _, _) => Err(Failure::failed(format!("cannot run the command: {why}"))),
        (None, Some(0), _) => Ok(()),
        (None, Some(code), _) => Err(Failure::silent(u8::try_from(code).unwrap_or(1))),
        (None, None, Some(signal)) => Err(Failure::silent(u8::try_from(128 + signal).unwrap_or(1))),
        (None, None, None) => Err(Failure::failed("the command ended, but not how")),
    }
}

async fn pump(stream: Duplex, pty: bool) -> Result<ExecExit, Failure> {
    let broken = |error: std::io::Error| Failure::failed(format!("the connection to the job broke off: {error}"));
    let (mut from, mut to) = tokio::io::split(stream);
    let _raw = pty.then(RawTerminal::enter).flatten();
    if pty {
        send_size(&mut to).await.map_err(broken)?;
    }
    let input = tokio::spawn(send_input(to, pty));
    let exit = loop {
        match frames::next(&mut from).await.map_err(broken)? {
            Event::Output(bytes) => emit_bytes(&bytes)?,
            Event::ErrorOutput(bytes) => {
                // That nobody can read it is no reason to stop.
                let _ = std::io::stderr().write_all(&bytes);
            }
            Event::Exit(exit) => break exit,
        }
    };
    input.abort();
    Ok(exit)
}

async fn send_input(mut to: WriteHalf<Duplex>, pty: bool) {
    let Ok(mut resized) = signal(SignalKind::window_change()) else { return };
    let mut typed = read_stdin();
    loop {
        let sent = tokio::select! {
            bytes = typed.recv() => match bytes {
                Some(bytes) => frames::input(&mut to, &bytes).await,
                None => {
                    // An empty frame is the end of input; the other side going away first is fine.
                    let _ = frames::input(&mut to, &[]).await;
                    return std::future::pending().await;
                }
            },
            _ = resized.recv(), if pty => send_size(&mut to).await,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Reads standard input on a thread of its own: such a read cannot be taken back, and nobody waits for this one.
fn read_stdin() -> mpsc::Receiver<Vec<u8>> {
    let (send, typed) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            match std::io::stdin().read(&mut buffer) {
                Ok(n) if n > 0 => {
                    if send.blocking_send(buffer[..n].to_vec()).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Ok(_) | Err(_) => return,
            }
        }
    });
    typed
}

async fn send_size(to: &mut WriteHalf<Duplex>) -> std::io::Result<()> {
    match tcgetwinsize(std::io::stdout()) {
        Ok(size) => frames::window_size(to, size.ws_row, size.ws_col).await,
        Err(_) => Ok(()),
    }
}

/// The terminal passes every key on while this lives; then it is as before.
struct RawTerminal(Termios);

impl RawTerminal {
    fn enter() -> Option<RawTerminal> {
        if !std::io::stdin().is_terminal() {
            return None;
        }
        let before = tcgetattr(std::io::stdin()).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw).ok()?;
        Some(RawTerminal(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // Nothing better can be done about a terminal that has gone.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_the_commands() {
        let exit = |code, signal, launch_failed: Option<&str>| {
            finish(ExecExit { code, signal, launch_failed: launch_failed.map(str::to_string) }).map_err(|f| f.code)
        };
        assert_eq!(exit(Some(0), None, None), Ok(()));
        assert_eq!(exit(Some(3), None, None), Err(3));
        assert_eq!(exit(None, Some(9), None), Err(137));
        assert_eq!(exit(None, None, Some("no such file")), Err(1));
    }
}
