//! The one binary: looks at its first word and hands over to the role that it names.

mod example;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((role, [dir])) if role == "keeper" => ganger_agent::keeper::main(Path::new(dir)),
        Some((role, [dir])) if role == "launch" => ganger_agent::keeper::launch_main(Path::new(dir)),
        Some((role, rest)) if role == "example" => example::main(rest),
        _ => ExitCode::from(2),
    }
}
