//! Turns of the loop: take what waits, apply it, store it, publish it, answer it.
//!
//! The state that others see (`published`) is always one that is stored. A turn works on the loop's own copy; when its
//! commit fails the copy is thrown away and the published state taken back, except that agents were heard.
use super::clock::Clock;
use super::decider::Decider;
use super::{Applied, Board, Command, Contact, CycleError, DecisionRecord, Metrics, Reply, Synced, View};
use crate::store::{Batch, LoggedInput, NumberedEvent, Store, StoreError, TokenChange, TokenRecord};
use ganger_core::lifecycle::input::{Dirty, Effects, Event, Input, Refusal};
use ganger_core::lifecycle::{self};
use ganger_core::model::decision::{Blocker, Decision};
use ganger_core::model::ids::{JobId, NodeId};
use ganger_core::model::job::{Dependency, DependencyKind, Job, JobSpec, JobState};
use ganger_core::model::node::HealthState;
use ganger_core::model::wire::agent::NumberedReport;
use ganger_core::model::{Cluster, Span, Time};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Commands of one transaction at most: bounds how long the first of them waits.
const BATCH: usize = 2_048;
/// A loop that had so many commands in its last turn is busy: the next turn begins no sooner than [`GATHER`] after that one,
/// so that more of them share its commit. Where one thing happens after another nothing waits.
const BUSY: usize = 3;
const GATHER: Duration = Duration::from_millis(10);
/// Nothing new is tried on a failing store more often than this.
const STORE_PAUSE: Span = Span::seconds(1);
/// A tick that changed nothing is not repeated sooner.
const QUIET_TICK_PAUSE: Span = Span::millis(100);
/// With pending jobs a decision is made at least this often, also when nothing happened: waiting raises their order.
const DECISION_PERIOD: Span = Span::seconds(30);
/// Last-heard times reach the published state this often at most.
const HEARD_PERIOD: Span = Span::seconds(1);
const LONGEST_SLEEP: Span = Span::seconds(5);

pub(super) struct Turns {
    store: Store,
    cluster: Cluster,
    published: Arc<Cluster>,
    published_at: Time,
    board: Arc<Board>,
    clock: Clock,
    decider: Decider,
    metrics: Metrics,
    decision: Option<Arc<DecisionRecord>>,
    tokens: Arc<BTreeMap<String, TokenRecord>>,
    store_fault: Option<String>,
    /// By node: all its reports up to this number are stored.
    acknowledged: BTreeMap<NodeId, u64>,
    /// Heard since the last logged input.
    heard: BTreeMap<NodeId, Time>,
    /// Heard since the last publication.
    heard_unpublished: BTreeMap<NodeId, Time>,
    tick_at: Time,
    wants_decision: bool,
    /// No decision is asked for before.
    decide_at: Time,
    /// The moment of the last question to the decider.
    asked_at: Time,
    /// When a begin time, a backoff or a cooldown is over that the last question came too early for.
    wake_at: Time,
}

/// What a turn has gathered: effects to store, answers to give once they are.
#[derive(Default)]
struct Turn {
    batch: Batch,
    answers: Vec<Answer>,
    acknowledged: BTreeMap<NodeId, u64>,
    /// Something besides last-heard times is different.
    changed: bool,
    wants_decision: bool,
    decided: bool,
}

enum Answer {
    Applied { submitted: Option<JobId>, registered: Option<NodeId>, reply: Reply<Applied> },
    Synced { node: NodeId, upto: u64, reply: Reply<Synced> },
    Token { reply: Reply<()> },
}

impl Turns {
    pub(super) fn new(store: Store, cluster: Cluster, board: Arc<Board>, decider: Decider) -> Turns {
        let tokens = board.view().tokens.clone();
        Turns {
            store,
            published: Arc::new(cluster.clone()),
            published_at: Time::default(),
            clock: Clock::new(cluster.now),
            cluster,
            board,
            decider,
            metrics: Metrics::default(),
            decision: None,
            tokens,
            store_fault: None,
            acknowledged: BTreeMap::new(),
            heard: BTreeMap::new(),
            heard_unpublished: BTreeMap::new(),
            tick_at: Time::default(),
            wants_decision: true,
            decide_at: Time::default(),
            asked_at: Time::default(),
            wake_at: Time::NEVER,
        }
    }

