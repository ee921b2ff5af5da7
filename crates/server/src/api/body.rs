//! Bodies: JSON that comes in, bounded and with errors that name the place; bytes that go out as they are read; and
//! connections that leave HTTP.
use super::Problem;
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::http::header::{CONNECTION, CONTENT_LENGTH, UPGRADE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use ganger_runtime::http::STREAM_PROTOCOL;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use hyper::upgrade::OnUpgrade;
use serde::de::DeserializeOwned;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};

const LIMIT_BYTES: usize = 1 << 20;
/// Of a body that is refused so much is read and thrown away, so that the sender gets to read the refusal.
const DRAIN_BYTES: usize = 128 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// A JSON body of at most `LIMIT` bytes. An empty body reads as `null` does.
#[derive(Debug)]
pub struct JsonBody<T, const LIMIT: usize = LIMIT_BYTES>(pub T);

impl<S: Sync, T: DeserializeOwned, const LIMIT: usize> FromRequest<S> for JsonBody<T, LIMIT> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Problem> {
        let reading = tokio::time::timeout(PATIENCE, read_whole(request, LIMIT));
        let slow = || Problem::new(StatusCode::REQUEST_TIMEOUT, "slow_body", "the body did not arrive within 30 s");
        let bytes = reading.await.map_err(|_| slow())??;
        Ok(JsonBody(parse(&bytes)?))
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let line = 1 + bytes[..at].iter().filter(|byte| **byte == b'\n').count();
        let why = format!("the body is not UTF-8: byte {at} (line {line}) is 0x{:02x}; send UTF-8 text", bytes[at]);
        Problem::bad_request("not_utf8", why)
    })?;
    let text = if text.trim().is_empty() { "null" } else { text };
    serde_json::from_str(text).map_err(|error| {
        let what = if error.is_data() { "the body does not have the expected form" } else { "the body is not JSON" };
        Problem::bad_request("bad_json", format!("{what}: {error}"))
    })
}

async fn read_whole(request: Request, limit: usize) -> Result<Vec<u8>, Problem> {
    let declared = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let mut body = request.into_body();
    let mut whole = Vec::new();
    let mut seen = 0usize;
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(|error| Problem::bad_request("broken_body", format!("the body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        if seen > limit && seen > DRAIN_BYTES {
            break;
        }
        if seen <= limit {
            whole.extend_from_slice(&data);
        } else {
            whole = Vec::new();
        }
    }
    if seen <= limit {
        return Ok(whole);
    }
    let size = declared.map_or_else(|| format!("over {limit} bytes"), |bytes| format!("{bytes} bytes"));
    let text = format!(
        "the body is {size}, the limit is {limit}; put large files on a shared file system and name their path"
    );
    Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", text))
}

/// A body that is read from `source` as the other side takes it.
#[derive(Debug)]
pub struct ReadBody<R> {
    source: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Send + Unpin + 'static> ReadBody<R> {
    pub fn response_body(source: R) -> Body {
        Body::new(ReadBody { source, buffer: vec![0; 32 << 10] })
    }
}

impl<R: AsyncRead + Unpin> HttpBody for ReadBody<R> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let ReadBody { source, buffer } = self.get_mut();
        let mut read = ReadBuf::new(buffer);
        ready!(Pin::new(source).poll_read(cx, &mut read))?;
        let filled = read.filled();
        Poll::Ready((!filled.is_empty()).then(|| Ok(Frame::data(Bytes::copy_from_slice(filled)))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

/// What becomes the raw stream once the answer is sent; refused if the request did not ask for our protocol.
pub fn take_upgrade(request: &mut Request) -> Result<OnUpgrade, Problem> {
    if !asks_for_stream(request.headers()) {
        let text = format!("this route needs `Connection: upgrade` and `Upgrade: {STREAM_PROTOCOL}`");
        return Err(Problem::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", text));
    }
    Ok(hyper::upgrade::on(request))
}

/// The answer that ends HTTP on this connection.
pub fn accept_upgrade() -> Result<Response, Problem> {
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header(CONNECTION, "upgrade")
        .header(UPGRADE, STREAM_PROTOCOL)
        .body(Body::empty())
        .map_err(Problem::internal)
}

fn asks_for_stream(headers: &HeaderMap) -> bool {
    headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(STREAM_PROTOCOL.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_core::model::wire::api::ExecRequest;

    fn refusal(bytes: &[u8]) -> String {
        parse::<ExecRequest>(bytes).unwrap_err().error.message
    }

    #[test]
    fn errors_name_the_place() {
        assert!(refusal(b"{\"command\":\n[\"a\xff\"]}").contains("byte 15 (line 2) is 0xff"));
        assert!(refusal(b"{\"command\": [}").contains("line 1 column 14"));
        assert!(refusal(b"{\"command\": [], \"tty\": true}").contains("unknown field `tty`"));
    }
}
