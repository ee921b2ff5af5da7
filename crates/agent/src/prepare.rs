//! Preparing: all that can be known to go wrong is looked for before any rank of the gang starts anywhere, so that a
//! node that cannot run its part says so while nothing is lost. Blocking file work; starts nothing.
use crate::account::Account;
use crate::checkpoint;
use crate::env::DEFAULT_PATH;
use crate::inventory::Inventory;
use crate::unit::Unit;
use ganger_core::model::report::Report;
use ganger_core::model::wire::agent::{Devices, Launch};
use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

/// What preparing a unit found.
#[derive(Debug)]
pub struct Preparation {
    pub port: u16,
    /// Keeps the port from being given out again until the unit starts.
    pub listener: TcpListener,
    /// A newer checkpoint than the server named, if there is one.
    pub found: Option<Report>,
}

/// Checks everything a unit needs here.
///
/// # Errors
/// Why it cannot start on this node, for people.
pub fn prepare(unit: &Unit, inventory: &Inventory) -> Result<Preparation, String> {
    unit.members.iter().try_for_each(|member| devices(&member.devices, inventory))?;
    let account = Account::of(&unit.launch.owner);
    may_run_as(&account)?;
    let dir = workdir(&unit.launch, &account);
    enterable(&dir, &account)?;
    command(&unit.launch, &dir, &account)?;
    let found = if unit.is_first_on_node() { checkpoints(unit, &account)? } else { None };
    let listener = TcpListener::bind(("0.0.0.0", 0)).map_err(|error| format!("no port is free: {error}"))?;
    let port = listener.local_addr().map_err(|error| format!("no port is free: {error}"))?.port();
    Ok(Preparation { port, listener, found })
}

fn devices(asked: &Devices, inventory: &Inventory) -> Result<(), String> {
    let machine = &inventory.machine;
    if let Some(gpu) = asked.gpus.iter().find(|gpu| usize::from(**gpu) >= machine.gpus.len()) {
        return Err(format!("GPU {gpu} does not exist: this node has {}", machine.gpus.len()));
    }
    if let Some(nic) = asked.nics.iter().find(|nic| usize::from(**nic) >= machine.nics.len()) {
        return Err(format!("network device {nic} does not exist: this node has {}", machine.nics.len()));
    }
    if let Some((socket, _)) = asked.memory.iter().find(|(s, _)| usize::from(*s) >= machine.sockets.len()) {
        return Err(format!("socket {socket} does not exist: this node has {}", machine.sockets.len()));
    }
    let all = machine.sockets.iter().fold(asked.cpus, |left, socket| left.difference(&socket.cpus));
    match all.first() {
        Some(_) => Err(format!("CPUs {all} do not exist on this node")),
        None => Ok(()),
    }
}

fn may_run_as(account: &Account) -> Result<(), String> {
    let own = rustix::process::geteuid().as_raw();
    if own == 0 || own == account.uid {
        return Ok(());
    }
    Err(format!(
        "the agent runs as uid {own} and cannot start processes of {} (uid {}); run it as root",
        account.name, account.uid
    ))
}

/// The directory that the command starts in: as asked, with `~` for the owner's home; else the home, else `/`.
pub fn workdir(launch: &Launch, account: &Account) -> PathBuf {
    match launch.run.workdir.as_deref() {
        Some("~") => account.home.clone(),
        Some(dir) => match dir.strip_prefix("~/") {
            Some(below) => account.home.join(below),
            None => account.home.join(dir),
        },
        None if account.home.is_dir() => account.home.clone(),
        None => PathBuf::from("/"),
    }
}

fn enterable(dir: &Path, account: &Account) -> Result<(), String> {
    let metadata = std::fs::metadata(dir).map_err(|error| format!("workdir {}: {error}", dir.display()))?;
    if !metadata.is_dir() {
        return Err(format!("workdir {} is not a directory", dir.display()));
    }
    if !account.may(&metadata, 1) {
        return Err(format!("workdir {} may not be entered by {}", dir.display(), account.name));
    }
    Ok(())
}

fn command(launch: &Launch, workdir: &Path, account: &Account) -> Result<(), String> {
    let program = launch.run.command.first().filter(|word| !word.is_empty()).ok_or("the command is empty")?;
    let runs = |path: &Path| std::fs::metadata(path).is_ok_and(|m| m.is_file() && account.may(&m, 1));
    if program.contains('/') {
        let path = workdir.join(program);
        return if runs(&path) { Ok(()) } else { Err(format!("command {} is no program here", path.display())) };
    }
    let path = launch.run.env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    let found = path.split(':').any(|dir| runs(&workdir.join(dir).join(program)));
    if found { Ok(()) } else { Err(format!("command {program:?} is not in the PATH {path}")) }
}

