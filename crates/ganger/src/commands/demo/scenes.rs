//! The scenes of the tour, one after the other. Each does one thing, waits for what follows from it, tells it, and
//! notes whether it came out as it should.
use super::loss::LossLog;
use super::stage::{NODES, Stage};
use super::teller::Teller;
use crate::client::Api;
use crate::failure::Failure;
use ganger_core::model::job::JobState;
use ganger_core::model::node::HealthState;
use ganger_core::model::wire::api::JobDetail;
use ganger_core::model::wire::job::{CheckpointFile, Command, GangFile, JobFile, ResourcesFile, TopologyFile};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(40);
const TRAIN_STEPS: u64 = 120;
const SURVIVOR_STEPS: u64 = 200;
const CHECKPOINT_EVERY: u64 = 20;

pub struct Tour<'a> {
    pub stage: &'a mut Stage,
    pub teller: &'a mut Teller,
}

/// A job of the tour and what its last look showed.
#[derive(Debug, Clone)]
pub struct Actor {
    id: String,
    loss: PathBuf,
    seen: JobDetail,
}

impl Tour<'_> {
    fn api(&self) -> Api {
        self.stage.api.clone()
    }

    pub async fn nodes_join(&mut self) -> Result<(), Failure> {
        self.teller.scene("The nodes join")?;
        let (began, api) = (Instant::now(), self.api());
        until("both nodes are ready", async || {
            let nodes = api.nodes().await?;
            Ok((nodes.iter().filter(|node| node.health == HealthState::Ready).count() == NODES.len()).then_some(()))
        })
        .await?;
        self.teller.events(&api).await?;
        self.teller.found(true, "the nodes join", "2 nodes, 16 GPUs".to_string(), Some(began.elapsed()))
    }

    pub async fn a_gang_trains(&mut self) -> Result<Actor, Failure> {
        self.teller.scene("A gang of 16 workers trains on every GPU of both nodes; it may be preempted")?;
        let api = self.api();
        let mut job = self.trainer("train", 16, TRAIN_STEPS);
        job.preemptible = Some(true);
        let began = Instant::now();
        let actor = self.submit("train", job).await?;
        let running = until("the gang runs", async || running(&api, &actor.id, 1).await).await?;
        let took = began.elapsed();
        self.teller.events(&api).await?;
        self.teller.picture(&api).await?;
        let whole = running.view.nodes.len() == 2 && running.ranks.len() == 16;
        let found = format!("16 ranks on {}", running.view.nodes.join(" and "));
        self.teller.found(whole, "the gang starts whole", found, Some(took))?;
        let with_checkpoint = until("a checkpoint counts", async || checkpointed(&api, &actor.id, 1).await).await?;
        Ok(Actor { seen: with_checkpoint, ..actor })
    }

    /// Answers the urgent job and the step that the gang saved.
    pub async fn an_urgent_job_preempts(&mut self, train: &Actor) -> Result<(Actor, u64), Failure> {
        self.teller.scene("An urgent job (P0) needs 8 GPUs of one node: the gang saves and yields")?;
        let api = self.api();
        let mut job = self.trainer("urgent", 8, 30);
        job.priority = Some("P0".to_string());
        // With a limit, the gang that waits for it can be told when it starts.
        job.time = Some("1m".to_string());
        job.topology = Some(TopologyFile { require: Some("node".to_string()), ..TopologyFile::default() });
        let began = Instant::now();
        let urgent = self.submit("urgent", job).await?;
        let runs = until("the urgent job runs", async || running(&api, &urgent.id, 1).await).await?;
        let took = began.elapsed();
        self.teller.events(&api).await?;
        self.teller.picture(&api).await?;
        self.teller.found(
            true,
            "the urgent job runs",
            format!("8 ranks on {}", runs.view.nodes.join(",")),
            Some(took),
        )?;
        let yielded = api.job(&train.id).await?;
        let (before, now) = (step_of(&train.seen), step_of(&yielded));
        let saved = now > before && yielded.view.evictions == 1;
        self.teller.found(
            saved,
            "the gang saved before it left",
            format!("checkpoint of step {now}, after step {before}"),
            None,
        )?;
        if yielded.view.state == JobState::Pending {
            self.teller.line("Why does the gang wait, with 8 GPUs free?")?;
            self.teller.why(&api, &train.id).await?;
        }
        Ok((urgent, now))
    }

    pub async fn it_resumes_where_it_was(&mut self, train: &Actor, urgent: &Actor, saved: u64) -> Result<(), Failure> {
        self.teller.scene("The urgent job ends, and the gang goes on where it was")?;
        let api = self.api();
        let done = until("the urgent job ends", async || ended(&api, &urgent.id).await).await?;
        let began = Instant::now();
        self.teller.found(
            done.view.state == JobState::Done,
            "the urgent job ends well",
            done.view.state.to_string(),
            None,
        )?;
        until("the gang runs again", async || running(&api, &train.id, 2).await).await?;
        let took = began.elapsed();
        self.teller.events(&api).await?;
        self.teller.found(true, "the gang resumes", format!("from step {saved}"), Some(took))?;
        let end = until("the gang ends", async || ended(&api, &train.id).await).await?;
        let (log, good) = (LossLog::read(&train.loss), end.view.state == JobState::Done);
        let missing = log.missing(TRAIN_STEPS).map_or("none".to_string(), |step| format!("step {step}"));
        let exact = good && log.repeated() == 0 && log.missing(TRAIN_STEPS).is_none();
        let found =
            format!("{}; of {TRAIN_STEPS} steps {} repeated, missing: {missing}", end.view.state, log.repeated());
        self.teller.found(exact, "no step was lost", found, None)
    }

    pub async fn a_second_gang_trains(&mut self) -> Result<Actor, Failure> {
        self.teller.scene("Another gang of 8 workers trains on one node")?;
        let api = self.api();
        let mut job = self.trainer("survivor", 8, SURVIVOR_STEPS);
        job.topology = Some(TopologyFile { require: Some("node".to_string()), ..TopologyFile::default() });
        let actor = self.submit("survivor", job).await?;
        until("it runs", async || running(&api, &actor.id, 1).await).await?;
        let seen = until("a checkpoint counts", async || checkpointed(&api, &actor.id, 1).await).await?;
        self.teller.events(&api).await?;
        self.teller.picture(&api).await?;
        Ok(Actor { seen, ..actor })
    }

    pub async fn its_node_dies_and_it_goes_on(&mut self, survivor: &Actor) -> Result<(), Failure> {
        let api = self.api();
        let dead = survivor.seen.view.nodes.first().cloned().unwrap_or_default();
        self.teller
            .scene(&format!("{dead} dies: its agent, keepers and ranks are killed at once, nobody says a word"))?;
        let began = Instant::now();
        let killed = self.stage.cut_power(&dead).await?;
        self.teller.line(&format!("{killed} processes killed. The server may not give the ranks to others before the lease is over: a node that is only cut off may still run them."))?;
        let fenced = until("the node is fenced", async || {
            let node = api.node(&dead).await?;
            Ok((!matches!(node.health, HealthState::Ready | HealthState::Suspect)).then_some(node))
        })
        .await?;
        let found = format!("{dead} {}: {}", fenced.health, fenced.health_cause);
        self.teller.found(true, "the silent node is fenced", found, Some(began.elapsed()))?;
        let again = until("the gang runs elsewhere", async || running(&api, &survivor.id, 2).await).await?;
        let took = began.elapsed();
        self.teller.events(&api).await?;
        self.teller.picture(&api).await?;
        let elsewhere = !again.view.nodes.contains(&dead) && !again.view.nodes.is_empty();
        let found = format!("on {} from step {}", again.view.nodes.join(","), step_of(&again));
        self.teller.found(elsewhere && step_of(&again) > 0, "the gang goes on elsewhere", found, Some(took))?;
        let end = until("it ends", async || ended(&api, &survivor.id).await).await?;
        self.judge_survivor(survivor, &end)
    }

    fn judge_survivor(&mut self, survivor: &Actor, end: &JobDetail) -> Result<(), Failure> {
        let log = LossLog::read(&survivor.loss);
        let whole = end.view.state == JobState::Done && log.missing(SURVIVOR_STEPS).is_none();
        let found = format!("{}; {} steps were made twice, none is missing", end.view.state, log.repeated());
        let missing = log.missing(SURVIVOR_STEPS).map(|step| format!("{}; step {step} is missing", end.view.state));
        self.teller.found(whole, "only work since the checkpoint was lost", missing.unwrap_or(found), None)?;
        let same = log.agrees_with_itself();
        let found = if same {
            "each repeated step gave the same loss, bit for bit"
        } else {
            "a repeated step gave another loss"
        };
        self.teller.found(same, "the training is the same", found.to_string(), None)
    }

    /// The trainer that comes with this program, paced so that it can be watched.
    fn trainer(&self, name: &str, workers: i64, steps: u64) -> JobFile {
        let words = ["example", "train", "--step-time", "100ms", "--log-every", "20"];
        let mut command = vec![self.stage.binary.display().to_string()];
        command.extend(words.map(str::to_string));
        command.extend(["--steps".to_string(), steps.to_string()]);
        command.extend(["--checkpoint-every".to_string(), CHECKPOINT_EVERY.to_string()]);
        command.extend(["--loss-log".to_string(), self.loss_log(name).display().to_string()]);
        let dir = self.stage.place().join("checkpoints").join(name).display().to_string();
        JobFile {
            name: name.to_string(),
            gang: Some(GangFile { workers: Some(workers), ..GangFile::default() }),
            resources: Some(ResourcesFile { gpus: Some(1), ..ResourcesFile::default() }),
            checkpoint: Some(CheckpointFile {
                dir: Some(dir),
                every: None,
                signal: Some("SIGUSR1".to_string()),
                grace: Some("20s".to_string()),
            }),
            workdir: Some(self.stage.place().display().to_string()),
            command: Command::Arguments(command),
            ..JobFile::default()
        }
    }

    fn loss_log(&self, name: &str) -> PathBuf {
        self.stage.place().join(format!("{name}.loss"))
    }

    async fn submit(&self, name: &str, job: JobFile) -> Result<Actor, Failure> {
        let seen = self.stage.api.submit(&job).await?;
        Ok(Actor { id: seen.view.id.to_string(), loss: self.loss_log(name), seen })
    }
}

