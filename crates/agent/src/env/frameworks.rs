//! The names of PyTorch's `env://` rendezvous, of `torchrun` (its `PET_` flags) and of Open MPI.
use super::layout::{Layout, nodes};
use super::{Names, Scene};
use ganger_core::model::job::Launcher;
use ganger_core::model::wire::agent::Launch;

pub(super) fn identity(scene: &Scene, layout: &Layout, names: &mut Names) {
    names.set("MASTER_ADDR", scene.rendezvous.0);
    names.set("MASTER_PORT", scene.rendezvous.1);
    names.set("WORLD_SIZE", layout.world_size);
    names.set("RANK", scene.key.lead);
    names.set("LOCAL_RANK", layout.local_rank);
    names.set("LOCAL_WORLD_SIZE", layout.here().ranks.len());
    names.set_all(&["NODE_RANK", "GROUP_RANK"], layout.node_rank);
    names.set("NNODES", layout.nodes.len());
}

/// What a launcher per node reads. Each of these a user may set otherwise.
pub(super) fn defaults(scene: &Scene, layout: &Layout, names: &mut Names) {
    match scene.launch.run.launcher {
        Launcher::Ranks => {}
        Launcher::Torchrun => torchrun(scene, layout, names),
        Launcher::Mpi => mpi(scene, names),
    }
}

/// `torchrun` takes each of its flags from `PET_<FLAG>`. The static rendezvous keeps the order of the nodes, which is
/// that of the fabric; the elastic one numbers them by arrival.
fn torchrun(scene: &Scene, layout: &Layout, names: &mut Names) {
    let (address, port) = scene.rendezvous;
    names.set("PET_NNODES", layout.nodes.len());
    names.set("PET_NPROC_PER_NODE", layout.here().ranks.len());
    names.set("PET_NODE_RANK", layout.node_rank);
    names.set("PET_MASTER_ADDR", address);
    names.set("PET_MASTER_PORT", port);
    names.set("PET_RDZV_BACKEND", "static");
    names.set("PET_RDZV_ENDPOINT", format!("{address}:{port}"));
    names.set("PET_RDZV_ID", format!("{}.{}", scene.key.job, scene.key.attempt));
}

/// Open MPI 4 reads `OMPI_MCA_`, Open MPI 5 `PRTE_MCA_`. Both would take the `SLURM_` names for a Slurm that could start
/// their daemons, so that part of them is switched off.
fn mpi(scene: &Scene, names: &mut Names) {
    let hostfile = scene.files.hostfile.display();
    names.set("OMPI_MCA_orte_default_hostfile", &hostfile);
    names.set("PRTE_MCA_prte_default_hostfile", &hostfile);
    names.set_all(&["OMPI_MCA_plm", "OMPI_MCA_ras", "PRTE_MCA_plm", "PRTE_MCA_ras"], "^slurm");
}

/// One line a node: its address and how many ranks it has.
pub fn hostfile(launch: &Launch) -> String {
    nodes(launch).iter().map(|node| format!("{} slots={}\n", node.address, node.ranks.len())).collect()
}
