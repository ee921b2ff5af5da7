//! The agents' side: they register, long-poll for their orders, and bring byte streams that users asked for.
//!
//! Everything an agent says is a fact for the loop; nothing is answered before it is stored.
mod peers;
mod relay;
mod sync;

pub use peers::PeerBook;
pub use relay::{Relays, relay_both};
pub(crate) use sync::{connect_stream, register, sync};
