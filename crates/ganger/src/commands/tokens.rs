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
