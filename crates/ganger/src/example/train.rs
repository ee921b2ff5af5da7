//! The training of one rank: find the others, resume, step, checkpoint, and yield when any rank was told to.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use super::EXIT_REQUEUE;
use super::checkpoint::{self, Progress, Writer};
use super::error::TrainError;
use super::flags::TrainArgs;
use super::link::Patience;
use super::model::Model;
use super::rendezvous;
use super::report::{Report, line};
use super::ring::{Reduce, Ring};
use super::settings::Settings;
use super::stop::Stop;

/// How a training ended without an error.
enum Outcome {
    Finished,
    Stopped,
}

struct Trainer<'a> {
    args: &'a TrainArgs,
    settings: &'a Settings,
    stop: Stop,
    report: &'a mut Report,
    ring: Ring,
    writer: Option<Writer>,
    progress: Progress,
}

/// Runs one rank to its end and says how it went by the exit code.
pub fn run(args: &TrainArgs) -> ExitCode {
    let settings = match Settings::from_env() {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("ganger example train: {error}");
            return error.exit_code();
        }
    };
    match train(args, &settings) {
        Ok(Outcome::Finished) => ExitCode::SUCCESS,
        Ok(Outcome::Stopped) => ExitCode::from(EXIT_REQUEUE),
        Err(error) => {
            eprintln!("rank {}/{}: {error}", settings.rank, settings.world);
            error.exit_code()
        }
    }
}

fn train(args: &TrainArgs, settings: &Settings) -> Result<Outcome, TrainError> {
    let stop = Stop::watch(settings.preempt_file.clone())?;
    let mut report = Report::open(args, settings)?;
    report.stamp("start")?;
    let outcome = train_in_gang(args, settings, stop, &mut report);
    // Whatever the outcome, this process is about to leave its devices.
    report.stamp("end")?;
    outcome
}

fn train_in_gang(
    args: &TrainArgs,
    settings: &Settings,
    stop: Stop,
    report: &mut Report,
) -> Result<Outcome, TrainError> {
    let progress = resume(args, settings.resume_from.as_deref())?;
    let writer = if settings.rank == 0 { Writer::open(settings)? } else { None };
    let patience = Patience { deadline: Instant::now() + args.rendezvous_timeout, stop: &stop };
    let neighbours = rendezvous::form(settings, &patience)?;
    let ring = Ring::new(settings.rank, settings.world, neighbours, args.peer_timeout + args.step_time);
    Trainer { args, settings, stop, report, ring, writer, progress }.run()
}

/// The state to start from. A resume path that is set is obeyed or is an error.
fn resume(args: &TrainArgs, from: Option<&Path>) -> Result<Progress, TrainError> {
    match from {
        Some(path) => checkpoint::load(path),
        None => Ok(Progress { step: 0, loss: 0.0, model: Model::new(args.seed) }),
    }
}

impl Trainer<'_> {
    fn run(mut self) -> Result<Outcome, TrainError> {
        self.agree_on_start()?;
        self.say_start();
        while self.progress.step < self.args.steps {
            let due = Instant::now() + self.args.step_time;
            self.step()?;
            self.stop.wait_until(due);
            // The flags of all ranks, so that all leave at the same step even when one alone was told.
            let stopping = self.ring.max(f64::from(u8::from(self.stop.requested())))? > 0.0;
            if self.progress.step == self.args.steps {
                break;
            }
            if stopping {
                return self.yield_now();
            }
            self.checkpoint_if_due()?;
        }
        self.finish()
    }

    /// Ranks that start from different states would train nonsense without ever failing.
    fn agree_on_start(&mut self) -> Result<(), TrainError> {
        let (step, print) = (self.progress.step as f64, self.progress.fingerprint());
        let mut extremes = [step, -step, print, -print];
        self.ring.all_reduce(&mut extremes, Reduce::Max)?;
        if extremes == [step, -step, print, -print] {
            return Ok(());
        }
        Err(TrainError::ResumeDiffers { step: self.progress.step })
    }

    fn say_start(&self) {
        let Settings { attempt, node, resume_from, .. } = self.settings;
        let step = self.progress.step;
        self.report.say(&match resume_from {
            Some(path) => format!("resume step {step} from {} attempt {attempt} node {node}", path.display()),
            None => format!("start step {step} attempt {attempt} node {node}"),
        });
    }

    fn step(&mut self) -> Result<(), TrainError> {
        let step = self.progress.step + 1;
        let mut gradient = self.progress.model.gradient(self.args.seed, step, self.settings.rank);
        self.ring.all_reduce(&mut gradient, Reduce::Sum)?;
        let loss = self.progress.model.update(&gradient, self.settings.world);
        (self.progress.step, self.progress.loss) = (step, loss);
        self.report.stamp("alive")?;
        self.report.loss(step, loss)?;
        if self.settings.rank == 0 && self.args.log_every > 0 && step.is_multiple_of(self.args.log_every) {
            self.report.say(&format!("step {step} loss {loss:.4}"));
        }
        Ok(())
    }

    fn checkpoint_if_due(&mut self) -> Result<(), TrainError> {
        let every = self.args.checkpoint_every;
        if every > 0 && self.progress.step.is_multiple_of(every) {
            return self.save();
        }
        Ok(())
    }

    fn save(&mut self) -> Result<(), TrainError> {
        match &mut self.writer {
            Some(writer) => writer.save(&self.progress),
            None => Ok(()),
        }
    }

    /// Saves, and leaves only when that is done: exit 85 promises a checkpoint, on every rank.
    fn yield_now(&mut self) -> Result<Outcome, TrainError> {
        let step = self.progress.step;
        if self.settings.checkpoint_dir.is_none() {
            return Err(TrainError::StoppedUnsaved { step });
        }
        self.save()?;
        self.ring.barrier()?;
        self.report.say(&format!("end step {step} stopped, checkpointed"));
        Ok(Outcome::Stopped)
    }

    fn finish(&mut self) -> Result<Outcome, TrainError> {
        let Progress { step, loss, .. } = self.progress;
        self.save()?;
        self.ring.barrier()?;
        self.report.say(&format!("end step {step}"));
        if self.settings.rank == 0 {
            line(&format!("final loss {loss} {:016x}", loss.to_bits()));
        }
        Ok(Outcome::Finished)
    }
}
