//! What `ganger up` leaves for the other commands of its user: where its server is and where the token lies. One small
//! file a server, named by its port, below `$XDG_STATE_HOME/ganger/servers`.
use ganger_runtime::datadir;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub url: String,
    pub port: u16,
    pub data_dir: PathBuf,
    pub token_file: PathBuf,
    pub pid: u32,
    pub started_at_ms: u64,
}

/// The folder of the records for a user with these variables.
pub fn folder(state_home: Option<PathBuf>, home: Option<PathBuf>) -> Option<PathBuf> {
    let state = state_home.filter(|path| path.is_absolute()).or_else(|| Some(home?.join(".local/state")))?;
    Some(state.join("ganger/servers"))
}

/// Of this process's user.
pub fn own_folder() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from);
    folder(var("XDG_STATE_HOME"), var("HOME"))
}

pub fn write(folder: &Path, record: &Record) -> Result<(), String> {
    datadir::create_private(folder).map_err(|error| error.to_string())?;
    let text = serde_json::to_vec_pretty(record).map_err(|error| error.to_string())?;
    datadir::write_atomic(&folder.join(format!("{}.json", record.port)), &text, 0o600)
        .map_err(|error| error.to_string())
}

/// All records, the newest first. What cannot be read is passed over: it only costs a flag.
pub fn read(folder: &Path) -> Vec<Record> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut records: Vec<Record> =
        entries.filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.ok()?.path()).ok()?).ok()).collect();
    records.sort_by_key(|record| (std::cmp::Reverse(record.started_at_ms), record.port));
    records
}

/// Takes the record away if it is still that of this process.
pub fn remove(folder: &Path, record: &Record) {
    if read(folder).contains(record) {
        // What is left behind is only a stale record; the next `up` on the port replaces it.
        let _ = std::fs::remove_file(folder.join(format!("{}.json", record.port)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_record_comes_first_and_only_the_own_is_removed() {
        let dir = std::env::temp_dir().join(format!("ganger-records-{}", std::process::id()));
        let record = |port: u16, at| Record {
            url: format!("http://127.0.0.1:{port}"),
            port,
            data_dir: "/d".into(),
            token_file: "/d/owner.token".into(),
            pid: 1,
            started_at_ms: at,
        };
        write(&dir, &record(1, 10)).unwrap();
        write(&dir, &record(2, 20)).unwrap();
        std::fs::write(dir.join("junk.json"), "{").unwrap();
        assert_eq!(read(&dir).iter().map(|r| r.port).collect::<Vec<_>>(), [2, 1]);
        remove(&dir, &record(2, 99));
        assert_eq!(read(&dir).len(), 2);
        remove(&dir, &record(2, 20));
        assert_eq!(read(&dir).iter().map(|r| r.port).collect::<Vec<_>>(), [1]);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_folder_is_the_users_own() {
        assert_eq!(folder(None, Some("/home/u".into())), Some("/home/u/.local/state/ganger/servers".into()));
        assert_eq!(folder(Some("/s".into()), None), Some("/s/ganger/servers".into()));
        assert_eq!(folder(Some("relative".into()), None), None);
    }
}
