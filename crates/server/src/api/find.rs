//! Names and ids to things. A job is found by its number or by its name (the newest of that name), alive or ended.
use super::{App, Problem};
use crate::cycle::View;
use ganger_core::model::ids::JobId;
use ganger_core::model::queue::Queue;
use ganger_core::model::{Job, Node};
use std::sync::Arc;

/// A job and the state in which it was found. An ended job is not in that state any more.
#[derive(Debug, Clone)]
pub struct Found {
    pub job: Arc<Job>,
    pub view: Arc<View>,
}

pub async fn job(app: &App, name: &str) -> Result<Found, Problem> {
    if let Some(found) = plain_job(app, name).await? {
        return Ok(found);
    }
    task(app, name).await
}

/// A job or an array by its number or its own name.
async fn plain_job(app: &App, name: &str) -> Result<Option<Found>, Problem> {
    let view = app.cycle.view();
    let job = match name.parse::<u64>() {
        Ok(id) => by_id(app, &view, JobId(id)).await?,
        Err(_) => {
            let alive = view.cluster.job_names.get(name).and_then(|id| view.cluster.record(*id));
            newest(alive, finished_named(app, name).await?)
        }
    };
    Ok(job.map(|job| Found { job, view }))
}

async fn by_id(app: &App, view: &View, id: JobId) -> Result<Option<Arc<Job>>, Problem> {
    match view.cluster.record(id) {
        Some(job) => Ok(Some(job)),
        None => Ok(app.read(move |reader| reader.finished(id)).await?.map(Arc::new)),
    }
}

/// `12_3` or `sweep_3`: a task of an array, whether it runs, waits or has ended.
async fn task(app: &App, name: &str) -> Result<Found, Problem> {
    let missing = || {
        Problem::not_found(format!("there is no job {name:?}; `ganger jobs --all` lists all, also those that ended"))
    };
    let (array, index) = name.rsplit_once('_').ok_or_else(missing)?;
    let index: u32 = index.parse().map_err(|_| missing())?;
    let Found { job: array, view } = plain_job(app, array).await?.ok_or_else(missing)?;
    let indices = array.spec.array.as_ref().ok_or_else(missing)?;
    let no_task = || {
        let text = format!("array {} ({}) has no task {index}: its tasks are {indices}", array.id, array.spec.name);
        Problem::not_found(text)
    };
    let id = array.task_id(index).ok_or_else(no_task)?;
    let never = || {
        let text = format!("task {index} of array {} never started: the array is {}", array.id, array.state);
        Problem::not_found(text)
    };
    let job = by_id(app, &view, id).await?.ok_or_else(never)?;
    Ok(Found { job, view })
}

/// The number of the newest job of this name, for dependencies.
pub async fn job_id(app: &App, name: &str) -> Option<JobId> {
    job(app, name).await.ok().map(|found| found.job.id)
}

pub fn node<'a>(view: &'a View, name: &str) -> Result<&'a Arc<Node>, Problem> {
    let id = view.cluster.node_names.get(name);
    let missing = || Problem::not_found(format!("there is no node {name:?}; `ganger nodes` lists them"));
    id.and_then(|id| view.cluster.nodes.get(id.index())).ok_or_else(missing)
}

pub fn queue<'a>(view: &'a View, path: &str) -> Result<&'a Queue, Problem> {
    let missing = || Problem::not_found(format!("there is no queue {path:?}; `ganger queues` lists them"));
    view.cluster.queues.get(path).ok_or_else(missing)
}

async fn finished_named(app: &App, name: &str) -> Result<Option<Arc<Job>>, Problem> {
    let name = name.to_string();
    Ok(app.read(move |reader| reader.finished_named(&name)).await?.map(Arc::new))
}

fn newest(one: Option<Arc<Job>>, other: Option<Arc<Job>>) -> Option<Arc<Job>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if one.id > other.id { one } else { other }),
        (one, other) => one.or(other),
    }
}
