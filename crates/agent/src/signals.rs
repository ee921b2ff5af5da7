//! Signal names as job files write them.

const NAMES: [(&str, i32); 12] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("WINCH", 28),
];

/// SIGTERM, which every program understands.
pub const TERM: i32 = 15;

/// Reads `SIGUSR1`, `USR1` or `10` (Linux on x86-64 and Arm).
pub fn number(name: &str) -> Option<i32> {
    let upper = name.trim().to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMES.iter().find(|(known, _)| *known == bare).map(|(_, number)| *number);
    named.or_else(|| bare.parse().ok().filter(|number| (1..=64).contains(number)))
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_and_numbers_are_read() {
        for (name, expected) in
            [("SIGUSR1", Some(10)), ("usr2", Some(12)), ("15", Some(15)), ("SIGFOO", None), ("0", None), ("99", None)]
        {
            assert_eq!(super::number(name), expected, "{name}");
        }
    }
}
