//! The `topo -p2p` matrix that may follow the first: which GPU can reach which peer to peer. Only `OK` counts, and each
//! direction for itself: they can differ. A text without one, or with a broken one, gives none: it is an extra.

use super::scan::take_word;

/// Masks of reachable peers per GPU.
pub(super) fn read(gpus: usize, after: &[String]) -> Option<Vec<u64>> {
    let labels: Vec<String> = (0..gpus).map(|gpu| format!("GPU{gpu}")).collect();
    let start = after.iter().position(|line| line.split_whitespace().eq(labels.iter().map(String::as_str)))?;
    labels.iter().enumerate().map(|(gpu, label)| read_row(gpu, gpus, label, after.get(start + 1 + gpu)?)).collect()
}

fn read_row(gpu: usize, gpus: usize, label: &str, line: &str) -> Option<u64> {
    let (found, rest) = take_word(line);
    let cells: Vec<&str> = rest.split_whitespace().collect();
    if found != label || cells.len() != gpus || cells[gpu] != "X" {
        return None;
    }
    Some(cells.iter().enumerate().filter(|(_, cell)| **cell == "OK").fold(0, |mask, (peer, _)| mask | 1 << peer))
}
