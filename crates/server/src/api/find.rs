//! Names and ids to things. A job is found by its number or by its name (the newest of that name), alive or ended.
use super::{App, Problem};
use crate::cycle::View;
use ganger_core::model::ids::JobId;
use ganger_core::model::{Job, Node};
use std::sync::Arc;

/// A job and the state in which it was found. An ended job is not in that state any more.
#[derive(Debug, Clone)]
pub struct Found {
    pub job: Arc<Job>,
    pub view: Arc<View>,
}

pub async fn job(app: &App, name: &str) -> Result<Found, Problem> {
    let view = app.cycle.view();
    let alive = match name.parse::<u64>() {
        Ok(id) => view.cluster.jobs.get(&JobId(id)).cloned(),
        Err(_) => view.cluster.jobs.values().rev().find(|job| job.spec.name == name).cloned(),
    };
    let job = match (alive, name.parse::<u64>()) {
        (Some(job), Ok(_)) => Some(job),
        (None, Ok(id)) => app.read(move |reader| reader.finished(JobId(id))).await?.map(Arc::new),
        (alive, Err(_)) => newest(alive, finished_named(app, name).await?),
    };
    let missing = || {
        Problem::not_found(format!("there is no job {name:?}; `ganger jobs --all` lists all, also those that ended"))
    };
    Ok(Found { job: job.ok_or_else(missing)?, view })
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
