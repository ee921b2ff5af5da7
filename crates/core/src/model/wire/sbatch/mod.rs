//! Batch scripts with `#SBATCH` lines, read into a [`JobFile`].
//!
//! The lines are read until the first command, with Slurm's meaning; a flag whose wish would be ignored is an error that
//! names it, and one without effect on what runs (mail and the like, listed in `flags`) a warning. The script's text travels as the job's command, so no node needs to see the file.
//!
//! **How a script runs.** Slurm runs a script once, on the first node, and `srun` inside it starts the tasks. Ganger has
//! no job steps; a rank is a task. So:
//!
//! - Without `srun`, on one node: one worker that holds everything the job asks for, and the script runs once: exactly
//!   Slurm's meaning. `torchrun --nproc-per-node=8` scripts are of this kind.
//! - With `srun`: one worker per task. Every task runs the script, and `srun COMMAND` in it runs COMMAND in its place, so
//!   all tasks run it at once as under Slurm. Lines outside `srun` run in each task instead of once; they are set-up
//!   lines as a rule. An `srun` for only a part of the tasks ends the rank with a message instead of doing something
//!   else than was asked.
//! - Without `srun`, on several nodes: refused. Slurm would leave all nodes but the first idle; nobody means that.
//!
//! When only nodes are given, there is one task per node. `--ntasks-per-node` gives the number of tasks and their share
//! of the node. Where either is given, each node gets as many tasks, and what cannot be spread so is refused; with
//! `--ntasks` alone tasks are packed as the scheduler finds best.
//!
//! `-A` names the queue, `-p` the pool, `--qos=P0…P3` the class.
mod flags;
mod shape;
mod values;

use super::job::{Command, FieldError, JobFile};
use thiserror::Error;

/// A script that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub job: JobFile,
    /// Slurm's default (`--export=ALL`): the submitter's environment goes along; the caller adds it, the core sees none.
    pub export_all: bool,
    /// Flags that have no effect here, each with its line and the reason.
    pub warnings: Vec<(usize, String)>,
}

/// A line of a script that cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {what}: {problem}; {fix}")]
pub struct SbatchError {
    pub line: usize,
    /// The flag or the thing that is meant.
    pub what: String,
    pub problem: String,
    pub fix: String,
}

impl From<SbatchError> for FieldError {
    fn from(error: SbatchError) -> FieldError {
        FieldError { field: format!("line {}: {}", error.line, error.what), problem: error.problem, fix: error.fix }
    }
}

/// `srun` in each rank of a job with several tasks; joined to one line before the script's own first line, so that line
/// numbers in the shell's messages stay true. Plain POSIX: the script may be run by any shell.
const SRUN: &str = r#"
srun() {
  while [ $# -gt 0 ]; do
    case "$1" in
      -n|-N|--ntasks|--nodes) _srun_flag=$1; _srun_n=$2; shift 2;;
      --ntasks=*|--nodes=*) _srun_flag=${1%%=*}; _srun_n=${1#*=}; shift;;
      -n[0-9]*|-N[0-9]*) _srun_flag=${1%"${1#??}"}; _srun_n=${1#??}; shift;;
      -c) shift 2; continue;;
      -l|-u|-K|--label|--unbuffered|--exclusive|--export=ALL|--kill-on-bad-exit*) shift; continue;;
      --cpu-bind=*|--gpu-bind=*|--mpi=*|--cpus-per-task=*|--ntasks-per-node=*|--gpus-per-task=*|--gpus-per-node=*) shift; continue;;
      --) shift; break;;
      -*) echo "srun: $1 is not supported here" >&2; kill -TERM $$; exit 2;;
      *) break;;
    esac;
    case "$_srun_flag" in
      -n|--ntasks) _srun_all=$SLURM_NTASKS;;
      *) _srun_all=$SLURM_JOB_NUM_NODES;;
    esac;
    if [ "$_srun_n" != "$_srun_all" ]; then
      echo "srun: $_srun_flag $_srun_n is only a part of the job's $_srun_all, which is not supported (MASTER_ADDR names the first node)" >&2;
      kill -TERM $$; exit 2;
    fi;
  done;
  "$@";
};
"#;

