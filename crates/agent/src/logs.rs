//! The logs of ranks: who may read them, the link where the job's user asked for one, and how long they stay.
//!
//! A keeper may run as root, so it must never open a path that a user can turn into something else: the file lies in a
//! directory of ours and only belongs to the user, and `output` becomes a symbolic link to it, made in a directory that
//! the user owns. (Writing the user's path directly was rejected for that reason.)
use crate::account::Account;
use crate::config::LogPolicy;
use crate::folders;
use crate::unit::UnitKey;
use ganger_core::model::ids::JobId;
use ganger_core::model::wire::agent::Launch;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Makes an empty file for `account` alone in a directory of ours; an existing one stays.
///
/// # Errors
/// The file cannot be made.
pub fn create_for(account: &Account, path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(libc_nofollow()).open(path)?;
    if file.metadata()?.uid() != account.uid {
        fchown(&file, Some(account.uid), Some(account.gid))?;
    }
    Ok(())
}

fn libc_nofollow() -> i32 {
    OFlags::NOFOLLOW.bits() as i32
}

/// The path of `output` for one rank: `%j` job, `%x` name, `%t` rank, `%a` attempt, `%%` a percent sign. Of a task of an
/// array `%A` is the array and `%a` the index, as Slurm's users know them.
pub fn output_path(pattern: &str, key: UnitKey, launch: &Launch, workdir: &Path) -> PathBuf {
    let task = launch.task;
    let mut path = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            path.push(character);
            continue;
        }
        match characters.next() {
            Some('j') => path.push_str(&key.job.to_string()),
            Some('A') => path.push_str(&task.map_or(key.job, |task| task.array).to_string()),
            Some('x') => path.push_str(&launch.name.replace('/', "_")),
            Some('t') => path.push_str(&key.lead.to_string()),
            Some('a') => path.push_str(&task.map_or(key.attempt.0, |task| task.index).to_string()),
            Some('%') => path.push('%'),
            Some(other) => path.extend(['%', other]),
            None => path.push('%'),
        }
    }
    workdir.join(path)
}

/// A line of ours at the head of a log, where its reader looks first. A log that cannot be written tells it nobody.
pub fn note(log: &Path, text: &str) {
    let open = OpenOptions::new().append(true).custom_flags(libc_nofollow()).open(log);
    if let Err(error) = open.and_then(|mut file| writeln!(file, "ganger: {text}")) {
        tracing::warn!(log = %log.display(), %error, "nothing can be said in the log");
    }
}

/// Links `link` to the log, in a folder that is made if it is missing. Replaces an older link into `logs`, nothing else.
///
/// # Errors
/// Why there is no link, for people; the log itself is not touched.
pub fn link(link: &Path, log: &Path, logs: &Path, account: &Account) -> Result<(), String> {
    let fail = |why: String| format!("no link {} to the log: {why}", link.display());
    let (Some(dir), Some(name)) = (link.parent(), link.file_name()) else {
        return Err(fail("it names no file".into()));
    };
    folders::make_as(account, dir).map_err(fail)?;
    // The open directory is what is checked and used, so it cannot be exchanged in between.
    let dir: OwnedFd = rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| fail(error.to_string()))?;
    let owner = rustix::fs::fstat(&dir).map_err(|error| fail(error.to_string()))?.st_uid;
    if owner != account.uid {
        return Err(fail(format!("its directory does not belong to {}", account.name)));
    }
    if let Ok(found) = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        let ours = FileType::from_raw_mode(found.st_mode) == FileType::Symlink
            && rustix::fs::readlinkat(&dir, name, Vec::new())
                .is_ok_and(|target| Path::new(std::ffi::OsStr::new(&*target.to_string_lossy())).starts_with(logs));
        if !ours {
            return Err(fail("something else is there".into()));
        }
        rustix::fs::unlinkat(&dir, name, AtFlags::empty()).map_err(|error| fail(error.to_string()))?;
    }
    rustix::fs::symlinkat(log, &dir, name).map_err(|error| fail(error.to_string()))
}

/// What lies in the directory of logs for one job.
#[derive(Default)]
struct Kept {
    bytes: u64,
    newest: Option<SystemTime>,
    paths: Vec<PathBuf>,
}

/// Removes the logs of ended jobs that are too old, then the oldest until the rest is small enough. Jobs in `live` stay.
/// Returns the jobs whose logs went.
pub fn prune(logs: &Path, live: &BTreeSet<JobId>, policy: LogPolicy, now: SystemTime) -> Vec<JobId> {
    let kept = by_job(logs);
    let mut total = kept.values().fold(0u64, |sum, kept| sum.saturating_add(kept.bytes));
    let mut ended: Vec<(JobId, Kept)> = kept.into_iter().filter(|(job, _)| !live.contains(job)).collect();
    ended.sort_by_key(|(job, kept)| (kept.newest, *job));
    let mut gone = Vec::new();
    for (job, kept) in ended {
        let age = kept.newest.and_then(|newest| now.duration_since(newest).ok()).unwrap_or(Duration::ZERO);
        if age <= policy.keep_for && total <= policy.keep_bytes {
            continue;
        }
        match kept.paths.iter().try_for_each(std::fs::remove_file) {
            Ok(()) => {
                total = total.saturating_sub(kept.bytes);
                gone.push(job);
            }
            Err(error) => tracing::warn!(%job, dir = %logs.display(), %error, "old logs cannot be removed"),
        }
    }
    gone
}

