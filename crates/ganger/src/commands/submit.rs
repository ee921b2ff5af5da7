//! `ganger submit`: standard output is the id alone, so that scripts can take it.
use super::job_file::{self, Submitter};
use crate::cli::Submit;
use crate::client::Api;
use crate::failure::Failure;
use crate::output::{Look, emit, json::json, say, why};

pub async fn run(api: &Api, args: Submit, look: &Look) -> Result<(), Failure> {
    let job = job_file::read(&args.file, &Submitter::of_process()?)?;
    if args.dry_run {
        let answer = api.dry_run(&job).await?;
        emit(&if look.is_json() { json(&answer)? } else { why::page(&answer, look) })?;
        return if answer.satisfiable { Ok(()) } else { Err(Failure::silent(1)) };
    }
    let detail = api.submit(&job).await?;
    if look.is_json() {
        return emit(&json(&detail)?);
    }
    say(format!("submitted {} as job {}", detail.view.name, detail.view.id));
    emit(&format!("{}\n", detail.view.id))
}
