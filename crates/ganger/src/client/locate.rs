//! Finds the server and the token without asking: flags and variables first, then what `ganger up` left behind.
//!
//! A token of a file is sent only to the server it belongs to: the owner's token of a data directory goes to the
//! loopback port that `up` recorded with it, and nowhere else.
use super::Api;
use super::records::{self, Record};
use crate::failure::Failure;
use ganger_runtime::http::{Client, Endpoint};
use ganger_runtime::secret::Secret;
use std::path::PathBuf;

/// Where a server is looked for if nothing names one.
pub const DEFAULT_SERVER: &str = "http://127.0.0.1:7411";

/// What the search may look at.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// `--server` or `GANGER_SERVER`.
    pub server: Option<String>,
    /// `GANGER_TOKEN`.
    pub token: Option<String>,
    /// `GANGER_TOKEN_FILE`.
    pub token_file: Option<PathBuf>,
    /// `$XDG_CONFIG_HOME/ganger` or `~/.config/ganger`: its files `server` and `token` are read.
    pub config_dir: Option<PathBuf>,
    /// Newest first.
    pub records: Vec<Record>,
}

impl Surroundings {
    /// Of this process. `server` is the flag's or variable's value.
    pub fn of_process(server: Option<&str>) -> Surroundings {
        let var = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let config = var("XDG_CONFIG_HOME").or_else(|| Some(var("HOME")?.join(".config")));
        Surroundings {
            server: server.map(str::to_string),
            token: std::env::var("GANGER_TOKEN").ok().filter(|token| !token.is_empty()),
            token_file: var("GANGER_TOKEN_FILE"),
            config_dir: config.map(|config| config.join("ganger")),
            records: records::own_folder().map(|folder| records::read(&folder)).unwrap_or_default(),
        }
    }

    /// The server and the token to send to it.
    pub fn find(&self) -> Result<(Endpoint, Option<Secret>), Failure> {
        let from_config = || self.config_line("server");
        let named = self.server.clone().or_else(from_config);
        let recorded = || self.records.first().map(|record| record.url.clone());
        let address = named.or_else(recorded).unwrap_or_else(|| DEFAULT_SERVER.to_string());
        let endpoint = Endpoint::parse(&address).map_err(|error| Failure::wrong(error.to_string()))?;
        let token = self.token_for(&endpoint)?;
        Ok((endpoint, token))
    }

    fn token_for(&self, endpoint: &Endpoint) -> Result<Option<Secret>, Failure> {
        let Endpoint::Tcp(authority) = endpoint else { return Ok(None) };
        if let Some(token) = &self.token {
            return Ok(Some(Secret::new(token.clone())));
        }
        if let Some(path) = &self.token_file {
            let fail = |error| Failure::wrong(format!("cannot read GANGER_TOKEN_FILE {}: {error}", path.display()));
            return Secret::read_file(path).map(Some).map_err(fail);
        }
        let recorded = self.record_of(authority).and_then(|record| Secret::read_file(&record.token_file).ok());
        Ok(recorded.or_else(|| self.config_line("token").map(Secret::new)))
    }

    /// The record of a server on this machine's loopback.
    fn record_of(&self, authority: &str) -> Option<&Record> {
        let (host, port) = authority.rsplit_once(':')?;
        let loopback = matches!(host, "127.0.0.1" | "localhost" | "[::1]");
        let port: u16 = port.parse().ok().filter(|_| loopback)?;
        self.records.iter().find(|record| record.port == port)
    }

    fn config_line(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.config_dir.as_ref()?.join(name)).ok()?;
        text.lines().next().map(|line| line.trim().to_string()).filter(|line| !line.is_empty())
    }
}

/// The API of the server that this process should talk to.
pub fn api(server: Option<&str>) -> Result<Api, Failure> {
    let (endpoint, token) = Surroundings::of_process(server).find()?;
    Ok(Api::new(Client::new(endpoint, token)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_record(dir: &std::path::Path) -> Surroundings {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join("owner.token"), "gng_owner\n").unwrap();
        let record = Record {
            url: "http://127.0.0.1:9000".into(),
            port: 9000,
            data_dir: dir.into(),
            token_file: dir.join("owner.token"),
            pid: 1,
            started_at_ms: 1,
        };
        Surroundings { records: vec![record], ..Surroundings::default() }
    }

    fn found(surroundings: &Surroundings) -> (String, Option<String>) {
        let (endpoint, token) = surroundings.find().unwrap();
        (endpoint.to_string(), token.map(|token| token.expose().to_string()))
    }

    #[test]
    fn what_up_started_is_found_with_its_token_and_by_its_port() {
        let dir = std::env::temp_dir().join(format!("ganger-locate-{}", std::process::id()));
        let mut here = with_record(&dir);
        assert_eq!(found(&here), ("http://127.0.0.1:9000".into(), Some("gng_owner".into())));
        here.server = Some("http://localhost:9000".into());
        assert_eq!(found(&here).1.as_deref(), Some("gng_owner"));
        here.server = Some("http://elsewhere:9000".into());
        assert_eq!(found(&here).1, None, "the owner's token never leaves this machine");
        here.server = Some("http://127.0.0.1:9001".into());
        assert_eq!(found(&here).1, None);
        here.token = Some("gng_mine".into());
        assert_eq!(found(&here).1.as_deref(), Some("gng_mine"));
        here.server = Some("unix:/run/g.sock".into());
        assert_eq!(found(&here), ("unix:/run/g.sock".into(), None));
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn without_anything_the_default_is_tried_and_a_bad_address_is_a_wrong_request() {
        assert_eq!(found(&Surroundings::default()), (DEFAULT_SERVER.to_string(), None));
        let bad = Surroundings { server: Some("head:80".into()), ..Surroundings::default() };
        assert_eq!(bad.find().unwrap_err().code, 2);
        let missing = Surroundings { token_file: Some("/no/such/token".into()), ..Surroundings::default() };
        assert!(missing.find().unwrap_err().message.contains("GANGER_TOKEN_FILE"));
    }
}
