//! `ganger run`: submits, follows all ranks, ends with the job's exit code.
use super::follow::{self, Logs};
use super::interact;
use super::job_file::{self, Submitter};
use crate::cli::Run;
use crate::client::Api;
use crate::client::patience::patiently;
use crate::failure::Failure;
use crate::output::say;
use ganger_core::model::decision::Reason;
use ganger_core::model::job::JobState;
use ganger_core::model::wire::api::{JobDetail, JobView};
use ganger_core::model::wire::job::{
    CheckpointFile, Command, FieldError, GangFile, JobFile, ResourcesFile, TopologyFile,
};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;

/// The longest that passes before a new state is seen.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the tails of logs may take once the job has ended.
const TAIL_PATIENCE: Duration = Duration::from_secs(15);
/// As shells tell that Ctrl-C ended a command.
const INTERRUPTED: u8 = 130;

pub async fn run(api: &Api, args: Run) -> Result<(), Failure> {
    let pty = args.pty;
    let mut job = job_of(&args).map_err(|error| Failure::fields("ganger run", &[error]))?;
    let submitter = Submitter::of_process()?;
    if !args.clean_env {
        submitter.add_env(&mut job);
    }
    submitter.localise(&mut job);
    job_file::check(&job).map_err(|errors| Failure::fields("ganger run", &errors))?;
    // Before the job is there, so that no signal ends this command and leaves the job.
    let stops = Stops::listen()?;
    // A name that was not chosen is in nobody's way.
    let detail = if args.name.is_some() { api.submit(&job).await? } else { api.submit_numbered(&job).await? };
    say(format!("job {} ({}) submitted", detail.view.id, detail.view.name));
    let mut followed = Followed {
        api,
        job: detail.view.id.to_string(),
        attempt: 0,
        logs: JoinSet::new(),
        told: String::new(),
        pty,
        stops,
        interrupts: 0,
    };
    let ended = followed.until_ended(detail).await?;
    let code = exit_code(&ended.view);
    if ended.view.state != JobState::Done {
        let note = ended.view.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        say(format!("job {} {}{note}", ended.view.id, ended.view.state));
    }
    if code == 0 { Ok(()) } else { Err(Failure::silent(code)) }
}

fn job_of(args: &Run) -> Result<JobFile, FieldError> {
    let wrong = |field: &str, problem: String, fix: &str| FieldError { field: field.into(), problem, fix: fix.into() };
    let workers = args.workers.or(args.nodes);
    let ranks_per_node = match (workers, args.nodes) {
        (Some(workers), Some(nodes)) if nodes < 1 || workers % nodes != 0 || workers < nodes => {
            let problem = format!("{workers} workers cannot be spread evenly over {nodes} nodes");
            return Err(wrong("--nodes", problem, "make --workers a multiple of --nodes"));
        }
        (Some(workers), Some(nodes)) => Some(workers / nodes),
        _ => None,
    };
    let mut env = std::collections::BTreeMap::new();
    for pair in &args.env {
        let (name, value) =
            pair.split_once('=').ok_or_else(|| wrong("--env", format!("{pair:?} has no value"), "write NAME=VALUE"))?;
        env.insert(name.to_string(), value.to_string());
    }
    let program = args.command.first().map(|word| word.rsplit('/').next().unwrap_or(word)).unwrap_or_default();
    let checkpoint = CheckpointFile {
        dir: args.checkpoint_dir.clone(),
        signal: args.signal.clone(),
        grace: args.grace.clone(),
        every: None,
    };
    Ok(JobFile {
        name: args.name.clone().unwrap_or_else(|| job_file::as_name(program)),
        queue: args.queue.clone(),
        priority: args.priority.clone(),
        preemptible: args.preemptible.then_some(true),
        gang: workers.map(|workers| GangFile { workers: Some(workers), ..GangFile::default() }),
        resources: Some(ResourcesFile {
            gpus: args.gpus,
            gpu_model: args.gpu_model.clone(),
            cpus: args.cpus,
            memory: args.memory.clone(),
            ..ResourcesFile::default()
        }),
        topology: Some(TopologyFile {
            require: args.require.clone(),
            prefer: args.prefer.clone(),
            ranks_per_island: None,
            ranks_per_node,
        }),
        launcher: args.launcher.clone(),
        pool: args.pool.clone(),
        time: args.time.clone(),
        checkpoint: (checkpoint != CheckpointFile::default()).then_some(checkpoint),
        retries: args.retries,
        after: args.after.clone(),
        workdir: args.workdir.clone(),
        env,
        pty: args.pty,
        command: Command::Arguments(args.command.clone()),
        ..JobFile::default()
    })
}

/// The highest code of the ranks that ended by themselves; 1 where a job did not end well without one.
fn exit_code(view: &JobView) -> u8 {
    let own = view.exit_code.map_or(0, |code| u8::try_from(code).unwrap_or(1));
    match view.state {
        JobState::Done => own,
        _ => own.max(1),
    }
}

struct Followed<'a> {
    api: &'a Api,
    job: String,
    /// The attempt whose logs are copied.
    attempt: u32,
    logs: JoinSet<Result<(), Failure>>,
    told: String,
    pty: bool,
    stops: Stops,
    interrupts: u32,
}

/// Ctrl-C, and SIGTERM: who ends this command by `kill` or `timeout` means its job.
struct Stops {
    typed: Signal,
    sent: Signal,
}

