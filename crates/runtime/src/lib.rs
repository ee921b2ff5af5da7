//! What every shell of Ganger needs around its own work: logging, shutdown, tasks that are joined, the clocks, private
//! files, secrets, and the one HTTP client.
//!
//! Nothing here knows what a job, a node or a GPU is; that is what keeps it usable by all of them.
pub mod clock;
pub mod datadir;
pub mod http;
pub mod logging;
pub mod secret;
pub mod shutdown;
pub mod tasks;
