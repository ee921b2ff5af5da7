//! The one binary: parses, prints, exits.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).take(3).collect();
    match arguments.as_slice() {
        [role, dir] if role == "keeper" => ganger_agent::keeper::main(Path::new(dir)),
        [role, dir] if role == "launch" => ganger_agent::keeper::launch_main(Path::new(dir)),
        _ => {
            eprintln!("ganger: unknown command; this build has the hidden roles `keeper DIR` and `launch DIR` only");
            ExitCode::from(2)
        }
    }
}
