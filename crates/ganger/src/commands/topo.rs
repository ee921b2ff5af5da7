//! `ganger topo`: the cluster or one machine, drawn.
use crate::cli::Topo;
use crate::client::Api;
use crate::failure::Failure;
use crate::files;
use crate::output::{Look, emit, json::json, picture, say, tree};
use ganger_core::model::machine::matrix::{Hardware, Matrix};
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::machine::{Machine, Source};
use ganger_core::model::wire::api::NodeView;
use std::path::Path;
use std::sync::Arc;

pub async fn online(api: &Api, node: Option<&str>, look: &Look) -> Result<(), Failure> {
    let Some(name) = node else {
        let nodes = api.nodes().await?;
        if look.is_json() {
            return emit(&json(&nodes)?);
        }
        return emit(&tree::cluster(&nodes, &api.jobs(&[]).await?, look));
    };
    let view = api.node(name).await?;
    let machine = machine_of(api, &view).await?;
    emit(&if look.is_json() { json(machine.as_ref())? } else { picture::node(&machine, Some(&view), look) })
}

/// A shipped profile is known here; any other machine is in the server's snapshot.
async fn machine_of(api: &Api, view: &NodeView) -> Result<Arc<Machine>, Failure> {
    if let Ok(machine) = profile(&view.profile) {
        return Ok(machine);
    }
    let snapshot = api
        .snapshot()
        .await
        .map_err(|failure| failure.context(format!("cannot read what {} is made of", view.name)))?;
    let node = snapshot.cluster.node_named(&view.name);
    node.map(|node| node.machine.clone())
        .ok_or_else(|| Failure::failed(format!("the server's snapshot has no node {}", view.name)))
}

pub fn offline(args: Topo, look: &Look) -> Result<(), Failure> {
    let machine = match (&args.from, &args.profile) {
        (Some(path), _) => Arc::new(from_file(path, args.gpu_model.as_deref())?),
        (None, Some(name)) => profile(name).map_err(|error| Failure::wrong(error.to_string()))?,
        (None, None) => return Err(Failure::wrong("name a node, --from FILE or --profile PROFILE")),
    };
    emit(&if look.is_json() { json(machine.as_ref())? } else { picture::node(&machine, None, look) })
}

fn from_file(path: &Path, gpu_model: Option<&str>) -> Result<Machine, Failure> {
    let file = files::read(path)?;
    let wrong =
        |error: ganger_core::model::machine::matrix::MatrixError| Failure::wrong(format!("{}: {error}", file.name));
    let matrix = Matrix::parse(&file.text).map_err(wrong)?;
    let hardware = match gpu_model {
        Some(model) => Hardware::of_model(&file.name, model, Source::Declared).map_err(wrong)?,
        // The text tells neighbourhood only; unknown sizes are 0 and not drawn.
        None => Hardware {
            profile: file.name.clone(),
            gpu_model: String::new(),
            source: Source::Declared,
            vram_bytes: 0,
            pcie_bandwidth_bps: 0,
            network_bandwidth_bps: 0,
            memory_bytes: 0,
            sockets: None,
        },
    };
    for doubt in matrix.doubts() {
        say(format!("note: {}: {doubt}", file.name));
    }
    matrix.to_machine(hardware).map_err(wrong)
}
