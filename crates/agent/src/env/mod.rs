//! The complete environment of one process: what its framework looks for, what Slurm's users look for, and ours.
//!
//! A pure function of the order and of what the node knows. Nothing is inherited from the agent, so its own secrets
//! cannot leak. What the user sets wins, except for the names that say who a rank is and what it may use: a rank that
//! believes to be another one, or uses another's GPU, breaks more than itself.
mod devices;
mod frameworks;
mod hostlist;
mod layout;
mod slurm;

pub use frameworks::hostfile;
pub use hostlist::compress;

use crate::account::Account;
use crate::inventory::Inventory;
use crate::unit::{Member, UnitKey};
use ganger_core::model::time::Time;
use ganger_core::model::wire::agent::Launch;
use layout::Layout;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Searched where the user names no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// All that the environment depends on.
#[derive(Debug, Clone, Copy)]
pub struct Scene<'a> {
    pub key: UnitKey,
    pub launch: &'a Launch,
    pub members: &'a [Member],
    /// This node's name, and its leaf where known.
    pub node: &'a str,
    pub leaf: Option<&'a str>,
    pub inventory: &'a Inventory,
    pub account: &'a Account,
    pub workdir: &'a Path,
    /// Address and port of rank 0.
    pub rendezvous: (&'a str, u16),
    pub files: &'a Files,
    /// Where the API is, for commands inside the job.
    pub server: &'a str,
    /// The `ganger` program here.
    pub binary: &'a Path,
    pub now: Time,
}

/// The files by which a rank and its agent talk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// Appears when the rank is asked to leave, with the deadline in it.
    pub preempt: PathBuf,
    /// Where the rank announces checkpoints.
    pub announce: PathBuf,
    /// Names all slots; for `mpi`.
    pub hostfile: PathBuf,
    /// Where this attempt writes checkpoints.
    pub checkpoint_dir: Option<PathBuf>,
}

/// Names and values under construction.
#[derive(Debug, Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn set(&mut self, name: &str, value: impl ToString) {
        self.0.insert(name.to_string(), value.to_string());
    }

    fn set_all(&mut self, names: &[&str], value: impl ToString) {
        for name in names {
            self.set(name, value.to_string());
        }
    }
}

/// The environment of the unit's process.
pub fn environment(scene: &Scene) -> BTreeMap<String, String> {
    let layout = Layout::of(scene);
    let mut defaults = Names::default();
    person(scene, &mut defaults);
    devices::defaults(scene, &mut defaults);
    frameworks::defaults(scene, &layout, &mut defaults);
    let mut identity = Names::default();
    frameworks::identity(scene, &layout, &mut identity);
    slurm::identity(scene, &layout, &mut identity);
    devices::identity(scene, &mut identity);
    devices::bounds(scene, &mut identity);
    ours(scene, &layout, &mut identity);
    let mut env = defaults.0;
    env.extend(scene.launch.run.env.clone());
    env.extend(identity.0);
    find_ganger(scene, &mut env);
    env
}

/// Jobs call `ganger` (to announce a checkpoint, say): it is found, after everything that the user named.
fn find_ganger(scene: &Scene, env: &mut BTreeMap<String, String>) {
    let Some(dir) = scene.binary.parent().and_then(Path::to_str) else { return };
    let path = env.entry("PATH".to_string()).or_default();
    if !path.split(':').any(|named| named == dir) {
        path.push(':');
        path.push_str(dir);
    }
}

fn person(scene: &Scene, names: &mut Names) {
    names.set("PATH", DEFAULT_PATH);
    names.set("HOME", scene.account.home.display());
    names.set_all(&["USER", "LOGNAME"], &scene.account.name);
    names.set("SHELL", scene.account.shell.display());
    names.set("LANG", "C.UTF-8");
    names.set("PWD", scene.workdir.display());
}

fn ours(scene: &Scene, layout: &Layout, names: &mut Names) {
    names.set("GANGER_JOB_ID", scene.key.job);
    names.set("GANGER_JOB_NAME", &scene.launch.name);
    names.set("GANGER_QUEUE", &scene.launch.queue);
    names.set("GANGER_ATTEMPT", scene.key.attempt);
    names.set("GANGER_RANK", scene.key.lead);
    names.set("GANGER_WORLD_SIZE", layout.world_size);
    names.set("GANGER_NODE", scene.node);
    names.set("GANGER_NODE_RANK", layout.node_rank);
    names.set("GANGER_NODES", layout.names().collect::<Vec<_>>().join(","));
    names.set("GANGER_NODES_IPS", layout.nodes.iter().map(|node| node.address.as_str()).collect::<Vec<_>>().join(","));
    names.set("GANGER_GPUS_PER_NODE", layout.here().gpus);
    names.set("GANGER_SERVER", scene.server);
    names.set("GANGER_PREEMPT_FILE", scene.files.preempt.display());
    names.set("GANGER_CHECKPOINT_ACK", scene.files.announce.display());
    if let Some(dir) = &scene.files.checkpoint_dir {
        names.set("GANGER_CHECKPOINT_DIR", dir.display());
    }
    if let Some(path) = &scene.launch.resume_from {
        names.set("GANGER_RESUME_FROM", path);
    }
}

#[cfg(test)]
mod tests;
