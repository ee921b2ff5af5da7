//! Tokens: made, listed and revoked by administrators. The secret is shown once, at its making.
use super::{App, JsonBody, Problem};
use crate::auth::{AdminCaller, user_by_name};
use crate::store::{TokenChange, TokenRecord};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use ganger_core::model::time::rfc3339;
use ganger_core::model::wire::api::{ApiError, Role, TokenRequest, TokenView};
use ganger_runtime::secret::Secret;

#[utoipa::path(get, path = "/v1/tokens", tag = "tokens",
    responses((status = 200, body = [TokenView]), (status = "default", body = ApiError)))]
pub(super) async fn list_tokens(State(app): State<App>, _caller: AdminCaller) -> Json<Vec<TokenView>> {
    let mut tokens: Vec<TokenView> = app.cycle.view().tokens.values().map(|token| view(token, None)).collect();
    tokens.sort_by(|a, b| a.name.cmp(&b.name));
    Json(tokens)
}

/// Makes a token; its secret is in this answer and nowhere else.
#[utoipa::path(post, path = "/v1/tokens", tag = "tokens", request_body = TokenRequest,
    responses((status = 201, body = TokenView), (status = "default", body = ApiError)))]
pub(super) async fn create_token(
    State(app): State<App>,
    AdminCaller(caller): AdminCaller,
    JsonBody(request): JsonBody<TokenRequest>,
) -> Result<(StatusCode, Json<TokenView>), Problem> {
    let TokenRequest { name, role, user } = request;
    let user = user.unwrap_or(caller.user);
    check(&app, &name, role, &user)?;
    let secret = Secret::generate().map_err(Problem::internal)?;
    let created_at = app.cycle.view().cluster.now;
    let record = TokenRecord { name, hash: secret.hash(), role, user, created_at };
    app.cycle.token(TokenChange::Put(record.clone())).await?;
    Ok((StatusCode::CREATED, Json(view(&record, Some(secret)))))
}

fn check(app: &App, name: &str, role: Role, user: &str) -> Result<(), Problem> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 63 || !name.chars().all(legal) {
        let text = format!("{name:?} cannot name a token: use letters, digits, dot, dash and underscore, at most 63");
        return Err(Problem::unprocessable("name", text));
    }
    if app.cycle.view().tokens.values().any(|token| token.name == name) {
        let text = format!("there is a token {name:?} already: revoke it first, or choose another name");
        return Err(Problem::conflict("exists", text));
    }
    // An agent's token owns no jobs, so it needs no user of this machine.
    if role != Role::Agent {
        user_by_name(user).map_err(|error| Problem::unprocessable("user", error))?;
    }
    Ok(())
}

/// From the answer on the token opens nothing.
#[utoipa::path(delete, path = "/v1/tokens/{name}", tag = "tokens", params(("name" = String, Path)),
    responses((status = 200, body = Object), (status = "default", body = ApiError)))]
pub(super) async fn revoke_token(
    State(app): State<App>,
    _caller: AdminCaller,
    Path(name): Path<String>,
) -> Result<Json<serde_json::Value>, Problem> {
    if !app.cycle.view().tokens.values().any(|token| token.name == name) {
        return Err(Problem::not_found(format!("there is no token {name:?}; `ganger token list` lists them")));
    }
    app.cycle.token(TokenChange::Remove(name)).await?;
    Ok(Json(serde_json::json!({})))
}

fn view(token: &TokenRecord, secret: Option<Secret>) -> TokenView {
    TokenView {
        name: token.name.clone(),
        role: token.role,
        user: token.user.clone(),
        created_at: rfc3339(token.created_at),
        secret: secret.map(|secret| secret.expose().to_string()),
    }
}
