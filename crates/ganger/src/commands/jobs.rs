//! Commands that look at jobs or change them.
use crate::cli::{Jobs, Resize, Wait};
use crate::client::Api;
use crate::client::patience::patiently;
use crate::failure::Failure;
use crate::output::{Look, emit, json::json, say, show, table, why as why_page};
use ganger_core::model::job::JobState;
use ganger_core::model::wire::api::{JobDetail, JobView};
use std::time::{Duration, Instant};

pub async fn list(api: &Api, args: Jobs, look: &Look) -> Result<(), Failure> {
    // A terminal state is only among all jobs.
    let ended = args.state.as_deref().and_then(JobState::parse).is_some_and(JobState::is_terminal);
    let all = (args.all || ended).then_some("true");
    let filter = [
        ("all", all),
        ("state", args.state.as_deref()),
        ("queue", args.queue.as_deref()),
        ("user", args.user.as_deref()),
        ("tasks", args.array.then_some("true")),
    ];
    let jobs = api.jobs(&filter).await?;
    print(&jobs, look)
}

fn print(jobs: &[JobView], look: &Look) -> Result<(), Failure> {
    emit(&if look.is_json() { json(jobs)? } else { table::jobs(jobs, look) })
}

pub async fn show(api: &Api, job: &str, look: &Look) -> Result<(), Failure> {
    let detail = api.job(job).await?;
    emit(&if look.is_json() { json(&detail)? } else { show::job(&detail, look) })
}

pub async fn why(api: &Api, job: &str, look: &Look) -> Result<(), Failure> {
    let answer = api.why(job).await?;
    emit(&if look.is_json() { json(&answer)? } else { why_page::page(&answer, look) })
}

/// All are tried; the worst outcome counts.
pub async fn change(api: &Api, jobs: &[String], verb: &str, look: &Look) -> Result<(), Failure> {
    let (mut changed, mut worst): (Vec<JobView>, Option<Failure>) = (Vec::new(), None);
    for job in jobs {
        match api.change_job(job, verb).await {
            Ok(detail) => changed.push(detail.view),
            Err(failure) => keep_worst(&mut worst, failure.context(format!("cannot {verb} job {job}"))),
        }
    }
    if !changed.is_empty() {
        print(&changed, look)?;
    }
    worst.map_or(Ok(()), Err)
}

pub async fn resize(api: &Api, args: &Resize, look: &Look) -> Result<(), Failure> {
    let detail = api.resize(&args.job, args.workers).await;
    let detail = detail.map_err(|failure| failure.context(format!("cannot resize job {}", args.job)))?;
    print(&[detail.view], look)
}

/// Says the failure that is not kept, so that none is lost.
fn keep_worst(worst: &mut Option<Failure>, failure: Failure) {
    match worst {
        Some(kept) if kept.code >= failure.code => say(format!("error: {failure}")),
        Some(kept) => {
            say(format!("error: {kept}"));
            *kept = failure;
        }
        None => *worst = Some(failure),
    }
}

pub async fn wait(api: &Api, args: Wait, look: &Look) -> Result<(), Failure> {
    let until = args.timeout.map(|span| Instant::now() + Duration::from_millis(span.0));
    let mut ended = Vec::new();
    for job in &args.jobs {
        ended.push(until_ended(api, job, until).await?.view);
    }
    print(&ended, look)?;
    let bad: Vec<String> = ended
        .iter()
        .filter(|job| job.state != JobState::Done)
        .map(|job| format!("job {} {}", job.number(), job.state))
        .collect();
    if bad.is_empty() { Ok(()) } else { Err(Failure::failed(bad.join(", "))) }
}

async fn until_ended(api: &Api, job: &str, until: Option<Instant>) -> Result<JobDetail, Failure> {
    // By its id from here on: a newer job may take the name.
    let mut detail = api.job(job).await?;
    let id = detail.view.id.to_string();
    while !detail.view.state.is_terminal() {
        let left = until.map_or(Duration::from_secs(30), |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(Failure::failed(format!("job {id} is still {}; gave up waiting", detail.view.state)));
        }
        detail = patiently(|| api.wait(&id, left)).await?;
    }
    Ok(detail)
}
