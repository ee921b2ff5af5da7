//! The one binary: looks at its first word and hands over to the role that it names.
//!
//! The two hidden roles of keepers come first and without the command line's machinery: one such process runs beside
//! every worker and must stay small.
mod cli;
mod client;
mod commands;
#[cfg(test)]
mod documents;
mod example;
mod failure;
mod files;
mod output;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(1).take(3).collect();
    match words.as_slice() {
        [role, dir] if role == "keeper" => ganger_agent::keeper::main(Path::new(dir)),
        [role, dir] if role == "launch" => ganger_agent::keeper::launch_main(Path::new(dir)),
        _ => commands::main(),
    }
}
