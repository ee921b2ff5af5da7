//! Looks for seeds whose fault storm breaks a rule: `cargo run --release --example storms -- FIRST COUNT EVENTS [-v]`.
use ganger_simulator::{Stats, storm};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u64| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let (first, count, events) = (number(0, 1), number(1, 100), number(2, 150));
    let verbose = arguments.iter().any(|argument| argument == "-v");
    let (mut failed, mut sum) = (0, Stats::default());
    for seed in first..first.saturating_add(count) {
        let failure = match storm(seed, events as usize) {
            Ok(stats) => {
                sum += stats;
                continue;
            }
            Err(failure) => failure,
        };
        failed += 1;
        if verbose {
            println!("{failure}");
        } else if let Some(broken) = failure.violations.first() {
            println!("seed {seed} after {} events: rule {}: {}", failure.step, broken.rule, broken.text);
        }
    }
    println!("{sum:?}");
    println!("{failed} of {count} storms of {events} events broke a rule");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
