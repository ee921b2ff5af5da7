//! `ganger top` and `ganger usage`.
use crate::cli::{Top, Usage};
use crate::client::Api;
use crate::failure::Failure;
use crate::output::{Look, emit, json::json, overview};
use std::io::IsTerminal;
use std::time::Duration;

/// Clears the screen and goes to its upper left corner.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Once, or again and again until somebody ends it.
pub async fn top(api: &Api, args: Top, look: &Look) -> Result<(), Failure> {
    let Some(every) = args.watch else {
        let view = api.top().await?;
        return emit(&if look.is_json() { json(&view)? } else { overview::top(&view, look) });
    };
    loop {
        let view = api.top().await?;
        let look = Look { now_ms: ganger_runtime::clock::unix_ms(), ..*look };
        emit(&match look.is_json() {
            true => serde_json::to_string(&view).map_err(|error| Failure::failed(error.to_string()))? + "\n",
            false if std::io::stdout().is_terminal() => format!("{CLEAR}{}", overview::top(&view, &look)),
            false => overview::top(&view, &look),
        })?;
        tokio::time::sleep(Duration::from_millis(every.0.max(100))).await;
    }
}

pub async fn usage(api: &Api, args: Usage, look: &Look) -> Result<(), Failure> {
    let lines = api.usage(&[("queue", args.queue.as_deref()), ("user", args.user.as_deref())]).await?;
    emit(&if look.is_json() { json(&lines)? } else { overview::usage(&lines, look) })
}
