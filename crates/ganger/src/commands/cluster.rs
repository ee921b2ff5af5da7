//! `ganger cluster apply`.
use crate::cli::ApplyCommand;
use crate::client::Api;
use crate::failure::Failure;
use crate::files;
use crate::output::{say, text::count};
use ganger_core::model::wire::cluster::ClusterFile;

pub async fn run(api: &Api, command: ApplyCommand) -> Result<(), Failure> {
    let ApplyCommand::Apply { file } = command;
    let text = files::read(&file)?;
    let parsed: ClusterFile = files::yaml(&text)?;
    let plan = parsed.clone().into_plan().map_err(|errors| Failure::fields(&text.name, &errors))?;
    api.apply_cluster(&parsed).await?;
    say(format!(
        "applied: {} placed, {}",
        count(plan.placements.len() as u64, "node"),
        count(plan.settings.len() as u64, "setting")
    ));
    Ok(())
}
