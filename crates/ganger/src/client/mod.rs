//! The API, typed: one method per route that the commands use, over the one HTTP client. Finding server and token is
//! `locate`'s work.
pub mod frames;
pub mod locate;
pub mod patience;
pub mod records;

use crate::failure::Failure;
use ganger_core::model::wire::api::*;
use ganger_core::model::wire::cluster::{ClusterFile, QueuesFile};
use ganger_core::model::wire::job::JobFile;
use ganger_runtime::http::{ByteStream, Client, Duplex};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// The server, as the commands see it.
#[derive(Debug, Clone)]
pub struct Api {
    client: Client,
}

pub type Answer<T> = Result<T, Failure>;

/// The longest that one request may wait for a job's end; the client asks again.
const LONG_POLL: Duration = Duration::from_secs(30);

impl Api {
    pub fn new(client: Client) -> Api {
        Api { client }
    }

    pub fn endpoint(&self) -> String {
        self.client.endpoint().to_string()
    }

    pub async fn status(&self) -> Answer<Status> {
        Ok(self.client.get("/v1/status").await?)
    }

    pub async fn submit(&self, job: &JobFile) -> Answer<JobDetail> {
        Ok(self.client.post("/v1/jobs", job).await?)
    }

    /// As [`Api::submit`]; where a live job has its name, it gets that with a number behind it.
    pub async fn submit_numbered(&self, job: &JobFile) -> Answer<JobDetail> {
        Ok(self.client.post("/v1/jobs?numbered=true", job).await?)
    }

    pub async fn dry_run(&self, job: &JobFile) -> Answer<Why> {
        Ok(self.client.post("/v1/jobs?dry_run=true", job).await?)
    }

    pub async fn jobs(&self, filter: &[(&str, Option<&str>)]) -> Answer<Vec<JobView>> {
        Ok(self.client.get(&format!("/v1/jobs{}", query(filter))).await?)
    }

    pub async fn job(&self, job: &str) -> Answer<JobDetail> {
        Ok(self.client.get(&job_path(job, "")).await?)
    }

    pub async fn why(&self, job: &str) -> Answer<Why> {
        Ok(self.client.get(&job_path(job, "/why")).await?)
    }

    /// The job when it has ended, or as it is after `within` (at most half a minute).
    pub async fn wait(&self, job: &str, within: Duration) -> Answer<JobDetail> {
        let within = within.min(LONG_POLL);
        let path = job_path(job, &format!("/wait?timeout_ms={}", within.as_millis()));
        Ok(self.client.get_within(&path, within + Duration::from_secs(15)).await?)
    }

    /// `verb`: `cancel`, `hold`, `release` or `requeue`.
    pub async fn change_job(&self, job: &str, verb: &str) -> Answer<JobDetail> {
        Ok(self.client.post(&job_path(job, &format!("/{verb}")), &empty()).await?)
    }

    pub async fn resize(&self, job: &str, workers: u32) -> Answer<JobDetail> {
        Ok(self.client.post(&job_path(job, "/resize"), &ResizeRequest { workers }).await?)
    }

    /// The log of one rank from a byte on; `attempt`: the newest unless given.
    pub async fn logs(
        &self,
        job: &str,
        rank: u32,
        attempt: Option<u32>,
        follow: bool,
        from: u64,
    ) -> Answer<ByteStream> {
        let attempt = attempt.map(|attempt| format!("&attempt={attempt}")).unwrap_or_default();
        let path = job_path(job, &format!("/logs?rank={rank}{attempt}&follow={follow}&from_byte={from}"));
        Ok(self.client.stream(&path).await?)
    }

    pub async fn exec(&self, job: &str, rank: u32, request: &ExecRequest) -> Answer<Duplex> {
        Ok(self.client.upgrade(&job_path(job, &format!("/exec?rank={rank}")), request).await?)
    }

    pub async fn attach(&self, job: &str) -> Answer<Duplex> {
        Ok(self.client.upgrade(&job_path(job, "/attach"), &empty()).await?)
    }

