//! Starting and stopping a server: lock the data directory, load, begin a term, open the doors; and all of it backwards.
use crate::agents::PeerBook;
use crate::api::{self, App};
use crate::auth::{Peer, TcpGate, UnixGate, user_by_id};
use crate::cycle::{self, Cycle, CycleError};
use crate::store::{Store, StoreError, StoreOptions, TokenChange, TokenRecord};
use ganger_core::lifecycle::input::Input;
use ganger_core::model::Time;
use ganger_core::model::wire::api::Role;
use ganger_runtime::clock::unix_ms;
use ganger_runtime::datadir::{self, DataDirError};
use ganger_runtime::secret::Secret;
use ganger_runtime::shutdown::Shutdown;
use ganger_runtime::tasks::Tasks;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::net::{TcpListener, UnixListener};

/// How long open requests have at shutdown. Long polls and streams end at once by themselves.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
const OWNER: &str = "owner";

#[derive(Debug, Clone)]
pub struct Config {
    /// Holds the store, the lock, the owner's token and the socket; made with mode 0700.
    pub data_dir: PathBuf,
    /// A Unix socket elsewhere than `DATA_DIR/ganger.sock`, for users other than the server's own. They are known by the
    /// kernel's word and are members, unless they are the server's user or root.
    pub socket: Option<PathBuf>,
    /// Port 0 takes a free one. `None`: the Unix socket only.
    pub listen: Option<SocketAddr>,
    /// Must be set for a `listen` address that other machines reach.
    pub allow_remote: bool,
    /// Accept jobs of the superuser. Off by default: such a job's processes could do anything on every node. For one
    /// machine whose only user is root (a container, a demonstration) it is sound, and a warning says that it is on.
    pub allow_root: bool,
    /// Scheduler settings by name, set at each start.
    pub settings: BTreeMap<String, String>,
    pub store: StoreOptions,
}

impl Config {
    /// A server on the Unix socket and a free loopback port, with everything else at its default.
    pub fn new(data_dir: impl Into<PathBuf>) -> Config {
        Config {
            data_dir: data_dir.into(),
            socket: None,
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            allow_remote: false,
            allow_root: false,
            settings: BTreeMap::new(),
            store: StoreOptions::default(),
        }
    }
}

