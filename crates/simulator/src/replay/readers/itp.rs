//! The ITP traces: jobs of ten clusters with whole GPUs. The variants with models and deadlines read the same.
use super::super::csv::{Row, Table};
use super::super::error::ReadError;
use super::super::trace::{Trace, TraceJob};
use super::whole_gpus;

/// Reads `clusterNN.csv`.
pub fn jobs(name: &str, text: &str) -> Result<Trace, ReadError> {
    let table = Table::new(name, text)?;
    let (id, submit) = (table.column("job_id")?, table.column("submission_time")?);
    let (duration, gpus, model) = (table.column("duration")?, table.column("num_gpu")?, table.find("model_name"));
    let job = |row: Row| {
        Ok(TraceJob {
            id: row.text(id).to_string(),
            submit_ms: row.seconds_ms(submit)?,
            duration_us: Some(row.seconds_ms(duration)? * 1_000),
            gang_workers: 1,
            worker: whole_gpus(&row, gpus)?,
            label: model.map_or("", |column| row.text(column)).to_string(),
        })
    };
    let jobs = table.rows().map(|row| job(row?)).collect::<Result<_, _>>()?;
    Ok(Trace { jobs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_and_rich_variants() {
        let raw = jobs("c.csv", "job_id,submission_time,duration,num_gpu\nx,10,2429,64\n").unwrap();
        assert_eq!((raw.jobs[0].submit_ms, raw.jobs[0].duration_us), (10_000, Some(2_429_000_000)));
        assert_eq!((raw.jobs[0].worker.gpus, raw.jobs[0].label.as_str()), (64, ""));
        let rich = jobs("c.csv", "job_id,submission_time,model_name,num_gpu,duration\nx,10,gpt2,1,5\n").unwrap();
        assert_eq!(rich.jobs[0].label, "gpt2");
        let error = jobs("c.csv", "job_id,submission_time,duration,num_gpu\nx,10,soon,64\n").unwrap_err().to_string();
        assert_eq!(error, "c.csv:2:6: duration is `soon`; expected seconds, such as 66 or 66.5");
    }
}
