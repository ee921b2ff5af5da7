//! Opens one connection and speaks HTTP/1.1 on it. The only place that knows what lies under HTTP: TLS goes here.
use super::endpoint::Endpoint;
use super::error::HttpError;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

pub(super) type Sender = SendRequest<Full<Bytes>>;

/// A host that swallows packets must not hold a caller for the kernel's two minutes.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn connect(endpoint: &Endpoint) -> Result<Sender, HttpError> {
    let fail = |source: io::Error| HttpError::Connect { endpoint: endpoint.clone(), source };
    let open = async {
        match endpoint {
            Endpoint::Tcp(authority) => {
                let stream = TcpStream::connect(authority.as_str()).await?;
                stream.set_nodelay(true)?;
                handshake(stream).await
            }
            Endpoint::Unix(path) => handshake(UnixStream::connect(path).await?).await,
        }
    };
    match tokio::time::timeout(CONNECT_PATIENCE, open).await {
        Ok(opened) => opened.map_err(fail),
        Err(_) => Err(fail(io::Error::new(io::ErrorKind::TimedOut, "no connection within 10 s"))),
    }
}

async fn handshake<S>(stream: S) -> io::Result<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends by itself when the sender and the bodies it gave out are dropped.
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a client connection ended with an error");
        }
    });
    Ok(sender)
}
