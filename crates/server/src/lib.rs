//! The control plane's shell around the pure core: HTTP API, durable store, the one loop, agents' long polls.
//!
//! It holds no placement logic. What happens is an input to `lifecycle::apply`, what is chosen comes from
//! `scheduler::decide`; the server stores both before it tells anybody. [`serve`] starts it within any tokio runtime.
pub mod agents;
pub mod api;
pub mod auth;
pub mod cycle;
mod serve;
pub mod store;

pub use serve::{Config, Running, ServeError, serve};
pub use store::StoreOptions;
