//! The frames of exec and attach streams on their way through the server: one byte kind, four bytes big-endian length,
//! payload. The kinds are the keeper's; see `ganger_agent::keeper::FrameKind`.
use ganger_agent::keeper::FrameKind;
use ganger_agent::keeper::protocol::ExecExit;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// What comes from the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Standard output, or all of a terminal.
    Output(Vec<u8>),
    ErrorOutput(Vec<u8>),
    /// The last one.
    Exit(ExecExit),
}

/// Reads the next frame. Not cancel safe.
pub async fn next(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Event> {
    let kind = from.read_u8().await?;
    let length = from.read_u32().await? as usize;
    if length > PAYLOAD_BYTES_MAX {
        return Err(io::Error::other(format!("a frame of {length} bytes is too long")));
    }
    let mut payload = vec![0; length];
    from.read_exact(&mut payload).await?;
    match kind {
        k if k == FrameKind::Output as u8 => Ok(Event::Output(payload)),
        k if k == FrameKind::ErrorOutput as u8 => Ok(Event::ErrorOutput(payload)),
        k if k == FrameKind::Exit as u8 => serde_json::from_slice(&payload).map(Event::Exit).map_err(io::Error::other),
        other => Err(io::Error::other(format!("a frame of the unexpected kind {other}"))),
    }
}

/// Sends input; nothing at all means its end.
pub async fn input(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    send(to, FrameKind::Input, bytes).await
}

pub async fn window_size(to: &mut (impl AsyncWrite + Unpin), rows: u16, columns: u16) -> io::Result<()> {
    let ([r1, r2], [c1, c2]) = (rows.to_be_bytes(), columns.to_be_bytes());
    send(to, FrameKind::WindowSize, &[r1, r2, c1, c2]).await
}

async fn send(to: &mut (impl AsyncWrite + Unpin), kind: FrameKind, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(payload.len() + 5);
    frame.push(kind as u8);
    frame.extend(length.to_be_bytes());
    frame.extend(payload);
    to.write_all(&frame).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_are_the_keepers() {
        let mut sent = Vec::new();
        input(&mut sent, b"hi").await.unwrap();
        window_size(&mut sent, 24, 80).await.unwrap();
        assert_eq!(sent, [0, 0, 0, 0, 2, b'h', b'i', 3, 0, 0, 0, 4, 0, 24, 0, 80]);
        let mut from = &b"\x01\0\0\0\x02ok\x04\0\0\0\x0a{\"code\":7}"[..];
        assert_eq!(next(&mut from).await.unwrap(), Event::Output(b"ok".to_vec()));
        let Event::Exit(exit) = next(&mut from).await.unwrap() else { panic!("an exit") };
        assert_eq!(exit.code, Some(7));
        assert!(next(&mut from).await.is_err(), "the stream has ended");
    }
}
