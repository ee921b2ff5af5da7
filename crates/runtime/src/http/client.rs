//! Requests and their answers. Idle connections are kept for the next request.
use super::connect::{Sender, connect};
use super::endpoint::Endpoint;
use super::error::{HttpError, refused};
use super::stream::{ByteStream, Duplex};
use super::{Method, STREAM_PROTOCOL, StatusCode};
use crate::secret::Secret;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST, HeaderValue, UPGRADE};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Answers that are read whole may not be larger.
const ANSWER_LIMIT_BYTES: usize = 256 << 20;
const IDLE_CONNECTIONS: usize = 32;
const DEFAULT_PATIENCE: Duration = Duration::from_secs(30);

/// A client of one server. Cheap to clone; clones share the idle connections.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    token: Option<Secret>,
    idle: Mutex<Vec<Sender>>,
}

impl Client {
    /// `token` is sent as `Authorization: Bearer …`; on a Unix socket none is needed.
    pub fn new(endpoint: Endpoint, token: Option<Secret>) -> Client {
        Client { inner: Arc::new(Inner { endpoint, token, idle: Mutex::new(Vec::new()) }) }
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    /// `path` begins with a slash and is percent-encoded by the caller (see [`encode`](super::Client::encode)).
    pub async fn get<R: DeserializeOwned>(&self, path: &str) -> Result<R, HttpError> {
        self.json(Method::GET, path, None, DEFAULT_PATIENCE).await
    }

    pub async fn post<B: Serialize + ?Sized, R: DeserializeOwned>(&self, path: &str, body: &B) -> Result<R, HttpError> {
        self.post_within(path, body, DEFAULT_PATIENCE).await
    }

    /// For long polls: waits up to `patience` for the answer.
    pub async fn post_within<B, R>(&self, path: &str, body: &B, patience: Duration) -> Result<R, HttpError>
    where
        B: Serialize + ?Sized,
        R: DeserializeOwned,
    {
        let body = encode_json(&Method::POST, path, body)?;
        self.json(Method::POST, path, Some(body), patience).await
    }

    /// For long polls without a body.
    pub async fn get_within<R: DeserializeOwned>(&self, path: &str, patience: Duration) -> Result<R, HttpError> {
        self.json(Method::GET, path, None, patience).await
    }

    pub async fn delete<R: DeserializeOwned>(&self, path: &str) -> Result<R, HttpError> {
        self.json(Method::DELETE, path, None, DEFAULT_PATIENCE).await
    }

    /// The answer's body piece by piece, for as long as it takes.
    pub async fn stream(&self, path: &str) -> Result<ByteStream, HttpError> {
        let (response, _sender) = self.send(self.request(Method::GET, path, None)?).await?;
        let response = self.accept(response, &Method::GET, path).await?;
        Ok(ByteStream { body: response.into_body(), request: format!("GET {path}") })
    }

    /// Sends `body` and turns the connection into a raw two-way stream.
    pub async fn upgrade<B: Serialize + ?Sized>(&self, path: &str, body: &B) -> Result<Duplex, HttpError> {
        let body = encode_json(&Method::POST, path, body)?;
        let mut request = self.request(Method::POST, path, Some(body))?;
        request.headers_mut().insert(CONNECTION, HeaderValue::from_static("upgrade"));
        request.headers_mut().insert(UPGRADE, HeaderValue::from_static(STREAM_PROTOCOL));
        // A connection of its own: it never returns to HTTP.
        let mut sender = connect(&self.inner.endpoint).await?;
        let response = sender.send_request(request).await.map_err(|e| self.broken(&Method::POST, path, e))?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let response = self.accept(response, &Method::POST, path).await?;
            let why = format!("the server answered {} instead of switching protocols", response.status());
            return Err(HttpError::Unreadable { request: format!("POST {path}"), why });
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(|e| self.broken(&Method::POST, path, e))?;
        Ok(TokioIo::new(upgraded))
    }

    /// Percent-encodes one segment of a path or one value of a query.
    pub fn encode(text: &str) -> String {
        text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte as char),
                _ => out.push_str(&format!("%{byte:02X}")),
            }
            out
        })
    }

    async fn json<R>(&self, method: Method, path: &str, body: Option<Bytes>, patience: Duration) -> Result<R, HttpError>
    where
        R: DeserializeOwned,
    {
        let request = self.request(method.clone(), path, body)?;
        let exchange = async {
            let (response, sender) = self.send(request).await?;
            let response = self.accept(response, &method, path).await?;
            let bytes = self.read(response, &method, path).await?;
            self.keep(sender);
            Ok(bytes)
        };
        let bytes = tokio::time::timeout(patience, exchange).await.map_err(|_| HttpError::Timeout {
            endpoint: self.inner.endpoint.clone(),
            request: format!("{method} {path}"),
            within: patience,
        })??;
        serde_json::from_slice(&bytes)
            .map_err(|error| HttpError::Unreadable { request: format!("{method} {path}"), why: error.to_string() })
    }

    fn request(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<Request<Full<Bytes>>, HttpError> {
        let name = format!("{method} {path}");
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.inner.endpoint.host());
        if let Some(token) = &self.inner.token {
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request
            .body(Full::new(body.unwrap_or_default()))
            .map_err(|error| HttpError::BadRequest { request: name, why: error.to_string() })
    }

    /// Sends on an idle connection if one is left. Only a request that provably was not sent goes out again.
    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(Response<Incoming>, Sender), HttpError> {
        let (method, path) = (request.method().clone(), request.uri().to_string());
        let mut request = request;
        while let Some(mut sender) = self.take_idle() {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(self.broken(&method, &path, error.into_error())),
                },
            }
        }
        let mut sender = connect(&self.inner.endpoint).await?;
        let response = sender.send_request(request).await.map_err(|e| self.broken(&method, &path, e))?;
        Ok((response, sender))
    }

    async fn accept(
        &self,
        response: Response<Incoming>,
        method: &Method,
        path: &str,
    ) -> Result<Response<Incoming>, HttpError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let body = self.read(response, method, path).await?;
        Err(refused(status, &body))
    }

    async fn read(&self, response: Response<Incoming>, method: &Method, path: &str) -> Result<Bytes, HttpError> {
        let whole = Limited::new(response.into_body(), ANSWER_LIMIT_BYTES).collect().await;
        whole.map(|collected| collected.to_bytes()).map_err(|error| HttpError::Unreadable {
            request: format!("{method} {path}"),
            why: format!("the body broke off or is over {} MiB: {error}", ANSWER_LIMIT_BYTES >> 20),
        })
    }

    fn broken(&self, method: &Method, path: &str, source: hyper::Error) -> HttpError {
        HttpError::Broken { endpoint: self.inner.endpoint.clone(), request: format!("{method} {path}"), source }
    }

    fn take_idle(&self) -> Option<Sender> {
        self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.inner.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if !sender.is_closed() && idle.len() < IDLE_CONNECTIONS {
            idle.push(sender);
        }
    }
}

fn encode_json<B: Serialize + ?Sized>(method: &Method, path: &str, body: &B) -> Result<Bytes, HttpError> {
    let bad = |error: serde_json::Error| HttpError::BadRequest {
        request: format!("{method} {path}"),
        why: error.to_string(),
    };
    serde_json::to_vec(body).map(Bytes::from).map_err(bad)
}
