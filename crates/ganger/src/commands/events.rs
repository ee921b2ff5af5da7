//! `ganger events`.
use crate::cli::Events;
use crate::client::Api;
use crate::failure::Failure;
use crate::output::{Look, emit, json::json, table};
use ganger_core::model::wire::api::EventView;

pub async fn run(api: &Api, args: Events, look: &Look) -> Result<(), Failure> {
    let since = args.since.map(|number| number.to_string());
    let mut filter = vec![("job", args.job.as_deref()), ("node", args.node.as_deref()), ("since", since.as_deref())];
    if args.follow {
        filter.push(("follow", Some("true")));
        return follow(api, &filter, look).await;
    }
    let events = api.events(&filter).await?;
    emit(&if look.is_json() { json(&events)? } else { table::events(&events, look) })
}

/// One event a line, as they come; as JSON: one object a line.
async fn follow(api: &Api, filter: &[(&str, Option<&str>)], look: &Look) -> Result<(), Failure> {
    let mut stream = api.follow_events(filter).await?;
    let mut buffer: Vec<u8> = Vec::new();
    while let Some(piece) = stream.next().await {
        buffer.extend_from_slice(&piece?);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = buffer.drain(..=end).collect();
            if !line.trim_ascii().is_empty() {
                emit(&event(&line, look)?)?;
            }
        }
    }
    Ok(())
}

fn event(line: &[u8], look: &Look) -> Result<String, Failure> {
    if look.is_json() {
        return Ok(String::from_utf8_lossy(line).into_owned());
    }
    let event: EventView = serde_json::from_slice(line)
        .map_err(|error| Failure::failed(format!("the server sent an event that cannot be read: {error}")))?;
    Ok(table::event_line(&event, look))
}
