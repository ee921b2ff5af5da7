//! A real server in this process, and agents that speak the protocol but start nothing.
#![allow(dead_code, clippy::unwrap_used)]
use ganger_core::model::ids::{AttemptNo, JobId, Rank};
use ganger_core::model::job::Exit;
use ganger_core::model::machine::profiles::profile;
use ganger_core::model::report::Report;
use ganger_core::model::wire::agent::{
    Action, NumberedReport, Order, RegisterReply, RegisterRequest, StreamKind, SyncReply, SyncRequest,
};
use ganger_core::model::wire::api::{JobDetail, Role, TokenRequest, TokenView};
use ganger_runtime::http::{Client, Endpoint, HttpError};
use ganger_runtime::secret::Secret;
use ganger_runtime::shutdown::{Shutdown, Trigger, pair};
use ganger_server::{Config, Running, serve};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;

/// Nothing in a test may take longer; it is a bound, not a wait.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A directory that goes away with it.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ganger-server-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub struct Server {
    pub running: Running,
    trigger: Trigger,
}

impl Server {
    pub async fn start(directory: &Path) -> Server {
        Server::start_with(directory, |_| {}).await
    }

    pub async fn start_with(directory: &Path, change: impl FnOnce(&mut Config)) -> Server {
        let (trigger, shutdown) = pair();
        let mut config = Config::new(directory);
        config.allow_root = true;
        change(&mut config);
        let running = serve(config, shutdown).await.unwrap();
        Server { running, trigger }
    }

    pub async fn stop(self) {
        self.trigger.pull();
        self.running.wait().await;
    }

    /// The owner, by TCP and token.
    pub fn owner(&self) -> Client {
        self.with_token(Secret::read_file(&self.running.owner_token).unwrap())
    }

    pub fn with_token(&self, token: Secret) -> Client {
        Client::new(self.endpoint(), Some(token))
    }

    pub fn endpoint(&self) -> Endpoint {
        Endpoint::parse(&format!("http://{}", self.running.addr.unwrap())).unwrap()
    }

    pub fn by_socket(&self) -> Client {
        Client::new(Endpoint::Unix(self.running.socket.clone()), None)
    }

    pub async fn token(&self, name: &str, role: Role, user: &str) -> Client {
        let request = TokenRequest { name: name.to_string(), role, user: Some(user.to_string()) };
        let view: TokenView = self.owner().post("/v1/tokens", &request).await.unwrap();
        self.with_token(Secret::new(view.secret.unwrap()))
    }
}

/// A job of one worker with all 8 GPUs of a node.
pub fn job(name: &str) -> Value {
    json!({"name": name, "resources": {"gpus": 8, "cpus": 8}, "workdir": "/tmp", "command": ["train"]})
}

/// The same, without GPUs and small.
pub fn small_job(name: &str) -> Value {
    json!({"name": name, "resources": {"cpus": 1}, "workdir": "/tmp", "command": ["true"]})
}

pub async fn submit(client: &Client, job: &Value) -> Result<JobDetail, HttpError> {
    client.post("/v1/jobs", job).await
}

