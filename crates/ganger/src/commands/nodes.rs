//! Commands that look at nodes or change them.
use crate::cli::{Drain, Quarantine};
use crate::client::{Api, empty};
use crate::failure::Failure;
use crate::output::{Look, emit, json::json, table};
use ganger_core::model::wire::api::{DrainRequest, NodeView, QuarantineRequest};

pub async fn list(api: &Api, names: &[String], look: &Look) -> Result<(), Failure> {
    let nodes = if names.is_empty() {
        api.nodes().await?
    } else {
        let mut nodes = Vec::new();
        for name in names {
            nodes.push(api.node(name).await?);
        }
        nodes
    };
    print(&nodes, look)
}

fn print(nodes: &[NodeView], look: &Look) -> Result<(), Failure> {
    emit(&if look.is_json() { json(nodes)? } else { table::nodes(nodes, look) })
}

pub async fn change(api: &Api, node: &str, verb: &str, look: &Look) -> Result<(), Failure> {
    let view = api.change_node(node, verb, &empty()).await?;
    print_one(view, look)
}

pub async fn drain(api: &Api, args: Drain, look: &Look) -> Result<(), Failure> {
    let request = DrainRequest { at: args.at, lasts: args.lasts };
    let view = api.change_node(&args.node, "drain", &request).await?;
    print_one(view, look)
}

pub async fn quarantine(api: &Api, args: Quarantine, look: &Look) -> Result<(), Failure> {
    let request = QuarantineRequest { cause: args.cause, fenced: args.fenced };
    let view = api.change_node(&args.node, "quarantine", &request).await?;
    print_one(view, look)
}

fn print_one(view: NodeView, look: &Look) -> Result<(), Failure> {
    if look.is_json() { emit(&json(&view)?) } else { print(&[view], look) }
}
