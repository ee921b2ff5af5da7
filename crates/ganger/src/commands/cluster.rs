//! `ganger cluster`: its shape and settings, shown and applied.
use crate::cli::ClusterCommand;
use crate::client::Api;
use crate::failure::Failure;
use crate::files;
use crate::output::{Look, emit, json::json, say, shape, text::count};
use ganger_core::model::wire::cluster::ClusterFile;
use std::path::Path;

pub async fn run(api: &Api, command: Option<ClusterCommand>, look: &Look) -> Result<(), Failure> {
    match command {
        None | Some(ClusterCommand::Show) => {
            let file = api.cluster().await?;
            emit(&if look.is_json() { json(&file)? } else { shape::page(&file, look) })
        }
        Some(ClusterCommand::Apply { file }) => apply(api, &file).await,
    }
}

async fn apply(api: &Api, file: &Path) -> Result<(), Failure> {
    let text = files::read(file)?;
    let parsed: ClusterFile = files::yaml(&text)?;
    let plan = parsed.clone().into_plan().map_err(|errors| Failure::fields(&text.name, &errors))?;
    let applied = api.apply_cluster(&parsed).await?;
    say(format!(
        "applied: {} placed, {}",
        count(plan.placements.len() as u64, "node"),
        count(plan.settings.len() as u64, "setting")
    ));
    applied.warnings.iter().for_each(|warning| say(format!("warning: {warning}")));
    Ok(())
}
