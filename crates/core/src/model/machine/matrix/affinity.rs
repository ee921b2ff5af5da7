//! The right-hand columns of a GPU's row: CPU list, NUMA node, NUMA node of the GPU's own memory. With tabs each cell keeps
//! its place even when empty; without them a missing cell cannot be told from a glued one, so such rows are refused.

use super::MatrixError;
use super::header::Header;
use crate::model::cpuset::{CpuListError, CpuSet};

/// What a row says about a GPU's place. Inside a container or cpuset the cells show what the container may use, not the
/// machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Affinity {
    /// CPUs near the GPU; empty where the cell is.
    pub cpus: CpuSet,
    /// Its NUMA node; `None` for `N/A`, an empty cell, and a range or list, which name no single node.
    pub numa: Option<u32>,
    /// The NUMA node made of the GPU's own memory, where there is one.
    pub gpu_memory_numa: Option<u32>,
}

/// Reads what follows the links of a GPU's row. `line` counts from 1.
pub(super) fn read(header: &Header, line: usize, row: &str, rest: &str) -> Result<Affinity, MatrixError> {
    let cells = split(header, rest);
    let expected = header.affinity_columns();
    if cells.len() != expected {
        return Err(MatrixError::AffinityCount { line, row: row.into(), found: cells.len(), expected });
    }
    let mut cells = cells.into_iter();
    let mut next = |exists: bool| if exists { cells.next().unwrap_or("") } else { "" };
    let cpus = read_cpus(next(true)).map_err(|source| MatrixError::CpuList { line, row: row.into(), source })?;
    let numa =
        |text: &str| read_numa(text).ok_or_else(|| MatrixError::Numa { line, row: row.into(), text: text.into() });
    Ok(Affinity { cpus, numa: numa(next(header.numa))?, gpu_memory_numa: numa(next(header.gpu_numa))? })
}

fn split<'a>(header: &Header, rest: &'a str) -> Vec<&'a str> {
    // The last link and the first cell are parted by a tab, perhaps with blanks before it.
    let Some(tabbed) = rest.trim_start_matches(' ').strip_prefix('\t') else {
        return rest.split_whitespace().collect();
    };
    let mut cells: Vec<&str> = tabbed.split('\t').map(str::trim).collect();
    while cells.len() > header.affinity_columns() && cells.last() == Some(&"") {
        cells.pop();
    }
    // Drivers print two tabs before "GPU NUMA ID" in the rows, but one in the header.
    let last = cells.len().saturating_sub(2);
    if header.gpu_numa && cells.len() == header.affinity_columns() + 1 && cells[last].is_empty() {
        cells.remove(last);
    }
    cells
}

fn read_cpus(cell: &str) -> Result<CpuSet, CpuListError> {
    if cell == "N/A" { Ok(CpuSet::EMPTY) } else { cell.parse() }
}

/// The outer `None`: not a NUMA cell at all.
fn read_numa(cell: &str) -> Option<Option<u32>> {
    if cell == "N/A" {
        return Some(None);
    }
    // A NUMA list has the form of a CPU list, and Linux has at most 1,024 nodes as well.
    let nodes: CpuSet = cell.parse().ok()?;
    Some(if nodes.count() == 1 { nodes.first() } else { None })
}
