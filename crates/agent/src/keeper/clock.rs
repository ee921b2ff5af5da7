//! The two clocks of a keeper: boot time for deadlines (it runs on through suspend), wall time for people.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// Milliseconds since boot, suspend included (`CLOCK_BOOTTIME`): the clock that every lease deadline is on.
#[must_use]
pub fn boottime_ms() -> u64 {
    milliseconds(clock_gettime(ClockId::Boottime))
}

/// Milliseconds since 1970, for display only.
pub(crate) fn unix_ms() -> u64 {
    milliseconds(clock_gettime(ClockId::Realtime))
}

/// The point `ms` on a clock, as timers take it.
pub(crate) fn timespec(ms: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ms % 1000 * 1_000_000).unwrap_or(0),
    }
}

fn milliseconds(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1000 + nanoseconds / 1_000_000
}
