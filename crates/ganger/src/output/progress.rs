//! A bar on standard error while a long command works; nothing where standard error is no terminal.
use std::io::{IsTerminal, Write};

const BAR_COLUMNS: u64 = 30;

/// Steps done of all; the bar goes away when it is dropped.
pub struct Progress {
    what: &'static str,
    done: u64,
    all: u64,
    shown: bool,
}

impl Progress {
    pub fn new(what: &'static str, all: u64) -> Progress {
        let progress = Progress { what, done: 0, all, shown: std::io::stderr().is_terminal() };
        progress.draw();
        progress
    }

    /// Does one step and counts it.
    pub fn after<T>(&mut self, step: impl FnOnce() -> T) -> T {
        let done = step();
        self.done += 1;
        self.draw();
        done
    }

    /// So many steps are done; drawn when the bar grows.
    pub fn at(&mut self, done: u64) {
        let part = |done: u64| (done * BAR_COLUMNS).checked_div(self.all);
        let grows = part(done) != part(self.done);
        self.done = done;
        if grows {
            self.draw();
        }
    }

    fn draw(&self) {
        if self.shown {
            // That the bar cannot be drawn is no reason to stop.
            let _ = write!(std::io::stderr().lock(), "\r{}", bar(self.what, self.done, self.all));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}

fn bar(what: &str, done: u64, all: u64) -> String {
    let filled = (done * BAR_COLUMNS).checked_div(all).unwrap_or(BAR_COLUMNS).min(BAR_COLUMNS) as usize;
    let rest = BAR_COLUMNS as usize - filled;
    format!("{what} [{}{}] {done}/{all}", "#".repeat(filled), ".".repeat(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        assert_eq!(bar("placing", 1, 3), format!("placing [{}{}] 1/3", "#".repeat(10), ".".repeat(20)));
        assert_eq!(bar("placing", 0, 0), format!("placing [{}] 0/0", "#".repeat(30)));
    }
}