/// Whether a file is a script and not a job file.
pub fn is_script(text: &str) -> bool {
    text.starts_with("#!")
}

/// Reads the script `text`; `name` is the job's name where no `--job-name` is given.
///
/// # Errors
/// Every line that cannot be taken, in order.
pub fn read(text: &str, name: &str) -> Result<Script, Vec<SbatchError>> {
    let mut errors = Vec::new();
    let interpreter = interpreter(text).unwrap_or_else(|error| {
        errors.push(error);
        Vec::new()
    });
    let mut asked = flags::Asked::default();
    for (line, words) in directives(text, &mut errors) {
        flags::apply(&mut asked, line, &words, &mut errors);
    }
    let has_srun = has_srun(text);
    let job_name = asked.job.name.clone();
    let mut job = std::mem::take(&mut asked.job);
    if job_name.is_empty() {
        job.name = name.to_string();
    }
    let tasks = shape::fill(&mut job, &asked, has_srun, &mut errors);
    job.command = Command::Arguments(command(text, &interpreter, &job.name, tasks > 1));
    if errors.is_empty() {
        Ok(Script { job, export_all: !asked.export_limited, warnings: asked.unused })
    } else {
        Err(errors)
    }
}

/// The script in a job's command, without what was put in front of it; `None` if the command is no script.
pub fn script_of(command: &[String]) -> Option<&str> {
    let [.., flag, text, _name] = command else { return None };
    let own = text.strip_prefix(&srun_line()).unwrap_or(text);
    (flag == "-c" && is_script(own)).then_some(own)
}

/// `srun` as a single line.
fn srun_line() -> String {
    let joined = SRUN.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    format!("{} ", joined.trim())
}

fn command(text: &str, interpreter: &[String], name: &str, several: bool) -> Vec<String> {
    let text = if several { srun_line() + text } else { text.to_string() };
    let mut command = interpreter.to_vec();
    command.extend(["-c".to_string(), text, name.to_string()]);
    command
}

/// The words of the `#!` line, with `/usr/bin/env` taken away. Only shells take a text by `-c` and a name after it.
fn interpreter(text: &str) -> Result<Vec<String>, SbatchError> {
    let first = text.lines().next().unwrap_or("");
    let mut words: Vec<String> =
        first.strip_prefix("#!").unwrap_or("").split_whitespace().map(str::to_string).collect();
    if words.first().is_some_and(|word| word.ends_with("/env")) {
        words.remove(0);
    }
    let shell = words.first().map(|word| word.rsplit('/').next().unwrap_or("").to_string());
    match shell.as_deref() {
        Some("bash" | "sh" | "zsh" | "dash" | "ksh") => Ok(words),
        _ => Err(SbatchError {
            line: 1,
            what: first.to_string(),
            problem: "scripts are run by bash, sh, zsh, dash or ksh".to_string(),
            fix: "begin the script with #!/bin/bash".to_string(),
        }),
    }
}

/// The words of each `#SBATCH` line up to the first command.
fn directives(text: &str, errors: &mut Vec<SbatchError>) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if !trimmed.is_empty() && !trimmed.starts_with('#') {
            break;
        }
        let Some(rest) = line.strip_prefix("#SBATCH") else { continue };
        match values::words(rest) {
            Ok(words) => found.push((index + 1, words)),
            Err(problem) => errors.push(SbatchError {
                line: index + 1,
                what: line.to_string(),
                problem,
                fix: "close the quotes".to_string(),
            }),
        }
    }
    found
}

fn has_srun(text: &str) -> bool {
    let code = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    code.flat_map(|line| line.split(|c: char| c.is_whitespace() || "()`;&|\"'".contains(c))).any(|word| word == "srun")
}

#[cfg(test)]
mod tests;
