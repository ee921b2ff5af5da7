//! What the commands do, a file for each noun. They parse nothing and decide nothing: they ask the server and print.
mod checkpoint;
mod cluster;
mod demo;
mod docs;
mod doctor;
mod events;
mod follow;
mod interact;
mod job_file;
mod jobs;
mod logs;
mod nodes;
mod overview;
mod queues;
mod replay;
mod roles;
mod run;
mod sim;
mod submit;
mod tokens;
mod topo;
mod up;

use crate::cli::{Cli, Verb};
use crate::client::{Api, locate};
use crate::failure::Failure;
use crate::output::{Look, say};
use clap::Parser;
use std::future::Future;
use std::process::ExitCode;

/// Parses the words of this process and does what they say.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A closed stdout or stderr is no reason to end differently.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    if let Verb::Example { command } = &cli.command {
        return crate::example::run(command);
    }
    match dispatch(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                say(format!("error: {failure}"));
            }
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(cli: Cli) -> Result<(), Failure> {
    let look = Look::of_stdout(cli.global.output);
    let server = cli.global.server.as_deref();
    match cli.command {
        Verb::Example { .. } => Ok(()),
        Verb::Completions { shell } => docs::completions(shell),
        Verb::Man { dir } => docs::man(&dir),
        Verb::Sim(args) => sim::run(args.command, &look),
        Verb::Topo(args) if args.from.is_some() || args.profile.is_some() => topo::offline(args, &look),
        Verb::Checkpoint(args) => block_on(checkpoint::run(args.command, server)),
        Verb::Up(args) => block_on_many(up::run(args)),
        Verb::Server(args) => block_on_many(roles::server(args)),
        Verb::Agent(args) => block_on_many(roles::agent(args, server)),
        Verb::Demo(args) => block_on_many(demo::run(args, look)),
        Verb::Doctor(args) => block_on(doctor::run(server, &args, &look)),
        command => {
            let api = locate::api(server)?;
            block_on(ask(&api, command, &look))
        }
    }
}

/// The commands that only talk to a server.
async fn ask(api: &Api, command: Verb, look: &Look) -> Result<(), Failure> {
    match command {
        Verb::Submit(args) => submit::run(api, args, look).await,
        Verb::Run(args) => run::run(api, *args).await,
        Verb::Jobs(args) => jobs::list(api, args, look).await,
        Verb::Show(args) => jobs::show(api, &args.job, look).await,
        Verb::Why(args) => jobs::why(api, &args.job, look).await,
        Verb::Cancel(args) => jobs::change(api, &args.jobs, "cancel", look).await,
        Verb::Hold(args) => jobs::change(api, &args.jobs, "hold", look).await,
        Verb::Release(args) => jobs::change(api, &args.jobs, "release", look).await,
        Verb::Requeue(args) => jobs::change(api, &args.jobs, "requeue", look).await,
        Verb::Resize(args) => jobs::resize(api, &args, look).await,
        Verb::Wait(args) => jobs::wait(api, args, look).await,
        Verb::Logs(args) => logs::run(api, args).await,
        Verb::Exec(args) => interact::exec(api, args).await,
        Verb::Nodes(args) => nodes::list(api, &args.nodes, look).await,
        Verb::Topo(args) => topo::online(api, args.node.as_deref(), look).await,
        Verb::Top(args) => overview::top(api, args, look).await,
        Verb::Usage(args) => overview::usage(api, args, look).await,
        Verb::Drain(args) => nodes::drain(api, args, look).await,
        Verb::Cordon(args) => nodes::change(api, &args.node, "cordon", look).await,
        Verb::Uncordon(args) => nodes::change(api, &args.node, "uncordon", look).await,
        Verb::Forget(args) => nodes::change(api, &args.node, "forget", look).await,
        Verb::Quarantine(args) => nodes::quarantine(api, args, look).await,
        Verb::Queues(args) => queues::run(api, args.command, look).await,
        Verb::Cluster(args) => cluster::run(api, args.command, look).await,
        Verb::Events(args) => events::run(api, args, look).await,
        Verb::Token(args) => tokens::run(api, args.command, look).await,
        _ => Err(Failure::failed("this command does not talk to a server")),
    }
}

/// For a command that waits for one thing after the other.
fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    on(tokio::runtime::Builder::new_current_thread(), work)
}

/// For the parts of Ganger that serve many at once.
fn block_on_many(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    on(tokio::runtime::Builder::new_multi_thread(), work)
}

fn on(mut builder: tokio::runtime::Builder, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = builder.enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(work);
    // A read of the terminal cannot be taken back: do not wait for it.
    runtime.shutdown_background();
    outcome
}
