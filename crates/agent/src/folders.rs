//! Folders that a job asks for, made with its user's own rights: the kernel says what that user may make where.
use crate::account::Account;
use rustix::process::{Gid, Uid};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Makes `folder` and all above it that are missing.
///
/// # Errors
/// Why it cannot be made, for people.
pub fn make_as(account: &Account, folder: &Path) -> Result<(), String> {
    if folder.is_dir() {
        return Ok(());
    }
    let (own, told) = (account.clone(), folder.to_path_buf());
    // A thread of its own, which ends with the user's rights.
    let made = std::thread::spawn(move || make(&own, &told)).join();
    let made = made.unwrap_or_else(|_| Err("the attempt to make it ended early".to_string()));
    made.map_err(|why| format!("cannot make the folder {} as {}: {why}", folder.display(), account.name))
}

fn make(account: &Account, folder: &PathBuf) -> Result<(), String> {
    if rustix::process::geteuid().as_raw() != account.uid {
        become_user(account).map_err(|error| format!("cannot act as that user: {error}"))?;
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o755).create(folder).map_err(|error| error.to_string())
}

/// Of this thread only, and for good.
fn become_user(account: &Account) -> rustix::io::Result<()> {
    let groups: Vec<Gid> = account.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

    fn user(uid: u32) -> Account {
        Account { name: "ada".into(), uid, gid: uid, groups: vec![], home: "/".into(), shell: "/bin/sh".into() }
    }

    #[test]
    fn folders_are_made_and_those_that_are_there_stay() {
        let dir = TempDir::new();
        let me = user(rustix::process::geteuid().as_raw());
        for _ in 0..2 {
            make_as(&me, &dir.path().join("a/b/c")).unwrap();
        }
        assert!(dir.path().join("a/b/c").is_dir());
        std::fs::write(dir.path().join("file"), "").unwrap();
        let why = make_as(&me, &dir.path().join("file/b")).unwrap_err();
        assert!(why.starts_with("cannot make the folder ") && why.contains(" as ada: "), "{why}");
    }

    #[test]
    fn the_superuser_makes_them_with_the_rights_of_the_jobs_user() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = TempDir::new();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let ada = user(12_345);
        let why = make_as(&ada, &dir.path().join("roots/own")).unwrap_err();
        assert!(why.contains("ermission denied"), "{why}");
        std::fs::create_dir(dir.path().join("adas")).unwrap();
        chown(dir.path().join("adas"), Some(ada.uid), Some(ada.gid)).unwrap();
        make_as(&ada, &dir.path().join("adas/logs/today")).unwrap();
        assert_eq!(std::fs::metadata(dir.path().join("adas/logs/today")).unwrap().uid(), ada.uid);
        std::fs::create_dir(dir.path().join("mine")).unwrap();
        assert_eq!(std::fs::metadata(dir.path().join("mine")).unwrap().uid(), 0, "only that thread changed");
    }
}
