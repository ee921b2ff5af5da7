//! `ganger token`.
use crate::cli::TokenCommand;
use crate::client::Api;
use crate::failure::Failure;
use crate::output::{Look, emit, json::json, say, table};
use ganger_core::model::wire::api::TokenRequest;

pub async fn run(api: &Api, command: TokenCommand, look: &Look) -> Result<(), Failure> {
    match command {
        TokenCommand::List => {
            let tokens = api.tokens().await?;
            emit(&if look.is_json() { json(&tokens)? } else { table::tokens(&tokens, look) })
        }
        TokenCommand::Create { name, role, user } => {
            let user =
                user.or_else(own_name).ok_or_else(|| Failure::wrong("cannot tell who you are: give --user NAME"))?;
            let token = api.create_token(&TokenRequest { name, role: role.into(), user }).await?;
            if look.is_json() {
                return emit(&json(&token)?);
            }
            say(format!("created token {} for {}; it is shown this once:", token.name, token.user));
            emit(&format!("{}\n", token.secret.unwrap_or_default()))
        }
        TokenCommand::Revoke { name } => {
            api.revoke_token(&name).await?;
            say(format!("revoked token {name}"));
            Ok(())
        }
    }
}

fn own_name() -> Option<String> {
    ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|user| !user.is_empty()))
}
