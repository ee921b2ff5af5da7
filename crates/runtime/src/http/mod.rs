//! The one HTTP client: HTTP/1.1 over TCP or a Unix socket, JSON in and out, streamed bodies, and upgrades to a raw
//! two-way stream. Used by the command line, the agents and the tests.
//!
//! It never retries a request that may have reached the other side: the caller knows whether that is harmless.
mod client;
mod connect;
mod endpoint;
mod error;
mod join;
mod stream;

pub use client::Client;
pub use endpoint::{Endpoint, EndpointError};
pub use error::HttpError;
pub use hyper::{Method, StatusCode};
pub use join::join_streams;
pub use stream::{ByteStream, Duplex};

/// The protocol name of upgraded connections.
pub const STREAM_PROTOCOL: &str = "ganger-stream";