    pub async fn announce(&self, job: &str, checkpoint: &CheckpointAnnounce) -> Answer<()> {
        let _: Value = self.client.post(&job_path(job, "/checkpoints"), checkpoint).await?;
        Ok(())
    }

    pub async fn nodes(&self) -> Answer<Vec<NodeView>> {
        Ok(self.client.get("/v1/nodes").await?)
    }

    pub async fn node(&self, node: &str) -> Answer<NodeView> {
        Ok(self.client.get(&node_path(node, "")).await?)
    }

    /// `verb`: `drain`, `cordon`, `uncordon`, `quarantine`; `body` is what that route takes.
    pub async fn change_node(&self, node: &str, verb: &str, body: &impl Serialize) -> Answer<NodeView> {
        Ok(self.client.post(&node_path(node, &format!("/{verb}")), body).await?)
    }

    pub async fn queues(&self) -> Answer<Vec<QueueView>> {
        Ok(self.client.get("/v1/queues").await?)
    }

    pub async fn top(&self) -> Answer<TopView> {
        Ok(self.client.get("/v1/top").await?)
    }

    pub async fn usage(&self, filter: &[(&str, Option<&str>)]) -> Answer<Vec<UsageView>> {
        Ok(self.client.get(&format!("/v1/usage{}", query(filter))).await?)
    }

    pub async fn apply_queues(&self, file: &QueuesFile) -> Answer<Vec<QueueView>> {
        Ok(self.client.post("/v1/queues", file).await?)
    }

    pub async fn remove_queue(&self, queue: &str) -> Answer<Vec<QueueView>> {
        Ok(self.client.delete(&format!("/v1/queues/{}", Client::encode(queue))).await?)
    }

    pub async fn cluster(&self) -> Answer<ClusterFile> {
        Ok(self.client.get("/v1/cluster").await?)
    }

    pub async fn apply_cluster(&self, file: &ClusterFile) -> Answer<ClusterApplied> {
        Ok(self.client.post("/v1/cluster", file).await?)
    }

    pub async fn events(&self, filter: &[(&str, Option<&str>)]) -> Answer<Vec<EventView>> {
        Ok(self.client.get(&format!("/v1/events{}", query(filter))).await?)
    }

    /// Newline-delimited JSON, for as long as it takes.
    pub async fn follow_events(&self, filter: &[(&str, Option<&str>)]) -> Answer<ByteStream> {
        Ok(self.client.stream(&format!("/v1/events{}", query(filter))).await?)
    }

    pub async fn tokens(&self) -> Answer<Vec<TokenView>> {
        Ok(self.client.get("/v1/tokens").await?)
    }

    pub async fn create_token(&self, request: &TokenRequest) -> Answer<TokenView> {
        Ok(self.client.post("/v1/tokens", request).await?)
    }

    pub async fn revoke_token(&self, name: &str) -> Answer<()> {
        let _: Value = self.client.delete(&format!("/v1/tokens/{}", Client::encode(name))).await?;
        Ok(())
    }

    pub async fn snapshot(&self) -> Answer<Snapshot> {
        Ok(self.client.get("/v1/snapshot").await?)
    }
}

/// The body of routes that take none.
pub fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

fn job_path(job: &str, rest: &str) -> String {
    format!("/v1/jobs/{}{rest}", Client::encode(job))
}

fn node_path(node: &str, rest: &str) -> String {
    format!("/v1/nodes/{}{rest}", Client::encode(node))
}

/// `?a=1&b=2` of what is set.
fn query(filter: &[(&str, Option<&str>)]) -> String {
    let set = filter.iter().filter_map(|(name, value)| Some(format!("{name}={}", Client::encode((*value)?))));
    let joined = set.collect::<Vec<_>>().join("&");
    if joined.is_empty() { joined } else { format!("?{joined}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded() {
        assert_eq!(job_path("a/b c", "/why"), "/v1/jobs/a%2Fb%20c/why");
        assert_eq!(
            query(&[("queue", Some("research/nlp")), ("user", None), ("all", Some("true"))]),
            "?queue=research%2Fnlp&all=true"
        );
        assert_eq!(query(&[("user", None)]), "");
    }
}
