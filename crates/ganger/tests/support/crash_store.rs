//! What a server left on disk: read from a copy, so that the next server recovers the very files that the dead one left.
use ganger_core::lifecycle::{self, Input};
use ganger_core::model::Cluster;
use ganger_core::model::ids::JobId;
use ganger_core::scheduler::decide;
use ganger_server::store::{Recording, Store};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

pub struct Remains {
    pub cluster: Cluster,
    store: Store,
}

impl Remains {
    /// Copies the store in `data_dir` to `copy` and opens it there.
    pub fn read(data_dir: &Path, copy: &Path) -> Remains {
        let _ = fs::remove_dir_all(copy);
        fs::create_dir(copy).unwrap();
        for entry in fs::read_dir(data_dir).unwrap().flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().starts_with("ganger.db") {
                fs::copy(entry.path(), copy.join(name)).unwrap();
            }
        }
        let (store, cluster) = Store::open(copy, Default::default()).unwrap();
        Remains { cluster, store }
    }

    pub fn knows(&self, id: u64) -> bool {
        self.cluster.jobs.contains_key(&JobId(id)) || self.store.finished(JobId(id)).unwrap().is_some()
    }

    /// Names of live jobs.
    pub fn names(&self) -> BTreeSet<&str> {
        self.cluster.jobs.values().map(|job| job.spec.name.as_str()).collect()
    }

    /// The records must be the state that the dead server had in memory, which is that of all its inputs applied in
    /// order, and a decision from either must be the same. The previous server's state must be the one it began with.
    pub fn assert_same_as_before(&self, left_by_the_one_before: Option<&Cluster>) {
        let recording: Recording = self.store.reader().recording().unwrap().unwrap();
        if let Some(before) = left_by_the_one_before.filter(|before| before.term == recording.start.term) {
            assert_eq!(normal(&recording.start), normal(before), "a server began with another state than was left");
        }
        let memory = replay(recording);
        let (memory, records) = (normal(&memory), normal(&self.cluster));
        assert_eq!(memory, records, "the records differ from what the server had in memory");
        let now = self.cluster.now;
        assert_eq!(decide(&memory, now), decide(&records, now));
    }
}

fn replay(recording: Recording) -> Cluster {
    let mut cluster = recording.start;
    for logged in recording.inputs {
        for (node, at) in logged.heard {
            lifecycle::apply(&mut cluster, Input::Heard { node }, at).unwrap();
        }
        lifecycle::apply(&mut cluster, logged.input, logged.at).unwrap();
    }
    cluster
}

/// What a restart may change: when agents were heard, what the last decision said of waiting jobs, and the moment.
pub fn normal(cluster: &Cluster) -> Cluster {
    let mut cluster = cluster.clone();
    cluster.now = Default::default();
    cluster.blocked.clear();
    cluster.doubtful.clear();
    for node in &mut cluster.nodes {
        Arc::make_mut(node).last_heard = Default::default();
    }
    cluster
}
