//! The thread on which decisions are made, one at a time, while the loop goes on.
use super::Command;
use ganger_core::model::{Cluster, Time};
use ganger_core::scheduler;
use ganger_runtime::clock::monotonic_us;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

struct Question {
    cluster: Arc<Cluster>,
    now: Time,
}

#[derive(Debug)]
pub(super) struct Decider {
    questions: SyncSender<Question>,
    in_flight: bool,
}

impl Decider {
    /// The thread ends when the decider is dropped.
    pub(super) fn start(answers: SyncSender<Command>) -> io::Result<Decider> {
        let (questions, receiver) = sync_channel(1);
        std::thread::Builder::new().name("decide".to_string()).spawn(move || answer(&receiver, &answers))?;
        Ok(Decider { questions, in_flight: false })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.in_flight
    }

    pub(super) fn ask(&mut self, cluster: Arc<Cluster>, now: Time) {
        self.in_flight = self.questions.send(Question { cluster, now }).is_ok();
        if !self.in_flight {
            tracing::error!("the thread that decides has ended: nothing new will be placed until the server restarts");
        }
    }

    pub(super) fn answered(&mut self) {
        self.in_flight = false;
    }
}

fn answer(questions: &Receiver<Question>, answers: &SyncSender<Command>) {
    for Question { cluster, now } in questions {
        let began = monotonic_us();
        let decision = Box::new(scheduler::decide(&cluster, now));
        let took_us = monotonic_us().saturating_sub(began);
        if answers.send(Command::Decided { decision, from: cluster, took_us }).is_err() {
            return;
        }
    }
}