/// Looks again and again until there is an answer.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
    let began = Instant::now();
    loop {
        if let Some(found) = look().await.map_err(|failure| failure.context(format!("while waiting until {what}")))? {
            return Ok(found);
        }
        if began.elapsed() > PATIENCE {
            return Err(Failure::failed(format!("waited {} s until {what}, in vain", PATIENCE.as_secs())));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// The job while its attempt `attempt` runs; a job that has failed never will.
async fn running(api: &Api, job: &str, attempt: u32) -> Result<Option<JobDetail>, Failure> {
    let detail = api.job(job).await?;
    if matches!(detail.view.state, JobState::Failed | JobState::Cancelled) {
        return Err(Failure::failed(format!(
            "{} {}: {}",
            detail.view.name,
            detail.view.state,
            detail.view.note.unwrap_or_default()
        )));
    }
    let runs = detail.view.state == JobState::Running && detail.view.attempt >= attempt;
    Ok(runs.then_some(detail))
}

async fn checkpointed(api: &Api, job: &str, attempt: u32) -> Result<Option<JobDetail>, Failure> {
    let detail = running(api, job, attempt).await?;
    Ok(detail.filter(|detail| detail.checkpoint.is_some()))
}

async fn ended(api: &Api, job: &str) -> Result<Option<JobDetail>, Failure> {
    let detail = api.job(job).await?;
    Ok(detail.view.state.is_terminal().then_some(detail))
}

fn step_of(detail: &JobDetail) -> u64 {
    detail.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.step)
}
