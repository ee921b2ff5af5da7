//! The Acme list of completed Kalos jobs: gangs of nodes. Its run time is written as iterations of half a second; the split
//! and the network columns are the converter's and are not read.
use super::super::csv::{Row, Table};
use super::super::error::ReadError;
use super::super::trace::{Trace, TraceJob, WorkerShape};

const ITERATION_US: u64 = 500_000;

/// Reads `kalos_completed_gpu_jobs.csv`.
pub fn jobs(name: &str, text: &str) -> Result<Trace, ReadError> {
    let table = Table::new(name, text)?;
    let (id, arrival) = (table.column("job_id")?, table.column("arrival_time")?);
    let (iterations, workers) = (table.column("num_iteration")?, table.column("gpu_workers")?);
    let (gpus, cpus) = (table.column("gpu_per_worker")?, table.column("cpu_per_gpu_worker")?);
    let job = |row: Row| {
        let count: u32 = row.parse(iterations, "a count of iterations")?;
        let gang_workers: u32 = row.parse(workers, WORKERS)?;
        let gpu_thousandths = row.thousandths(gpus, GPUS)?;
        if gang_workers == 0 {
            return Err(row.refuse(workers, WORKERS));
        }
        if !(1_000..=1_000_000).contains(&gpu_thousandths) || !gpu_thousandths.is_multiple_of(1_000) {
            return Err(row.refuse(gpus, GPUS));
        }
        let cpu_milli = u32::try_from(row.thousandths(cpus, CORES)?).map_err(|_| row.refuse(cpus, CORES))?;
        Ok(TraceJob {
            id: row.text(id).to_string(),
            submit_ms: row.seconds_ms(arrival)?,
            duration_us: Some(u64::from(count) * ITERATION_US),
            gang_workers,
            worker: WorkerShape { cpu_milli, ..WorkerShape::whole((gpu_thousandths / 1_000) as u32) },
            label: String::new(),
        })
    };
    let jobs = table.rows().map(|row| job(row?)).collect::<Result<_, _>>()?;
    Ok(Trace { jobs })
}

const WORKERS: &str = "a count of workers, 1 or more";
const GPUS: &str = "a whole count of GPUs from 1 to 1000, such as 8.0";
const CORES: &str = "a count of cores, such as 15.0";

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "job_id,arrival_time,num_iteration,gpu_workers,gpu_per_worker,cpu_per_gpu_worker";

    #[test]
    fn a_gang_of_nodes() {
        let trace = jobs("k.csv", &format!("{HEADER}\n0,313.5,208,8,8.0,15.0\n")).unwrap();
        let job = &trace.jobs[0];
        assert_eq!((job.submit_ms, job.duration_us, job.gang_workers), (313_500, Some(104_000_000), 8));
        assert_eq!((job.gpu_milli(), job.worker.cpu_milli), (64_000, 15_000));
        let error = jobs("k.csv", &format!("{HEADER}\n0,313.5,208,8,7.5,15.0\n")).unwrap_err().to_string();
        assert!(error.starts_with("k.csv:2:15: gpu_per_worker is `7.5`; expected a whole count"), "{error}");
    }
}
