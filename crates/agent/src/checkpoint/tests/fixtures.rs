//! A temporary directory and builders of small checkpoints of each format.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A directory that goes away with its value.
pub struct Tree(PathBuf);

impl Tree {
    pub fn new() -> Self {
        let name = format!("ganger-checkpoint-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        if relative == "." { self.0.clone() } else { self.0.join(relative) }
    }

    pub fn write(&self, relative: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(relative);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub fn remove(&self, relative: &str) -> &Self {
        let path = self.path(relative);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
        self
    }

    /// Cuts a file to `bytes`.
    pub fn cut(&self, relative: &str, bytes: u64) -> &Self {
        fs::OpenOptions::new().write(true).open(self.path(relative)).unwrap().set_len(bytes).unwrap();
        self
    }

    pub fn bytes(&self, relative: &str) -> u64 {
        fs::metadata(self.path(relative)).unwrap().len()
    }

    /// Cuts the last `bytes` off a file.
    pub fn shorten(&self, relative: &str, bytes: u64) -> &Self {
        self.cut(relative, self.bytes(relative) - bytes)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A safetensors file of F32 vectors: (name, elements).
pub fn safetensors(tensors: &[(&str, u64)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for (name, elements) in tensors {
        let end = at + elements * 4;
        header.insert(
            (*name).into(),
            serde_json::json!({"dtype": "F32", "shape": [elements], "data_offsets": [at, end]}),
        );
        at = end;
    }
    with_header(&serde_json::Value::Object(header).to_string(), at)
}

pub fn with_header(header: &str, data_bytes: u64) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend((0..data_bytes).map(|index| index as u8));
    file
}

/// What `torch.save` writes: a stored ZIP64 archive of one member.
pub fn torch(payload: &[u8]) -> Vec<u8> {
    let name = b"archive/data.pkl";
    let mut file = b"PK\x03\x04\0\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend_from_slice(&crc_and_sizes(payload));
    file.extend_from_slice(&(name.len() as u16).to_le_bytes());
    file.extend_from_slice(&[0, 0]);
    file.extend_from_slice(name);
    file.extend_from_slice(payload);
    let directory_at = file.len() as u64;
    file.extend_from_slice(b"PK\x01\x02\0\0\0\0\0\0\0\0\0\0\0\0");
    file.extend_from_slice(&crc_and_sizes(payload));
    file.extend_from_slice(&(name.len() as u16).to_le_bytes());
    file.extend_from_slice(&[0; 16]);
    file.extend_from_slice(name);
    let directory_bytes = file.len() as u64 - directory_at;
    let end_at = file.len() as u64;
    file.extend_from_slice(b"PK\x06\x06");
    file.extend_from_slice(&44_u64.to_le_bytes());
    file.extend_from_slice(&[0x1e, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for number in [1, 1, directory_bytes, directory_at] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    file.extend_from_slice(b"PK\x06\x07\0\0\0\0");
    file.extend_from_slice(&end_at.to_le_bytes());
    file.extend_from_slice(&1_u32.to_le_bytes());
    file.extend_from_slice(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    file.extend_from_slice(&(directory_bytes as u32).to_le_bytes());
    file.extend_from_slice(&(directory_at as u32).to_le_bytes());
    file.extend_from_slice(&[0, 0]);
    file
}

fn crc_and_sizes(payload: &[u8]) -> Vec<u8> {
    let size = (payload.len() as u32).to_le_bytes();
    [[0; 4], size, size].concat()
}

/// A `.metadata` of DCP: a pickle that spells the shards' names.
pub fn dcp_metadata(shards: &[&str]) -> Vec<u8> {
    let mut pickle = vec![0x80, 4];
    for shard in shards {
        pickle.extend_from_slice(&[0x8c, shard.len() as u8]);
        pickle.extend_from_slice(shard.as_bytes());
        pickle.push(0x94);
    }
    pickle.push(b'.');
    pickle
}

/// Two ranks; rank 1's second writer had nothing to write.
pub fn dcp(tree: &Tree, at: &str) {
    tree.write(&format!("{at}/__0_0.distcp"), [torch(b"one"), torch(b"two")].concat());
    tree.write(&format!("{at}/__1_0.distcp"), torch(b"three"));
    tree.write(&format!("{at}/__1_1.distcp"), b"");
    tree.write(&format!("{at}/.metadata"), dcp_metadata(&["__0_0.distcp", "__1_0.distcp", "__0_0.distcp"]));
}

pub fn orbax(tree: &Tree, at: &str) {
    tree.write(&format!("{at}/_CHECKPOINT_METADATA"), r#"{"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": 2}"#);
    tree.write(&format!("{at}/default/_METADATA"), r#"{"tree_metadata": {}, "use_ocdbt": true}"#);
    tree.write(&format!("{at}/default/manifest.ocdbt"), b"manifest");
    tree.write(&format!("{at}/default/d/0a1b"), b"array data");
    tree.write(&format!("{at}/default/ocdbt.process_0/manifest.ocdbt"), b"manifest");
    tree.write(&format!("{at}/default/ocdbt.process_0/d/77"), b"array data");
}

/// ZeRO 2, two data-parallel and two model-parallel ranks.
pub fn deepspeed(tree: &Tree, root: &str, step: u64) {
    for model in 0..2 {
        tree.write(&format!("{root}/global_step{step}/mp_rank_{model:02}_model_states.pt"), torch(b"model"));
        for data in 0..2 {
            let name = format!("{root}/global_step{step}/bf16_zero_pp_rank_{data}_mp_rank_{model:02}_optim_states.pt");
            tree.write(&name, torch(b"optimizer"));
        }
    }
    tree.write(&format!("{root}/latest"), format!("global_step{step}"));
}

/// Two tensor ranks by two pipeline ranks, with a distributed optimizer.
pub fn megatron(tree: &Tree, root: &str, iteration: u64) {
    for (tensor, pipeline) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let folder = format!("{root}/iter_{iteration:07}/mp_rank_{tensor:02}_{pipeline:03}");
        tree.write(&format!("{folder}/model_optim_rng.pt"), torch(b"model"));
        tree.write(&format!("{folder}/distrib_optim.pt"), torch(b"optimizer"));
    }
    tree.write(&format!("{root}/latest_checkpointed_iteration.txt"), iteration.to_string());
}

pub fn megatron_dist(tree: &Tree, root: &str, iteration: u64) {
    let at = format!("{root}/iter_{iteration:07}");
    dcp(tree, &at);
    tree.write(&format!("{at}/common.pt"), torch(b"common"));
    tree.write(&format!("{at}/metadata.json"), r#"{"sharded_backend": "torch_dist", "sharded_backend_version": 1}"#);
}

pub fn sharded(tree: &Tree, at: &str) {
    tree.write(&format!("{at}/model-00001-of-00002.safetensors"), safetensors(&[("a", 300), ("b", 20)]));
    tree.write(&format!("{at}/model-00002-of-00002.safetensors"), safetensors(&[("c", 10)]));
    let index = serde_json::json!({"metadata": {"total_size": 1320}, "weight_map": {
        "a": "model-00001-of-00002.safetensors", "b": "model-00001-of-00002.safetensors", "c": "model-00002-of-00002.safetensors"}});
    tree.write(&format!("{at}/model.safetensors.index.json"), index.to_string());
}

pub fn trainer(tree: &Tree, root: &str, step: u64) -> String {
    let at = format!("{root}/checkpoint-{step}");
    sharded(tree, &at);
    tree.write(&format!("{at}/config.json"), "{}");
    for name in ["optimizer.pt", "scheduler.pt", "training_args.bin", "rng_state_0.pth", "rng_state_1.pth"] {
        tree.write(&format!("{at}/{name}"), torch(name.as_bytes()));
    }
    tree.write(&format!("{at}/trainer_state.json"), format!(r#"{{"global_step": {step}, "epoch": 0.5}}"#));
    at
}

/// A checkpoint of our own with one file.
pub fn own(tree: &Tree, at: &str, step: u64) -> PathBuf {
    tree.write(&format!("{at}/weights.bin"), format!("weights of step {step}"));
    super::super::write_manifest(&tree.path(at), step).unwrap();
    tree.path(at)
}

/// The names that a scan skipped, in order.
pub fn names(skipped: &[(PathBuf, super::super::Defect)]) -> Vec<&str> {
    skipped.iter().map(|(path, _)| path.file_name().and_then(|name| name.to_str()).unwrap()).collect()
}

pub fn entry(path: &Path, tree: &Tree) -> String {
    path.strip_prefix(tree.path(".")).unwrap().to_str().unwrap().to_owned()
}
