//! What a queue used in the past, which fades: after each half-life half of it counts. Integers only.
use super::amounts::Resources;
use super::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// Use as of a moment: CPU-milliseconds, a GPU counts as [`CPUS_OF_A_GPU`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Past {
    pub cpu_ms: u64,
    pub at: Time,
}

/// As where victims are compared: a GPU is worth so many CPUs.
const CPUS_OF_A_GPU: u64 = 64;
/// After so many half-lives of the same use nothing changes any more.
const STEADY: u64 = 64;

impl Past {
    /// As GPU-milliseconds: CPUs at their worth.
    pub fn gpu_ms(self) -> u64 {
        self.cpu_ms / CPUS_OF_A_GPU
    }

    /// The use as of `now`, when `used` was held since then. Within a half-life it fades along a straight line: at most
    /// 6 % from the curve, and the same for all.
    pub fn after(self, used: Resources, now: Time, half_life: Span) -> Past {
        if half_life.0 == 0 {
            return Past { cpu_ms: 0, at: now };
        }
        let rate = used.all_gpus().saturating_mul(CPUS_OF_A_GPU).saturating_add(used.cpus);
        let passed = now.since(self.at).0;
        let (mut cpu_ms, half) = (self.cpu_ms, half_life.0);
        for _ in 0..(passed / half).min(STEADY) {
            cpu_ms = faded(cpu_ms, rate, half, half);
        }
        Past { cpu_ms: faded(cpu_ms, rate, passed % half, half), at: now.max(self.at) }
    }
}

/// After `part` of a half-life, at most one.
fn faded(before: u64, rate: u64, part: u64, half: u64) -> u64 {
    let (part, half) = (u128::from(part), u128::from(half));
    let kept = u128::from(before) * (2 * half - part) / (2 * half);
    // What was used on the way has faded half as much on average.
    let new = u128::from(rate) * part * (4 * half - part) / (4 * half);
    u64::try_from(kept.saturating_add(new)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Span = Span::hours(1);

    fn at(cpu_ms: u64, hours: u64) -> Past {
        Past { cpu_ms, at: Time(HOUR.0 * hours) }
    }

    #[test]
    fn half_of_it_counts_after_a_half_life() {
        assert_eq!(at(1_000, 0).after(Resources::ZERO, Time(HOUR.0), HOUR), at(500, 1));
        assert_eq!(at(1_000, 0).after(Resources::ZERO, Time(3 * HOUR.0), HOUR), at(125, 3));
        assert_eq!(at(1_000, 0).after(Resources::ZERO, Time(HOUR.0 / 2), HOUR).cpu_ms, 750);
    }

    #[test]
    fn the_same_use_for_ever_comes_to_a_steady_amount_and_never_overflows() {
        let used = Resources { gpus: 1, ..Resources::ZERO };
        let year = at(0, 0).after(used, Time(HOUR.0 * 8_760), HOUR).cpu_ms;
        assert!(year > 64 * HOUR.0 && year < 2 * 64 * HOUR.0, "{year}");
        let most = Resources::of([u64::MAX; 6]);
        assert_eq!(at(u64::MAX, 0).after(most, Time::NEVER, HOUR).cpu_ms, u64::MAX);
        assert_eq!(at(5, 0).after(used, Time(9), Span::ZERO).cpu_ms, 0, "switched off");
    }
}
