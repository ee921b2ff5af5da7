//! Starts a keeper from the agent.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;

use super::KeeperError;
use super::client::Client;
use super::role::READY;

/// Longer than any start takes; only a machine in deep trouble gets there.
const DEADLINE: Duration = Duration::from_secs(30);

/// A keeper that answers on its socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeeperHandle {
    /// The worker's directory.
    pub dir: PathBuf,
}

impl KeeperHandle {
    /// Connects to it.
    ///
    /// # Errors
    /// The socket does not answer.
    pub async fn connect(&self) -> Result<Client, KeeperError> {
        Client::connect(&self.dir).await
    }
}

/// Starts `BINARY keeper DIR` for the `launch.json` in `dir`, in a session of its own, and returns when its socket
/// answers. Its own messages go to `DIR/keeper.log`. It is reaped here; when this process ends first it falls to init, or
/// to the nearest subreaper, which has to reap it then.
///
/// # Errors
/// The keeper's own reason why it did not come up. That the *worker* could not start is no error here but its state.
pub async fn spawn(binary: &Path, dir: &Path) -> Result<KeeperHandle, KeeperError> {
    let not_started = |message: String| KeeperError::NotStarted { dir: dir.to_path_buf(), message };
    let log = open_log(dir)?;
    let mut keeper = Command::new(binary)
        .arg("keeper")
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::from(log))
        .spawn()
        .map_err(|error| not_started(format!("cannot run {}: {error}", binary.display())))?;
    let stdout = keeper.stdout.take();
    tokio::spawn(async move { keeper.wait().await });
    // To the end of the stream, which comes when the keeper has turned to its log, or with its end.
    let mut word = String::new();
    let heard = async {
        match stdout {
            Some(mut stdout) => stdout.read_to_string(&mut word).await,
            None => Ok(0),
        }
    };
    tokio::time::timeout(DEADLINE, heard)
        .await
        .map_err(|_| not_started(format!("it said nothing within {} s; see its keeper.log", DEADLINE.as_secs())))?
        .map_err(|error| not_started(format!("cannot hear {}: {error}", binary.display())))?;
    match word.trim_end() {
        READY => Ok(KeeperHandle { dir: dir.to_path_buf() }),
        "" => Err(not_started("it ended without a word; see its keeper.log".to_owned())),
        message => Err(not_started(message.to_owned())),
    }
}

fn open_log(dir: &Path) -> Result<File, KeeperError> {
    let path = dir.join("keeper.log");
    let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    opened.map_err(KeeperError::file("open", &path))
}
