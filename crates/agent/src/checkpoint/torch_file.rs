//! Files of `torch.save`, checked at their end and never unpickled.
//!
//! Source: PyTorch documentation, `torch.save` (since 1.6 a zip-based format; the older one on request) and "Serialization semantics"
//! (an uncompressed ZIP64 archive), and the ZIP specification (PKWARE APPNOTE.TXT 4.3.14 to 4.3.16): the writer appends the central directory and its end
//! record when it closes the archive, so a file that was cut off has none. Checked: that end record closes the file exactly and the
//! directory that it points to is there. Not seen: damage inside the data, and any cut of the older format (a bare pickle, first byte
//! 0x80), which has no end mark: of that only presence is checked.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::Defect;
use super::files;

const END_BYTES: usize = 22;
const MAX_TAIL_BYTES: u64 = END_BYTES as u64 + u16::MAX as u64;
const LOCATOR_BYTES: usize = 20;
const ZIP64_END_BYTES: usize = 56;

/// Checks a file that is one archive. Returns its bytes.
pub(super) fn check(path: &Path) -> Result<u64, Defect> {
    check_as(path, true)
}

/// Checks a file of several archives one behind the other, as DCP writes them: the last one must be whole.
pub(super) fn check_concatenated(path: &Path) -> Result<u64, Defect> {
    check_as(path, false)
}

fn check_as(path: &Path, single: bool) -> Result<u64, Defect> {
    let (mut file, bytes) = files::open(path)?;
    let mut magic = [0; 4];
    let filled = read_start(&mut file, &mut magic).map_err(|source| Defect::reading(path, source))?;
    match &magic {
        _ if filled == 0 => Err(Defect::malformed(path, "empty")),
        b"PK\x03\x04" => match whole_archive(&mut file, bytes, single) {
            Ok(None) => Ok(bytes),
            Ok(Some(problem)) => Err(Defect::malformed(path, problem)),
            Err(source) => Err(Defect::reading(path, source)),
        },
        [0x80, ..] => Ok(bytes),
        // DCP can pass its data through a transformation (compression); such a shard has its own magic and only its presence counts.
        start if !single && *start != [0; 4] => Ok(bytes),
        _ => Err(Defect::malformed(path, "does not begin as a file of torch.save does")),
    }
}

fn read_start(file: &mut File, magic: &mut [u8; 4]) -> io::Result<usize> {
    let mut start = Vec::with_capacity(4);
    file.by_ref().take(4).read_to_end(&mut start)?;
    magic[..start.len()].copy_from_slice(&start);
    Ok(start.len())
}

/// `Ok(None)` when the archive is whole, else what is wrong.
fn whole_archive(file: &mut File, bytes: u64, single: bool) -> io::Result<Option<&'static str>> {
    let tail_start = bytes - bytes.min(MAX_TAIL_BYTES);
    file.seek(SeekFrom::Start(tail_start))?;
    let mut tail = Vec::new();
    file.by_ref().take(MAX_TAIL_BYTES).read_to_end(&mut tail)?;
    let Some((directory_end, directory_bytes, directory_at)) = end_record(&tail) else {
        return Ok(Some("does not end as a file of torch.save does"));
    };
    let end = tail_start + directory_end as u64;
    let Some(base) = end.checked_sub(directory_bytes).and_then(|start| start.checked_sub(directory_at)) else {
        return Ok(Some("its end record points before its beginning"));
    };
    if single && base != 0 {
        return Ok(Some("its end record does not fit its size"));
    }
    let mut magic = [0; 4];
    file.seek(SeekFrom::Start(base + directory_at))?;
    file.read_exact(&mut magic)?;
    Ok((magic != *b"PK\x01\x02").then_some("its directory of contents is missing"))
}

/// Where the central directory ends in `tail`, its size, and its offset in the archive.
fn end_record(tail: &[u8]) -> Option<(usize, u64, u64)> {
    let last = tail.len().checked_sub(END_BYTES)?;
    let at = (0..=last).rev().find(|at| {
        tail[*at..].starts_with(b"PK\x05\x06") && u16_at(tail, at + 20) == Some(tail.len() - at - END_BYTES)
    })?;
    let plain = (at, u64::from(u32_at(tail, at + 12)?), u64::from(u32_at(tail, at + 16)?));
    let Some(locator) = at.checked_sub(LOCATOR_BYTES).filter(|locator| tail[*locator..].starts_with(b"PK\x06\x07"))
    else {
        return Some(plain);
    };
    let zip64 = locator.checked_sub(ZIP64_END_BYTES).filter(|zip64| tail[*zip64..].starts_with(b"PK\x06\x06"))?;
    Some((zip64, u64_at(tail, zip64 + 40)?, u64_at(tail, zip64 + 48)?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}
