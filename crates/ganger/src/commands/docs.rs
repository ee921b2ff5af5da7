//! Completions and manual pages, made from the command line's own definitions.
use crate::cli::Cli;
use crate::failure::Failure;
use crate::output::{emit_bytes, say};
use clap::{Command, CommandFactory};
use std::path::Path;

pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ganger", &mut out);
    emit_bytes(&out)
}

/// `ganger.1` and one page for each command, as `ganger-jobs.1`.
pub fn man(dir: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(dir)
        .map_err(|error| Failure::failed(format!("cannot create {}: {error}", dir.display())))?;
    let pages = pages()?;
    for (name, page) in &pages {
        let path = dir.join(name);
        std::fs::write(&path, page)
            .map_err(|error| Failure::failed(format!("cannot write {}: {error}", path.display())))?;
    }
    say(format!("wrote {} pages to {}", pages.len(), dir.display()));
    Ok(())
}

fn pages() -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let mut root = Cli::command();
    root.build();
    let mut pages = vec![page(&root, "ganger")?];
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        collect(command, "ganger", &mut pages)?;
    }
    Ok(pages)
}

fn collect(command: &Command, parent: &str, pages: &mut Vec<(String, Vec<u8>)>) -> Result<(), Failure> {
    let name = format!("{parent}-{}", command.get_name());
    pages.push(page(command, &name)?);
    command
        .get_subcommands()
        .filter(|command| command.get_name() != "help")
        .try_for_each(|sub| collect(sub, &name, pages))
}

fn page(command: &Command, name: &str) -> Result<(String, Vec<u8>), Failure> {
    let mut text = Vec::new();
    // `build` has given each command its full name, `ganger-queues-apply`.
    let made = clap_mangen::Man::new(command.clone()).render(&mut text);
    made.map_err(|error| Failure::failed(format!("cannot make the page of {name}: {error}")))?;
    Ok((format!("{name}.1"), text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_completions() {
        let names: Vec<String> = pages().unwrap().into_iter().map(|(name, _)| name).collect();
        for name in ["ganger.1", "ganger-submit.1", "ganger-queues-apply.1", "ganger-sim-scenario.1"] {
            assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
        }
        use clap_complete::Shell::*;
        for shell in [Bash, Zsh, Fish, Elvish, PowerShell] {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ganger", &mut out);
            assert!(String::from_utf8(out).unwrap().contains("submit"), "{shell}");
        }
    }

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }
}
