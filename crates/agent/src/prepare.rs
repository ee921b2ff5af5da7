//! Preparing: all that can be known to go wrong is looked for before any rank of the gang starts anywhere, so that a
//! node that cannot run its part says so while nothing is lost. Blocking file work; starts nothing.
use crate::account::Account;
use crate::checkpoint::{self, Defect};
use crate::inventory::Inventory;
use crate::unit::Unit;
use ganger_core::model::report::Report;
use ganger_core::model::split::{self, Slice};
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

/// Why a unit cannot start here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For people.
    pub why: String,
    /// To be told before: that the checkpoint which was named does not count, and which one counts instead.
    pub told: Vec<Report>,
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal { why, told: Vec::new() }
    }
}

/// Checks everything a unit needs here.
///
/// # Errors
/// Why it cannot start on this node.
pub fn prepare(unit: &Unit, inventory: &Inventory) -> Result<Preparation, Refusal> {
    unit.members.iter().try_for_each(|member| devices(&member.devices, inventory))?;
    let account = Account::of(&unit.launch.owner);
    may_run_as(&account)?;
    let dir = workdir(&unit.launch, &account);
    enterable(&dir, &account)?;
    // Whether the command is there is the job's own affair: it fails like in a shell, with 127 and a line in its log.
    if unit.launch.run.command.first().is_none_or(String::is_empty) {
        return Err("the command is empty".to_string().into());
    }
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
    if let Some(slice) = &asked.slice {
        part(slice, inventory)?;
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

/// A part of a GPU: it exists, and somebody here can split the GPU so.
fn part(slice: &Slice, inventory: &Inventory) -> Result<(), String> {
    let (machine, gpu) = (&inventory.machine, slice.gpu);
    if usize::from(gpu) >= machine.gpus.len() {
        return Err(format!("GPU {gpu} does not exist: this node has {}", machine.gpus.len()));
    }
    split::beside(machine, &[], slice).map_err(|why| format!("{} of GPU {gpu}: {why}", slice.name_on(machine)))?;
    if slice.instance().is_some() && !inventory.is_virtual {
        let name = slice.name_on(machine);
        return Err(format!(
            "MIG {name} of GPU {gpu}: this agent has no partition driver and cannot create it; ask for whole GPUs here"
        ));
    }
    Ok(())
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

fn checkpoints(unit: &Unit, account: &Account) -> Result<Option<Report>, Refusal> {
    if let Err(why) = resumable(&unit.launch) {
        return Err(Refusal { told: instead(unit), why });
    }
    let Some(dir) = unit.launch.checkpoint.dir.as_deref().map(Path::new) else { return Ok(None) };
    let report = checkpoint::probe(dir, &format!("{}-{}", unit.key.job, unit.key.attempt));
    if let Some(problem) = report.problem {
        return Err(problem.to_string().into());
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

/// What to tell of a named checkpoint that is no longer good: torn by a crash, or cleared away by the job itself. Nothing
/// where it is only out of sight, because then the node is to blame. Every node says so that finds it, and names the next
/// best one, for whoever is heard first decides what the job resumes from.
fn instead(unit: &Unit) -> Vec<Report> {
    let Some(path) = unit.launch.resume_from.clone() else { return Vec::new() };
    let Err(defect) = checkpoint::verify(Path::new(&path)) else { return Vec::new() };
    let next = unit.launch.checkpoint.dir.as_deref().and_then(|dir| newest(unit, Path::new(dir)));
    let out_of_sight = matches!(defect, Defect::NotFound { .. } | Defect::Unreadable { .. });
    if out_of_sight && next.is_none() {
        return Vec::new();
    }
    let (job, attempt) = (unit.key.job, unit.key.attempt);
    let rejected = Report::CheckpointRejected { job, attempt, path, why: defect.to_string() };
    std::iter::once(rejected).chain(next).collect()
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

    fn outcome(change: impl FnOnce(&mut Launch, &mut Devices)) -> Result<Preparation, Refusal> {
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
            let why = outcome(change).unwrap_err().why;
            assert!(why.contains(expected), "{expected}: {why}");
        };
        refused("GPU 8 does not exist", &|_, devices| devices.gpus = vec![8]);
        refused("GPU 9 does not exist", &|_, devices| devices.slice = Some(testing::mig(9, 0)));
        refused("cannot start there", &|_, devices| devices.slice = Some(testing::mig(0, 2)));
        refused("CPUs 900-903 do not exist", &|_, devices| {
            devices.cpus = ganger_core::model::cpuset::CpuSet::range(900, 904)
        });
        refused("socket 9 does not exist", &|_, devices| devices.memory = vec![(9, 1)]);
        refused("workdir /nonexistent", &|launch, _| launch.run.workdir = Some("/nonexistent".into()));
        refused("is not a directory", &|launch, _| launch.run.workdir = Some("/proc/version".into()));
        refused("the command is empty", &|launch, _| launch.run.command.clear());
        refused("it cannot resume here", &|launch, _| launch.resume_from = Some("/nonexistent/step-1".into()));
        refused("is a file", &|launch, _| launch.checkpoint.dir = Some("/proc/version".into()));
    }

    #[test]
    fn only_virtual_gpus_are_split_without_a_driver() {
        let mut inventory = Inventory::load("n0", &InventorySource::Virtual("dgx-h100".into())).unwrap();
        let asked = Devices { gpus: Vec::new(), slice: Some(testing::mig(0, 4)), ..testing::devices(&[], 0) };
        assert_eq!(devices(&asked, &inventory), Ok(()));
        inventory.is_virtual = false;
        let why = devices(&asked, &inventory).unwrap_err();
        assert!(why.contains("MIG 3g.40gb@4 of GPU 0: this agent has no partition driver"), "{why}");
    }

    fn save(root: &Path, step: u64) -> PathBuf {
        let path = root.join(format!("step-{step:06}"));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("weights"), b"w").unwrap();
        checkpoint::write_manifest(&path, step).unwrap();
        path
    }

    #[test]
    fn a_torn_checkpoint_is_told_with_the_one_before_and_a_missing_one_only_if_others_are_in_sight() {
        let dir = TempDir::new();
        let root = dir.path().join("ckpt");
        let inventory = Inventory::load("n0", &InventorySource::Virtual("dgx-h100".into())).unwrap();
        let refusal = |named: &Path| {
            let unit = unit(&dir, |launch, _| {
                launch.checkpoint.dir = Some(root.display().to_string());
                launch.resume_from = Some(named.display().to_string());
            });
            prepare(&unit, &inventory).unwrap_err()
        };
        let gone = root.join("step-000030");
        assert_eq!(refusal(&gone).told, [], "an empty directory may be a mount that is missing");
        save(&root, 10);
        let torn = save(&root, 20);
        std::fs::write(torn.join("weights"), b"").unwrap();
        for named in [torn, gone] {
            let refusal = refusal(&named);
            assert!(refusal.why.contains("cannot resume here"), "{refusal:?}");
            let [Report::CheckpointRejected { path, .. }, Report::Checkpoint { step: 10, .. }] = &refusal.told[..]
            else {
                panic!("{refusal:?}")
            };
            assert_eq!(*path, named.display().to_string());
        }
    }

    #[test]
    fn a_checkpoint_that_nobody_announced_is_found() {
        let dir = TempDir::new();
        let root = dir.path().join("ckpt");
        save(&root, 12);
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
