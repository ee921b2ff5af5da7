//! Commands that need no server: files in a folder of the test's own, and the binary with an empty environment.
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A folder of its own for each test, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(test: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ganger-sim-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder for the test");
        Folder(path)
    }

    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file for the test");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Exit code, standard output, standard error of `ganger sim VERB WORDS…`.
pub fn sim(verb: &str, words: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ganger"));
    command.args(["sim", verb]).args(words).env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
    let Output { status, stdout, stderr } = command.output().expect("the binary runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code().expect("it exits"), text(stdout), text(stderr))
}