impl Stops {
    fn listen() -> Result<Stops, Failure> {
        let fail = |error| Failure::failed(format!("cannot listen for signals: {error}"));
        let (typed, sent) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
        Ok(Stops { typed: typed.map_err(fail)?, sent: sent.map_err(fail)? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.typed.recv() => {}
            _ = self.sent.recv() => {}
        }
    }
}

impl Followed<'_> {
    async fn until_ended(&mut self, mut detail: JobDetail) -> Result<JobDetail, Failure> {
        loop {
            self.tell(&detail.view);
            self.start_logs(&detail).await?;
            if detail.view.state.is_terminal() {
                self.drain().await;
                return Ok(detail);
            }
            detail = tokio::select! {
                answer = patiently(|| self.api.wait(&self.job, LOOK_EVERY)) => answer?,
                () = self.stops.next() => self.interrupted().await?,
            };
        }
    }

    /// Once cancels, twice leaves.
    async fn interrupted(&mut self) -> Result<JobDetail, Failure> {
        self.interrupts += 1;
        if self.interrupts > 1 {
            say(format!("leaving job {} to itself: `ganger logs -f {0}` follows it", self.job));
            return Err(Failure::silent(INTERRUPTED));
        }
        say(format!("cancelling job {} (Ctrl-C again leaves it)", self.job));
        self.api.change_job(&self.job, "cancel").await
    }

    fn tell(&mut self, view: &JobView) {
        let reason = view.reason.map(|reason| format!("{reason}: ")).unwrap_or_default();
        let text = match (view.state, &view.note) {
            (JobState::Pending, Some(note)) if view.reason == Some(Reason::Unsatisfiable) => {
                format!("job {0} {note}; Ctrl-C cancels it, `ganger why {0}` says more", view.id)
            }
            (JobState::Pending, Some(note)) => format!("job {} waits: {reason}{note}", view.id),
            (JobState::Pending, None) => return,
            (JobState::Running, _) => {
                format!("job {} runs on {}", view.id, crate::output::table::node_list(&view.nodes))
            }
            _ => return,
        };
        if self.told != text {
            say(&text);
            self.told = text;
        }
    }

    /// Each attempt has logs of its own.
    async fn start_logs(&mut self, detail: &JobDetail) -> Result<(), Failure> {
        let view = &detail.view;
        let ran = matches!(view.state, JobState::Running | JobState::Stopping) || view.state.is_terminal();
        if !ran || view.attempt <= self.attempt {
            return Ok(());
        }
        self.attempt = view.attempt;
        if self.pty && view.state == JobState::Running {
            return tokio::select! {
                attached = interact::attach(self.api, &self.job) => attached,
                () = self.stops.next() => self.interrupted().await.map(drop),
            };
        }
        self.drain().await;
        let (job, attempt) = (self.job.clone(), Some(view.attempt));
        let logs = Logs { job, attempt, logs: follow::logs_of(detail), follow: true };
        self.logs = follow::start(self.api, &logs);
        Ok(())
    }

    /// Lets the copies come to their end.
    async fn drain(&mut self) {
        let all = async { while self.logs.join_next().await.is_some() {} };
        if tokio::time::timeout(TAIL_PATIENCE, all).await.is_err() {
            say(format!("the logs did not come to an end: `ganger logs {}` has them", self.job));
            self.logs.abort_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Verb};
    use clap::Parser;

    fn job(words: &[&str]) -> Result<JobFile, FieldError> {
        let cli = Cli::try_parse_from([&["ganger", "run"], words].concat()).unwrap();
        let Verb::Run(args) = cli.command else { panic!("run") };
        job_of(&args)
    }

    #[test]
    fn flags_become_a_job() {
        let job = job(&[
            "-n",
            "4",
            "-N1",
            "--gpus",
            "2",
            "-t",
            "1h",
            "-e",
            "A=b=c",
            "--",
            "/usr/bin/python",
            "x.py",
            "--flag",
        ])
        .unwrap();
        assert_eq!(job.name, "python");
        assert_eq!((job.gang.as_ref().unwrap().workers, job.resources.as_ref().unwrap().gpus), (Some(4), Some(2)));
        assert_eq!(job.topology.as_ref().unwrap().ranks_per_node, Some(4), "all on one node");
        assert_eq!((job.env["A"].as_str(), job.time.as_deref()), ("b=c", Some("1h")));
    }

    #[test]
    fn workers_are_spread_evenly_over_the_nodes() {
        let of =
            |words: &[&str]| job(words).map(|job| (job.gang.unwrap().workers, job.topology.unwrap().ranks_per_node));
        assert_eq!(of(&["-N", "3", "--", "x"]).unwrap(), (Some(3), Some(1)));
        assert_eq!(of(&["-N", "3", "-n", "6", "--", "x"]).unwrap(), (Some(6), Some(2)));
        assert_eq!(of(&["-n", "6", "--", "x"]).unwrap(), (Some(6), None), "anywhere");
        for uneven in [["-N", "3", "-n", "7"], ["-N", "3", "-n", "2"], ["-N", "0", "-n", "2"], ["-N", "-1", "-n", "2"]]
        {
            let error = job(&[&uneven[..], &["--", "x"]].concat()).unwrap_err();
            assert_eq!((error.field.as_str(), error.fix.as_str()), ("--nodes", "make --workers a multiple of --nodes"));
        }
    }

    #[test]
    fn a_variable_needs_a_value() {
        assert_eq!(job(&["--env", "A", "--", "x"]).unwrap_err().field, "--env");
    }

    #[test]
    fn the_exit_code_is_the_highest_of_the_ranks() {
        let mut view = crate::output::samples::jobs().remove(0);
        for (state, code, expected) in [
            (JobState::Done, Some(0), 0),
            (JobState::Done, None, 0),
            (JobState::Failed, Some(7), 7),
            (JobState::Failed, None, 1),
            (JobState::Cancelled, Some(0), 1),
            (JobState::Failed, Some(-1), 1),
        ] {
            (view.state, view.exit_code) = (state, code);
            assert_eq!(exit_code(&view), expected, "{state} {code:?}");
        }
    }
}
