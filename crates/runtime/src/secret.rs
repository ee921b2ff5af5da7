//! Secrets: made from the kernel's randomness, kept as hashes, never printed by accident.
//!
//! A token carries 256 random bits, so a fast hash is enough to keep it: there is nothing to guess. (Slow password
//! hashes were weighed: they would cost every request milliseconds and protect nothing here.)
use std::fmt;
use std::io;
use std::path::Path;

/// Text that must not reach a log: `Debug` prints stars, there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// A new token: a prefix by which scanners of source code know it, and 64 hexadecimal digits.
    pub fn generate() -> io::Result<Secret> {
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Secret(format!("gng_{digits}")))
    }

    /// The first line of a file, without the white space around it.
    pub fn read_file(path: &Path) -> io::Result<Secret> {
        let text = std::fs::read_to_string(path)?;
        Ok(Secret(text.lines().next().unwrap_or_default().trim().to_string()))
    }

    /// The text itself, for the one place that sends or stores it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// What may be stored: the BLAKE3 hash in hexadecimal.
    pub fn hash(&self) -> String {
        blake3::hash(self.0.as_bytes()).to_hex().to_string()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_hash_alike_and_do_not_print() {
        let (one, other) = (Secret::generate().unwrap(), Secret::generate().unwrap());
        assert_ne!(one, other);
        assert_eq!(one.expose().len(), 68);
        assert_eq!(one.hash(), Secret::new(one.expose()).hash());
        assert!(!format!("{one:?}").contains(&one.expose()[4..]));
    }
}
