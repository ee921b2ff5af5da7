//! `ganger submit`: off a terminal standard output is the id alone, so that scripts can take it.
use super::job_file::{self, Read, Submitter};
use crate::cli::Submit;
use crate::client::Api;
use crate::failure::Failure;
use crate::output::{Look, emit, json::json, say, why};
use ganger_core::model::wire::api::JobView;
use std::io::IsTerminal;

pub async fn run(api: &Api, args: Submit, look: &Look) -> Result<(), Failure> {
    let Read { job, is_script } = job_file::read(&args.file, &Submitter::of_process()?, args.array)?;
    if args.dry_run {
        let answer = api.dry_run(&job).await?;
        emit(&if look.is_json() { json(&answer)? } else { why::page(&answer, look) })?;
        return if answer.satisfiable { Ok(()) } else { Err(Failure::silent(1)) };
    }
    // A script is submitted again and again, as `sbatch` has it.
    let detail = if is_script { api.submit_numbered(&job).await? } else { api.submit(&job).await? };
    if look.is_json() {
        return emit(&json(&detail)?);
    }
    emit(&told(&detail.view, std::io::stdout().is_terminal()))?;
    let id = detail.view.id;
    if let Some(why) = &detail.never {
        say(format!("warning: job {id} can never run on this cluster as it is: {why}; `ganger why {id}` says more"));
    }
    Ok(())
}

fn told(job: &JobView, to_people: bool) -> String {
    match to_people {
        true if job.array.is_some() => {
            let tasks = job.array.as_ref().map_or("", |array| array.indices.as_str());
            format!("submitted {} as array {} with the tasks {tasks}\n", job.name, job.id)
        }
        true => format!("submitted {} as job {}\n", job.name, job.id),
        false => format!("{}\n", job.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_told_the_name_and_scripts_the_id() {
        let job = crate::output::samples::jobs().remove(0);
        assert_eq!(told(&job, true), "submitted eval as job 7\n");
        assert_eq!(told(&job, false), "7\n");
        let array = crate::output::samples::arrays().remove(0);
        assert_eq!(told(&array, true), "submitted sweep as array 20 with the tasks 0-9%2\n");
        assert_eq!(told(&array, false), "20\n");
    }
}
