//! Users of this machine, from `/etc/passwd`. Directory services are not asked: what a job runs as must be there when
//! the network is not.
use std::path::PathBuf;
use thiserror::Error;

const PASSWD: &str = "/etc/passwd";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub home: PathBuf,
}

#[derive(Debug, Error)]
pub enum UserError {
    #[error("user {0:?} is not in {PASSWD} of the server: add the user there, or make a token for one that exists")]
    NoSuchName(String),
    #[error("no user with the number {0} is in {PASSWD} of the server: add one there")]
    NoSuchId(u32),
    #[error("cannot read {PASSWD}: {0}")]
    Unreadable(#[from] std::io::Error),
}

pub fn user_by_name(name: &str) -> Result<User, UserError> {
    let text = std::fs::read_to_string(PASSWD)?;
    users(&text).find(|user| user.name == name).ok_or_else(|| UserError::NoSuchName(name.to_string()))
}

pub fn user_by_id(uid: u32) -> Result<User, UserError> {
    let text = std::fs::read_to_string(PASSWD)?;
    users(&text).find(|user| user.uid == uid).ok_or(UserError::NoSuchId(uid))
}

/// Lines that are not entries are passed over, as the C library does.
fn users(text: &str) -> impl Iterator<Item = User> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(':');
        let (name, _password) = (fields.next()?, fields.next()?);
        let uid = fields.next()?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        let home = fields.nth(1).unwrap_or_default().into();
        (!name.is_empty()).then(|| User { name: name.to_string(), uid, gid, home })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_and_other_lines_passed_over() {
        let text = "root:x:0:0:root:/root:/bin/sh\n# note\n+::::::\nada:x:1000:100:Ada,,,:/home/ada:/bin/bash\nbad:x:y:0::/:\n";
        let found: Vec<User> = users(text).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], User { name: "ada".into(), uid: 1000, gid: 100, home: "/home/ada".into() });
    }

    #[test]
    fn an_unknown_user_is_named_in_the_error() {
        let error = user_by_name("no-such-user-here").unwrap_err().to_string();
        assert!(error.contains("no-such-user-here"), "{error}");
    }
}