fn checkpoints(unit: &Unit, account: &Account) -> Result<Option<Report>, String> {
    resumable(&unit.launch)?;
    let Some(dir) = unit.launch.checkpoint.dir.as_deref().map(Path::new) else { return Ok(None) };
    let report = checkpoint::probe(dir, &format!("{}-{}", unit.key.job, unit.key.attempt));
    if let Some(problem) = report.problem {
        return Err(problem.to_string());
    }
    if report.created {
        chown(dir, Some(account.uid), Some(account.gid))
            .map_err(|error| format!("cannot give {} to {}: {error}", dir.display(), account.name))?;
    }
    // Only the first rank looks, so that a gang does not read the same files on every node.
    Ok(if unit.key.lead.0 == 0 { newest(unit, dir) } else { None })
}

/// The checkpoint that the server named must still be good as seen from here.
pub fn resumable(launch: &Launch) -> Result<(), String> {
    let Some(path) = &launch.resume_from else { return Ok(()) };
    match checkpoint::verify(Path::new(path)) {
        Ok(_) => Ok(()),
        Err(defect) => Err(format!("it cannot resume here: {defect}")),
    }
}

/// The newest checkpoint that counts, if the server does not know it: jobs may save without announcing.
pub fn newest(unit: &Unit, dir: &Path) -> Option<Report> {
    let (path, verified) = checkpoint::newest_valid(dir).best?;
    let path = path.to_str()?.to_string();
    if unit.launch.resume_from.as_ref() == Some(&path) {
        return None;
    }
    let (job, attempt) = (unit.key.job, unit.key.attempt);
    Some(Report::Checkpoint { job, attempt, step: verified.step?, path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::InventorySource;
    use crate::testing::{self, TempDir};
    use crate::unit::units;
    use ganger_core::model::job::{Launcher, Owner};
    use ganger_core::model::wire::agent::Action;
    use std::sync::Arc;

    fn unit(dir: &TempDir, change: impl FnOnce(&mut Launch, &mut Devices)) -> Unit {
        let mut order = testing::orders(Launcher::Ranks, Action::Prepare).remove(0);
        let mut launch = (*order.launch).clone();
        launch.owner = Owner {
            user: "me".into(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        };
        launch.run.workdir = Some(dir.path().display().to_string());
        change(&mut launch, &mut order.devices);
        order.launch = Arc::new(launch);
        units("n1", &[order], |_| None).remove(0)
    }

    fn outcome(change: impl FnOnce(&mut Launch, &mut Devices)) -> Result<Preparation, String> {
        let dir = TempDir::new();
        let inventory = Inventory::load("n1", &InventorySource::Virtual("dgx-h100".into())).unwrap();
        prepare(&unit(&dir, change), &inventory)
    }

    #[test]
    fn a_port_is_kept_until_the_start() {
        let prepared = outcome(|_, _| ()).unwrap();
        assert!(TcpListener::bind(("0.0.0.0", prepared.port)).is_err());
        drop(prepared.listener);
        TcpListener::bind(("0.0.0.0", prepared.port)).unwrap();
    }

    #[test]
    fn what_cannot_work_is_refused_with_the_reason() {
        let refused = |expected: &str, change: &dyn Fn(&mut Launch, &mut Devices)| {
            let why = outcome(change).unwrap_err();
            assert!(why.contains(expected), "{expected}: {why}");
        };
        refused("GPU 8 does not exist", &|_, devices| devices.gpus = vec![8]);
        refused("CPUs 900-903 do not exist", &|_, devices| {
            devices.cpus = ganger_core::model::cpuset::CpuSet::range(900, 904)
        });
        refused("socket 9 does not exist", &|_, devices| devices.memory = vec![(9, 1)]);
        refused("workdir /nonexistent", &|launch, _| launch.run.workdir = Some("/nonexistent".into()));
        refused("is not a directory", &|launch, _| launch.run.workdir = Some("/proc/version".into()));
        refused("not in the PATH", &|launch, _| launch.run.command = vec!["no-such-program".into()]);
        refused("is no program here", &|launch, _| launch.run.command = vec!["./train".into()]);
        refused("the command is empty", &|launch, _| launch.run.command.clear());
        refused("it cannot resume here", &|launch, _| launch.resume_from = Some("/nonexistent/step-1".into()));
        refused("is a file", &|launch, _| launch.checkpoint.dir = Some("/proc/version".into()));
    }

    #[test]
    fn a_checkpoint_that_nobody_announced_is_found() {
        let dir = TempDir::new();
        let root = dir.path().join("ckpt");
        let step = root.join("step-000012");
        std::fs::create_dir_all(&step).unwrap();
        std::fs::write(step.join("weights"), b"w").unwrap();
        checkpoint::write_manifest(&step, 12).unwrap();
        let inventory = Inventory::load("n0", &InventorySource::Virtual("dgx-h100".into())).unwrap();
        let mut unit = unit(&dir, |launch, _| launch.checkpoint.dir = Some(root.display().to_string()));
        unit.key.lead.0 = 0;
        let found = prepare(&unit, &inventory).unwrap().found;
        assert!(
            matches!(&found, Some(Report::Checkpoint { step: 12, path, .. }) if path.ends_with("step-000012")),
            "{found:?}"
        );
    }
}
