//! Whom a process runs as: the owner's name, home and groups, from the local user files.
//!
//! Reads `/etc/passwd` and `/etc/group` itself: the C library's look-up may block on a directory server, and the owner
//! that the server sends already carries the numbers that count.
use ganger_core::model::job::Owner;
use std::path::PathBuf;

/// A user as processes see one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups, without `gid`.
    pub groups: Vec<u32>,
    pub home: PathBuf,
    pub shell: PathBuf,
}

impl Account {
    /// The owner's account; one that the local files do not know lives in `/`.
    pub fn of(owner: &Owner) -> Account {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Account::from_files(owner, &read("/etc/passwd"), &read("/etc/group"))
    }

    fn from_files(owner: &Owner, passwd: &str, group: &str) -> Account {
        let entry = passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.len() >= 7 && fields[2].parse() == Ok(owner.uid));
        let field = |at: usize| entry.as_ref().map(|fields| fields[at]).filter(|text| !text.is_empty());
        let name = field(0).unwrap_or(&owner.user).to_string();
        Account {
            groups: groups_of(&name, owner.gid, group),
            uid: owner.uid,
            gid: owner.gid,
            home: field(5).unwrap_or("/").into(),
            shell: field(6).unwrap_or("/bin/sh").into(),
            name,
        }
    }

    /// Whether permission `bit` (4 read, 2 write, 1 enter) of a file's mode is this account's.
    pub fn may(&self, metadata: &std::fs::Metadata, bit: u32) -> bool {
        use std::os::unix::fs::MetadataExt;
        let (mode, gid) = (metadata.mode(), metadata.gid());
        if self.uid == 0 {
            return bit != 1 || metadata.is_dir() || mode & 0o111 != 0;
        }
        let shift = match () {
            () if metadata.uid() == self.uid => 6,
            () if gid == self.gid || self.groups.contains(&gid) => 3,
            () => 0,
        };
        mode >> shift & bit == bit
    }
}

fn groups_of(name: &str, gid: u32, group: &str) -> Vec<u32> {
    let member = |fields: &[&str]| fields.len() >= 4 && fields[3].split(',').any(|user| user == name);
    let lines = group.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut groups: Vec<u32> =
        lines.filter(|fields| member(fields)).filter_map(|fields| fields[2].parse().ok()).collect();
    groups.retain(|other| *other != gid);
    groups.sort_unstable();
    groups.dedup();
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000:Ada:/home/ada:/bin/zsh\nbroken\n";
    const GROUP: &str = "root:x:0:\nada:x:1000:ada\nvideo:x:44:bob,ada\nadaptors:x:50:adam\nrender:x:105:ada\n";

    #[test]
    fn an_account_has_its_home_shell_and_groups() {
        let owner = Owner { user: "ada".into(), uid: 1000, gid: 1000 };
        let account = Account::from_files(&owner, PASSWD, GROUP);
        assert_eq!((account.home.to_str(), account.shell.to_str()), (Some("/home/ada"), Some("/bin/zsh")));
        assert_eq!(account.groups, [44, 105]);
    }

    #[test]
    fn an_unknown_owner_keeps_name_and_numbers() {
        let owner = Owner { user: "eve".into(), uid: 4242, gid: 7 };
        let account = Account::from_files(&owner, PASSWD, GROUP);
        assert_eq!((account.name.as_str(), account.uid, account.gid), ("eve", 4242, 7));
        assert_eq!(account.home.to_str(), Some("/"));
    }
}
