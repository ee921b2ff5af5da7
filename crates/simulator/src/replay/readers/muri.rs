//! The Muri traces: training jobs of four virtual clusters, with iterations and the time of each.
use super::super::csv::{Row, Table};
use super::super::error::ReadError;
use super::super::trace::{Trace, TraceJob};
use super::whole_gpus;

/// The published simulator lets each iteration take 1.015 of the traced time.
const ITERATION_PERMILLE: u64 = 1_015;

/// Reads `traceN.csv`. The duration is what the published simulator runs: iterations times the slowed iteration.
pub fn jobs(name: &str, text: &str) -> Result<Trace, ReadError> {
    let table = Table::new(name, text)?;
    let (id, gpus, submit) = (table.column("job_id")?, table.column("num_gpu")?, table.column("submit_time")?);
    let (iterations, iteration) = (table.column("iterations")?, table.column("iteration_time")?);
    let model = table.column("model_name")?;
    let job = |row: Row| {
        let count: u64 = row.parse(iterations, "a count of iterations")?;
        let each_ms: u64 = row.parse(iteration, "milliseconds, a whole number")?;
        let duration_us = count.checked_mul(each_ms).and_then(|ms| ms.checked_mul(ITERATION_PERMILLE));
        Ok(TraceJob {
            id: row.text(id).to_string(),
            submit_ms: row.parse(submit, "milliseconds, a whole number")?,
            duration_us: Some(duration_us.ok_or_else(|| row.refuse(iterations, "less work"))?),
            gang_workers: 1,
            worker: whole_gpus(&row, gpus)?,
            label: row.text(model).to_string(),
        })
    };
    let jobs = table.rows().map(|row| job(row?)).collect::<Result<_, _>>()?;
    Ok(Trace { jobs })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,iteration_time";

    #[test]
    fn the_duration_is_that_of_the_slowed_iterations() {
        let trace = jobs("t.csv", &format!("{HEADER}\n7,16,2000,100,bert,4,190\n")).unwrap();
        let job = &trace.jobs[0];
        assert_eq!((job.id.as_str(), job.submit_ms, job.duration_us), ("7", 2_000, Some(19_285_000)));
        assert_eq!((job.gpu_milli(), job.label.as_str()), (16_000, "bert"));
        let error = jobs("t.csv", &format!("{HEADER}\n7,0,2000,100,bert,4,190\n")).unwrap_err().to_string();
        assert_eq!(error, "t.csv:2:3: num_gpu is `0`; expected a count of GPUs, 1 or more");
    }
}
