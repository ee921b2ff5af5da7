//! Why a matrix was refused: always with the line of the text (from 1) where there is one.

use crate::model::cpuset::CpuListError;
use crate::model::machine::MachineError;

/// What is wrong with a matrix, or with the machine that it describes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MatrixError {
    #[error(
        "no topology matrix found: expected a header line with GPU0 and \"CPU Affinity\" and a row for GPU0, as `nvidia-smi topo -m` prints"
    )]
    NoMatrix,
    #[error("line {line}: the header has {found} where GPU{expected} is due; paste the header whole, GPUs in order")]
    GpuOrder { line: usize, expected: usize, found: String },
    #[error("line {line}: the header names {column} twice")]
    DuplicateColumn { line: usize, column: String },
    #[error("line {line}: the header has {count} GPUs; at most 64 of a node are supported")]
    TooManyGpus { line: usize, count: usize },
    #[error("line {line}: row {row}, column {column}: {text:?} is none of X, NV<n>, PIX, PXB, PHB, NODE, SYS, SOC")]
    BadLink { line: usize, row: String, column: String, text: String },
    #[error("line {line}: row {row} has {found} links for {expected} columns; paste the matrix whole")]
    LinkCount { line: usize, row: String, found: usize, expected: usize },
    #[error("line {line}: row {row} appears twice")]
    DuplicateRow { line: usize, row: String },
    #[error("the matrix has no row for {row}; paste it whole")]
    MissingRow { row: String },
    #[error(
        "line {line}: row {row} has {found} at its own column or X elsewhere (column {column}); a column has slipped"
    )]
    Diagonal { line: usize, row: String, column: String, found: String },
    #[error("line {line}: row {row}: {link} to {column}: only GPUs have NVLink; a column has slipped")]
    NvLinkToNic { line: usize, row: String, column: String, link: String },
    #[error(
        "line {line}: {row} to {column} is {there} but line {other_line} says {back} for the way back; the matrix must be symmetric"
    )]
    Asymmetric { line: usize, other_line: usize, row: String, column: String, there: String, back: String },
    #[error("line {line}: row {row}: {source}")]
    CpuList { line: usize, row: String, source: CpuListError },
    #[error("line {line}: row {row}: the NUMA cell {text:?} is not a number, a list of numbers, N/A or empty")]
    Numa { line: usize, row: String, text: String },
    #[error(
        "line {line}: row {row} has {found} affinity cells for {expected} columns: a cell is empty or two are glued together; use the output with its tabs, or read the node itself"
    )]
    AffinityCount { line: usize, row: String, found: usize, expected: usize },
    #[error(
        "GPU{gpu} and GPU{other} have overlapping CPU lists ({shared}) on different NUMA nodes: a NUMA number may be glued to a CPU list; check with `lscpu`"
    )]
    OverlappingCpus { gpu: usize, other: usize, shared: String },
    #[error("GPU{gpu} is on NUMA node {numa}, which is none of the sockets given")]
    UnknownNuma { gpu: usize, numa: u32 },
    #[error("GPU{gpu} has the CPUs {outside}, which are not on its socket (NUMA node {numa}) as given")]
    CpusOutsideSocket { gpu: usize, numa: u32, outside: String },
    #[error("no figures are known for the GPU model {model:?}; give memory and PCIe bandwidth, or use one of {known}")]
    UnknownGpuModel { model: String, known: String },
    #[error(transparent)]
    Machine(#[from] MachineError),
}
