//! The two doors. Each accepted connection knows its peer: the kernel's word for the user, or that it came by TCP.
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use std::io;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// How a connection came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Tcp,
    /// By the Unix socket; the kernel vouches for the numbers.
    Unix {
        uid: u32,
        gid: u32,
    },
}

#[derive(Debug)]
pub struct TcpGate(pub TcpListener);

#[derive(Debug)]
pub struct UnixGate(pub UnixListener);

impl Listener for TcpGate {
    type Io = TcpStream;
    type Addr = Peer;

    async fn accept(&mut self) -> (TcpStream, Peer) {
        loop {
            match self.0.accept().await {
                Ok((stream, _)) => {
                    // Small answers must not wait for an acknowledgement; a socket that refuses is only slower.
                    let _ = stream.set_nodelay(true);
                    return (stream, Peer::Tcp);
                }
                Err(error) => pause(&error).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(Peer::Tcp)
    }
}

impl Listener for UnixGate {
    type Io = UnixStream;
    type Addr = Peer;

    async fn accept(&mut self) -> (UnixStream, Peer) {
        loop {
            match self.0.accept().await.and_then(|(stream, _)| stream.peer_cred().map(|cred| (stream, cred))) {
                Ok((stream, cred)) => return (stream, Peer::Unix { uid: cred.uid(), gid: cred.gid() }),
                Err(error) => pause(&error).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        Ok(Peer::Unix { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() })
    }
}

/// A peer that gave up is nothing; too many open files must not become a busy loop.
async fn pause(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "cannot accept a connection; trying again in a second");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

impl Connected<IncomingStream<'_, TcpGate>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TcpGate>) -> Peer {
        *stream.remote_addr()
    }
}

impl Connected<IncomingStream<'_, UnixGate>> for Peer {
    fn connect_info(stream: IncomingStream<'_, UnixGate>) -> Peer {
        *stream.remote_addr()
    }
}
