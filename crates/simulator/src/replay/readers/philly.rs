//! The Philly list: jobs with the virtual cluster that they belong to, and when they came by the wall clock.
//!
//! The clock is local without a zone; hours that a change of the clocks adds or hides are taken as written.
use super::super::csv::{Column, Row, Table};
use super::super::error::ReadError;
use super::super::trace::{Trace, TraceJob};
use super::whole_gpus;

/// Reads `philly_jobs.csv`. Its lines are in no order and have no names: a job is called after its line.
pub fn jobs(name: &str, text: &str) -> Result<Trace, ReadError> {
    let table = Table::new(name, text)?;
    let (timestamp, duration) = (table.column("timestamp")?, table.column("duration")?);
    let (gpus, cluster) = (table.column("num_gpus")?, table.column("cluster")?);
    let job = |row: Row| {
        Ok(TraceJob {
            id: format!("line-{}", row.line()),
            submit_ms: wall_s(&row, timestamp)? * 1_000,
            duration_us: Some(row.seconds_ms(duration)? * 1_000),
            gang_workers: 1,
            worker: whole_gpus(&row, gpus)?,
            label: row.text(cluster).to_string(),
        })
    };
    let mut jobs: Vec<TraceJob> = table.rows().map(|row| job(row?)).collect::<Result<_, _>>()?;
    let start_ms = jobs.iter().map(|job| job.submit_ms).min().unwrap_or(0);
    jobs.iter_mut().for_each(|job| job.submit_ms -= start_ms);
    Ok(Trace { jobs })
}

/// Seconds from the year 1970 of `2017-10-09 07:01:55`.
fn wall_s(row: &Row, column: Column) -> Result<u64, ReadError> {
    seconds(row.text(column)).ok_or_else(|| row.refuse(column, "a time such as 2017-10-09 07:01:55"))
}

fn seconds(text: &str) -> Option<u64> {
    let (date, clock) = text.split_once(' ')?;
    let [year, month, day] = three(date, '-')?;
    let [hour, minute, second] = three(clock, ':')?;
    let legal = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    let legal = legal && hour < 24 && minute < 60 && second < 60;
    legal.then(|| ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second)
}

fn three(text: &str, by: char) -> Option<[u64; 3]> {
    let parts: Option<Vec<u64>> = text.split(by).map(|part| part.parse().ok()).collect();
    parts?.try_into().ok()
}

/// Days from 1970-01-01: whole years, leap days, whole months, days.
fn days(year: u64, month: u64, day: u64) -> u64 {
    const BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let leaps_before = |year: u64| (year - 1) / 4 - (year - 1) / 100 + (year - 1) / 400;
    let leap_days = leaps_before(year) - leaps_before(1970) + u64::from(month > 2 && leap(year));
    (year - 1970) * 365 + leap_days + BEFORE_MONTH[month as usize - 1] + day - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_count_from_the_first_job_in_any_order() {
        let lines = "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n\n2017-10-08 23:59:55,2.5,16,40,6214e9\n";
        let trace = jobs("p.csv", &format!("timestamp,duration,num_gpus,gpu_time,cluster\n{lines}")).unwrap();
        assert_eq!((trace.jobs[0].submit_ms, trace.jobs[1].submit_ms), (7 * 3_600_000 + 120_000, 0));
        assert_eq!((trace.jobs[1].id.as_str(), trace.jobs[1].duration_us), ("line-4", Some(2_500_000)));
        assert_eq!(trace.jobs[1].label, "6214e9");
    }

    #[test]
    fn days_of_leap_and_other_years() {
        assert_eq!((days(1970, 1, 1), days(2000, 3, 1), days(2017, 9, 4)), (0, 11_017, 17_413));
        assert_eq!(seconds("2017-09-04 00:00:01"), Some(17_413 * 86_400 + 1));
        for wrong in ["2017-13-01 00:00:00", "2017-09-04", "2017-09-04 24:00:00", "1817-09-04 00:00:00", "a b"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
