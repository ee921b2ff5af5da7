//! The one binary: looks at its first word and hands over to the role that it names.

use std::process::ExitCode;

mod example;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((role, rest)) if role == "example" => example::main(rest),
        _ => {
            eprintln!("usage: ganger example train [flags]");
            ExitCode::from(2)
        }
    }
}
