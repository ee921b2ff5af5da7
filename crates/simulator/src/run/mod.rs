//! Runs a scenario: the cluster that it describes, its statements at their times, its expectations.
//!
//! What is due at T happens before the statements at T; a decision follows each statement. An expectation that fails is a
//! result, not an error; an error means that the file itself cannot be run.
mod build;
mod expect;
mod outcome;

pub use outcome::{Outcome, Result as ExpectationResult};

use crate::script::ast::{Action, Expectation, JobVerb, NodeVerb, Script, Step, Submit};
use crate::script::{Problem, ScriptError, later, parse};
use crate::world::{OPERATOR, World};
use ganger_core::lifecycle::Input;
use ganger_core::model::ids::{JobId, NodeId};
use ganger_core::model::time::{Span, Time};

/// `finally` waits no longer than this after the last statement.
const LONGEST_WAIT: Span = Span::hours(30 * 24);

/// Reads and runs a scenario. `name` is the file's name, for messages.
///
/// # Errors
/// The file is malformed, uses what is not supported yet, or describes what the cluster refuses.
pub fn run_file(text: &str, name: &str) -> std::result::Result<Outcome, ScriptError> {
    let outcome = parse(text).and_then(|script| {
        later::refuse_later_work(&script)?;
        run(&script, name)
    });
    outcome.map_err(|error| error.named(name))
}

fn run(script: &Script, name: &str) -> std::result::Result<Outcome, ScriptError> {
    let mut runner = Runner { world: build::world(script)?, results: Vec::new() };
    for step in &script.steps {
        runner.world.advance_to(step.at);
        runner.step(step)?;
    }
    let last = script.steps.last().map_or(Time(0), |step| step.at);
    runner.world.run_out(last + LONGEST_WAIT);
    runner.world.note("statement", "finally");
    script.finals.iter().for_each(|expectation| runner.expect(expectation));
    Ok(Outcome {
        name: name.to_string(),
        expectations: runner.results,
        violations: runner.world.broken().to_vec(),
        ended_at_ms: runner.world.now().0,
        trace: runner.world.trace().to_vec(),
    })
}

struct Runner {
    world: World,
    results: Vec<ExpectationResult>,
}

impl Runner {
    fn step(&mut self, step: &Step) -> std::result::Result<(), ScriptError> {
        if let Action::Expect(expectation) = &step.action {
            self.expect(expectation);
            return Ok(());
        }
        self.world.note("statement", step.text.clone());
        match &step.action {
            Action::Submit(submit) => self.submit(step, submit),
            Action::Node { verb, node } => self.node(step.line, *verb, node),
            Action::Job { verb, job } => self.job(step, *verb, job),
            Action::Maintain { node, from, lasts } => {
                let until = lasts.map_or(Time::NEVER, |lasts| *from + lasts);
                let (node, from) = (self.node_id(step.line, node)?, *from);
                let input = Input::Maintain { node, from, until, by: OPERATOR.to_string() };
                self.world.ask(input).map_err(|why| refused(step, why))
            }
            Action::RestartControl => {
                self.world.restart_control();
                Ok(())
            }
            Action::Resize { job, workers } => {
                let job = self.world.job_id(job).unwrap_or(JobId(0));
                let input = Input::Resize { job, workers: *workers, by: OPERATOR.to_string() };
                self.ask(step, input);
                Ok(())
            }
            Action::Xid { .. } | Action::Pcie { .. } | Action::Expect(_) => Ok(()),
        }
    }

    fn submit(&mut self, step: &Step, submit: &Submit) -> std::result::Result<(), ScriptError> {
        let spec = build::job(&self.world, submit);
        self.world.submit(spec.into(), build::work_plan(submit)).map(|_| ()).map_err(|why| refused(step, why))
    }

    fn node(&mut self, line: u32, verb: NodeVerb, name: &str) -> std::result::Result<(), ScriptError> {
        let node = self.node_id(line, name)?;
        let world = &mut self.world;
        match verb {
            NodeVerb::Fail => world.fail(node),
            NodeVerb::Recover => world.recover(node),
            NodeVerb::Drain => world.drain(node),
            NodeVerb::Uncordon => world.uncordon(node),
            NodeVerb::Cut => world.cut(node),
            NodeVerb::Heal => world.heal(node),
            NodeVerb::RefuseLaunch => world.set_refusing(node, true),
            NodeVerb::AcceptLaunch => world.set_refusing(node, false),
        }
        Ok(())
    }

    fn node_id(&self, line: u32, name: &str) -> std::result::Result<NodeId, ScriptError> {
        let found = self.world.cluster().node_named(name).map(|node| node.id);
        found.ok_or_else(|| ScriptError::unknown(line, "node", name, &[]))
    }

    /// A job may have ended before somebody cancels it; such a statement has failed, and the run goes on.
    fn job(&mut self, step: &Step, verb: JobVerb, name: &str) -> std::result::Result<(), ScriptError> {
        let job = self.world.job_id(name).unwrap_or(JobId(0));
        let by = OPERATOR.to_string();
        let input = match verb {
            JobVerb::Cancel => Input::Cancel { job, by },
            JobVerb::Hold => Input::Hold { job, by },
            JobVerb::Release => Input::Release { job, by },
            JobVerb::Requeue => Input::Requeue { job, by },
        };
        self.ask(step, input);
        Ok(())
    }

    fn ask(&mut self, step: &Step, input: Input) {
        if let Err(why) = self.world.ask(input) {
            self.results.push(ExpectationResult {
                line: step.line,
                at_ms: self.world.now().0,
                text: step.text.clone(),
                ok: false,
                actual: why.to_string(),
            });
        }
    }

    fn expect(&mut self, expectation: &Expectation) {
        let (ok, actual) = expect::look(&self.world, expectation);
        self.results.push(ExpectationResult {
            line: expectation.line,
            at_ms: self.world.now().0,
            text: expectation.text.clone(),
            ok,
            actual,
        });
    }
}

fn refused(step: &Step, why: impl ToString) -> ScriptError {
    ScriptError::new(step.line, Problem::Refused { what: step.text.clone(), why: why.to_string() })
}
