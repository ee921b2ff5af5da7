//! The person or agent behind a request, and what each role may do.
use super::listen::Peer;
use super::passwd::{user_by_id, user_by_name};
use crate::api::{App, Problem};
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use ganger_core::model::job::Owner;
use ganger_core::model::wire::api::Role;
use ganger_runtime::secret::Secret;

/// An authenticated caller of any role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The user's name, which owns what is submitted.
    pub user: String,
    pub role: Role,
    /// From the kernel, when it came by the Unix socket.
    ids: Option<(u32, u32)>,
}

/// A caller that may do everything.
#[derive(Debug, Clone)]
pub struct AdminCaller(pub Caller);

/// A caller that may speak as an agent: an agent's token, or an administrator.
#[derive(Debug, Clone)]
pub struct AgentCaller(pub Caller);

impl Caller {
    /// As whom its jobs run. On TCP the numbers come from this machine's users.
    pub fn owner(&self) -> Result<Owner, Problem> {
        let (uid, gid) = match self.ids {
            Some(ids) => ids,
            None => user_by_name(&self.user)
                .map(|user| (user.uid, user.gid))
                .map_err(|e| Problem::unprocessable("user", e))?,
        };
        Ok(Owner { user: self.user.clone(), uid, gid })
    }

    /// Members act on their own jobs, administrators on all.
    pub fn may_act_on(&self, owner: &Owner, what: &str) -> Result<(), Problem> {
        if self.role == Role::Admin || (self.role == Role::Member && owner.user == self.user) {
            return Ok(());
        }
        let (user, own) = (&self.user, &owner.user);
        Err(Problem::forbidden(format!(
            "{what} belongs to {own}; {user} may act on own jobs only: ask {own} or an administrator"
        )))
    }

    fn of_peer(peer: Peer, token: Option<&str>, app: &App) -> Result<Caller, Problem> {
        match (peer, token) {
            (Peer::Unix { uid, gid }, None) => Caller::of_unix_user(uid, gid),
            (_, Some(token)) => Caller::of_token(token, app),
            (Peer::Tcp, None) => Err(Problem::unauthorized(format!(
                "a token is needed on TCP: send `Authorization: Bearer TOKEN` (the command line finds it in GANGER_TOKEN or \
                 GANGER_TOKEN_FILE; the server's owner has one in {}; `ganger token create` makes others)",
                app.owner_token.display()
            ))),
        }
    }

    fn of_unix_user(uid: u32, gid: u32) -> Result<Caller, Problem> {
        let user = user_by_id(uid).map_err(|e| Problem::forbidden(format!("cannot tell who is asking: {e}")))?;
        let is_owner = uid == 0 || uid == rustix::process::geteuid().as_raw();
        let role = if is_owner { Role::Admin } else { Role::Member };
        Ok(Caller { user: user.name, role, ids: Some((uid, gid)) })
    }

    fn of_token(token: &str, app: &App) -> Result<Caller, Problem> {
        let view = app.cycle.view();
        let record = view.tokens.get(&Secret::new(token).hash()).ok_or_else(|| {
            Problem::unauthorized("the token is not known here: it was revoked, or belongs to another server")
        })?;
        Ok(Caller { user: record.user.clone(), role: record.role, ids: None })
    }
}

fn authenticate(parts: &Parts, app: &App) -> Result<Caller, Problem> {
    let peer = parts.extensions.get::<ConnectInfo<Peer>>().map_or(Peer::Tcp, |ConnectInfo(peer)| *peer);
    let token = match parts.headers.get(AUTHORIZATION) {
        None => None,
        Some(value) => {
            let text = value.to_str().ok().and_then(|text| text.strip_prefix("Bearer "));
            let form = "the Authorization header is not of the form `Bearer TOKEN`";
            Some(text.ok_or_else(|| Problem::unauthorized(form))?.trim())
        }
    };
    Caller::of_peer(peer, token, app)
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    /// An agent's token opens none of the users' routes.
    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Caller, Problem> {
        let caller = authenticate(parts, app)?;
        match caller.role {
            Role::Agent => Err(Problem::forbidden("an agent's token opens the agents' routes only".to_string())),
            Role::Admin | Role::Member => Ok(caller),
        }
    }
}

impl FromRequestParts<App> for AdminCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<AdminCaller, Problem> {
        let caller = authenticate(parts, app)?;
        match caller.role {
            Role::Admin => Ok(AdminCaller(caller)),
            _ => Err(Problem::forbidden(format!("{} is not an administrator here, and this needs one", caller.user))),
        }
    }
}

impl FromRequestParts<App> for AgentCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<AgentCaller, Problem> {
        let caller = authenticate(parts, app)?;
        match caller.role {
            Role::Agent | Role::Admin => Ok(AgentCaller(caller)),
            Role::Member => Err(Problem::forbidden("this route is for agents: it needs an agent's token".to_string())),
        }
    }
}
