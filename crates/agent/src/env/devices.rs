//! The names by which a process finds its devices: GPUs by UUID, the rails tied to them, its share of the cores.
use super::{Names, Scene};
use ganger_core::model::machine::NicRole;
use ganger_core::model::split::{Mode, Slice};

pub(super) fn defaults(scene: &Scene, names: &mut Names) {
    // The runtime's own default order is by speed, which differs from what `nvidia-smi` shows.
    names.set("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    let cpus = scene.members.first().map_or(0, |member| member.devices.cpus.count());
    names.set("OMP_NUM_THREADS", cpus.max(1));
    let rails = rails(scene);
    if !rails.is_empty() {
        // The leading `=` asks for exact names: without it `mlx5_1` would also take `mlx5_10`.
        names.set("NCCL_IB_HCA", format!("={}", rails.join(",")));
    }
}

pub(super) fn identity(scene: &Scene, names: &mut Names) {
    let whole = gpus(scene).map(|gpu| scene.inventory.gpu_uuid(gpu));
    let gpus: Vec<String> = whole.chain(slices(scene).map(|slice| uuid(scene, slice))).collect();
    // Empty, not absent: a job that asked for no GPU must see none.
    names.set("CUDA_VISIBLE_DEVICES", gpus.join(","));
    names.set("NVIDIA_VISIBLE_DEVICES", if gpus.is_empty() { "void".to_string() } else { gpus.join(",") });
}

/// What bounds a process that shares its GPU by MPS: it sees one GPU, so its number is 0.
pub(super) fn bounds(scene: &Scene, names: &mut Names) {
    for slice in slices(scene).filter(|slice| slice.mode() == Mode::Mps) {
        names.set("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", slice.milli / 10);
        names.set("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", format!("0={}M", slice.vram_bytes >> 20));
    }
}

fn slices<'a>(scene: &'a Scene) -> impl Iterator<Item = &'a Slice> + 'a {
    scene.members.iter().filter_map(|member| member.devices.slice.as_ref())
}

fn uuid(scene: &Scene, slice: &Slice) -> String {
    match slice.instance() {
        Some(instance) => scene.inventory.mig_uuid(slice.gpu, instance),
        None => scene.inventory.gpu_uuid(slice.gpu),
    }
}

/// GPU indices of all members, in rank order.
pub(super) fn gpus<'a>(scene: &'a Scene) -> impl Iterator<Item = u8> + 'a {
    scene.members.iter().flat_map(|member| member.devices.gpus.iter().copied())
}

fn rails<'a>(scene: &'a Scene) -> Vec<&'a str> {
    let mut indices: Vec<u8> = scene.members.iter().flat_map(|member| member.devices.nics.iter().copied()).collect();
    indices.sort_unstable();
    indices.dedup();
    let nics = indices.into_iter().filter_map(|index| scene.inventory.machine.nics.get(usize::from(index)));
    nics.filter(|nic| nic.role == NicRole::Compute).map(|nic| nic.name.as_str()).collect()
}
