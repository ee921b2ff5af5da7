//! `ganger queues`.
use crate::cli::QueuesCommand;
use crate::client::Api;
use crate::failure::Failure;
use crate::files;
use crate::output::{Look, emit, json::json, say, table};
use ganger_core::model::wire::api::QueueView;
use ganger_core::model::wire::cluster::QueuesFile;
use std::path::Path;

pub async fn run(api: &Api, command: Option<QueuesCommand>, look: &Look) -> Result<(), Failure> {
    let queues = match command {
        None => api.queues().await?,
        Some(QueuesCommand::Apply { file }) => apply(api, &file).await?,
        Some(QueuesCommand::Remove { queues }) => remove(api, &queues).await?,
    };
    emit(&if look.is_json() { json(&queues)? } else { table::queues(&queues, look) })
}

/// What is odd is told of the queues of the file.
async fn apply(api: &Api, file: &Path) -> Result<Vec<QueueView>, Failure> {
    let text = files::read(file)?;
    let parsed: QueuesFile = files::yaml(&text)?;
    parsed.clone().into_specs().map_err(|errors| Failure::fields(&text.name, &errors))?;
    let queues = api.apply_queues(&parsed).await?;
    let named = |queue: &&QueueView| parsed.queues.iter().any(|said| said.name == queue.name);
    let warnings = queues.iter().filter(named).flat_map(|queue| &queue.warnings);
    warnings.for_each(|warning| say(format!("warning: {warning}")));
    Ok(queues)
}

/// In the order of the words, until one cannot go.
async fn remove(api: &Api, names: &[String]) -> Result<Vec<QueueView>, Failure> {
    let mut left = Vec::new();
    for name in names {
        left = api.remove_queue(name).await?;
    }
    Ok(left)
}