#[derive(Debug, Error)]
pub enum ServeError {
    #[error("cannot start the server: {0}")]
    Store(#[from] StoreError),
    #[error("cannot start the server: {0}")]
    Cycle(#[from] CycleError),
    #[error("cannot start the server: {0}")]
    Files(#[from] DataDirError),
    #[error("cannot start the server: the setting {name:?} was refused: {source}")]
    Setting { name: String, source: CycleError },
    #[error(
        "refusing to listen on {0}: other machines reach that address, and the traffic is not encrypted, so tokens could be read \
         on the way. Listen on 127.0.0.1, or give --allow-remote if the network is trusted; every request still needs a token \
         (`ganger token create`; the owner's is {1})"
    )]
    Remote(SocketAddr, PathBuf),
    #[error("cannot listen on {at}: {source}; {hint}")]
    Listen { at: String, source: io::Error, hint: &'static str },
}

/// A server at work.
#[derive(Debug)]
pub struct Running {
    /// Where TCP clients reach it.
    pub addr: Option<SocketAddr>,
    pub socket: PathBuf,
    /// The file with the owner's token, mode 0600.
    pub owner_token: PathBuf,
    cycle: Cycle,
    tasks: Tasks,
    shutdown: Shutdown,
    loop_thread: cycle::Running,
}

/// Starts a server. When this returns it answers; it stops when `shutdown` is pulled and [`Running::wait`] returns then.
pub async fn serve(config: Config, shutdown: Shutdown) -> Result<Running, ServeError> {
    let owner_token = config.data_dir.join("owner.token");
    if let Some(addr) = config.listen.filter(|addr| !addr.ip().is_loopback() && !config.allow_remote) {
        return Err(ServeError::Remote(addr, owner_token));
    }
    let (cycle, loop_thread, reader) = tokio::task::spawn_blocking({
        let (data_dir, options) = (config.data_dir.clone(), config.store.clone());
        move || open(&data_dir, options)
    })
    .await
    .map_err(|_| StoreError::Database("the store could not be opened".to_string()))??;
    write_owner_token(&cycle, &owner_token).await?;
    for (name, value) in &config.settings {
        let input =
            Input::Setting { name: name.clone(), value: value.clone(), by: "the server's configuration".to_string() };
        cycle.apply(input).await.map_err(|source| ServeError::Setting { name: name.clone(), source })?;
    }
    if config.allow_root {
        tracing::warn!("jobs of the superuser are accepted: their processes can do anything on every node");
    }
    let tasks = Tasks::new();
    let app = App {
        cycle: cycle.clone(),
        reader,
        relays: Arc::default(),
        peers: Arc::new(PeerBook::open(&config.data_dir)?),
        tasks: tasks.clone(),
        shutdown: shutdown.clone(),
        allow_root: config.allow_root,
        owner_token: Arc::new(owner_token.clone()),
    };
    let socket = config.socket.clone().unwrap_or_else(|| config.data_dir.join("ganger.sock"));
    open_unix(&app, &socket)?;
    let addr = match config.listen {
        Some(addr) => Some(open_tcp(&app, addr).await?),
        None => None,
    };
    tracing::info!(socket = %socket.display(), addr = addr.map(tracing::field::display), "the server answers");
    Ok(Running { addr, socket, owner_token, cycle, tasks, shutdown, loop_thread })
}

impl Running {
    /// The way to the loop, for tests and benchmarks in the same process.
    pub fn cycle(&self) -> &Cycle {
        &self.cycle
    }

    /// Waits for the shutdown, then until every request is answered and the store is closed.
    pub async fn wait(self) {
        self.shutdown.wait().await;
        self.tasks.stop(STOP_PATIENCE).await;
        let loop_thread = self.loop_thread;
        // The loop ends its last commit first; that may take as long as the disk does.
        let _ = tokio::task::spawn_blocking(move || loop_thread.stop()).await;
        let _ = std::fs::remove_file(&self.socket);
        tracing::info!("the server has stopped");
    }
}

fn open(data_dir: &Path, options: StoreOptions) -> Result<(Cycle, cycle::Running, crate::store::Reader), ServeError> {
    let (store, cluster) = Store::open(data_dir, options)?;
    let reader = store.reader();
    let tokens = reader.tokens()?;
    let (cycle, running) = Cycle::start(store, cluster, tokens)?;
    Ok((cycle, running, reader))
}

/// The owner's token is in a file that only the owner reads. A lost file is replaced, and its token with it.
async fn write_owner_token(cycle: &Cycle, path: &Path) -> Result<(), ServeError> {
    let known = Secret::read_file(path).is_ok_and(|secret| cycle.view().tokens.contains_key(&secret.hash()));
    if known {
        return Ok(());
    }
    let secret = Secret::generate().map_err(|source| DataDirError::Io {
        action: "make a token for",
        path: path.to_path_buf(),
        source,
    })?;
    let uid = rustix::process::geteuid().as_raw();
    let user = user_by_id(uid).map_or_else(|_| uid.to_string(), |user| user.name);
    let created_at = Time(unix_ms());
    let record = TokenRecord { name: OWNER.to_string(), hash: secret.hash(), role: Role::Admin, user, created_at };
    cycle.token(TokenChange::Put(record)).await?;
    datadir::write_atomic(path, format!("{}\n", secret.expose()).as_bytes(), 0o600)?;
    Ok(())
}

async fn open_tcp(app: &App, addr: SocketAddr) -> Result<SocketAddr, ServeError> {
    let hint = "choose another address with --listen";
    let fail = |source| ServeError::Listen { at: addr.to_string(), source, hint };
    let listener = TcpListener::bind(addr).await.map_err(fail)?;
    let bound = listener.local_addr().map_err(fail)?;
    let router = api::router(app.clone()).into_make_service_with_connect_info::<Peer>();
    let shutdown = app.shutdown.clone();
    app.tasks.spawn("HTTP on TCP", async move {
        let ended =
            axum::serve(TcpGate(listener), router).with_graceful_shutdown(async move { shutdown.wait().await }).await;
        log_end(ended);
    });
    Ok(bound)
}

fn open_unix(app: &App, path: &Path) -> Result<(), ServeError> {
    let hint = "paths of sockets are at most 107 bytes long: choose a shorter one";
    let fail = |source| ServeError::Listen { at: path.display().to_string(), source, hint };
    // The lock on the data directory is ours, so a socket that lies here is a dead server's.
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(fail)?;
    // Whoever may enter the directory may knock; the kernel says who it is.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).map_err(fail)?;
    let router = api::router(app.clone()).into_make_service_with_connect_info::<Peer>();
    let shutdown = app.shutdown.clone();
    app.tasks.spawn("HTTP on the Unix socket", async move {
        let ended =
            axum::serve(UnixGate(listener), router).with_graceful_shutdown(async move { shutdown.wait().await }).await;
        log_end(ended);
    });
    Ok(())
}

fn log_end(ended: io::Result<()>) {
    if let Err(error) = ended {
        tracing::error!(%error, "an HTTP listener ended");
    }
}
