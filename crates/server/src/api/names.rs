//! Names for jobs that are submitted again and again under the same one, as scripts are.

const NAME_CHARACTERS_MAX: usize = 63;

/// The name itself where it is not taken, else the first of `NAME-2`, `NAME-3` and so on.
pub(super) fn free(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = |number: u64| {
        let end = format!("-{number}");
        // Names are ASCII, so any cut is between characters.
        let kept = name.get(..NAME_CHARACTERS_MAX - end.len()).unwrap_or(name);
        format!("{kept}{end}")
    };
    let own = std::iter::once(name.to_string());
    own.chain((2..).map(numbered)).find(|name| !is_taken(name)).unwrap_or_else(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_free_number_is_taken() {
        let is_taken = |name: &str| ["train", "train-2", "train-4"].contains(&name);
        assert_eq!(free("eval", is_taken), "eval");
        assert_eq!(free("train", is_taken), "train-3");
        let longest = "x".repeat(NAME_CHARACTERS_MAX);
        let other = free(&longest, |name| name == longest);
        assert_eq!((other.len(), &other[61..]), (NAME_CHARACTERS_MAX, "-2"));
    }
}
