//! Byte streams that users wait for: the agent dials back to the server and pumps a rank's log, or joins the user to a
//! command or terminal beside the rank. It looks into none of the bytes.
use crate::keepers::{Door, Keepers};
use ganger_core::model::wire::agent::{StreamAsk, StreamKind};
use ganger_runtime::http::{Client, Duplex, join_streams};
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeekExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::watch;

/// Between two looks at a log that is being followed.
const LOOK: Duration = Duration::from_millis(200);
const PIECE_BYTES: usize = 64 << 10;

/// What a stream needs.
pub struct Streaming {
    pub client: Client,
    pub keepers: Arc<dyn Keepers>,
    pub ask: StreamAsk,
    pub log: PathBuf,
    /// The worker's directory, while it is there.
    pub dir: Option<PathBuf>,
    /// True once the worker has ended and its log is complete.
    pub ended: watch::Receiver<bool>,
}

impl Streaming {
    /// Runs until either side is done.
    pub async fn run(self) {
        let path = format!("/v1/agent/streams/{}", self.ask.id);
        let connection = match self.client.upgrade(&path, &self.ask).await {
            Ok(connection) => connection,
            Err(error) => {
                tracing::warn!(stream = self.ask.id, %error, "cannot dial the stream");
                return;
            }
        };
        let outcome = match &self.ask.kind {
            StreamKind::Log { from_byte, follow } => {
                send_log(connection, &self.log, *from_byte, *follow, self.ended).await
            }
            StreamKind::Exec { command, pty } => {
                let door = Door::Exec { command: command.clone(), pty: *pty };
                join(connection, &*self.keepers, self.dir.as_deref(), door).await
            }
            StreamKind::Attach => join(connection, &*self.keepers, self.dir.as_deref(), Door::Attach).await,
        };
        if let Err(error) = outcome {
            tracing::debug!(stream = self.ask.id, %error, "a stream ended early");
        }
    }
}

/// Sends the log from `from_byte` on; with `follow` until the worker has ended and all is sent. The other side closes
/// the connection when the user is gone.
pub async fn send_log(
    connection: impl AsyncRead + AsyncWrite,
    log: &Path,
    from_byte: u64,
    follow: bool,
    ended: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let (mut from_user, mut to_user) = split(connection);
    let mut nothing = [0; 64];
    tokio::select! {
        sent = pump(&mut to_user, log, from_byte, follow, ended) => sent,
        // The user sends nothing; that this ends says that the user is gone.
        _ = async { while from_user.read(&mut nothing).await.is_ok_and(|count| count > 0) {} } => Ok(()),
    }
}

async fn pump(
    to: &mut (impl AsyncWrite + Unpin),
    log: &Path,
    from_byte: u64,
    follow: bool,
    mut ended: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut file = match open(log, follow, &ended).await? {
        Some(file) => file,
        None => return to.shutdown().await,
    };
    file.seek(SeekFrom::Start(from_byte)).await?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        // Asked before reading: what was written before the end is read after it.
        let over = *ended.borrow_and_update() || ended.has_changed().is_err();
        let mut count = file.read(&mut piece).await?;
        while count > 0 {
            to.write_all(&piece[..count]).await?;
            count = file.read(&mut piece).await?;
        }
        to.flush().await?;
        if over || !follow {
            return to.shutdown().await;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = ended.changed() => {}
        }
    }
}

/// The log, waited for if the worker has yet to start; `None` if there is none and will be none.
async fn open(log: &Path, follow: bool, ended: &watch::Receiver<bool>) -> std::io::Result<Option<tokio::fs::File>> {
    loop {
        match tokio::fs::File::open(log).await {
            Ok(file) => return Ok(Some(file)),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Err(_) if !follow || *ended.borrow() || ended.has_changed().is_err() => return Ok(None),
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Passes frames on, both ways, until the keeper has said how it ended or the user is gone.
async fn join(mut user: Duplex, keepers: &dyn Keepers, dir: Option<&Path>, door: Door) -> std::io::Result<()> {
    let opened = match dir {
        Some(dir) => keepers.open(dir, door).await.map_err(|error| error.to_string()),
        None => Err("the worker does not run on this node".to_string()),
    };
    match opened {
        Ok(stream) => {
            let (from_keeper, to_keeper) = stream.into_raw();
            join_streams(user, from_keeper, to_keeper).await
        }
        Err(why) => {
            user.write_all(&refusal(why)).await?;
            user.shutdown().await
        }
    }
}

/// The frame by which a keeper would say that the command never ran.
fn refusal(why: String) -> Vec<u8> {
    use crate::keeper::FrameKind;
    use crate::keeper::protocol::ExecExit;
    let exit = ExecExit { launch_failed: Some(why), ..ExecExit::default() };
    let payload = serde_json::to_vec(&exit).unwrap_or_default();
    let mut frame = vec![FrameKind::Exit as u8];
    frame.extend((payload.len() as u32).to_be_bytes());
    frame.extend(payload);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::io::Write;

    #[tokio::test]
    async fn a_followed_log_is_sent_to_its_last_byte() {
        let dir = TempDir::new();
        let log = dir.path().join("0.log");
        let (end, ended) = watch::channel(false);
        let (ours, mut theirs) = tokio::io::duplex(64);
        let sending = tokio::spawn({
            let log = log.clone();
            async move { send_log(ours, &log, 2, true, ended).await }
        });
        let mut file = std::fs::File::create(&log).unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut first = [0; 8];
        theirs.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"23456789");
        file.write_all(b"tail").unwrap();
        end.send_replace(true);
        let mut rest = Vec::new();
        theirs.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"tail");
        sending.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_log_that_is_not_followed_ends_and_a_missing_one_is_empty() {
        let dir = TempDir::new();
        let log = dir.path().join("0.log");
        for (content, expected) in [(None, ""), (Some("abc"), "abc")] {
            if let Some(content) = content {
                std::fs::write(&log, content).unwrap();
            }
            let (_end, ended) = watch::channel(false);
            let (ours, mut theirs) = tokio::io::duplex(64);
            let path = log.clone();
            tokio::spawn(async move { send_log(ours, &path, 0, false, ended).await });
            let mut got = String::new();
            theirs.read_to_string(&mut got).await.unwrap();
            assert_eq!(got, expected);
        }
    }

    #[tokio::test]
    async fn a_user_who_leaves_ends_the_stream() {
        let dir = TempDir::new();
        let log = dir.path().join("0.log");
        std::fs::write(&log, "abc").unwrap();
        let (_end, ended) = watch::channel(false);
        let (ours, theirs) = tokio::io::duplex(64);
        drop(theirs);
        // Either the write fails or the reader sees the end; what matters is that it returns at all.
        let _ = send_log(ours, &log, 0, true, ended).await;
    }
}
