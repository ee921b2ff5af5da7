//! Finds the header above the first row and reads its columns. A header may be un-indented, wrapped over lines, have its
//! labels glued, or "CPU Affinity" torn apart; lines before it may speak of GPUs as well.

use super::MatrixError;
use super::scan::{begins_with_link, take_word};
use crate::model::machine::MAX_GPUS;

/// The columns: GPUs in order, NIC labels, and which of the right-hand columns exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// Index of the header's first line.
    pub line: usize,
    /// Index of the first row.
    pub first_row: usize,
    pub gpus: usize,
    pub nics: Vec<String>,
    pub numa: bool,
    pub gpu_numa: bool,
}

impl Header {
    /// Label of device `at`: GPUs first, then NICs.
    pub fn label(&self, at: usize) -> String {
        if at < self.gpus { format!("GPU{at}") } else { self.nics[at - self.gpus].clone() }
    }

    /// The device that a row label names.
    pub fn device(&self, label: &str) -> Option<usize> {
        (0..self.devices()).find(|&at| self.label(at) == label)
    }

    pub fn devices(&self) -> usize {
        self.gpus + self.nics.len()
    }

    /// How many of the right-hand columns there are.
    pub fn affinity_columns(&self) -> usize {
        1 + usize::from(self.numa) + usize::from(self.gpu_numa)
    }
}

/// A wrapped header of 64 GPUs and their NICs stays below this many lines.
const MOST_HEADER_LINES: usize = 16;

pub(super) fn find(lines: &[String]) -> Result<Header, MatrixError> {
    for (first_row, line) in lines.iter().enumerate() {
        let (label, rest) = take_word(line);
        if label == "GPU0" && begins_with_link(rest.trim_start()) {
            let above = &lines[..first_row];
            let near =
                above.iter().enumerate().rev().filter(|(_, line)| !line.trim().is_empty()).take(MOST_HEADER_LINES);
            for (at, line) in near {
                if line.trim_start().starts_with("GPU0") {
                    return read(at, first_row, &above[at..].join(" "));
                }
            }
        }
    }
    Err(MatrixError::NoMatrix)
}

fn read(at: usize, first_row: usize, text: &str) -> Result<Header, MatrixError> {
    let line = at + 1;
    let mut header = Header { line, first_row, gpus: 0, nics: Vec::new(), numa: false, gpu_numa: false };
    let mut cpu = false;
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (column, after) = take_column(rest);
        match column {
            Column::Cpu => cpu = true,
            Column::Numa => header.numa = true,
            Column::GpuNuma => header.gpu_numa = true,
            Column::Gpu(number) if number == header.gpus.to_string() => header.gpus += 1,
            Column::Gpu(number) => {
                return Err(MatrixError::GpuOrder { line, expected: header.gpus, found: format!("GPU{number}") });
            }
            Column::Nic(name) if header.nics.iter().any(|nic| nic == name) => {
                return Err(MatrixError::DuplicateColumn { line, column: name.into() });
            }
            Column::Nic(name) => header.nics.push(name.into()),
        }
        rest = after.trim_start();
    }
    if !cpu {
        return Err(MatrixError::NoMatrix);
    }
    if header.gpus > MAX_GPUS {
        return Err(MatrixError::TooManyGpus { line, count: header.gpus });
    }
    Ok(header)
}

enum Column<'a> {
    Cpu,
    Numa,
    GpuNuma,
    Gpu(&'a str),
    Nic(&'a str),
}

fn take_column(text: &str) -> (Column<'_>, &str) {
    if let Some(rest) = take_words(text, &["CPU", "Affinity"]) {
        return (Column::Cpu, rest);
    }
    if let Some(rest) = take_words(text, &["NUMA", "Affinity"]) {
        return (Column::Numa, rest);
    }
    if let Some(rest) = take_words(text, &["GPU", "NUMA", "ID"]) {
        return (Column::GpuNuma, rest);
    }
    if let Some(length) = numbered(text, "GPU") {
        return (Column::Gpu(&text["GPU".len()..length]), &text[length..]);
    }
    if let Some(length) = numbered(text, "NIC") {
        return (Column::Nic(&text[..length]), &text[length..]);
    }
    let (name, rest) = take_word(text);
    (Column::Nic(name), rest)
}

/// What follows `words`, which may be torn apart by any white space.
fn take_words<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    words.iter().try_fold(text, |rest, word| rest.trim_start().strip_prefix(word))
}

/// Length of a label of `prefix` and a number.
fn numbered(text: &str, prefix: &str) -> Option<usize> {
    let after = text.strip_prefix(prefix)?;
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    (digits > 0).then_some(prefix.len() + digits)
}