/// The files of each job: their names begin with its number.
fn by_job(logs: &Path) -> BTreeMap<JobId, Kept> {
    let mut found: BTreeMap<JobId, Kept> = BTreeMap::new();
    for entry in std::fs::read_dir(logs).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.split('.').next()?.parse().ok());
        let (Some(job), Ok(metadata)) = (number.map(JobId), entry.metadata()) else { continue };
        let kept = found.entry(job).or_default();
        kept.bytes += metadata.len();
        kept.newest = kept.newest.max(metadata.modified().ok());
        kept.paths.push(entry.path());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, TempDir};
    use ganger_core::model::ids::{AttemptNo, Rank};
    use ganger_core::model::job::Launcher;

    fn key() -> UnitKey {
        UnitKey { job: JobId(7), attempt: AttemptNo(2), lead: Rank(3) }
    }

    fn me() -> Account {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Account { name: "me".into(), uid, gid, groups: vec![], home: "/".into(), shell: "/bin/sh".into() }
    }

    #[test]
    fn patterns_are_filled_in() {
        let mut launch = testing::launch(Launcher::Ranks);
        launch.name = "a/b".into();
        let path = |pattern| output_path(pattern, key(), &launch, Path::new("/w"));
        assert_eq!(path("out/%x-%j.%a.%t-100%%-%q"), Path::new("/w/out/a_b-7.2.3-100%-%q"));
        assert_eq!(path("/abs/%t-%A"), Path::new("/abs/3-7"));
        launch.task = Some(testing::task());
        let path = |pattern| output_path(pattern, key(), &launch, Path::new("/w"));
        assert_eq!(path("slurm-%A_%a-%j.out"), Path::new("/w/slurm-5_4-7.out"));
    }

    #[test]
    fn a_link_replaces_only_an_older_link_of_ours() {
        let dir = TempDir::new();
        let (logs, out) = (dir.path().join("logs"), dir.path().join("out"));
        for attempt in ["1.log", "2.log"] {
            link(&out, &logs.join(attempt), &logs, &me()).unwrap();
            assert_eq!(std::fs::read_link(&out).unwrap(), logs.join(attempt));
        }
        let file = dir.path().join("mine");
        std::fs::write(&file, "precious").unwrap();
        let why = link(&file, &logs.join("1.log"), &logs, &me()).unwrap_err();
        assert!(why.contains("something else"), "{why}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
        let stranger = Account { uid: me().uid + 1, ..me() };
        assert!(link(&dir.path().join("x"), &logs.join("1.log"), &logs, &stranger).is_err());
    }

    #[test]
    fn a_folder_that_is_missing_is_made_and_a_log_tells_what_cannot_be() {
        let dir = TempDir::new();
        let (logs, log) = (dir.path().join("logs"), dir.path().join("logs/7.log"));
        let out = dir.path().join("runs/today/out");
        link(&out, &log, &logs, &me()).unwrap();
        assert_eq!(std::fs::read_link(&out).unwrap(), log);
        std::fs::create_dir(&logs).unwrap();
        create_for(&me(), &log).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let why = link(&dir.path().join("file/out"), &log, &logs, &me()).unwrap_err();
        note(&log, &why);
        let said = std::fs::read_to_string(&log).unwrap();
        assert!(
            said.starts_with("ganger: no link ") && said.contains("cannot make the folder") && said.ends_with('\n'),
            "{said}"
        );
    }

    #[test]
    fn old_and_large_logs_go_oldest_first_and_live_ones_stay() {
        let dir = TempDir::new();
        for (job, age, bytes) in [(1, 50, 10), (2, 40, 10), (3, 30, 10), (4, 20, 10), (5, 9_000, 10)] {
            for rank in 0..2 {
                let file = std::fs::File::create(dir.path().join(format!("{job}.1.{rank}.log"))).unwrap();
                file.set_len(bytes / 2).unwrap();
                file.set_modified(SystemTime::now() - Duration::from_secs(age + rank)).unwrap();
            }
        }
        let policy = LogPolicy { keep_for: Duration::from_secs(1_000), keep_bytes: 20 };
        let gone = prune(dir.path(), &BTreeSet::from([JobId(1)]), policy, SystemTime::now());
        assert_eq!(gone, [JobId(5), JobId(2), JobId(3)]);
        let left = by_job(dir.path());
        assert_eq!(left.keys().copied().collect::<Vec<_>>(), [JobId(1), JobId(4)]);
    }
}
