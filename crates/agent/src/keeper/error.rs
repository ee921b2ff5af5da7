//! What can go wrong around a keeper, said so that the reader knows which file or request and what to do.

use std::path::{Path, PathBuf};

/// An error of a keeper or of one of its clients.
#[derive(Debug, thiserror::Error)]
pub enum KeeperError {
    /// A file or socket could not be used.
    #[error("cannot {action} {}: {source}", path.display())]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    /// A file or message is not the JSON that it should be.
    #[error("cannot read {}: {source}; it is written by this program only, so look for a foreign writer", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    /// A launch file asks for something impossible; nothing was started.
    #[error("launch file refused: `{field}` {problem}")]
    Launch { field: &'static str, problem: String },
    /// The keeper did not come up.
    #[error("the keeper for {} did not start: {message}", dir.display())]
    NotStarted { dir: PathBuf, message: String },
    /// The keeper answered, and said no.
    #[error("the keeper refused: {0}")]
    Refused(String),
    /// A system call failed that has no file.
    #[error("cannot {action}: {source}")]
    System { action: &'static str, source: std::io::Error },
    /// The other side closed the connection in the middle of something.
    #[error("the keeper of {} closed the connection; read its keeper.log and state.json", dir.display())]
    Closed { dir: PathBuf },
}

impl KeeperError {
    pub(crate) fn file(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { action, path, source }
    }

    pub(crate) fn system<E: Into<std::io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { action, source: source.into() }
    }
}
