//! Who is asking. On the Unix socket the kernel names the user; on TCP a bearer token does.
//!
//! Roles: `admin` may do all, `member` submits jobs and acts on own ones, `agent` reaches the agents' routes only.
mod caller;
mod listen;
mod passwd;

pub use caller::{AdminCaller, AgentCaller, Caller};
pub use listen::{Peer, TcpGate, UnixGate};
pub use passwd::{User, UserError, user_by_id, user_by_name};
