//! What commands print. Printers are pure: view and [`Look`] in, text out; only [`emit`] writes.
//!
//! Standard output carries data and nothing else; talk goes to standard error by [`say`].
pub mod json;
pub mod overview;
pub mod picture;
pub mod progress;
pub mod replay;
pub mod shape;
pub mod show;
pub mod table;
pub mod text;
pub mod time;
pub mod tree;
pub mod trials;
pub mod why;

use crate::cli::Format;
use crate::failure::Failure;
use std::io::{IsTerminal, Write};

/// How text should look, and what "now" is for ages in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    pub format: Format,
    pub colour: bool,
    /// Columns to fit in.
    pub width: usize,
    pub now_ms: u64,
}

/// Where text goes that is not read on a terminal.
const PLAIN_WIDTH: usize = 100;

impl Look {
    /// For this process's standard output. `NO_COLOR` set to anything switches colours off.
    pub fn of_stdout(format: Format) -> Look {
        let terminal = std::io::stdout().is_terminal();
        let columns = terminal.then(|| rustix::termios::tcgetwinsize(std::io::stdout()).ok()).flatten();
        let width = columns.map_or(PLAIN_WIDTH, |size| usize::from(size.ws_col).clamp(60, 200));
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Look { format, colour: terminal && wanted, width, now_ms: ganger_runtime::clock::unix_ms() }
    }

    pub fn is_json(&self) -> bool {
        self.format == Format::Json
    }
}

/// Writes data to standard output. A reader that has gone is the end of the command, not an error.
pub fn emit(text: &str) -> Result<(), Failure> {
    emit_bytes(text.as_bytes())
}

pub fn emit_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Err(Failure::pipe_closed()),
        Err(error) => Err(Failure::failed(format!("cannot write to standard output: {error}"))),
    }
}

/// Talk for people, on standard error. That nobody can read it is no reason to stop.
pub fn say(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr().lock(), "{}", text.as_ref());
}

#[cfg(test)]
pub mod samples;
