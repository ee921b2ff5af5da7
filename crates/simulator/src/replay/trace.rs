//! One form for all traces: who came when, asked for what, and ran how long. Readers fill it; experiments read it.

/// A trace in the order of its file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    pub jobs: Vec<TraceJob>,
}

/// A job as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceJob {
    pub id: String,
    /// From the start of the trace.
    pub submit_ms: u64,
    /// How long it ran on what it asked for; none where the trace does not tell. In microseconds: public simulators
    /// multiply iterations of a few milliseconds, and equal ends decide who is first.
    pub duration_us: Option<u64>,
    /// Members that must run together, each of this shape.
    pub gang_workers: u32,
    pub worker: WorkerShape,
    /// What it trains, the virtual cluster that it belongs to, or its class of service.
    pub label: String,
}

/// What one member of a gang asks for on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerShape {
    pub gpus: u32,
    /// Of each of its GPUs; 1000 is a whole one.
    pub gpu_milli: u32,
    pub cpu_milli: u32,
    pub memory_mib: u32,
    /// GPU models that will do; empty for any.
    pub gpu_models: Vec<String>,
}

impl WorkerShape {
    /// A shape of whole GPUs and nothing else, as most traces record it.
    pub fn whole(gpus: u32) -> WorkerShape {
        WorkerShape { gpus, gpu_milli: 1_000, ..WorkerShape::default() }
    }
}

impl TraceJob {
    pub fn gpu_milli(&self) -> u64 {
        u64::from(self.gang_workers) * u64::from(self.worker.gpus) * u64::from(self.worker.gpu_milli)
    }
}
