//! Bodies that arrive piece by piece, and connections that have left HTTP behind.
use super::error::HttpError;
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;

/// Reads and writes both ways; implements tokio's `AsyncRead` and `AsyncWrite`.
pub type Duplex = TokioIo<Upgraded>;

/// The body of an answer, as it comes.
#[derive(Debug)]
pub struct ByteStream {
    pub(super) body: Incoming,
    pub(super) request: String,
}

impl ByteStream {
    /// The next piece; `None` when the body has ended as it should.
    pub async fn next(&mut self) -> Option<Result<Bytes, HttpError>> {
        loop {
            match self.body.frame().await? {
                Ok(frame) => match frame.into_data() {
                    Ok(data) if data.is_empty() => continue,
                    Ok(data) => return Some(Ok(data)),
                    Err(_trailers) => continue,
                },
                Err(error) => {
                    let why = format!("the body broke off: {error}");
                    return Some(Err(HttpError::Unreadable { request: self.request.clone(), why }));
                }
            }
        }
    }
}