    /// Agents' leases count as renewed now. Fails if that cannot be stored: a server without a store is none.
    pub(super) fn new_term(&mut self) -> Result<(), CycleError> {
        let now = self.clock.now();
        let mut turn = Turn::default();
        self.apply(&mut turn, Input::NewTerm, now)?;
        // A new cluster has a queue that no input made.
        turn.batch.dirty.queues.extend(self.cluster.queues.keys().cloned());
        self.finish(turn, now);
        match self.store_fault.take() {
            Some(fault) => Err(CycleError::Store(StoreError::Database(fault))),
            None => Ok(()),
        }
    }

    pub(super) fn run(mut self, receiver: Receiver<Command>) {
        let mut gather_until = Instant::now();
        loop {
            let now = self.clock.now();
            let mut waiting = match receiver.recv_timeout(self.sleep(now)) {
                Ok(command) => vec![command],
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            std::thread::sleep(gather_until.saturating_duration_since(Instant::now()));
            let began = Instant::now();
            while waiting.len() < BATCH {
                let Ok(command) = receiver.try_recv() else { break };
                waiting.push(command);
            }
            gather_until = if waiting.len() >= BUSY { began + GATHER } else { began };
            if self.turn(waiting).is_break() {
                return;
            }
        }
    }

    /// Until the next deadline, or until a decision may be asked for again.
    fn sleep(&self, now: Time) -> Duration {
        let wanted = if self.wants_decision { now } else { self.wake_at };
        let decision = if self.decider.is_busy() { Time::NEVER } else { wanted.max(self.decide_at) };
        let next = self.tick_at.min(decision);
        Duration::from_millis(next.since(now).min(LONGEST_SLEEP).0)
    }

    fn turn(&mut self, commands: Vec<Command>) -> std::ops::ControlFlow<()> {
        let now = self.clock.now();
        let mut turn = Turn::default();
        let mut stop = std::ops::ControlFlow::Continue(());
        for command in commands {
            match command {
                Command::Apply { input, reply } => self.on_apply(&mut turn, input, reply, now),
                Command::Sync { node, contact, reply } => self.on_sync(&mut turn, node, contact, reply, now),
                Command::Token { change, reply } => {
                    turn.batch.tokens.push(change);
                    turn.answers.push(Answer::Token { reply });
                }
                Command::Decided { decision, from, took_us } => {
                    self.on_decided(&mut turn, decision, from, took_us, now)
                }
                Command::Stop => stop = std::ops::ControlFlow::Break(()),
            }
        }
        if self.tick_at <= now {
            self.on_tick(&mut turn, now);
        }
        self.finish(turn, now);
        self.consider_deciding(now);
        stop
    }

    fn on_apply(&mut self, turn: &mut Turn, input: Input, reply: Reply<Applied>, now: Time) {
        let input = match input {
            Input::Submit { spec, owner } => match self.settle_dependencies(turn, spec) {
                Ok(spec) => Input::Submit { spec, owner },
                Err(error) => return drop(reply.send(Err(error))),
            },
            other => other,
        };
        match self.apply(turn, input, now) {
            Ok((submitted, registered)) => {
                if let Some(node) = registered {
                    // Its agent starts anew and may count its reports anew.
                    turn.acknowledged.insert(node, 0);
                }
                turn.answers.push(Answer::Applied { submitted, registered, reply });
            }
            // Whoever asked may have gone; then nobody needs to know.
            Err(refusal) => drop(reply.send(Err(refusal.into()))),
        }
    }

    fn on_sync(&mut self, turn: &mut Turn, node: NodeId, contact: Contact, reply: Reply<Synced>, now: Time) {
        for (node, until) in contact.vouched {
            if let Err(refusal) = self.apply(turn, Input::Vouched { node, until }, now) {
                tracing::warn!(%node, %refusal, "a vouch was refused");
            }
        }
        let heard = if contact.witness { Input::Heard { node } } else { Input::Doubtful { node } };
        if let Err(refusal) = self.apply(turn, heard, now) {
            return drop(reply.send(Err(refusal.into())));
        }
        let known = turn.acknowledged.get(&node).or(self.acknowledged.get(&node)).copied().unwrap_or(0);
        let mut upto = known;
        for NumberedReport { number, report } in contact.reports {
            if number <= upto {
                continue;
            }
            upto = number;
            if let Err(refusal) = self.apply(turn, Input::Report { node, report }, now) {
                // Sent again it would be refused again: it is taken note of, and that is all.
                tracing::warn!(%node, number, %refusal, "an agent's report was refused");
            }
        }
        if upto > known {
            turn.acknowledged.insert(node, upto);
        }
        turn.answers.push(Answer::Synced { node, upto, reply });
    }

    fn on_decided(&mut self, turn: &mut Turn, decision: Box<Decision>, from: Arc<Cluster>, took_us: u64, now: Time) {
        self.decider.answered();
        self.metrics.last_decision_us = took_us;
        self.metrics.decisions += 1;
        let record = DecisionRecord { from, decision: (*decision).clone() };
        let unfinished = !decision.steps.is_empty() && decision.blocked.values().any(|b| *b == Blocker::NotReached);
        match self.apply(turn, Input::Decided(decision), now) {
            Ok(_) => {
                turn.decided = !record.decision.steps.is_empty();
                turn.wants_decision |= unfinished;
            }
            Err(refusal) => {
                self.metrics.stale_decisions += 1;
                turn.wants_decision = true;
                tracing::debug!(%refusal, "a decision was dropped");
            }
        }
        turn.changed = true;
        self.decision = Some(Arc::new(record));
    }

    fn on_tick(&mut self, turn: &mut Turn, now: Time) {
        // A tick cannot be refused for anything that somebody asked; if it is, the next one may pass.
        if let Err(refusal) = self.apply(turn, Input::Tick, now) {
            tracing::error!(%refusal, "a tick was refused");
        }
        // Whether there is something new to decide, the tick's effects say, or the moments that are watched for.
        turn.changed = true;
        self.tick_at = now + QUIET_TICK_PAUSE;
    }

    /// Applies one input to the loop's copy and gathers what it did.
    fn apply(&mut self, turn: &mut Turn, input: Input, now: Time) -> Result<(Option<JobId>, Option<NodeId>), Refusal> {
        let logged = LoggedInput::slim(&input);
        let effects = lifecycle::apply(&mut self.cluster, input, now)?;
        let (submitted, registered) = (effects.submitted, effects.registered);
        if is_quiet(&effects) {
            match logged {
                Input::Heard { node } => {
                    self.heard.insert(node, now);
                    self.heard_unpublished.insert(node, now);
                }
                _ => turn.changed = true,
            }
            return Ok((submitted, registered));
        }
        turn.changed = true;
        turn.wants_decision |= !matches!(logged, Input::Decided(_));
        let heard = std::mem::take(&mut self.heard).into_iter().collect();
        turn.batch.inputs.push(LoggedInput { at: now, heard, input: logged });
        turn.batch.add(effects);
        Ok((submitted, registered))
    }

    /// Jobs that have ended are not in memory: whether a dependency on one is met is known to the store.
    fn settle_dependencies(&self, turn: &Turn, spec: Arc<JobSpec>) -> Result<Arc<JobSpec>, CycleError> {
        if spec.after.iter().all(|d| d.met || self.cluster.is_live(d.job)) {
            return Ok(spec);
        }
        let mut spec = (*spec).clone();
        let name = spec.name.clone();
        let refuse = |why| Refusal::BadSpec { name: name.clone(), field: "after".to_string(), why };
        for dependency in &mut spec.after {
            if dependency.met || self.cluster.is_live(dependency.job) {
                continue;
            }
            let just_now = turn.batch.finished.iter().find(|job| job.id == dependency.job);
            let ended = match just_now {
                Some(job) => Some(Job::clone(job)),
                None => self.store.finished(dependency.job)?,
            };
            let missing = || refuse(format!("there is no job {}, or it is a task that never started", dependency.job));
            let job = ended.ok_or_else(missing)?;
            if !is_met_by(dependency, job.state) {
                return Err(refuse(format!("job {} is {} already, so this can never start", job.id, job.state)).into());
            }
            dependency.met = true;
        }
        Ok(Arc::new(spec))
    }

    /// Stores what the turn did and answers; or takes it all back.
    fn finish(&mut self, mut turn: Turn, now: Time) {
        let outcome = match turn.batch.is_empty() {
            true => Ok(()),
            false => self.store.commit(&self.published, &mut self.cluster, &turn.batch),
        };
        match outcome {
            Ok(()) => self.accept(turn, now),
            Err(error) => {
                let answers = std::mem::take(&mut turn.answers);
                self.take_back(turn, &error, now);
                self.refuse(answers, &error);
            }
        }
    }

    fn accept(&mut self, mut turn: Turn, now: Time) {
        self.acknowledged.append(&mut turn.acknowledged);
        self.wants_decision |= turn.wants_decision;
        if !turn.batch.is_empty() {
            self.metrics.commits += 1;
            self.store_fault = None;
            self.apply_tokens(&turn.batch.tokens);
        }
        if !turn.batch.is_empty() || turn.changed {
            self.tick_at = self.next_tick(now, is_durable(&turn.batch.dirty));
            self.watch_wake_up();
        }
        if turn.changed || !turn.batch.is_empty() || now.since(self.published_at) >= HEARD_PERIOD {
            self.publish(now);
        }
        self.ring(&turn.batch);
        let view = self.board.view();
        let before = self.store.last_event() - turn.batch.events.len() as u64;
        for answer in turn.answers {
            answer_with(answer, &view, before, &turn.batch.events);
        }
    }

    /// The state before the turn, in which agents were heard all the same.
    fn take_back(&mut self, turn: Turn, error: &StoreError, now: Time) {
        tracing::error!(%error, inputs = turn.batch.inputs.len(), "nothing of this batch was stored; it is taken back");
        self.metrics.failed_commits += 1;
        self.store_fault = Some(error.to_string());
        self.cluster = (*self.published).clone();
        for input in turn.batch.inputs {
            self.heard.extend(input.heard);
        }
        for node in std::mem::take(&mut self.heard_unpublished).into_keys() {
            // For a silent node being heard has effects, which cannot be stored now; then it waits.
            if self.cluster.nodes.get(node.index()).is_none_or(|node| node.health.state != HealthState::Ready) {
                continue;
            }
            let heard = lifecycle::apply(&mut self.cluster, Input::Heard { node }, now);
            if !heard.is_ok_and(|effects| is_quiet(&effects)) {
                self.cluster = (*self.published).clone();
                break;
            }
        }
        self.wants_decision |= turn.decided || turn.wants_decision;
        self.decide_at = now + STORE_PAUSE;
        self.tick_at = now + STORE_PAUSE;
        self.watch_wake_up();
        self.publish(now);
    }

    /// Counted from the last question, not from the state, whose time any input moves past the moment.
    fn watch_wake_up(&mut self) {
        self.wake_at = lifecycle::next_wake_up(&self.cluster, self.asked_at).unwrap_or(Time::NEVER);
    }

    fn refuse(&self, answers: Vec<Answer>, error: &StoreError) {
        let view = self.board.view();
        for answer in answers {
            match answer {
                Answer::Applied { reply, .. } => drop(reply.send(Err(error.clone().into()))),
                Answer::Token { reply } => drop(reply.send(Err(error.clone().into()))),
                Answer::Synced { node, upto, reply } => {
                    let acknowledged = self.acknowledged.get(&node).copied().unwrap_or(0);
                    let all_stored = acknowledged >= upto;
                    drop(reply.send(Ok(Synced { acknowledged, all_stored, view: view.clone() })));
                }
            }
        }
    }

    fn next_tick(&self, now: Time, durable: bool) -> Time {
        let deadline = lifecycle::next_deadline(&self.cluster).unwrap_or(Time::NEVER);
        if durable { deadline.max(now) } else { deadline.max(self.tick_at.min(now + QUIET_TICK_PAUSE)) }
    }

    fn apply_tokens(&mut self, changes: &[TokenChange]) {
        if changes.is_empty() {
            return;
        }
        let tokens = Arc::make_mut(&mut self.tokens);
        for change in changes {
            let (TokenChange::Put(TokenRecord { name, .. }) | TokenChange::Remove(name)) = change;
            tokens.retain(|_, token| token.name != *name);
            if let TokenChange::Put(token) = change {
                tokens.insert(token.hash.clone(), token.clone());
            }
        }
    }

    fn publish(&mut self, now: Time) {
        self.published = Arc::new(self.cluster.clone());
        self.published_at = now;
        self.heard_unpublished.clear();
        self.board.publish(View {
            cluster: self.published.clone(),
            metrics: self.metrics,
            decision: self.decision.clone(),
            tokens: self.tokens.clone(),
            store_fault: self.store_fault.clone(),
        });
    }

    fn ring(&self, batch: &Batch) {
        batch.dirty.nodes.iter().for_each(|node| self.board.ring_node(*node));
        batch.dirty.jobs.iter().for_each(|job| self.board.ring_job(*job));
        batch.finished.iter().for_each(|job| self.board.ring_job(job.id));
        if !batch.events.is_empty() {
            self.board.announce_event(self.store.last_event());
        }
    }

    fn consider_deciding(&mut self, now: Time) {
        let overdue = self.decision.as_ref().is_some_and(|d| now.since(d.now()) >= DECISION_PERIOD);
        let pending = || self.cluster.jobs.values().any(|job| job.state == JobState::Pending);
        let wanted = self.wants_decision || self.wake_at <= now;
        if self.decider.is_busy() || now < self.decide_at || !(wanted || overdue && pending()) {
            return;
        }
        self.wants_decision = false;
        self.asked_at = now;
        self.watch_wake_up();
        self.decider.ask(self.published.clone(), now);
    }
}

/// `events` are those of the turn; the first has the number after `before`.
fn answer_with(answer: Answer, view: &Arc<View>, before: u64, events: &[Event]) {
    match answer {
        Answer::Applied { submitted, registered, reply } => {
            let of_it = (before + 1..).zip(events).filter(|(_, event)| submitted.is_some() && event.job == submitted);
            let events = of_it.map(|(number, event)| NumberedEvent { number, event: event.clone() }).collect();
            drop(reply.send(Ok(Applied { submitted, registered, events, view: view.clone() })))
        }
        Answer::Synced { upto, reply, .. } => {
            drop(reply.send(Ok(Synced { acknowledged: upto, all_stored: true, view: view.clone() })))
        }
        Answer::Token { reply } => drop(reply.send(Ok(()))),
    }
}

fn is_quiet(effects: &Effects) -> bool {
    *effects == Effects::default()
}

fn is_durable(dirty: &Dirty) -> bool {
    *dirty != Dirty::default()
}

fn is_met_by(dependency: &Dependency, state: JobState) -> bool {
    match dependency.kind {
        DependencyKind::AfterOk => state == JobState::Done,
        DependencyKind::AfterNotOk => matches!(state, JobState::Failed | JobState::Cancelled),
        DependencyKind::AfterAny => true,
    }
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
