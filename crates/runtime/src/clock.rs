//! The two clocks. Wall time is for people and for records; boot time is for leases, because it neither jumps when
//! somebody sets the date nor stands still while the machine sleeps.
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since the Unix epoch by the wall clock. It may jump, also backwards: keep the highest seen.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// Milliseconds since this machine started, counting the time that it slept. Comparable between processes of one boot.
pub fn boottime_ms() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    (now.tv_sec as u64).saturating_mul(1_000).saturating_add(now.tv_nsec as u64 / 1_000_000)
}

/// Microseconds of the monotonic clock, to measure how long something took within one process.
pub fn monotonic_us() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000).saturating_add(now.tv_nsec as u64 / 1_000)
}

/// Nanoseconds that this thread has been on a processor.
pub fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// The kernel's name for this boot; another one means that no process of before is left.
pub fn boot_id() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_string())
}

#[cfg(test)]
mod tests {
    #[test]
    fn boot_time_does_not_run_backwards_and_the_boot_has_a_name() {
        let earlier = super::boottime_ms();
        assert!(earlier > 0);
        assert!(super::boottime_ms() >= earlier);
        assert_eq!(super::boot_id().unwrap().len(), 36);
    }
}
