//! Looks up every name that a scenario uses: nodes, jobs, groups. A name that nothing declares is a mistake in the file,
//! not a failed expectation.
use super::ast::{Action, Expectation, JobCheck, Script, Step, Subject, Submit};
use super::error::{Problem, ScriptError};
use ganger_core::model::job::ArraySpec;
use std::collections::{BTreeMap, BTreeSet};

/// What is known so far, on the way through the steps in the order of their times.
struct Known {
    nodes: BTreeSet<String>,
    /// With the line of the submit.
    jobs: BTreeMap<String, u32>,
    arrays: BTreeMap<String, ArraySpec>,
    /// With its size and its members so far.
    groups: BTreeMap<String, (u32, u32)>,
}

pub fn check(script: &Script) -> Result<(), ScriptError> {
    let nodes = script.nodes.iter().flat_map(|line| line.names()).collect();
    let mut known = Known { nodes, jobs: BTreeMap::new(), arrays: BTreeMap::new(), groups: BTreeMap::new() };
    for step in &script.steps {
        known.step(step)?;
    }
    script.finals.iter().try_for_each(|expectation| known.expectation(expectation))
}

impl Known {
    fn step(&mut self, step: &Step) -> Result<(), ScriptError> {
        match &step.action {
            Action::Submit(submit) => self.submit(step.line, submit),
            Action::Node { node, .. }
            | Action::Maintain { node, .. }
            | Action::Xid { node, .. }
            | Action::Pcie { node, .. } => self.node(step.line, node),
            Action::Job { job, .. } | Action::Resize { job, .. } => self.job(step.line, job),
            Action::Expect(expectation) => self.expectation(expectation),
            Action::RestartControl => Ok(()),
        }
    }

    fn submit(&mut self, line: u32, submit: &Submit) -> Result<(), ScriptError> {
        for (_, name) in &submit.after {
            self.job(line, name)?;
        }
        if let Some(first) = self.jobs.insert(submit.name.clone(), line) {
            let (what, word) = ("job".to_string(), submit.name.clone());
            return Err(ScriptError::new(line, Problem::Twice { what, word, first: Some(first) }));
        }
        if let Some(array) = &submit.array {
            self.arrays.insert(submit.name.clone(), array.clone());
        }
        self.group(line, submit)
    }

    fn group(&mut self, line: u32, submit: &Submit) -> Result<(), ScriptError> {
        let Some((name, size)) = &submit.group else { return Ok(()) };
        let (first_size, members) = self.groups.entry(name.clone()).or_insert((*size, 0));
        *members += 1;
        if first_size != size {
            let why = format!("another job says that {name} has {first_size} jobs");
            return Err(ScriptError::value(line, "group", &format!("{name}/{size}"), why));
        }
        if *members > *size {
            return Err(ScriptError::value(line, "group", &format!("{name}/{size}"), "the group is complete already"));
        }
        Ok(())
    }

    fn node(&self, line: u32, name: &str) -> Result<(), ScriptError> {
        if self.nodes.contains(name) {
            return Ok(());
        }
        let shown: Vec<&str> = self.nodes.iter().map(String::as_str).take(20).collect();
        Err(ScriptError::unknown(line, "node", name, &shown))
    }

    fn job(&self, line: u32, name: &str) -> Result<(), ScriptError> {
        let is_task = |(array, index): (&str, &str)| {
            let index = index.parse().ok()?;
            self.arrays.get(array)?.place_of(index)
        };
        if self.jobs.contains_key(name) || name.rsplit_once('_').and_then(is_task).is_some() {
            return Ok(());
        }
        let shown: Vec<&str> = self.jobs.keys().map(String::as_str).collect();
        Err(ScriptError::unknown(line, "job (by then)", name, &shown))
    }

    fn expectation(&self, expectation: &Expectation) -> Result<(), ScriptError> {
        let Subject::Job { name, checks, .. } = &expectation.subject else { return Ok(()) };
        self.job(expectation.line, name)?;
        for check in checks {
            if let JobCheck::On { nodes, .. } = check {
                nodes.iter().try_for_each(|node| self.node(expectation.line, node))?;
            }
        }
        Ok(())
    }
}
