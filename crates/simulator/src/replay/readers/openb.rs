//! The openb traces: pods and nodes of a cluster with shared GPUs and several GPU models.
use super::super::csv::{Column, Row, Table};
use super::super::error::ReadError;
use super::super::trace::{Trace, TraceJob, WorkerShape};

/// A node of the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceNode {
    pub name: String,
    pub cpu_milli: u32,
    pub memory_mib: u32,
    pub gpus: u32,
    pub gpu_model: String,
}

const MILLI_CPU: &str = "thousandths of a core, such as 12000";
const MIB: &str = "MiB, a whole number";

/// Reads `openb_pod_list_*.csv`. Some variants lack the columns of models and times.
pub fn pods(name: &str, text: &str) -> Result<Trace, ReadError> {
    let table = Table::new(name, text)?;
    let columns = Pods {
        name: table.column("name")?,
        cpu_milli: table.column("cpu_milli")?,
        memory_mib: table.column("memory_mib")?,
        gpus: table.column("num_gpu")?,
        gpu_milli: table.column("gpu_milli")?,
        models: table.find("gpu_spec"),
        created: table.find("creation_time"),
        scheduled: table.find("scheduled_time"),
        deleted: table.find("deletion_time"),
        class: table.find("qos"),
    };
    let jobs = table.rows().map(|row| columns.job(&row?)).collect::<Result<_, _>>()?;
    Ok(Trace { jobs })
}

struct Pods<'a> {
    name: Column<'a>,
    cpu_milli: Column<'a>,
    memory_mib: Column<'a>,
    gpus: Column<'a>,
    gpu_milli: Column<'a>,
    models: Option<Column<'a>>,
    created: Option<Column<'a>>,
    scheduled: Option<Column<'a>>,
    deleted: Option<Column<'a>>,
    class: Option<Column<'a>>,
}

impl Pods<'_> {
    fn job(&self, row: &Row) -> Result<TraceJob, ReadError> {
        let submit_ms = self.created.map(|column| row.seconds_ms(column)).transpose()?;
        Ok(TraceJob {
            id: row.text(self.name).to_string(),
            submit_ms: submit_ms.unwrap_or(0),
            duration_us: self.duration_ms(row)?.map(|ms| ms * 1_000),
            gang_workers: 1,
            worker: self.shape(row)?,
            label: self.class.map_or("", |column| row.text(column)).to_string(),
        })
    }

    fn shape(&self, row: &Row) -> Result<WorkerShape, ReadError> {
        let gpus = row.parse(self.gpus, "a count of GPUs from 0 to 8")?;
        let gpu_milli = row.parse(self.gpu_milli, GPU_MILLI)?;
        match (gpus, gpu_milli) {
            (0, 0) | (1, 1..=1_000) | (2..=8, 1_000) => {}
            (9.., _) => return Err(row.refuse(self.gpus, "at most 8 GPUs")),
            _ => return Err(row.refuse(self.gpu_milli, GPU_MILLI)),
        }
        let models = self.models.map_or("", |column| row.text(column));
        Ok(WorkerShape {
            gpus,
            gpu_milli,
            cpu_milli: row.parse(self.cpu_milli, MILLI_CPU)?,
            memory_mib: row.parse(self.memory_mib, MIB)?,
            gpu_models: models.split('|').filter(|model| !model.is_empty()).map(str::to_string).collect(),
        })
    }

    /// From the start to the end; none for a pod that never started or has no times.
    fn duration_ms(&self, row: &Row) -> Result<Option<u64>, ReadError> {
        let (Some(scheduled), Some(deleted)) = (self.scheduled, self.deleted) else { return Ok(None) };
        if row.text(scheduled).is_empty() || row.text(deleted).is_empty() {
            return Ok(None);
        }
        let (start_ms, end_ms) = (row.seconds_ms(scheduled)?, row.seconds_ms(deleted)?);
        let duration = end_ms.checked_sub(start_ms);
        duration.map(Some).ok_or_else(|| row.refuse(deleted, "a time not before scheduled_time"))
    }
}

const GPU_MILLI: &str = "thousandths of each GPU: 1 to 1000 for one GPU, 1000 for several, 0 for none";

/// Reads `openb_node_list_*.csv`.
pub fn nodes(name: &str, text: &str) -> Result<Vec<TraceNode>, ReadError> {
    let table = Table::new(name, text)?;
    let (sn, cpu, memory) = (table.column("sn")?, table.column("cpu_milli")?, table.column("memory_mib")?);
    let (gpus, model) = (table.column("gpu")?, table.column("model")?);
    let node = |row: Row| {
        let node = TraceNode {
            name: row.text(sn).to_string(),
            cpu_milli: row.parse(cpu, MILLI_CPU)?,
            memory_mib: row.parse(memory, MIB)?,
            gpus: row.parse(gpus, "a count of GPUs from 0 to 8")?,
            gpu_model: row.text(model).to_string(),
        };
        if node.gpus > 8 { Err(row.refuse(gpus, "at most 8 GPUs")) } else { Ok(node) }
    };
    table.rows().map(|row| node(row?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time";

    #[test]
    fn pods_with_and_without_models_and_times() {
        let trace =
            pods("p.csv", &format!("{HEADER}\na,12000,16384,1,470,G2|T4,5,70,10\nb,1000,1,0,0,,5,,\n")).unwrap();
        assert_eq!(trace.jobs[0].submit_ms, 5_000);
        assert_eq!(trace.jobs[0].duration_us, Some(60_000_000));
        assert_eq!(trace.jobs[0].worker.gpu_models, ["G2", "T4"]);
        assert_eq!(trace.jobs[0].gpu_milli(), 470);
        assert_eq!((trace.jobs[1].duration_us, trace.jobs[1].gpu_milli()), (None, 0));
        let short = pods("p.csv", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1000,1,8,1000\n").unwrap();
        assert_eq!(short.jobs[0].gpu_milli(), 8_000);
    }

    #[test]
    fn odd_shares_are_refused_with_their_place() {
        let error = pods("p.csv", &format!("{HEADER}\na,12000,16384,2,470,,5,70,10\n")).unwrap_err().to_string();
        assert!(error.starts_with("p.csv:2:17: gpu_milli is `470`; expected thousandths"), "{error}");
        let error = pods("p.csv", &format!("{HEADER}\na,12000,16384,1,470,,5,7,10\n")).unwrap_err().to_string();
        assert_eq!(error, "p.csv:2:24: deletion_time is `7`; expected a time not before scheduled_time");
    }

    #[test]
    fn nodes_have_a_model_and_at_most_eight_gpus() {
        let nodes_of = |line: &str| nodes("n.csv", &format!("sn,cpu_milli,memory_mib,gpu,model\n{line}\n"));
        assert_eq!(nodes_of("n0,64000,262144,2,P100").unwrap()[0].gpu_model, "P100");
        assert!(nodes_of("n0,64000,262144,9,P100").unwrap_err().to_string().starts_with("n.csv:2:17: gpu is `9`"));
    }
}