/// Polls until the job is as wanted.
pub async fn until(client: &Client, job: &str, wanted: impl Fn(&JobDetail) -> bool) -> JobDetail {
    let poll = async {
        loop {
            let detail: JobDetail = client.get(&format!("/v1/jobs/{job}")).await.unwrap();
            if wanted(&detail) {
                return detail;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, poll).await;
    match waited {
        Ok(detail) => detail,
        Err(_) => panic!("{:#?}", client.get::<Value>(&format!("/v1/jobs/{job}")).await),
    }
}

/// Does at once whatever it is told, on a machine with eight GPUs. What runs ends when it is told to, or by `finish`.
pub struct Agent {
    pub client: Client,
    pub node: String,
    pub boot_id: String,
    next_number: u64,
    unacknowledged: Vec<NumberedReport>,
    term: u64,
    generation: u64,
    prepared: BTreeSet<(JobId, AttemptNo, Rank)>,
    running: BTreeSet<(JobId, AttemptNo, Rank)>,
    /// Whether workers end by themselves, well, as soon as they run.
    pub finishes: bool,
}

impl Agent {
    pub async fn register(client: Client, node: &str) -> Agent {
        let agent = Agent {
            client,
            node: node.to_string(),
            boot_id: "boot-1".to_string(),
            next_number: 1,
            unacknowledged: Vec::new(),
            term: 0,
            generation: 0,
            prepared: BTreeSet::new(),
            running: BTreeSet::new(),
            finishes: false,
        };
        agent.register_again().await.unwrap();
        agent
    }

    pub async fn register_again(&self) -> Result<RegisterReply, HttpError> {
        let request = RegisterRequest {
            node: self.node.clone(),
            machine: profile("dgx-h100").unwrap(),
            address: "127.0.0.1".to_string(),
            boot_id: self.boot_id.clone(),
            agent: String::new(),
            labels: Default::default(),
            pool: None,
            leaf: None,
            peer_address: Some(format!("{}:9", self.node)),
            version: "test".to_string(),
        };
        self.client.post("/v1/agent/register", &request).await
    }

    pub fn report(&mut self, report: Report) {
        self.unacknowledged.push(NumberedReport { number: self.next_number, report });
        self.next_number += 1;
    }

    pub fn request(&self, wait_ms: u64) -> SyncRequest {
        SyncRequest {
            node: self.node.clone(),
            boot_id: self.boot_id.clone(),
            term_seen: self.term,
            generation_seen: self.generation,
            reports: self.unacknowledged.clone(),
            wait_ms,
            vouched: Vec::new(),
            witness: true,
            peers_seen: 0,
        }
    }

    /// One sync, and what the answer asks for.
    pub async fn sync(&mut self, wait_ms: u64) -> Result<SyncReply, HttpError> {
        let patience = Duration::from_millis(wait_ms) + PATIENCE;
        let reply: SyncReply = self.client.post_within("/v1/agent/sync", &self.request(wait_ms), patience).await?;
        self.unacknowledged.retain(|report| report.number > reply.acknowledged);
        (self.term, self.generation) = (reply.term, reply.generation);
        for order in reply.orders.iter().flatten() {
            self.obey(order);
        }
        for ask in &reply.streams {
            let text = match &ask.kind {
                StreamKind::Log { .. } => format!("log of rank {}\n", ask.rank),
                other => format!("{other:?}\n"),
            };
            let (client, path) = (self.client.clone(), format!("/v1/agent/streams/{}", ask.id));
            tokio::spawn(async move {
                let mut stream = client.upgrade(&path, &json!({})).await.unwrap();
                stream.write_all(text.as_bytes()).await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
        Ok(reply)
    }

    fn obey(&mut self, order: &Order) {
        let Order { job, attempt, rank, .. } = *order;
        let key = (job, attempt, rank);
        match order.action {
            Action::Prepare if self.prepared.insert(key) => {
                self.report(Report::Prepared { job, attempt, rank, port: 20_000 });
            }
            Action::Go { .. } if self.running.insert(key) => {
                self.report(Report::Running { job, attempt, rank });
                if self.finishes {
                    self.report(Report::Ended { job, attempt, rank, exit: Exit::Code(0) });
                }
            }
            Action::Stop { .. } if self.prepared.remove(&key) => {
                self.report(Report::Ended { job, attempt, rank, exit: Exit::Signal(15) });
            }
            _ => {}
        }
    }

    /// Syncs on and on, in a task of its own.
    pub fn spawn(mut self, shutdown: Shutdown) -> JoinHandle<Agent> {
        tokio::spawn(async move {
            while !shutdown.is_pulled() {
                let wait_ms = if self.unacknowledged.is_empty() { 500 } else { 0 };
                if self.sync(wait_ms).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            self
        })
    }
}
