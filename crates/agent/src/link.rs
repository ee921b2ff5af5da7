//! The link to the server: registers, long-polls for orders, and pushes reports, on two independent loops.
//!
//! Reports go out on requests of their own that do not wait, so a long poll is never cut off for them (an answer that is
//! dropped on the way may have named a stream that nobody would name again). Both loops retry with a capped backoff for
//! as long as the server is away; they end only with the agent.
use crate::config::Config;
use crate::contact::{Contact, Standing};
use crate::journal::Journal;
use ganger_core::model::machine::Machine;
use ganger_core::model::wire::agent::{
    NumberedReport, Order, RegisterReply, RegisterRequest, StreamAsk, SyncReply, SyncRequest,
};
use ganger_runtime::clock::boottime_ms;
use ganger_runtime::datadir::write_atomic;
use ganger_runtime::http::{Client, HttpError, StatusCode};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::MissedTickBehavior;

/// Reports in one request.
const BATCH: usize = 256;
const BACKOFF_FIRST_MS: u64 = 100;
const BACKOFF_LAST_MS: u64 = 10_000;
/// A long poll lasts this part of the lease. When the server dies, the last answer may be to a poll that was sent two polls
/// ago, from which the lease counts, while a peer was answered just now: both must have lost the server, after three
/// quarters of the lease, before keepers warn workers of the end of the first one's lease, two seconds ahead. Sixteen
/// leaves an eighth of the lease, less that warning, to ask peers in.
const POLLS_PER_LEASE: u64 = 16;

/// Two requests of a loop are at least so far apart, so that on a busy node several orders, and several reports, travel
/// together. On a node where little happens nothing waits for this.
const PACE: Duration = Duration::from_millis(40);

/// What a good answer brought.
#[derive(Debug)]
pub struct News {
    /// `None`: the agent has newer ones already.
    pub orders: Option<Vec<Order>>,
    pub streams: Vec<StreamAsk>,
}

/// Shared by all that talk to the server or to peers.
pub struct Link {
    pub config: Config,
    pub client: Client,
    pub machine: Arc<Machine>,
    pub peer_address: Option<String>,
    pub contact: Mutex<Contact>,
    pub contact_file: PathBuf,
    /// What the file holds. Locked while it is written: two writers would use one temporary name.
    pub saved: Mutex<Option<Contact>>,
    pub journal: Arc<Mutex<Journal>>,
    /// Set when the journal has something new.
    pub reports: Notify,
    /// Set when leases were prolonged.
    pub leases: Notify,
    pub news: UnboundedSender<News>,
}

impl Link {
    pub fn contact(&self) -> MutexGuard<'_, Contact> {
        self.contact.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what is known of the contact durable, unless what is there serves as well. Blocking.
    ///
    /// # Errors
    /// The file cannot be written, for people.
    pub fn save_contact(&self) -> Result<(), String> {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let contact = self.contact().clone();
        if saved.as_ref().is_some_and(|saved| contact.is_served_by(saved)) {
            return Ok(());
        }
        let text = serde_json::to_vec(&contact).unwrap_or_default();
        write_atomic(&self.contact_file, &text, 0o600).map_err(|error| error.to_string())?;
        *saved = Some(contact);
        Ok(())
    }

