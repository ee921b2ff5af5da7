//! A user's connection joined to that of a process, wherever on the way between them.
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, sink, split};

const PIECE_BYTES: usize = 16 << 10;

/// Passes bytes both ways until the process's side has ended and all of it is with the user, or the user is gone.
///
/// A process that takes no more input, because it has ended, is no end: its last words are still on their way.
///
/// # Errors
/// Reading from the process or writing to the user failed.
pub async fn join_streams(
    user: impl AsyncRead + AsyncWrite,
    mut from_process: impl AsyncRead + Unpin,
    to_process: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let (mut from_user, mut to_user) = split(user);
    tokio::select! {
        sent = copy(&mut from_process, &mut to_user) => sent.map(drop)?,
        () = pass_input(&mut from_user, to_process) => {}
    }
    to_user.shutdown().await
}

/// Ends when the user is gone.
async fn pass_input(from_user: &mut (impl AsyncRead + Unpin), mut to_process: impl AsyncWrite + Unpin) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = from_user.read(&mut buffer).await {
        let taken = async { to_process.write_all(&buffer[..count]).await.and(to_process.flush().await) };
        if taken.await.is_err() {
            // How the user's side ends does not matter, only that it does.
            let _ = copy(from_user, &mut sink()).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    #[tokio::test]
    async fn what_a_process_said_last_arrives_though_it_takes_no_more_input() {
        // Either way could be looked at first: many rounds, so that each of them is.
        for _ in 0..64 {
            let (mut user, users_end) = duplex(64);
            let (mut process, process_end) = duplex(64);
            user.write_all(b"input that comes too late").await.unwrap();
            process.write_all(b"last words").await.unwrap();
            drop(process);
            let (from_process, to_process) = split(process_end);
            join_streams(users_end, from_process, to_process).await.unwrap();
            let mut heard = Vec::new();
            user.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, b"last words");
        }
    }

    #[tokio::test]
    async fn a_user_who_leaves_ends_it_and_is_heard_by_the_process() {
        let (mut user, users_end) = duplex(64);
        let (mut process, process_end) = duplex(64);
        let (from_process, to_process) = split(process_end);
        user.write_all(b"typed").await.unwrap();
        drop(user);
        // That nobody is there to be said good-bye to is no fault.
        let _ = join_streams(users_end, from_process, to_process).await;
        let mut typed = Vec::new();
        process.read_to_end(&mut typed).await.unwrap();
        assert_eq!(typed, b"typed");
    }
}
