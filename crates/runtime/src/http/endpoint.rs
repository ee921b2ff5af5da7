//! Where a server is: `http://HOST:PORT` or `unix:PATH`.
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// `host:port`, where the host may be a name, an IPv4 address, or an IPv6 address in brackets.
    Tcp(String),
    Unix(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "cannot use {text:?} as a server address: {why}; write it like http://127.0.0.1:7411 or unix:/run/ganger/ganger.sock"
)]
pub struct EndpointError {
    pub text: String,
    pub why: &'static str,
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Endpoint, EndpointError> {
        let fail = |why| EndpointError { text: text.to_string(), why };
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").filter(|p| p.starts_with('/')).unwrap_or(path);
            return if path.is_empty() { Err(fail("the path is empty")) } else { Ok(Endpoint::Unix(path.into())) };
        }
        if text.starts_with("https://") {
            return Err(fail("TLS is not supported yet"));
        }
        let authority = text.strip_prefix("http://").ok_or_else(|| fail("the scheme is neither http:// nor unix:"))?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        if authority.contains('/') {
            return Err(fail("it has a path behind the address"));
        }
        let (host, port) = authority.rsplit_once(':').ok_or_else(|| fail("the port is missing"))?;
        if host.is_empty() || host.contains('@') {
            return Err(fail("the host is missing or holds a user name"));
        }
        port.parse::<u16>().map_err(|_| fail("the port is not a number up to 65535"))?;
        Ok(Endpoint::Tcp(authority.to_string()))
    }

    /// The value of the `Host` header.
    pub(super) fn host(&self) -> &str {
        match self {
            Endpoint::Tcp(authority) => authority,
            Endpoint::Unix(_) => "localhost",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(authority) => write!(f, "http://{authority}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_and_print() {
        for text in ["http://127.0.0.1:7411", "http://[::1]:80", "http://head:7411", "unix:/run/g.sock"] {
            assert_eq!(Endpoint::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Endpoint::parse("http://head:1/").unwrap(), Endpoint::Tcp("head:1".to_string()));
    }

    #[test]
    fn other_addresses_are_refused_with_the_reason() {
        for (text, why) in [
            ("127.0.0.1:80", "scheme"),
            ("http://head", "port"),
            ("http://head:99999", "port"),
            ("https://head:1", "TLS"),
            ("http://head:1/v1", "path"),
            ("unix:", "empty"),
        ] {
            let error = Endpoint::parse(text).unwrap_err();
            assert!(error.why.contains(why), "{text}: {error}");
        }
    }
}