    /// Registers, then polls for ever.
    pub async fn poll(self: &Arc<Link>) {
        let mut failures = 0;
        let mut registered = false;
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            let outcome = if registered { self.exchange(Vec::new(), true).await } else { self.register().await };
            match outcome {
                Ok(Standing::Deposed) => {
                    tracing::warn!("an answer of a deposed server is ignored");
                    failures += 1;
                }
                Ok(_) => {
                    failures = 0;
                    registered = true;
                    continue;
                }
                Err(error) => {
                    // The server does not know this node, or knows it from an earlier boot.
                    registered &= !matches!(error.status(), Some(StatusCode::NOT_FOUND | StatusCode::CONFLICT));
                    tell(&error, failures);
                    failures += 1;
                }
            }
            self.pause(failures).await;
        }
    }

    /// Sends reports whenever there are some, for ever.
    pub async fn push(self: &Arc<Link>) {
        let mut failures = 0;
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            pace.tick().await;
            while !self.has_reports() {
                self.reports.notified().await;
            }
            let reports = self.journal.lock().unwrap_or_else(PoisonError::into_inner).pending(BATCH);
            match self.exchange(reports, false).await {
                Ok(standing) if standing != Standing::Deposed => failures = 0,
                outcome => {
                    if let Err(error) = outcome {
                        tell(&error, failures);
                    }
                    failures += 1;
                    self.pause(failures).await;
                }
            }
        }
    }

    fn has_reports(&self) -> bool {
        !self.journal.lock().unwrap_or_else(PoisonError::into_inner).pending(1).is_empty()
    }

    async fn pause(&self, failures: u32) {
        let lease_ms = self.contact().lease_ms;
        tokio::time::sleep(backoff(&self.config.node, failures, lease_ms)).await;
    }

    async fn register(&self) -> Result<Standing, HttpError> {
        let (boot_id, agent) = {
            let contact = self.contact();
            (contact.boot_id.clone(), contact.agent.clone())
        };
        let request = RegisterRequest {
            node: self.config.node.clone(),
            machine: self.machine.clone(),
            address: self.config.address.clone(),
            boot_id,
            agent,
            labels: self.config.labels.clone(),
            pool: self.config.pool.clone(),
            leaf: self.config.leaf.clone(),
            peer_address: self.peer_address.clone(),
            version: env!("CARGO_PKG_VERSION").to_string(),
        };
        let reply: RegisterReply = self.client.post("/v1/agent/register", &request).await?;
        let standing = self.contact().registered(reply.term, reply.lease_ms, boottime_ms());
        tracing::info!(node = %request.node, server = %self.config.server, "registered");
        Ok(standing)
    }

    async fn exchange(self: &Arc<Link>, reports: Vec<NumberedReport>, wait: bool) -> Result<Standing, HttpError> {
        let sent_at = boottime_ms();
        let request = self.request(reports, wait, sent_at);
        let patience = Duration::from_millis(request.wait_ms + 10_000);
        let reply: SyncReply = self.client.post_within("/v1/agent/sync", &request, patience).await?;
        let standing = self.take(&reply, sent_at);
        if standing == Standing::Deposed {
            return Ok(standing);
        }
        self.acknowledge(reply.acknowledged).await;
        self.leases.notify_one();
        self.pass_on(reply, standing);
        Ok(standing)
    }

    /// While this answer's acknowledgement was written, the other loop may have passed on newer orders. Older ones after
    /// them would leave out what was prepared meanwhile.
    fn pass_on(&self, reply: SyncReply, standing: Standing) {
        // Held until they are sent.
        let contact = self.contact();
        let current = standing == Standing::Current && contact.is_newest(reply.term, reply.generation);
        // The receiver is gone only when the agent shuts down.
        let _ = self.news.send(News { orders: reply.orders.filter(|_| current), streams: reply.streams });
    }

    fn request(&self, reports: Vec<NumberedReport>, wait: bool, now: u64) -> SyncRequest {
        let contact = self.contact();
        SyncRequest {
            node: self.config.node.clone(),
            boot_id: contact.boot_id.clone(),
            term_seen: contact.term,
            generation_seen: contact.generation,
            reports,
            // Often enough that a lease is renewed several times before it ends.
            wait_ms: if wait { contact.lease_ms / POLLS_PER_LEASE } else { 0 },
            vouched: contact.vouches(now),
            witness: contact.is_witness(now),
            peers_seen: contact.peers.version,
        }
    }

    fn take(&self, reply: &SyncReply, sent_at: u64) -> Standing {
        let mut contact = self.contact();
        let standing = contact.answered(reply.term, reply.generation, reply.lease_ms, sent_at, boottime_ms());
        if let Some(peers) = reply.peers.clone().filter(|_| standing != Standing::Deposed) {
            contact.peers = peers;
        }
        standing
    }

    async fn acknowledge(self: &Arc<Link>, number: u64) {
        let link = self.clone();
        let work = move || {
            let done = link.journal.lock().unwrap_or_else(PoisonError::into_inner).acknowledge(number);
            (done, link.save_contact())
        };
        match tokio::task::spawn_blocking(work).await {
            Ok((Ok(()), Ok(()))) => {}
            Ok((Err(error), _)) => tracing::warn!(%error, "acknowledged reports will be sent again"),
            Ok((_, Err(error))) => tracing::warn!(error, "after a restart the agent will not know its peers"),
            Err(error) => tracing::error!(%error, "acknowledging failed"),
        }
    }
}

fn tell(error: &HttpError, failures: u32) {
    // A server that is away for an hour is one line a minute, not one a second.
    if failures.is_multiple_of(8) {
        tracing::warn!(%error, "no answer from the server; trying on");
    }
}

/// Doubling up to ten seconds or a sixth of the lease, which a server that is back waits for; then shortened by up to half,
/// differently for each node and try, so that a thousand agents do not come back at the same instant.
fn backoff(node: &str, failures: u32, lease_ms: u64) -> Duration {
    let last = if lease_ms == 0 { BACKOFF_LAST_MS } else { (lease_ms / 6).clamp(BACKOFF_FIRST_MS, BACKOFF_LAST_MS) };
    let full = BACKOFF_FIRST_MS.saturating_mul(1 << failures.min(10)).min(last);
    let hash = blake3::hash(format!("{node}/{failures}").as_bytes());
    let part = u64::from(hash.as_bytes()[0]);
    Duration::from_millis(full - full / 2 * part / 255)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_is_capped_and_differs_between_nodes() {
        for failures in 0..40 {
            let wait = backoff("n0", failures, 0);
            assert_eq!(wait, backoff("n0", failures, 0));
            assert!(
                wait >= Duration::from_millis(BACKOFF_FIRST_MS / 2) && wait <= Duration::from_millis(BACKOFF_LAST_MS)
            );
        }
        assert!(backoff("n0", 30, 0) >= Duration::from_millis(BACKOFF_LAST_MS / 2));
        // A short lease is not over before the next try.
        assert!(backoff("n0", 30, 4_000) <= Duration::from_millis(666));
        assert!((0..20).any(|failures| backoff("n0", failures, 0) != backoff("n1", failures, 0)));
    }
}
