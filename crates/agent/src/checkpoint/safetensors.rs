//! The header of a safetensors file, checked against the file's size.
//!
//! Source: huggingface/safetensors, README.md ("Format") and safetensors/src/tensor.rs (`Metadata::validate`): eight bytes with the
//! little-endian length of a JSON header, at most 100 MB; the header maps tensor names to `dtype`, `shape` and `data_offsets`, plus an
//! optional `__metadata__` of strings; the offsets of all tensors, sorted, leave no hole and no overlap and end where the file ends.
//! So any cut is found from the header alone. Damage inside the data (a block that reads as zeros) is not: there is no checksum.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde::de::{MapAccess, Visitor};

use super::Defect;
use super::files;

const MAX_HEADER_BYTES: u64 = 100_000_000;
const REFERENCE: &str = "its header";

/// What a sound file holds.
#[derive(Debug)]
pub(super) struct Header {
    pub tensors: BTreeSet<String>,
    /// From `__metadata__`, where the writer put `step` or `global_step` there.
    pub step: Option<u64>,
    /// The size of the whole file.
    pub bytes: u64,
}

#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

/// As in the file, in its order, so that a name used twice can be seen.
#[derive(Default)]
struct RawHeader {
    tensors: Vec<(String, Tensor)>,
    metadata: BTreeMap<String, String>,
}

/// Checks one file.
pub(super) fn check(path: &Path) -> Result<Header, Defect> {
    let (mut file, bytes) = files::open(path)?;
    let mut read = |buffer: &mut [u8]| file.read_exact(buffer).map_err(|source| Defect::reading(path, source));
    reaches(path, bytes, 8)?;
    let mut length = [0; 8];
    read(&mut length)?;
    let header_bytes = u64::from_le_bytes(length);
    if !(2..=MAX_HEADER_BYTES).contains(&header_bytes) {
        return Err(Defect::malformed(
            path,
            format!("states a header of {header_bytes} bytes, which no safetensors file has"),
        ));
    }
    reaches(path, bytes, 8 + header_bytes)?;
    let mut text = vec![0; usize::try_from(header_bytes).unwrap_or(usize::MAX)];
    read(&mut text)?;
    let header: RawHeader = serde_json::from_slice(&text)
        .map_err(|error| Defect::malformed(path, format!("its header is not that of a safetensors file ({error})")))?;
    let data_bytes = data_bytes(&header.tensors).map_err(|problem| Defect::malformed(path, problem))?;
    let expected = (8 + header_bytes).saturating_add(data_bytes);
    reaches(path, bytes, expected)?;
    if bytes > expected {
        return Err(Defect::Long { file: path.into(), extra_bytes: bytes - expected, reference: REFERENCE });
    }
    let step = ["step", "global_step"].iter().find_map(|key| header.metadata.get(*key)?.parse().ok());
    let tensors = header.tensors.into_iter().map(|(name, _)| name).collect();
    Ok(Header { tensors, step, bytes })
}

fn reaches(path: &Path, bytes: u64, expected: u64) -> Result<(), Defect> {
    if bytes >= expected {
        return Ok(());
    }
    Err(Defect::Short { file: path.into(), missing_bytes: expected - bytes, reference: REFERENCE })
}

/// The bytes that all tensors take together, or what is wrong with them.
fn data_bytes(tensors: &[(String, Tensor)]) -> Result<u64, String> {
    let mut names = BTreeSet::new();
    let mut sorted: Vec<_> = tensors.iter().collect();
    sorted.sort_by_key(|(_, tensor)| tensor.data_offsets);
    let mut at = 0;
    for (name, tensor) in sorted {
        let (begin, end) = tensor.data_offsets;
        if !names.insert(name) {
            return Err(format!("its header names tensor `{name}` twice"));
        }
        if begin != at || end < begin {
            return Err(format!("tensor `{name}` lies at {begin}..{end}, but the one before it ends at {at}"));
        }
        if !has_size(tensor, end - begin) {
            return Err(format!(
                "tensor `{name}` of {} {:?} does not take {} bytes",
                tensor.dtype,
                tensor.shape,
                end - begin
            ));
        }
        at = end;
    }
    Ok(at)
}

/// Types that came after this code are not judged; their place in the file still is.
fn has_size(tensor: &Tensor, bytes: u64) -> bool {
    let bits: u64 = match tensor.dtype.as_str() {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return true,
    };
    let total = tensor.shape.iter().try_fold(bits, |product, dimension| product.checked_mul(*dimension));
    total.is_some_and(|total| total.is_multiple_of(8) && total / 8 == bytes)
}

impl<'de> Deserialize<'de> for RawHeader {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;
        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = RawHeader;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
                let mut header = RawHeader::default();
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        header.metadata = map.next_value()?;
                    } else {
                        header.tensors.push((name, map.next_value()?));
                    }
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(HeaderVisitor)
    }
}
