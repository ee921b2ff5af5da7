//! Tokens as they are stored: by the hash of their secret, never the secret itself.
use super::StoreError;
use super::write::put;
use ganger_core::model::Time;
use ganger_core::model::wire::api::Role;
use rusqlite::Connection;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    pub name: String,
    /// BLAKE3 of the secret, in hexadecimal.
    pub hash: String,
    pub role: Role,
    pub user: String,
    pub created_at: Time,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenChange {
    /// A token of the same name is replaced.
    Put(TokenRecord),
    Remove(String),
}

impl TokenChange {
    pub(super) fn write(&self, to: &Connection) -> Result<(), StoreError> {
        match self {
            TokenChange::Put(record) => put(
                to,
                "INSERT OR REPLACE INTO tokens (name, hash, role, user, created_at) VALUES (?1, ?2, ?3, ?4, ?5)",
                (&record.name, &record.hash, role_name(record.role), &record.user, super::signed(record.created_at.0)),
            ),
            TokenChange::Remove(name) => put(to, "DELETE FROM tokens WHERE name = ?1", [name]),
        }
    }
}

pub(super) fn read_all(connection: &Connection) -> Result<Vec<TokenRecord>, StoreError> {
    let mut statement = connection.prepare("SELECT name, hash, role, user, created_at FROM tokens ORDER BY name")?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, String>(0)?, row.get(1)?, row.get::<_, String>(2)?, row.get(3)?, row.get(4)?))
    })?;
    let mut records = Vec::new();
    for row in rows {
        let (name, hash, role, user, created_at) = row?;
        let unknown =
            || StoreError::Unreadable { what: format!("token {name:?}"), why: format!("its role is {role:?}") };
        let role = role_named(&role).ok_or_else(unknown)?;
        records.push(TokenRecord { name, hash, role, user, created_at: Time(super::unsigned(created_at)) });
    }
    Ok(records)
}

fn role_name(role: Role) -> &'static str {
    match role {
        Role::Admin => "admin",
        Role::Member => "member",
        Role::Agent => "agent",
    }
}

fn role_named(name: &str) -> Option<Role> {
    [Role::Admin, Role::Member, Role::Agent].into_iter().find(|role| role_name(*role) == name)
}
