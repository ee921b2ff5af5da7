//! Slurm's compressed host lists: `n[0-3,7],m2`. The order of the hosts is kept, because it is the order of the ranks:
//! only neighbours are joined.

/// Compresses host names in the order given.
pub fn compress<'a>(hosts: impl IntoIterator<Item = &'a str>) -> String {
    let mut groups: Vec<Group> = Vec::new();
    for host in hosts {
        let (prefix, digits) = split(host);
        match groups.last_mut() {
            Some(last) if !digits.is_empty() && last.prefix == prefix && !last.runs.is_empty() => last.add(digits),
            _ => groups.push(Group::new(prefix, digits)),
        }
    }
    groups.iter().map(Group::text).collect::<Vec<_>>().join(",")
}

/// Names with one prefix; `runs` of first and last number as written, empty for a name without a number.
struct Group<'a> {
    prefix: &'a str,
    runs: Vec<(&'a str, &'a str)>,
}

impl<'a> Group<'a> {
    fn new(prefix: &'a str, digits: &'a str) -> Group<'a> {
        let runs = if digits.is_empty() { Vec::new() } else { vec![(digits, digits)] };
        Group { prefix, runs }
    }

    fn add(&mut self, digits: &'a str) {
        match self.runs.last_mut() {
            Some((_, last)) if follows(last, digits) => *last = digits,
            _ => self.runs.push((digits, digits)),
        }
    }

    fn text(&self) -> String {
        let run =
            |(first, last): &(&str, &str)| if first == last { first.to_string() } else { format!("{first}-{last}") };
        match self.runs.as_slice() {
            [] => self.prefix.to_string(),
            [(first, last)] if first == last => format!("{}{first}", self.prefix),
            runs => format!("{}[{}]", self.prefix, runs.iter().map(run).collect::<Vec<_>>().join(",")),
        }
    }
}

/// Whether `next` is what a range from `last` counts on to, its leading zeros included.
fn follows(last: &str, next: &str) -> bool {
    last.parse::<u64>().is_ok_and(|number| format!("{:0width$}", number.saturating_add(1), width = last.len()) == next)
}

/// Splits off the digits at the end, as many as a number holds safely.
fn split(host: &str) -> (&str, &str) {
    let digits = host.bytes().rev().take_while(u8::is_ascii_digit).count().min(18);
    host.split_at(host.len() - digits)
}

#[cfg(test)]
mod tests {
    use super::compress;

    #[test]
    fn neighbours_are_joined_and_the_order_is_kept() {
        for (hosts, expected) in [
            ("n0 n1 n2 n3", "n[0-3]"),
            ("n0 n1 n3 m2", "n[0-1,3],m2"),
            ("node08 node09 node10", "node[08-10]"),
            ("n9 n10 n11", "n[9-11]"),
            ("n09 n9", "n[09,9]"),
            ("n3 n1 n2", "n[3,1-2]"),
            ("alpha beta", "alpha,beta"),
            ("gpu1", "gpu1"),
            ("a-1-1 a-1-2 a-2-1", "a-1-[1-2],a-2-1"),
            ("n0 login n1", "n0,login,n1"),
            ("n n1", "n,n1"),
            ("", ""),
        ] {
            assert_eq!(compress(hosts.split_whitespace()), expected, "{hosts}");
        }
    }
}
