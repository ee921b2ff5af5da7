//! Starting: turns a prepared unit into the launch file of its keeper, with all files that its process expects.
//! Blocking file work; the keeper itself is started by the caller.
use crate::account::Account;
use crate::checkpoint::{Fence, OtherJob};
use crate::config::Config;
use crate::env::{Files, Scene, environment, hostfile};
use crate::inventory::Inventory;
use crate::keeper::LaunchFile;
use crate::logs;
use crate::prepare::{resumable, workdir};
use crate::record::Layout;
use crate::unit::Unit;
use ganger_core::model::cpuset::CpuSet;
use ganger_core::model::job::Launcher;
use ganger_core::model::time::Time;
use ganger_core::model::wire::agent::{Devices, Launch};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

/// What a start needs besides the unit.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    pub config: &'a Config,
    pub inventory: &'a Inventory,
    pub layout: &'a Layout,
    /// Address and port of rank 0.
    pub rendezvous: (&'a str, u16),
    /// Until when a leased worker may run, in boot-time milliseconds.
    pub lease_deadline: Option<u64>,
    pub now: Time,
}

/// Makes the files of `unit` and describes its process.
///
/// # Errors
/// Why it cannot start here, for people.
pub fn launch_file(unit: &Unit, ground: Ground) -> Result<LaunchFile, String> {
    let account = Account::of(&unit.launch.owner);
    // The server may have named another checkpoint than when this was prepared.
    if unit.is_first_on_node() {
        resumable(&unit.launch)?;
    }
    if unit.launch.leased && ground.lease_deadline.is_none() {
        return Err("the agent holds no lease from the server".to_string());
    }
    let files = files(unit, ground.layout, &account)?;
    let dir = workdir(&unit.launch, &account);
    let log = open_logs(unit, ground.layout, &account, &dir)?;
    let scene = Scene {
        key: unit.key,
        launch: &unit.launch,
        members: &unit.members,
        node: &ground.config.node,
        leaf: ground.config.leaf.as_deref(),
        inventory: ground.inventory,
        account: &account,
        workdir: &dir,
        rendezvous: ground.rendezvous,
        files: &files,
        server: &ground.config.server_for_jobs,
        binary: &ground.config.binary,
        now: ground.now,
    };
    let switch = rustix::process::geteuid().as_raw() != account.uid;
    let cpus = unit.members.iter().fold(Default::default(), |all: CpuSet, m| all.union(&m.devices.cpus));
    Ok(LaunchFile {
        job: unit.key.job.0,
        attempt: unit.key.attempt.0,
        rank: unit.key.lead.0,
        command: unit.launch.run.command.clone(),
        env: environment(&scene),
        workdir: dir.clone(),
        uid: switch.then_some(account.uid),
        gid: switch.then_some(account.gid),
        groups: switch.then(|| account.groups.clone()),
        cpus: (!cpus.is_empty()).then(|| cpus.to_string()),
        memory_bytes: memory(unit.members.iter().map(|m| &m.devices)),
        log,
        cgroup: cgroup(ground.config, unit),
        lease_deadline_boottime_ms: ground.lease_deadline.filter(|_| unit.launch.leased),
        pty: unit.launch.run.pty && unit.key.lead.0 == 0,
    })
}

/// Unique on this machine, also if several clusters number their jobs alike on it: two workers in one cgroup would be
/// ended together.
fn cgroup(config: &Config, unit: &Unit) -> String {
    let dir = std::fs::canonicalize(&config.data_dir).unwrap_or_else(|_| config.data_dir.clone());
    let hash = blake3::hash(dir.as_os_str().as_encoded_bytes()).to_hex();
    format!("ganger/{}/{}", &hash[..12], unit.key)
}

fn memory<'a>(devices: impl Iterator<Item = &'a Devices>) -> Option<u64> {
    let bytes: u64 = devices.flat_map(|d| d.memory.iter().map(|(_, bytes)| *bytes)).sum();
    (bytes > 0).then_some(bytes)
}

fn files(unit: &Unit, layout: &Layout, account: &Account) -> Result<Files, String> {
    let (announce, hosts) = (announce_file(layout, unit), layout.exchange(unit.key, "hostfile"));
    let make = || -> std::io::Result<()> {
        logs::create_for(account, &announce)?;
        if unit.launch.run.launcher == Launcher::Mpi {
            std::fs::write(&hosts, hostfile(&unit.launch))?;
        }
        Ok(())
    };
    make().map_err(|error| format!("cannot make the files of the job beside {}: {error}", announce.display()))?;
    Ok(Files {
        preempt: layout.exchange(unit.key, "preempt"),
        announce,
        hostfile: hosts,
        checkpoint_dir: fence(unit, account)?,
    })
}

/// Where the ranks of `unit` announce checkpoints.
pub fn announce_file(layout: &Layout, unit: &Unit) -> PathBuf {
    layout.exchange(unit.key, "checkpoints")
}

/// Shuts older attempts out of the checkpoint directory and names this attempt's own. A job that is given the directory
/// of an ended one takes it over: that is how a job is submitted again.
fn fence(unit: &Unit, account: &Account) -> Result<Option<PathBuf>, String> {
    let Some(dir) = &unit.launch.checkpoint.dir else { return Ok(None) };
    let (job, attempt) = (unit.key.job.to_string(), u64::from(unit.key.attempt.0));
    let fence = Fence::raise(Path::new(dir), &job, attempt, OtherJob::TakeOver).map_err(|error| error.to_string())?;
    let own = fence.checkpoint_dir();
    let give = || -> std::io::Result<()> {
        let metadata = std::fs::symlink_metadata(&own)?;
        if metadata.is_dir() && metadata.uid() != account.uid {
            chown(&own, Some(account.uid), Some(account.gid))?;
        }
        Ok(())
    };
    give().map_err(|error| format!("cannot give {} to {}: {error}", own.display(), account.name))?;
    Ok(Some(own))
}

fn open_logs(unit: &Unit, layout: &Layout, account: &Account, workdir: &Path) -> Result<PathBuf, String> {
    let log = layout.log(unit.key, unit.key.lead.0);
    logs::create_for(account, &log).map_err(|error| format!("cannot make the log {}: {error}", log.display()))?;
    // Ranks without a process of their own share the log of the one that has it.
    for member in unit.members.iter().skip(1) {
        let link = layout.log(unit.key, member.rank.0);
        if let Err(error) = std::os::unix::fs::symlink(log.file_name().unwrap_or_default(), &link) {
            tracing::debug!(link = %link.display(), %error, "no link to the log of the lead");
        }
    }
    if let Some(pattern) = &unit.launch.run.output {
        let path = logs::output_path(pattern, unit.key, &unit.launch, workdir);
        if let Err(why) = logs::link(&path, &log, &layout.logs(), account) {
            tracing::warn!(unit = %unit.key, %why, "the job's output is in its log only");
            logs::note(&log, &format!("{why}; what it prints is here only"));
        }
    }
    Ok(log)
}

/// Writes the file that tells a rank that it is asked to leave: when it will be ended, in seconds since 1970.
///
/// # Errors
/// The file cannot be written.
pub fn write_preempt(preempt: &Path, deadline: Time) -> std::io::Result<()> {
    let fresh = preempt.with_extension("preempt.new");
    std::fs::write(&fresh, format!("{}\n", deadline.0 / 1_000))?;
    std::fs::rename(fresh, preempt)
}

/// The signal that asks the ranks to save and leave.
pub fn stop_signal(launch: &Launch) -> i32 {
    let name = launch.checkpoint.signal.as_deref();
    name.and_then(crate::signals::number).unwrap_or(crate::signals::TERM)
}
