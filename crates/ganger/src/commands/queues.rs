//! `ganger queues`.
use crate::cli::ApplyCommand;
use crate::client::Api;
use crate::failure::Failure;
use crate::files;
use crate::output::{Look, emit, json::json, table};
use ganger_core::model::wire::cluster::QueuesFile;

pub async fn run(api: &Api, command: Option<ApplyCommand>, look: &Look) -> Result<(), Failure> {
    let queues = match command {
        None => api.queues().await?,
        Some(ApplyCommand::Apply { file }) => {
            let text = files::read(&file)?;
            let parsed: QueuesFile = files::yaml(&text)?;
            parsed.clone().into_specs().map_err(|errors| Failure::fields(&text.name, &errors))?;
            api.apply_queues(&parsed).await?
        }
    };
    emit(&if look.is_json() { json(&queues)? } else { table::queues(&queues, look) })
}
